package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// reportVersion is of the forms below, which docs/spec/converge.md describes: a field may come, none changes its meaning while it stays the
// same.
const reportVersion = 1

// warningsMax bounds the warnings of a report: a run that has more has the same again and again.
const warningsMax = 1000

// The modes of a report.
const (
	modeConverge = "converge" // something was done
	modePlan     = "plan"     // nothing was
)

// report is what a program gets of converge: one run, or one look.
type report struct {
	Version int       `json:"version"`
	Mode    string    `json:"mode"`
	Node    string    `json:"node"`
	Root    string    `json:"root"` // directory that stands for /
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	// Exit is the exit code; OK is whether everything is as declared: after converging, or before.
	Exit int  `json:"exit"`
	OK   bool `json:"ok"`
	// Counts counts resources: by what became of them in this run, and of a plan by what would be done.
	Counts    map[string]int `json:"counts"`
	Delivered int            `json:"delivered,omitempty"` // values of data, which nothing is done about
	Resources []reported     `json:"resources"`
	Refused   []fault        `json:"refused,omitempty"`  // why nothing was begun
	Warnings  []fault        `json:"warnings,omitempty"` // what else went wrong
}

// reported is one resource in it.
type reported struct {
	Title   string `json:"title"`
	Claim   string `json:"claim"`
	Config  string `json:"config,omitempty"`
	Place   string `json:"place,omitempty"`
	Outcome string `json:"outcome,omitempty"` // after converging
	Detail  string `json:"detail,omitempty"`
	Would   string `json:"would,omitempty"` // of a plan: change, keep, fail, skip, unknown
	// Changes are what was changed last, or would be.
	Changes   []changed `json:"changes,omitempty"`
	When      string    `json:"when,omitempty"`      // the condition that is false
	Unknown   string    `json:"unknown,omitempty"`   // why it cannot be told what would be done
	Waits     string    `json:"waits,omitempty"`     // why it would not be done now
	BlockedBy string    `json:"blockedBy,omitempty"` // title of what it waits for
	Removal   string    `json:"removal,omitempty"`   // how it is undone: it is not declared any more
	Owes      []string  `json:"owes,omitempty"`      // whose changes it has not been refreshed for yet
	Problem   *fault    `json:"problem,omitempty"`
	Note      string    `json:"note,omitempty"`
	Writer    string    `json:"writer,omitempty"` // who had changed it
	Cause     string    `json:"cause,omitempty"`
	Took      int64     `json:"tookMicroseconds,omitempty"`
}

