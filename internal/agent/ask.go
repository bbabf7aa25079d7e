package agent

import (
	"cmp"
	"context"
	"encoding/json"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/chart"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
)

// Happening is one entry of the history.
type Happening = store.Happening

// Asked says which of them are wanted.
type Asked = store.Asked

// StatusOf returns the report of the agent that runs on a state directory, or, where none runs, the last report that one
// left there; running tells which.
func StatusOf(ctx context.Context, stateDir string, all bool) (r *Report, running bool, err error) {
	a, err := socket.Ask[reply](ctx, stateDir, request{Do: "status", All: all})
	if err == nil {
		return a.Report, true, nil
	}
	if !reason.Is(err, reason.AgentNotRunning) {
		return nil, false, err
	}
	r, _, lastErr := lastReport(stateDir)
	if lastErr != nil {
		return nil, false, lastErr
	}
	if r == nil {
		return nil, false, err
	}
	return r, false, nil
}

// CheckNow makes the running agent look at everything, deeply or not, repair what it finds, and report when it is done.
func CheckNow(ctx context.Context, stateDir string, deep bool) (*Report, error) {
	a, err := socket.Ask[reply](ctx, stateDir, request{Do: "check", Deep: deep})
	return a.Report, err
}

// WhyOf explains one resource, as far as a running agent or what one has left on disk knows it.
func WhyOf(ctx context.Context, stateDir, subject string) (a *Answer, running bool, err error) {
	r, err := socket.Ask[reply](ctx, stateDir, request{Do: "why", Subject: subject})
	if err == nil {
		return r.Answer, true, nil
	}
	if !reason.Is(err, reason.AgentNotRunning) {
		return nil, false, err
	}
	a, lastErr := lastAnswer(stateDir, subject)
	if lastErr != nil {
		return nil, false, lastErr
	}
	if a == nil {
		return nil, false, err
	}
	return a, false, nil
}

// HistoryOf returns what happened on the host, newest first.
func HistoryOf(stateDir string, what Asked) ([]Happening, error) {
	st, err := store.Inspect(stateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	return st.History(what)
}

// GraphOf tells of the order of the resources, of all or of those around a subject, as far as a running agent or what one has left on
// disk knows it.
func GraphOf(ctx context.Context, stateDir, subject string) (g *relations.Graph, running bool, err error) {
	r, err := socket.Ask[reply](ctx, stateDir, request{Do: "graph", Subject: subject})
	if err == nil || !reason.Is(err, reason.AgentNotRunning) {
		return r.Graph, err == nil, err
	}
	last, _, lastErr := lastReport(stateDir)
	if lastErr != nil || last == nil {
		return nil, false, cmp.Or(lastErr, err)
	}
	g, err = lastGraph(stateDir, subject, last)
	return g, false, err
}

// lastGraph puts together what the disk tells. A resource that the report does not list was in order when it was written.
func lastGraph(stateDir, subject string, last *Report) (*relations.Graph, error) {
	st, err := store.Inspect(stateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	nothing := func(string) (declare.Value, bool) { return declare.Value{}, false }
	d, err := load.LastGood(st, nothing, func(declare.ResourceType) string { return "" }) // the order depends on neither
	if err != nil {
		return nil, err
	}
	var about []converge.ID
	for i := range d.Compiled.Items {
		if it := &d.Compiled.Items[i]; subject != "" && names(it.Title, it.Claim.String(), it.Claim.ID, subject) {
			about = append(about, converge.ID(i))
		}
	}
	if subject != "" && about == nil {
		return nil, unknown(subject)
	}
	listed := map[string]*Resource{}
	for i := range last.Resources {
		listed[last.Resources[i].Claim] = &last.Resources[i]
	}
	g := chart.Of(d.Compiled.Graph, about, 0, func(id converge.ID) relations.Resource {
		it := &d.Compiled.Items[id]
		told := relations.Resource{Claim: it.Claim.String(), Title: it.Title, Config: it.Config, Outcome: reason.Kept.String()}
		if r := listed[told.Claim]; r != nil {
			told.Outcome, told.Detail = r.Outcome.String(), string(r.Detail)
		}
		return told
	})
	g.Node = last.Node
	return g, nil
}

// lastReport reads the report on disk; nil where there is none.
func lastReport(stateDir string) (*Report, *store.Store, error) {
	st, err := store.Inspect(stateDir)
	if err != nil {
		return nil, nil, err
	}
	defer st.Close()
	data, _, err := st.Report()
	if err != nil || len(data) == 0 {
		return nil, st, err
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, st, &reason.Error{Code: reason.StateCorrupt, Doing: "read the last report", Cause: err}
	}
	return &r, st, nil
}

// lastAnswer puts together what the disk tells about one resource; nil where there is nothing.
func lastAnswer(stateDir, subject string) (*Answer, error) {
	r, _, err := lastReport(stateDir)
	if err != nil || r == nil {
		return nil, err
	}
	st, err := store.Inspect(stateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	for ref, err := range st.Active().Refs() {
		if err != nil {
			return nil, err
		}
		if !names(ref.Title, ref.Claim.String(), ref.Claim.ID, subject) {
			continue
		}
		// A resource that the report does not list was in order when it was written.
		a := &Answer{Resource: Resource{Title: ref.Title, Claim: ref.Claim.String(), Config: ref.Config, Place: ref.Place, Outcome: reason.Kept}}
		for _, res := range r.Resources {
			if res.Claim == a.Resource.Claim {
				a.Resource = res
			}
		}
		a.History, err = st.History(Asked{Subject: a.Resource.Claim, Limit: historyShown})
		return a, err
	}
	return nil, &reason.Error{Code: reason.ResourceUnknown, Doing: "explain " + subject}
}
