package report

import (
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// changesMax bounds the changes told of one repair; the rest is counted.
const changesMax = 8

// Line is one thing that happened, for a person who watches and for the log.
type Line struct {
	At       time.Time
	Resource Resource
	Changes  []string // what was changed, "mode 0666 -> 0644"
	Note     string
	Writer   string // who had changed it, where the kernel told
	Took     time.Duration
	Cause    string // event, order, retry, audit, declaration
	Trouble  *Problem
}

// Happening is a line about a resource as the history keeps it.
func (l *Line) Happening() store.Happening {
	res := &l.Resource
	h := store.Happening{At: l.At, Claim: res.Claim, Title: res.Title, Config: res.Config, Outcome: res.Outcome.String(),
		Detail: string(res.Detail), Changes: l.Changes, Writer: l.Writer, Cause: l.Cause, Took: l.Took.Microseconds(), Message: l.Note}
	if res.Outcome == reason.Repaired {
		h.Code = reason.RepairedChange.String()
		if res.Detail == reason.Drift {
			h.Code = reason.RepairedDrift.String()
		}
	}
	if res.Problem != nil {
		h.Code, h.Message, h.Evidence = res.Problem.Code.String(), res.Problem.Message, res.Problem.Evidence
	}
	if res.Removal != "" {
		h.Message = strings.TrimSpace("not declared any more, " + res.Removal + " " + h.Message)
	}
	return h
}

var causeNames = [...]string{
	converge.CauseExamined: "audit", converge.CauseOrder: "order", converge.CauseRetry: "retry", converge.CauseTouched: "event",
	converge.CauseDesired: "declaration",
}

// CauseName is a cause in the words of a Line.
func CauseName(c converge.Cause) string { return causeNames[c] }

// Changes renders what was changed, bounded.
func Changes(list []host.Change) []string {
	var out []string
	for i, c := range list {
		if i == changesMax {
			out = append(out, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		out = append(out, Describe(c))
	}
	return out
}

// Describe renders one change on one line.
func Describe(c host.Change) string {
	switch {
	case c.From == "" && c.Field == "":
		return c.To
	case c.From == "":
		return c.Field + " " + c.To
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s -> %s", c.Field, c.From, c.To))
}
