package local

import (
	"context"

	"tako.dev/tako/internal/agent/bring"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/relations"
)

// Request is a question to a running agent.
type Request struct {
	Do      string       `json:"do"` // status, why, check, graph, hold, resume, now, accept
	All     bool         `json:"all,omitempty"`
	Subject string       `json:"subject,omitempty"`
	Deep    bool         `json:"deep,omitempty"`
	Hold    *report.Hold `json:"hold,omitempty"`
	Path    string       `json:"path,omitempty"` // of accept: absolute
}

// Reply is the answer: one of the fields.
type Reply struct {
	Report  *report.Report   `json:"report,omitempty"`
	Answer  *report.Answer   `json:"answer,omitempty"`
	Graph   *relations.Graph `json:"graph,omitempty"`
	Holds   []report.Hold    `json:"holds,omitempty"`
	Brought *bring.Brought   `json:"brought,omitempty"`
}

// GoOn lets the running agent do now what waits for a window: of one resource, or, with no subject, all, and what follows from it. It
// returns the report when nothing is due any more.
func GoOn(ctx context.Context, stateDir, subject string) (*report.Report, error) {
	a, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "now", Subject: subject})
	return a.Report, err
}

// Accept hands what is at an absolute path to the agent that runs on a state directory: an order, as `tako sign layer` writes it, or a
// directory, as `tako export heads` does. It returns when the agent has judged the signatures; what the host makes of it is in its report.
// The errors are AgentNotRunning, and why nothing of it counts on this host.
func Accept(ctx context.Context, stateDir, path string) (*bring.Brought, error) {
	r, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "accept", Path: path})
	return r.Brought, err
}
