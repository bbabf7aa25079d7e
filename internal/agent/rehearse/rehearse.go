// Package rehearse plans the state that the agent of a host enforces, beside that agent and without writing anything. It is what one
// program of the agent is compared by with another.
//
// The package owns no goroutine.
package rehearse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/preview"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/trust"
)

// Options say what is planned, and with what.
type Options struct {
	StateDir string
	NodeName string // of a host that stands alone
	Types    map[declare.ResourceType]host.Type
	Fact     func(name string) (any, bool)
}

// Of plans the enforced state. The error says why it cannot be read, or is Interrupted.
func Of(ctx context.Context, o Options) ([]preview.Planned, error) {
	st, err := store.Inspect(o.StateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	scope, open := declare.Scope{NodeName: o.NodeName, Fact: o.Fact}, load.Open(nil)
	var proof catalog.Proof // of a host that stands alone, where nothing expires
	joined, err := held.HasJoined(o.StateDir)
	if err != nil {
		return nil, err
	}
	if joined {
		m, err := membershipOf(o.StateDir, catalog.Digest(st.Active().Root()))
		if err != nil {
			return nil, err
		}
		scope.NodeName, scope.Labels, open, proof = m.name, m.labels, m.open, m.proof
	}
	d, err := load.LastGoodAt(st, proof, scope.Lookup, func(t declare.ResourceType) string { return o.Types[t].Lane().Name })
	if err != nil {
		return nil, err
	}
	if joined {
		d.Unseal(open)
	}
	var zone clock.Zone
	now := zone.Now()
	d.Compiled.Hold(hold.Own(st), now)
	return preview.Of(ctx, preview.Input{Desired: d, Types: o.Types, Now: now})
}

// membership is what a host that has joined knows of itself in a state.
type membership struct {
	name   string
	labels map[string]string
	open   load.Open
	proof  catalog.Proof
}

func membershipOf(stateDir string, root catalog.Digest) (membership, error) {
	identity, err := held.LoadIdentity(stateDir, trust.Built())
	if err != nil {
		return membership{}, err
	}
	vault := held.NewVault(identity)
	m := membership{name: identity.Node().Name, open: vault.Open}
	if root == (catalog.Digest{}) {
		return m, nil // it was told nothing yet
	}
	h, err := held.Inspect(stateDir)
	if err != nil {
		return membership{}, err
	}
	defer h.Close()
	c, err := h.Own(root)
	vault.Take(c.Own.Keys)
	m.labels, m.proof = c.Own.Labels, h.Proof(identity.Trust().Time(time.Now()))
	return m, err
}

// Line is a plan of one resource on one line, and whether something would be done. What depends on the moment is not in it, and the agent's
// own program has none: that is what differs.
func Line(p *preview.Planned) (line string, planned bool) {
	if p.Claim.Kind == declare.ClaimAgent {
		return p.Title, false
	}
	parts := []string{p.Title, p.Claim.String()}
	if p.When != "" {
		parts = append(parts, "not applicable: "+p.When)
	}
	if p.Err != nil {
		parts = append(parts, "fails: "+p.Err.Code.String())
	}
	if p.Unknown != "" {
		parts = append(parts, "unknown: "+p.Unknown)
	}
	if p.Waits != "" {
		parts = append(parts, "waits")
	}
	for _, c := range p.Changes {
		parts = append(parts, fmt.Sprintf("%s %q -> %q", c.Field, c.From, c.To))
	}
	return strings.Join(parts, "; "), !p.Empty()
}