// changed is one difference.
type changed struct {
	Text  string `json:"text"` // mode 0666 -> 0644
	Field string `json:"field,omitempty"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Diff  string `json:"diff,omitempty"` // unified, where the content may be shown
}

// fault is a coded reason.
type fault struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	Evidence string `json:"evidence,omitempty"`
}

func faultOf(p *agent.Problem) *fault {
	if p == nil {
		return nil
	}
	return &fault{p.Code.String(), p.Message, p.Hint, p.Evidence}
}

// begin begins a report.
func (f *convergeFlags) begin(mode, node string) *report {
	return &report{Version: reportVersion, Mode: mode, Node: node, Root: f.root, Began: time.Now(), Counts: map[string]int{}, Resources: []reported{}}
}

// end writes a report whose run has ended with an error, or without one.
func (r *report) end(w io.Writer, verdict error) error {
	r.Ended, r.Exit = time.Now(), int(exitCode(verdict))
	var done shown
	if verdict != nil && len(r.Resources) == 0 && !errors.As(verdict, &done) {
		r.Refused = faultsOf(verdict)
	}
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return err
	}
	return verdict
}

// finish ends a run: with the report, as the last line of a stream or alone.
func (c *recorder) finish(verdict error) error {
	if c.stream == nil {
		return c.report.end(os.Stdout, verdict)
	}
	c.report.Ended, c.report.Exit = time.Now(), int(exitCode(verdict))
	if verdict != nil && len(c.report.Counts) == 0 {
		c.report.Refused = faultsOf(verdict)
	}
	c.tell("report", c.report)
	return verdict
}

// faultsOf lists the mistakes in an error.
func faultsOf(err error) []fault {
	var faults declare.Faults
	if !errors.As(err, &faults) {
		e := reason.Of(err)
		return []fault{{e.Code.String(), e.Error(), e.Hint, e.Evidence}}
	}
	var list []fault
	for i := range faults {
		list = append(list, fault{Code: faults[i].Code.String(), Message: faults[i].Place().String() + ": " + faults[i].Message, Hint: faults[i].Hint})
	}
	return list
}

// recorder puts a report together from what an agent tells.
type recorder struct {
	report *report
	last   map[string]agent.Line // by claim, with the changes of those before
	stream *json.Encoder         // nil where only the report is wanted
}

// line takes one line. Somebody who does not read the stream any more misses the rest of it.
func (c *recorder) line(l agent.Line) {
	if l.Trouble != nil {
		if c.tell("warning", faultOf(l.Trouble)); c.stream == nil && len(c.report.Warnings) < warningsMax {
			c.report.Warnings = append(c.report.Warnings, *faultOf(l.Trouble))
		}
		return
	}
	if c.stream != nil {
		one := reportedOf(&l.Resource, &l)
		c.tell("resource", struct {
			At time.Time `json:"at"`
			*reported
		}{l.At, &one})
		return
	}
	claim := l.Resource.Claim
	was := c.last[claim]
	if l.Resource.Outcome == reason.Kept && was.Resource.Outcome == reason.Repaired {
		return // a look at our own work: of this run it is that it was done
	}
	if len(l.Changes) == 0 {
		l.Changes = was.Changes
	}
	c.last[claim] = l
}

func (c *recorder) tell(what string, value any) {
	if c.stream != nil {
		_ = c.stream.Encode(map[string]any{what: value})
	}
}

// end takes how everything is in the end.
func (c *recorder) end(r *agent.Report) {
	c.report.Node, c.report.OK, c.report.Delivered = r.Node, r.Converged, r.Delivered
	if c.stream != nil {
		for outcome, n := range r.Counts {
			c.report.Counts[outcome.String()] = n
		}
		return
	}
	for i := range r.Resources {
		is, l := r.Resources[i], c.last[r.Resources[i].Claim]
		if is.Outcome == reason.Kept && l.Resource.Outcome == reason.Repaired {
			is.Outcome, is.Detail = l.Resource.Outcome, l.Resource.Detail
		}
		c.report.Counts[is.Outcome.String()]++
		c.report.Resources = append(c.report.Resources, reportedOf(&is, &l))
	}
}

// reportedOf is a resource, and what was told of it last.
func reportedOf(r *agent.Resource, l *agent.Line) reported {
	out := reported{Title: r.Title, Claim: r.Claim, Config: r.Config, Place: r.Place, Outcome: r.Outcome.String(), Detail: string(r.Detail), When: r.When,
		BlockedBy: r.BlockedBy, Removal: r.Removal, Owes: r.Owes, Problem: faultOf(r.Problem), Note: l.Note, Writer: l.Writer, Cause: l.Cause, Took: l.Took.Microseconds()}
	for _, text := range l.Changes {
		out.Changes = append(out.Changes, changed{Text: text})
	}
	return out
}

// What would be done to a resource.
const (
	wouldChange  = "change"
	wouldKeep    = "keep"
	wouldFail    = "fail"
	wouldWait    = "wait"    // for what is not to be had now
	wouldSkip    = "skip"    // its condition is false
	wouldUnknown = "unknown" // it cannot be told without doing it
)

// would says what would be done to a resource.
func would(p *agent.Planned) string {
	switch {
	case p.When != "":
		return wouldSkip
	case p.Defers():
		return wouldWait
	case p.Err != nil:
		return wouldFail
	case len(p.Changes) == 0 && p.Unknown != "":
		return wouldUnknown
	case p.Empty():
		return wouldKeep
	}
	return wouldChange
}

// differs is how many resources of a plan are not as declared, and would not fail.
func (r *report) differs() int {
	return r.Counts[wouldChange] + r.Counts[wouldUnknown] + r.Counts[wouldWait]
}

// plan puts what would be done into a report.
func (r *report) plan(planned []agent.Planned) {
	for i := range planned {
		p := &planned[i]
		one := reported{Title: p.Title, Claim: p.Claim.String(), Config: p.Config, Place: p.Place, Would: would(p), When: p.When, Unknown: p.Unknown, Waits: p.Waits}
		if p.Err != nil {
			one.Problem = &fault{p.Err.Code.String(), p.Err.Error(), p.Err.Hint, p.Err.Evidence}
		}
		for _, c := range p.Changes {
			is := changed{Text: agent.Describe(c), Field: c.Field, From: c.From, To: c.To}
			if c.Text != nil {
				is.Diff = diffOf(p.Claim, c)
			}
			one.Changes = append(one.Changes, is)
		}
		r.Counts[one.Would]++
		r.Resources = append(r.Resources, one)
	}
	r.OK = r.differs()+r.Counts[wouldFail] == 0
}
