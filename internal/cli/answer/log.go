package answer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/present"
)

// timeForm is how the time of something that happened is shown, in the time zone of who looks.
const timeForm = "2006-01-02 15:04:05"

// record is a line of a journal, as journalctl writes it in JSON: every field a text, a message that is no text a list of bytes.
type record struct {
	Time    string          `json:"__REALTIME_TIMESTAMP"` // microseconds since 1970
	Unit    string          `json:"_SYSTEMD_UNIT"`
	About   string          `json:"UNIT"` // what systemd itself writes about
	Program string          `json:"SYSLOG_IDENTIFIER"`
	Message json.RawMessage `json:"MESSAGE"`
}

// LogLines is a log for a person, the newest line last: time, unit and message. Where the host has no journal, the log is the history
// of its agent. What is neither is shown as it is.
func LogLines(log string, style present.Style) []string {
	var lines []string
	backwards := false
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		var r record
		var h Happening
		switch err := json.Unmarshal([]byte(line), &r); {
		case err == nil && r.Time != "":
			line = r.line()
		case err == nil && json.Unmarshal([]byte(line), &h) == nil && !h.At.IsZero():
			line, backwards = h.Line(style), true // a history begins with the newest
		default:
			line = present.Escape(line)
		}
		lines = append(lines, line)
	}
	if backwards {
		slices.Reverse(lines)
	}
	return lines
}

func (r *record) line() string {
	at := r.Time
	if micros, err := strconv.ParseInt(r.Time, 10, 64); err == nil {
		at = time.UnixMicro(micros).Local().Format(timeForm)
	}
	head := fmt.Sprintf("%s  %s  ", present.Escape(at), present.Escape(cmp.Or(r.About, r.Unit, r.Program, "-")))
	lines := strings.Split(strings.TrimRight(r.message(), "\n"), "\n")
	for i := range lines {
		lines[i] = present.Escape(lines[i])
	}
	return head + strings.Join(lines, "\n"+strings.Repeat(" ", len(head)))
}

// message is what was said. The journal leaves out what is too long for it.
func (r *record) message() string {
	var text string
	if json.Unmarshal(r.Message, &text) == nil {
		return text
	}
	var numbers []uint16 // bytes; of []byte the decoder would want base64
	if json.Unmarshal(r.Message, &numbers) != nil {
		return string(r.Message)
	}
	raw := make([]byte, len(numbers))
	for i, n := range numbers {
		raw[i] = byte(n)
	}
	return string(raw)
}
