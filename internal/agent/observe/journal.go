package observe

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
)

// lineMax is the longest line of a log that is passed on, bytes: journald cuts messages at 48 KiB.
const lineMax = 1 << 20

// Journal passes on what journalctl writes as JSON, one entry a line, but for entries from before since. clean takes secrets out of a text: it gets the text of each field,
// and not how JSON writes it. The error is that of r or of w.
func Journal(w io.Writer, r io.Reader, since time.Time, clean func(string) string) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, lineMax)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var entry map[string]any
		if json.Unmarshal(lines.Bytes(), &entry) != nil {
			entry = map[string]any{"MESSAGE": lines.Text()}
		}
		if at, ok := entryTime(entry); ok && at.Before(since) {
			continue
		}
		for name, value := range entry {
			entry[name] = cleaned(value, clean)
		}
		if err := out.Encode(entry); err != nil {
			return err
		}
	}
	return lines.Err()
}

// entryTime is when an entry was logged, false where it does not say.
func entryTime(entry map[string]any) (time.Time, bool) {
	text, _ := entry["__REALTIME_TIMESTAMP"].(string)
	usec, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(usec), err == nil
}

// cleaned is a field of an entry. What is not all letters, such as a line with colours, stands there as a list of bytes: it becomes text,
// since nothing would be found in it otherwise. A field that an entry has several times is a list of its values.
func cleaned(value any, clean func(string) string) any {
	switch v := value.(type) {
	case string:
		return clean(v)
	case []any:
		var text []byte
		for i, item := range v {
			if b, is := item.(float64); is {
				text = append(text, byte(b))
				continue
			}
			v[i] = cleaned(item, clean)
		}
		if len(text) == len(v) {
			return clean(strings.ToValidUTF8(string(text), "\uFFFD"))
		}
	}
	return value
}
