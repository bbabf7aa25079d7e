package agent

import (
	"context"
	"sync"
	"time"

	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/preview"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Planned is what converging would do to one resource.
type Planned = preview.Planned

// Change is one difference in a Planned.
type Change = host.Change

// Text is a change of a content in it, in full.
type Text = host.Text

// Preview checks every resource in the order in which converging would take them, and writes nothing: not to the host, not to the
// state directory. It may run beside an agent. OnLine is told what of the facts is refused.
func Preview(ctx context.Context, opts Options) (planned []Planned, delivered int, err error) {
	if err := opts.validate(); err != nil {
		return nil, 0, err
	}
	if err := opts.belongs(); reason.Is(err, reason.HostJoined) {
		return nil, 0, err
	}
	st, err := store.Inspect(opts.StateDir)
	if err != nil {
		return nil, 0, err
	}
	defer st.Close()
	lookup, refused, err := opts.scope()
	if err != nil {
		return nil, 0, err
	}
	if opts.OnLine != nil {
		doubts, _ := new(report.Troubles).Stand(refused)
		for _, e := range doubts {
			opts.OnLine(Line{At: time.Now(), Trouble: report.ProblemOf(e)})
		}
	}
	d, err := load.Declared(opts.Files, st, lookup, opts.lane)
	if err != nil {
		return nil, 0, err
	}
	defer opts.listenOnBus(ctx)()
	var zone clock.Zone
	now := zone.Now()
	d.Compiled.Hold(hold.Own(st), now)
	planned, err = preview.Of(ctx, preview.Input{Desired: d, Types: opts.Types, Now: now})
	return planned, d.Delivered, err
}

// listenOnBus keeps the connection to systemd open, which checks of units need, until the function that it returns is called.
// It tells nothing: what cannot be asked is an error of the check that asks.
func (o *Options) listenOnBus(ctx context.Context) (stop func()) {
	if o.Bus == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = o.Bus.Run(ctx, func(systemd.Event) {}) })
	return func() {
		cancel()
		running.Wait()
	}
}
