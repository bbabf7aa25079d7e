package agent

import (
	"cmp"
	"context"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// find returns the vertices that a subject names: a title TYPE/NAME, a name, a claim, or what it claims.
func (l *loop) find(subject string) []converge.ID {
	var found []converge.ID
	for i, p := range l.parts {
		if report.Names(subject, p.title(), p.claim()) {
			found = append(found, converge.ID(i))
		}
	}
	return found
}

// why explains one resource.
func (l *loop) why(subject string) (*Answer, error) {
	found := l.find(subject)
	switch {
	case len(found) == 0:
		expired := l.expiry.Find(func(title string, claim declare.Claim) bool { return report.Names(subject, title, claim) })
		return nil, cmp.Or(expired, report.Unknown(subject))
	case len(found) > 1:
		a := &Answer{}
		for _, id := range found {
			a.Candidates = append(a.Candidates, l.parts[id].title()+" ("+string(l.parts[id].Key())+")")
		}
		return a, nil
	}
	id := found[0]
	a := &Answer{Resource: l.resource(id), Watched: len(l.parts[id].Watches()) > 0 && !l.subs.IsSlow(id)}
	for st := l.engine.Status(id); st.BlockedBy != converge.None && len(a.Because) <= len(l.parts); st = l.engine.Status(st.BlockedBy) {
		a.Because = append(a.Because, l.resource(st.BlockedBy))
	}
	for _, e := range l.engine.Graph().Before(id) {
		a.Requires = append(a.Requires, Relation{Title: l.parts[e.From].title(), Kind: e.Kind.String(), Why: e.Why,
			Outcome: l.engine.Status(e.From).Outcome})
	}
	history, err := l.store.History(store.Asked{Subject: string(l.parts[id].Key()), Limit: report.HistoryShown})
	a.History = history
	return a, err
}

// ask runs a question in the loop and waits for its answer.
func ask[T any](ctx context.Context, l *loop, question func() (T, error)) (T, error) {
	type reply struct {
		answer T
		err    error
	}
	answered := make(chan reply, 1)
	l.post(ctx, func() {
		a, err := question()
		answered <- reply{a, err}
	})
	select {
	case r := <-answered:
		return r.answer, r.err
	case <-ctx.Done():
		var none T
		return none, &reason.Error{Code: reason.AgentNotRunning, Doing: "ask the agent", Cause: ctx.Err()}
	}
}
