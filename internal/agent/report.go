package agent

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Bounds of the resources listed in one report; Omitted counts the rest.
const (
	reportMax   = 1000
	repairedMax = 50 // the newest repairs: a screenful, because nobody has to do anything about them
)

// Report is what an agent knows of its host: the answer to `status`, and what is kept on disk for when it does not run.
type Report struct {
	Node      string                 `json:"node"`
	At        time.Time              `json:"at"`
	PID       int                    `json:"pid"`
	Root      string                 `json:"root"`      // digest of the active state
	Converged bool                   `json:"converged"` // everything is kept, repaired or not applicable, and nothing is left to undo
	Settled   bool                   `json:"settled"`   // nothing is due or in flight
	Counts    map[reason.Outcome]int `json:"counts"`
	Resources []Resource             `json:"resources,omitempty"` // those that a person may want to see; all when asked for all
	Omitted   int                    `json:"omitted,omitempty"`
	Refused   []Problem              `json:"refused,omitempty"`  // why the newest declaration is not the one enforced
	Degraded  []Problem              `json:"degraded,omitempty"` // what the agent cannot do as well as it should
	Cluster   *Cluster               `json:"cluster,omitempty"`  // of a host that has joined
	Totals    Totals                 `json:"totals"`
}

// Totals count since the agent started.
type Totals struct {
	Since      time.Time `json:"since"`
	Checks     uint64    `json:"checks"`     // that looked at a resource
	Recognised uint64    `json:"recognised"` // that saw our own last work and looked no further
	Drift      uint64    `json:"drift"`      // repairs of drift
	Change     uint64    `json:"change"`     // changes because the declaration changed
	Missed     uint64    `json:"missed"`     // drift that an audit found and no event had told: should be 0
	Overflows  uint64    `json:"overflows"`  // of the kernel's event queue
	Watches    int       `json:"watches"`    // directories watched
}

// Resource is one resource in a report.
type Resource struct {
	Title     string         `json:"title"`
	Claim     string         `json:"claim"`
	Config    string         `json:"config"`
	Place     string         `json:"place,omitempty"`
	Outcome   reason.Outcome `json:"outcome"`
	Detail    reason.Detail  `json:"detail,omitempty"`
	Problem   *Problem       `json:"problem,omitempty"`
	Since     time.Time      `json:"since,omitzero"`
	Attempts  int            `json:"attempts,omitempty"`
	RetryAt   time.Time      `json:"retryAt,omitzero"`
	BlockedBy string         `json:"blockedBy,omitempty"`
	When      string         `json:"when,omitempty"`    // the condition that is false
	Removal   string         `json:"removal,omitempty"` // how it is being undone: it is not declared any more
	Owes      []string       `json:"owes,omitempty"`    // whose changes it has not been refreshed for yet
}

// Problem is a coded reason.
type Problem struct {
	Code     reason.Code `json:"code"`
	Message  string      `json:"message"`
	Hint     string      `json:"hint,omitempty"`
	Evidence string      `json:"evidence,omitempty"`
}

func problem(e *reason.Error) *Problem {
	if e == nil {
		return nil
	}
	return &Problem{Code: e.Code, Message: e.Error(), Hint: e.Hint, Evidence: e.Evidence}
}

// verdict is nil when everything is converged, otherwise an error with the exit code that fits.
func (r *Report) verdict() error {
	if r.Converged {
		return nil
	}
	var names []string
	deferred := 0
	for _, res := range r.Resources {
		if !res.Outcome.Converged() && len(names) < 3 {
			names = append(names, res.Title)
		}
	}
	deferred = r.Counts[reason.Deferred]
	code := reason.NotConverged
	if deferred > 0 && r.Counts[reason.Failed]+r.Counts[reason.Contended]+r.Counts[reason.Unknown] == 0 {
		code = reason.RateLimited
		for _, res := range r.Resources {
			if res.Outcome == reason.Deferred && res.Problem != nil {
				code = res.Problem.Code
			}
		}
	}
	return &reason.Error{Code: code, Doing: "converge " + strings.Join(names, ", "), Hint: "tako-agent why " + first(names)}
}

func first(names []string) string {
	if len(names) == 0 {
		return "RESOURCE"
	}
	return names[0]
}

