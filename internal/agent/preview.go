package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// previewTime bounds the check of one resource in a preview.
const previewTime = time.Minute

// Planned is what converging would do to one resource.
type Planned struct {
	Title   string
	Claim   declare.Claim
	Place   string
	When    string        // it is not applicable: this condition is false
	Err     *reason.Error // it would fail, or cannot be looked at
	Unknown string        // why it cannot be told without converging
	Changes []host.Change
}

// Empty reports whether nothing would be done.
func (p *Planned) Empty() bool { return p.Err == nil && p.Unknown == "" && len(p.Changes) == 0 }

// Preview checks every resource in the order in which converging would take them, with the code that converging runs, and
// writes nothing: not to the host, not to the state directory. It may run beside an agent.
func Preview(ctx context.Context, opts Options) ([]Planned, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if err := opts.belongs(); reason.Is(err, reason.HostJoined) {
		return nil, err
	}
	st, err := store.Inspect(opts.StateDir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	lookup, err := scope(&opts)
	if err != nil {
		return nil, err
	}
	d, err := load.Declared(opts.Files, st, lookup, opts.lane)
	if err != nil {
		return nil, err
	}
	defer opts.listenOnBus(ctx)()
	v := preview{opts: &opts, desired: d, planned: make([]Planned, len(d.Compiled.Items))}
	var out []Planned
	for _, id := range d.Compiled.Graph.Order() {
		if err := ctx.Err(); err != nil {
			return nil, &reason.Error{Code: reason.Interrupted, Doing: "preview", Cause: err}
		}
		v.planned[id] = v.plan(ctx, id)
		out = append(out, v.planned[id])
	}
	return out, nil
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

type preview struct {
	opts    *Options
	desired *load.State
	planned []Planned // by converge.ID
}

func (v *preview) plan(ctx context.Context, id converge.ID) Planned {
	it := &v.desired.Compiled.Items[id]
	p := Planned{Title: it.Title, Claim: it.Claim, Place: it.Place.String(), When: it.When, Err: it.Err}
	switch {
	case it.When != "" || it.Err != nil:
		return p
	case it.Removal >= 0:
		how := map[declare.OnRemove]string{declare.OnRemoveDelete: "deleted", declare.OnRemoveRestore: "restored to what was there before"}
		p.Changes = []host.Change{{To: how[it.OnRemove] + ", because it is not declared any more"}}
		return p
	}
	plan := v.check(ctx, it)
	before := v.pending(id)
	switch {
	case plan.Err != nil && before != "":
		// What fails now may be cured by what comes first: the parent directory, the package that brings the unit.
		p.Unknown = fmt.Sprintf("cannot say before %s is as declared", before)
	case plan.Err != nil:
		p.Err = reason.Of(plan.Err)
	default:
		p.Changes, p.Unknown = plan.Changes, plan.Unknown
	}
	if by := v.notifiers(id); by != "" && p.Err == nil {
		p.Changes = append(p.Changes, host.Change{Field: "notified", To: "by " + by})
	}
	return p
}

func (v *preview) check(ctx context.Context, it *core.Item) host.Plan {
	t := v.opts.Types[it.Type]
	resource := it.Resource
	res, err := bind(ctx, t, host.Declared{Title: it.Title, Resource: resource, Body: func() (declare.Resource, error) { return resource, nil }})
	if err != nil {
		return host.Plan{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	return t.Check(ctx, []host.Resource{res}, host.Explain)[0]
}

// pending names something that id comes after and that is not as declared yet; empty where there is nothing.
func (v *preview) pending(id converge.ID) string {
	for _, claim := range v.desired.Compiled.Items[id].After {
		if from := v.desired.Compiled.Graph.ID(core.Key(claim)); from != converge.None && !v.planned[from].Empty() {
			return v.planned[from].Title
		}
	}
	return ""
}

// notifiers names something that would change and notify id; empty where there is nothing.
func (v *preview) notifiers(id converge.ID) string {
	it := &v.desired.Compiled.Items[id]
	for _, claim := range it.After {
		from := v.desired.Compiled.Graph.ID(core.Key(claim))
		if from == converge.None || len(v.planned[from].Changes) == 0 || v.desired.Compiled.Items[from].Entry < 0 {
			continue
		}
		if notifies(&v.desired.Entries[v.desired.Compiled.Items[from].Entry], it.Claim) {
			return v.planned[from].Title
		}
	}
	return ""
}

func notifies(e *catalog.Entry, claim declare.Claim) bool {
	for _, ref := range e.Notify {
		if ref.Claim == claim {
			return true
		}
	}
	return false
}
