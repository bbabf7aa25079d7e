package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// journalLines is how many lines are evidence: as many as `systemctl status` shows.
	journalLines = 10
	// journalMax bounds what is read of the journal: ten lines may be long, and a line that is not text has four bytes for each of its own.
	journalMax = 256 << 10
)

// journalTail returns the last lines that a unit logged since begin, "" where the journal cannot be read: evidence helps,
// its absence is not an error.
//
// It asks for the last lines, the last one first, since that may be all there is room for, and leaves out the early ones itself: with --since,
// journalctl up to systemd 253 shows the first lines instead, and the time that it takes has whole seconds.
func journalTail(ctx context.Context, unit string, begin time.Time) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "journalctl", "--unit="+unit, "--lines="+strconv.Itoa(journalLines),
		"--reverse", "--all", "--output=json", "--output-fields=MESSAGE", "--no-pager", "--quiet")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return ""
	}
	if err := cmd.Start(); err != nil {
		return "" // no journalctl
	}
	out, _ := io.ReadAll(io.LimitReader(pipe, journalMax)) // what was read until an error is still evidence
	cancel()
	_ = cmd.Wait() // killed, or done; its output is what counts
	return reason.Clip(messagesSince(out, begin))
}

// messagesSince returns the messages of journalctl's entries in JSON, which come the last one first, that are not older than begin: the first one first, a
// line or more each. What is no entry, as where it was cut at the end, is passed over.
func messagesSince(entries []byte, begin time.Time) []byte {
	var messages [][]byte
	for line := range bytes.Lines(entries) {
		var entry struct {
			At      string          `json:"__REALTIME_TIMESTAMP"`
			Message json.RawMessage `json:"MESSAGE"`
		}
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		usec, err := strconv.ParseInt(entry.At, 10, 64)
		if message, ok := ParseMessage(entry.Message); ok && err == nil && usec >= begin.UnixMicro() {
			messages = append(messages, append(message, '\n'))
		}
	}
	slices.Reverse(messages)
	return bytes.Join(messages, nil)
}

// ParseMessage reads a field of a journal entry in JSON: a text, or the numbers of its bytes where it is none. It reports whether it is either.
func ParseMessage(field []byte) (text []byte, ok bool) {
	if len(field) > 0 && field[0] == '"' {
		var s string
		err := json.Unmarshal(field, &s)
		return []byte(s), err == nil
	}
	var numbers []uint16
	if json.Unmarshal(field, &numbers) != nil || numbers == nil {
		return nil, false
	}
	out := make([]byte, len(numbers))
	for i, n := range numbers {
		if n > 255 {
			return nil, false
		}
		out[i] = byte(n)
	}
	return out, true
}
