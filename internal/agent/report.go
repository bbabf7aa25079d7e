package agent

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"

	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// Bounds of the resources listed in one report; Omitted counts the rest.
const (
	reportMax   = 1000
	repairedMax = 50 // the newest repairs: a screenful, because nobody has to do anything about them
)

// What the agent tells of its host; see package report.
type (
	// Report is the answer to `status`.
	Report = report.Report
	// Totals count since the agent started.
	Totals = report.Totals
	// Resource is one resource in a report.
	Resource = report.Resource
	// Instance is an instance of a workload.
	Instance = core.Account
	// Line is one thing that happened.
	Line = report.Line
	// Problem is a coded reason.
	Problem = report.Problem
	// Answer is the answer to `why`.
	Answer = report.Answer
	// Relation is an order that a resource is in.
	Relation = report.Relation
	// Cluster is what a host that has joined says of its cluster.
	Cluster = report.Cluster
	// Expired is what a host leaves out because its TTL is over.
	Expired = report.Expired
	// Hold is what people keep as it is.
	Hold = report.Hold
	// Statement is an operator's statement about a layer of this host.
	Statement = report.Statement
	// StatementState is how far one has come.
	StatementState = report.StatementState
)

// How far a statement has come.
const (
	StatementInForce = report.StatementInForce
	StatementComing  = report.StatementComing
	StatementRefused = report.StatementRefused
)

// Describe renders one change on one line.
func Describe(c host.Change) string { return report.Describe(c) }

// report builds a report. With all, every resource is listed; otherwise what is not plainly in order, worst first.
func (l *loop) report(all bool) *Report {
	root := l.store.Active().Root()
	r := &Report{Node: l.opts.NodeName, At: time.Now(), PID: os.Getpid(), Root: hex.EncodeToString(root[:]), Settled: l.engine.Quiet(),
		Counts: map[reason.Outcome]int{}, Delivered: l.delivered, Totals: l.book.Totals}
	r.Totals.Watches, r.Totals.Overflows = l.subs.Counts()
	r.Refused = l.refusals()
	r.Converged = len(r.Refused) == 0
	r.Cluster, r.Holds = l.cluster(), hold.Lasting(l.store.Holds(), r.At)
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
	slices.SortStableFunc(r.Resources, func(a, b Resource) int { return report.Rank(a.Outcome) - report.Rank(b.Outcome) })
	if over := len(r.Resources) - reportMax; over > 0 && !all {
		r.Resources = r.Resources[:reportMax]
		r.Omitted += over
	}
	r.Degraded = l.degraded()
	return r
}

// refusals say why the newest declaration is not the one enforced: it is no good, or cannot be fetched, or the host cannot read it now.
func (l *loop) refusals() []Problem {
	if list := slices.Concat(l.refuse, l.amiss); l.joined == nil || len(list) > 0 {
		return list
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

// placeOf says where a part is declared; empty where nothing declares it any more, or the disk has lost it.
func (l *loop) placeOf(id converge.ID) string {
	active := l.store.Active()
	if l.parts[id].removal != nil || int(id) >= active.Len() {
		return ""
	}
	ref, err := active.Ref(int(id))
	if err != nil {
		return ""
	}
	return ref.Place
}

// resource describes one part.
func (l *loop) resource(id converge.ID) Resource {
	p, st := l.parts[id], l.engine.Status(id)
	r := Resource{Title: p.title(), Claim: string(p.Key()), Config: p.config, Place: l.placeOf(id), Outcome: st.Outcome, Detail: st.Detail,
		Problem: l.book.Cleaned(l.explain(p, st)), Since: st.Since, Attempts: st.Attempts, RetryAt: st.RetryAt, When: p.when}
	if st.Detail == reason.Held && p.hold != nil {
		r.RetryAt = time.Unix(p.hold.Until, 0) // it is looked at before, but nothing is done
	}
	if st.BlockedBy != converge.None {
		r.BlockedBy = l.parts[st.BlockedBy].title()
	}
	if p.removal != nil {
		r.Removal = string(p.removal.how)
	}
	for _, key := range l.engine.Owed(id) {
		if source := l.engine.Graph().ID(key); source != converge.None {
			r.Owes = append(r.Owes, l.parts[source].title())
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
		return report.ProblemOf(st.Err)
	case p.when != "":
		return &Problem{Code: reason.WhenFalse, Message: fmt.Sprintf("%s: %s is false on this host", p.title(), p.when)}
	case st.Outcome == reason.Blocked && st.BlockedBy != converge.None:
		by := l.parts[st.BlockedBy].title()
		return &Problem{Code: reason.BlockedBy, Message: fmt.Sprintf("%s waits until %s is as declared", p.title(), by), Hint: "tako-agent why " + by}
	case p.removal != nil && !p.removal.done:
		return &Problem{Code: reason.RemovalPending, Message: fmt.Sprintf("%s is not declared any more and waits to be undone (%s)", p.title(), p.removal.how)}
	case st.Outcome == reason.Unknown:
		return &Problem{Code: reason.NotChecked, Message: p.title() + " has not been looked at yet"}
	}
	return nil
}

// degraded tells what the agent cannot do as well as it should.
func (l *loop) degraded() []Problem {
	var list []Problem
	for _, e := range l.store.Troubles() {
		list = append(list, *report.ProblemOf(e))
	}
	for _, e := range l.book.Troubles(time.Now()) {
		list = append(list, *report.ProblemOf(e))
	}
	if e := l.subs.Unwatched(); e != nil {
		list = append(list, *report.ProblemOf(e))
	}
	if l.joined != nil {
		for _, e := range l.joined.held.Troubles() {
			list = append(list, *report.ProblemOf(e))
		}
	}
	for i := range list {
		list[i] = *l.book.Cleaned(&list[i])
	}
	return list
}
