// Package left tells of a host from what an agent has left on its disk, for when none runs.
//
// The package owns no goroutine.
package left

import (
	"encoding/json"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/chart"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
)

// Report reads the last report in a state directory; nil where there is none. Errors: StateCorrupt, and those of store.Inspect.
func Report(stateDir string) (*report.Report, error) {
	st, err := store.Inspect(stateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	data, _, err := st.Report()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	var r report.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: "read the last report", Cause: err}
	}
	return &r, nil
}

// Graph is the order of the resources, of all or of those around a subject, with how they stood by the last report. One that it does not list
// was in order when it was written. Errors: ResourceUnknown, and those of the state directory.
func Graph(stateDir, subject string, last *report.Report) (*relations.Graph, error) {
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
		if it := &d.Compiled.Items[i]; subject != "" && report.Names(subject, it.Title, it.Claim) {
			about = append(about, converge.ID(i))
		}
	}
	if subject != "" && about == nil {
		return nil, report.Unknown(subject)
	}
	listed := map[string]*report.Resource{}
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

// Answer explains one resource; nil where no agent has left a report. Errors: ResourceUnknown, and those of the state directory.
func Answer(stateDir, subject string) (*report.Answer, error) {
	r, err := Report(stateDir)
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
		if !report.Names(subject, ref.Title, ref.Claim) {
			continue
		}
		// A resource that the report does not list was in order when it was written.
		a := &report.Answer{Resource: report.Resource{Title: ref.Title, Claim: ref.Claim.String(), Config: ref.Config, Place: ref.Place, Outcome: reason.Kept}}
		for _, res := range r.Resources {
			if res.Claim == a.Resource.Claim {
				a.Resource = res
			}
		}
		a.History, err = st.History(store.Asked{Subject: a.Resource.Claim, Limit: report.HistoryShown})
		return a, err
	}
	return nil, report.Unknown(subject)
}
