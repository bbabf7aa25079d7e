package local

import (
	"cmp"
	"context"

	"tako.dev/tako/internal/agent/left"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
)

// StatusOf returns the report of the agent that runs on a state directory, or, where none runs, the last report that one
// left there; running tells which.
func StatusOf(ctx context.Context, stateDir string, all bool) (r *report.Report, running bool, err error) {
	a, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "status", All: all})
	if err == nil {
		return a.Report, true, nil
	}
	if !reason.Is(err, reason.AgentNotRunning) {
		return nil, false, err
	}
	r, lastErr := left.Report(stateDir)
	if lastErr != nil {
		return nil, false, lastErr
	}
	if r == nil {
		return nil, false, err
	}
	return r, false, nil
}

// CheckNow makes the running agent look at everything, deeply or not, repair what it finds, and report when it is done.
func CheckNow(ctx context.Context, stateDir string, deep bool) (*report.Report, error) {
	a, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "check", Deep: deep})
	return a.Report, err
}

// WhyOf explains one resource, as far as a running agent or what one has left on disk knows it.
func WhyOf(ctx context.Context, stateDir, subject string) (a *report.Answer, running bool, err error) {
	r, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "why", Subject: subject})
	if err == nil {
		return r.Answer, true, nil
	}
	if !reason.Is(err, reason.AgentNotRunning) {
		return nil, false, err
	}
	a, lastErr := left.Answer(stateDir, subject)
	if lastErr != nil {
		return nil, false, lastErr
	}
	if a == nil {
		return nil, false, err
	}
	return a, false, nil
}

// HistoryOf returns what happened on the host, newest first.
func HistoryOf(stateDir string, what store.Asked) ([]store.Happening, error) {
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
	r, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "graph", Subject: subject})
	if err == nil || !reason.Is(err, reason.AgentNotRunning) {
		return r.Graph, err == nil, err
	}
	last, lastErr := left.Report(stateDir)
	if lastErr != nil || last == nil {
		return nil, false, cmp.Or(lastErr, err)
	}
	g, err = left.Graph(stateDir, subject, last)
	return g, false, err
}