// report builds a report. With all, every resource is listed; otherwise what is not plainly in order, worst first.
func (l *loop) report(all bool) *Report {
	root := l.store.Root()
	r := &Report{Node: l.opts.NodeName, At: time.Now(), PID: l.book.pid, Root: hex.EncodeToString(root[:]), Settled: l.engine.Quiet(),
		Counts: map[reason.Outcome]int{}, Totals: l.book.totals}
	r.Totals.Watches, r.Totals.Overflows = l.subs.Counts()
	r.Refused = l.refusals()
	r.Converged = len(r.Refused) == 0
	r.Cluster = l.cluster()
	var fixed []repair
	for i := range l.parts {
		id := converge.ID(i)
		st := l.engine.Status(id)
		p := l.parts[i]
		if p.removal != nil && p.removal.done {
			continue
		}
		if p.removal == nil {
			r.Counts[st.Outcome]++
		}
		if !st.Outcome.Converged() || p.removal != nil || l.engine.Owes(id) {
			r.Converged = false
		} else if !all {
			if st.Outcome == reason.Repaired {
				fixed = append(fixed, repair{id, st.Since})
			}
			continue
		}
		r.Resources = append(r.Resources, l.resource(id))
	}
	for _, f := range newest(fixed) {
		r.Resources = append(r.Resources, l.resource(f.id))
	}
	r.Omitted = max(len(fixed)-repairedMax, 0)
	slices.SortStableFunc(r.Resources, func(a, b Resource) int { return rank(a.Outcome) - rank(b.Outcome) })
	if over := len(r.Resources) - reportMax; over > 0 && !all {
		r.Resources = r.Resources[:reportMax]
		r.Omitted += over
	}
	r.Degraded = l.degraded()
	return r
}

// refusals say why the newest declaration is not the one enforced: it is no good, or cannot be fetched.
func (l *loop) refusals() []Problem {
	if l.joined == nil || len(l.refuse) > 0 {
		return l.refuse
	}
	if v, hint := l.joined.links.Stuck(); v.Type != wire.Pending {
		return []Problem{{Code: v.Code, Message: v.Message, Hint: hint}}
	}
	return nil
}

// repair is a resource that was repaired, and when.
type repair struct {
	id    converge.ID
	since time.Time
}

// newest returns the newest repairs, as many as a report lists, in the order of the graph.
func newest(fixed []repair) []repair {
	if len(fixed) <= repairedMax {
		return fixed
	}
	slices.SortStableFunc(fixed, func(a, b repair) int { return b.since.Compare(a.since) })
	fixed = fixed[:repairedMax]
	slices.SortFunc(fixed, func(a, b repair) int { return int(a.id) - int(b.id) })
	return fixed
}

// rank sorts what needs a person first.
func rank(o reason.Outcome) int {
	return slices.Index([]reason.Outcome{reason.Failed, reason.Contended, reason.Blocked, reason.Deferred, reason.Unknown,
		reason.Repaired, reason.Kept, reason.NotApplicable}, o)
}

// resource describes one part.
func (l *loop) resource(id converge.ID) Resource {
	p, st := l.parts[id], l.engine.Status(id)
	r := Resource{Title: p.title, Claim: p.claim.String(), Config: p.config, Place: p.place, Outcome: st.Outcome, Detail: st.Detail,
		Problem: l.book.cleaned(l.explain(p, st)), Since: st.Since, Attempts: st.Attempts, RetryAt: st.RetryAt, When: p.when}
	if st.Detail == reason.Held && p.hold != nil {
		r.RetryAt = time.Unix(p.hold.Until, 0) // it is looked at before, but nothing is done
	}
	if st.BlockedBy != converge.None {
		r.BlockedBy = l.parts[st.BlockedBy].title
	}
	if p.removal != nil {
		r.Removal = string(p.removal.how)
	}
	for _, key := range l.engine.Owed(id) {
		if source := l.engine.Graph().ID(key); source != converge.None {
			r.Owes = append(r.Owes, l.parts[source].title)
			continue
		}
		r.Owes = append(r.Owes, string(key))
	}
	return r
}

// explain gives the coded reason of a status. What is kept or repaired needs none.
func (l *loop) explain(p *part, st converge.Status) *Problem {
	switch {
	case st.Err != nil:
		return problem(st.Err)
	case p.when != "":
		return &Problem{Code: reason.WhenFalse, Message: fmt.Sprintf("%s: %s is false on this host", p.title, p.when)}
	case st.Outcome == reason.Blocked && st.BlockedBy != converge.None:
		by := l.parts[st.BlockedBy].title
		return &Problem{Code: reason.BlockedBy, Message: fmt.Sprintf("%s waits until %s is as declared", p.title, by), Hint: "tako-agent why " + by}
	case p.removal != nil && !p.removal.done:
		return &Problem{Code: reason.RemovalPending, Message: fmt.Sprintf("%s is not declared any more and waits to be undone (%s)", p.title, p.removal.how)}
	case st.Outcome == reason.Unknown:
		return &Problem{Code: reason.NotChecked, Message: p.title + " has not been looked at yet"}
	}
	return nil
}

// degraded tells what the agent cannot do as well as it should.
func (l *loop) degraded() []Problem {
	var list []Problem
	for _, e := range l.store.Troubles() {
		list = append(list, *problem(e))
	}
	for _, t := range l.book.troubles {
		if time.Since(t.at) <= troubleTime {
			list = append(list, *problem(t.err))
		}
	}
	if e := l.subs.Unwatched(); e != nil {
		list = append(list, *problem(e))
	}
	if l.joined != nil {
		for _, e := range l.joined.held.Troubles() {
			list = append(list, *problem(e))
		}
	}
	for i := range list {
		list[i] = *l.book.cleaned(&list[i])
	}
	return list
}
