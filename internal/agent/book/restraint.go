package book

import (
	"fmt"
	"time"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/converge"
)

const (
	// eventLinesMax is how many lines of one resource are told within an hour that events have brought about. Whoever may write where something is
	// declared can bring about any number, and would push everything else out of the history.
	eventLinesMax    = 30
	eventLinesWithin = time.Hour
	// restrainedMax bounds of how many resources it is counted. With more, all are counted anew.
	restrainedMax = 4096
)

// restraint counts what is told of each resource. The zero value is good.
type restraint struct {
	since   time.Time
	lines   map[string]int // by title, also those that were not told
	omitted map[string]int // by title, how many were not told before since, until that is said
}

// lets tells whether a line may be told, and adds to it what was or will be left out.
func (r *restraint) lets(line *report.Line) bool {
	if line.Cause != report.CauseName(converge.CauseTouched) {
		return true
	}
	title := line.Resource.Title
	if over := line.At.Sub(r.since); over < 0 || over >= eventLinesWithin || len(r.lines) >= restrainedMax && r.lines[title] == 0 {
		r.begin(line.At)
	}
	r.lines[title]++
	n := r.lines[title]
	if n > eventLinesMax {
		return false
	}
	if before := r.omitted[title]; before > 0 {
		line.Note = joined(line.Note, fmt.Sprintf("%d changes before this one were not told", before))
		delete(r.omitted, title)
	}
	if n == eventLinesMax {
		line.Note = joined(line.Note, fmt.Sprintf("events have changed it %d times since %s, and no more of that is told for an hour after that", n, r.since.Format(time.TimeOnly)))
	}
	return true
}

// begin counts anew.
func (r *restraint) begin(at time.Time) {
	omitted := map[string]int{}
	for title, n := range r.lines {
		if n > eventLinesMax {
			omitted[title] = n - eventLinesMax
		}
	}
	r.since, r.lines, r.omitted = at, map[string]int{}, omitted
}

func joined(note, more string) string {
	if note == "" {
		return more
	}
	return note + "; " + more
}
