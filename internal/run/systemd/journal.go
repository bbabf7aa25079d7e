package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/systemd"
)

const (
	// tailLines bounds an answer of Tail, since what the journal says of each line is longer than many lines are.
	tailLines = 10_000
	// tailKeep bounds what is read for it: text that is none has four bytes for each, and a head comes with each line.
	tailKeep = 4*run.TailMax + 400*tailLines
	// journalLimit bounds a question to the journal.
	journalLimit = 20 * time.Second
)

// Tail is the end of what an attempt has printed, as far as the journal has it.
func (r *Runtime) Tail(ctx context.Context, id run.ID, bytesMax int) ([]run.Line, error) {
	_, there, err := r.look(ctx, id)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, run.Unknown("read the log of", id)
	}
	var b begun
	if ok, err := r.tree.get(id, begunFile, &b); err != nil || !ok {
		return nil, err // it has not printed anything yet
	}
	bounds := b.Log.OrDefault()
	ask := func(args ...string) ([]byte, error) {
		text, err := command.Tool{Args: append([]string{"journalctl"}, args...), Limit: journalLimit, Keep: tailKeep}.Run(ctx)
		if err != nil {
			return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the log of " + id.String(), Cause: err, Evidence: reason.Clip(text)}
		}
		return text, nil
	}
	if _, err := ask("--sync"); err != nil { // what was printed may not be in the journal yet
		return nil, err
	}
	text, err := ask("--quiet", "--no-pager", "--all", "--output=json", "--output-fields=MESSAGE,PRIORITY,_LINE_BREAK",
		"--lines="+strconv.Itoa(tailLines), "_BOOT_ID="+strings.ReplaceAll(b.Boot, "-", ""), "_TRANSPORT=stdout", "_SYSTEMD_UNIT="+unitOf(id))
	if err != nil {
		return nil, err
	}
	return run.TailLines(parseJournal(text, b.Logs), int(min(int64(bytesMax), bounds.Bytes*int64(bounds.Files)))), nil
}

// parseJournal reads what journalctl prints as JSON, a line for each entry, from a time of CLOCK_MONOTONIC on: the journal keeps what an attempt
// of the same name has printed that was removed. What is no entry, as where it was cut at the beginning, is passed over.
func parseJournal(text []byte, since uint64) (lines []run.Line) {
	for record := range bytes.Lines(text) {
		var entry struct {
			At       string          `json:"__REALTIME_TIMESTAMP"`
			Uptime   string          `json:"__MONOTONIC_TIMESTAMP"`
			Message  json.RawMessage `json:"MESSAGE"`
			Priority string          `json:"PRIORITY"`
			Break    string          `json:"_LINE_BREAK"`
		}
		if json.Unmarshal(record, &entry) != nil {
			continue
		}
		usec, err := strconv.ParseInt(entry.At, 10, 64)
		uptime, errUptime := strconv.ParseUint(entry.Uptime, 10, 64)
		message, ok := systemd.ParseMessage(entry.Message)
		if err != nil || errUptime != nil || !ok || uptime < since {
			continue
		}
		lines = append(lines, run.Line{
			At: time.UnixMicro(usec).UTC(), Stderr: entry.Priority == strconv.Itoa(stderrPriority), Part: entry.Break != "" && entry.Break != "nul", Text: message,
		})
	}
	return lines
}
