package agent

import (
	"context"

	"tako.dev/tako/internal/agent/bring"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/transfer/client"
)

// Brought is what an agent has made of what was brought to it.
type Brought = bring.Brought

// Accept hands what is at an absolute path to the agent that runs on a state directory: an order, as `tako sign layer` writes it, or a
// directory, as `tako export heads` does. It returns when the agent has judged the signatures; what the host makes of it is in its report.
// The errors are AgentNotRunning, and why nothing of it counts on this host.
func Accept(ctx context.Context, stateDir, path string) (*Brought, error) {
	r, err := socket.Ask[reply](ctx, stateDir, request{Do: "accept", Path: path})
	return r.Brought, err
}

// accept takes what is at a path of this host. It is called from any goroutine.
func (l *loop) accept(ctx context.Context, path string) (*Brought, error) {
	var c *client.Client
	if l.joined != nil {
		c = l.joined.client.Load()
	}
	return bring.Take(ctx, c, l.opts.StateDir, path)
}
