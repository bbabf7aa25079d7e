// Package fragment is the resource type fragment: a piece of a file. The piece reaches the host as a part of what is declared of its
// file, which the agent puts together (agent/core); so there is nothing to do for the piece alone, and it is as declared as soon as the
// file is. Package file writes that. It owns no goroutine.
package fragment

import (
	"context"
	"errors"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Type is the resource type fragment.
type Type struct{}

var _ host.Type = Type{}

// laneBatch is how many pieces are looked at in one call, which costs nothing.
const laneBatch = 1000

// Lane returns a lane of its own.
func (Type) Lane() converge.Lane {
	return converge.Lane{Name: string(declare.TypeFragment), Parallel: 1, Batch: laneBatch}
}

// piece is one bound fragment.
type piece struct{ path string }

// Watches returns the file: what is wrong with that is put right by its own resource.
func (p *piece) Watches() []host.Watch { return []host.Watch{{Kind: host.WatchPath, Name: p.path}} }

// Bind makes a fragment ready.
func (Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	if d.Resource.Fragment == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a fragment")}
	}
	return &piece{d.Resource.Fragment.Path}, nil
}

// Check finds nothing to do.
func (Type) Check(_ context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, r := range rs {
		plans[i] = host.Plan{Resource: r, Recognised: depth == host.Shallow}
	}
	return plans
}

// Apply has nothing to apply.
func (Type) Apply(_ context.Context, plans []host.Plan) []host.Result {
	return make([]host.Result, len(plans))
}

// Original is nothing: the file's is that of its own resource.
func (Type) Original(context.Context, host.Resource) ([]byte, error) { return []byte("{}"), nil }

// Remove does nothing: a piece that is not declared any more is not in the file any more.
func (Type) Remove(context.Context, host.Resource, declare.OnRemove, []byte) error { return nil }
