package agent

import (
	"context"

	"tako.dev/tako/internal/agent/bring"
	"tako.dev/tako/internal/transfer/client"
)

// Brought is what an agent has made of what was brought to it.
type Brought = bring.Brought

// accept takes what is at a path of this host. It is called from any goroutine.
func (l *loop) accept(ctx context.Context, path string) (*Brought, error) {
	var c *client.Client
	if l.joined != nil {
		c = l.joined.client.Load()
	}
	return bring.Take(ctx, c, l.opts.StateDir, path)
}
