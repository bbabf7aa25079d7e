package agent

import (
	"context"
	"strings"

	"tako.dev/tako/internal/agent/observe"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// historyShown is how many happenings an answer carries.
const historyShown = 10

// Answer is the answer to `why`.
type Answer struct {
	Resource   Resource    `json:"resource"`
	Because    []Resource  `json:"because,omitempty"`  // with blocked: the chain of what it waits for, the root cause last
	Requires   []Relation  `json:"requires,omitempty"` // what it comes after
	Watched    bool        `json:"watched"`            // the kernel tells when it is touched
	History    []Happening `json:"history,omitempty"`  // newest first
	Candidates []string    `json:"candidates,omitempty"`
	// Differs is how what is there differs from what is declared now. It is looked at for a server that asks.
	Differs  []observe.Difference `json:"differs,omitempty"`
	Unlooked string               `json:"unlooked,omitempty"` // why that cannot be told
}

// Relation is an order that a resource is in.
type Relation struct {
	Title   string         `json:"title"`
	Kind    string         `json:"kind"` // require, notify, automatic
	Why     string         `json:"why,omitempty"`
	Outcome reason.Outcome `json:"outcome"`
}

// find returns the vertices that a subject names: a title TYPE/NAME, a name, a claim, or what it claims.
func (l *loop) find(subject string) []converge.ID {
	var found []converge.ID
	for i, p := range l.parts {
		if names(p.title, p.claim.String(), p.claim.ID, subject) {
			found = append(found, converge.ID(i))
		}
	}
	return found
}

// names reports whether subject names a resource.
func names(title, claim, id, subject string) bool {
	_, name, _ := strings.Cut(title, "/")
	return subject == title || subject == name || subject == claim || subject == id
}

// why explains one resource.
func (l *loop) why(subject string) (*Answer, error) {
	found := l.find(subject)
	switch {
	case len(found) == 0:
		return nil, &reason.Error{Code: reason.ResourceUnknown, Doing: "explain " + subject,
			Hint: "`tako-agent status --all` lists the resources; a resource is named by TYPE/NAME, its name, or its path, package or unit"}
	case len(found) > 1:
		a := &Answer{}
		for _, id := range found {
			a.Candidates = append(a.Candidates, l.parts[id].title+" ("+l.parts[id].claim.String()+")")
		}
		return a, nil
	}
	id := found[0]
	a := &Answer{Resource: l.resource(id), Watched: len(l.parts[id].Watches()) > 0 && !l.subs.IsSlow(l.parts[id].Key())}
	for st := l.engine.Status(id); st.BlockedBy != converge.None && len(a.Because) <= len(l.parts); st = l.engine.Status(st.BlockedBy) {
		a.Because = append(a.Because, l.resource(st.BlockedBy))
	}
	for _, e := range l.engine.Graph().Before(id) {
		a.Requires = append(a.Requires, Relation{Title: l.parts[e.From].title, Kind: e.Kind.String(), Why: e.Why,
			Outcome: l.engine.Status(e.From).Outcome})
	}
	history, err := l.store.History(l.parts[id].claim.String(), historyShown)
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
