package agent

import (
	"context"
	"errors"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// bindTime bounds binding one resource: it may ask the system for a user's number.
const bindTime = 10 * time.Second

// desired is a state that may become the active one.
type desired struct {
	entries  []catalog.Entry
	claims   []declare.Claim
	encoded  [][]byte // bodies, by entry; nil where the state is the active one already
	root     catalog.Digest
	leaving  []store.Removal // what has to be undone because it is not in entries any more
	removals []store.Removal // leaving, and what was left to undo from before
	compiled *core.Compiled
	lookup   declare.Lookup
}

// scope returns what expressions see of this host now.
func scope(opts *Options) (declare.Lookup, error) {
	fact, err := opts.Facts.Collect()
	if err != nil {
		return nil, err
	}
	return declare.Scope{NodeName: opts.NodeName, Labels: opts.Labels, Fact: fact}.Lookup, nil
}

// declared reads the declarations and compiles them against what is active. Every mistake of every file comes back at once,
// as declare.Faults; nothing is written.
func declared(opts *Options, st *store.Store, lookup declare.Lookup) (*desired, error) {
	documents, err := declare.Load(opts.Files)
	if err != nil {
		return nil, err
	}
	entries, faults := catalog.Resolve(documents)
	if len(faults) > 0 {
		return nil, declare.Faults(declare.SortFaults(faults))
	}
	d := &desired{entries: entries, lookup: lookup, encoded: make([][]byte, len(entries)), claims: make([]declare.Claim, len(entries))}
	for i := range entries {
		body, err := entries[i].Encode()
		if err != nil {
			return nil, err
		}
		d.encoded[i], d.claims[i] = body, entries[i].Claim()
	}
	d.root = catalog.Root(d.claims, d.encoded)
	if err := d.leave(st); err != nil {
		return nil, err
	}
	return d, d.compile(opts)
}

// lastGood reads the active state back: what is enforced when the declarations cannot be.
func lastGood(opts *Options, st *store.Store, lookup declare.Lookup) (*desired, error) {
	d := &desired{lookup: lookup, root: catalog.Digest(st.Root()), removals: st.Removals()}
	for _, ref := range st.Active() {
		e, err := readEntry(st, ref)
		if err != nil {
			return nil, err
		}
		d.entries = append(d.entries, e)
	}
	return d, d.compile(opts)
}

// leave finds what is active and not declared any more.
func (d *desired) leave(st *store.Store) error {
	stays := make(map[declare.Claim]bool, len(d.claims))
	for _, c := range d.claims {
		stays[c] = true
	}
	for _, r := range st.Removals() {
		if !stays[r.Claim] {
			d.removals = append(d.removals, r)
		}
	}
	for _, ref := range st.Active() {
		if stays[ref.Claim] || ref.OnRemove == declare.OnRemoveKeep {
			continue
		}
		body, err := st.Body(ref)
		if err != nil {
			return err
		}
		e, err := catalog.Decode(body)
		if err != nil {
			return err
		}
		if applies, err := core.Applicable(e.Resource.When, d.lookup); err != nil || !applies {
			continue // it was not ours on this host
		}
		d.leaving = append(d.leaving, store.Removal{Claim: ref.Claim, Title: ref.Title, Config: ref.Config, Digest: ref.Digest,
			OnRemove: ref.OnRemove, After: ref.After, Body: body, Since: time.Now()})
	}
	d.removals = append(d.removals, d.leaving...)
	return nil
}

// compile makes the graph of the entries and of what is to be undone.
func (d *desired) compile(opts *Options) error {
	in := core.Input{Entries: d.entries, Lookup: d.lookup, Lane: func(t declare.ResourceType) string { return opts.Types[t].Lane().Name }}
	for _, r := range d.removals {
		e, err := catalog.Decode(r.Body)
		if err != nil {
			return err
		}
		in.Removals = append(in.Removals, core.Removal{Claim: r.Claim, Title: r.Title, Config: r.Config, Type: e.Resource.Type(),
			Digest: r.Digest, OnRemove: r.OnRemove, After: r.After})
	}
	compiled, faults := core.Compile(in)
	if len(faults) > 0 {
		return declare.Faults(declare.SortFaults(faults))
	}
	d.compiled = compiled
	return nil
}

// active reports whether the state is the active one already, down to where each resource is declared.
func (d *desired) active(st *store.Store) bool {
	refs := st.Active()
	if converge.Digest(d.root) != st.Root() || len(refs) != len(d.entries) {
		return false
	}
	for i := range refs {
		if refs[i].Place != d.entries[i].Place.String() {
			return false
		}
	}
	return true
}

// commit makes the state the active one, durably: first what has to be undone because of it, then the state itself.
func (d *desired) commit(st *store.Store) error {
	if d.encoded == nil || d.active(st) {
		return nil
	}
	if err := st.AddRemovals(d.leaving); err != nil {
		return err
	}
	entries := make([]store.Entry, len(d.entries))
	for i := range d.entries {
		e := &d.entries[i]
		it := &d.compiled.Items[i]
		entries[i] = store.Entry{Claim: d.claims[i], Title: it.Title, Config: e.Config, Place: e.Place.String(),
			Digest: d.compiled.Graph.Vertices[i].Digest, OnRemove: it.OnRemove, After: it.After, Body: d.encoded[i]}
	}
	if err := st.SetActive(converge.Digest(d.root), entries); err != nil {
		return err
	}
	taken := make(map[declare.Claim]bool, len(d.claims))
	for _, c := range d.claims {
		taken[c] = true
	}
	return st.VoidRemovals(func(c declare.Claim) bool { return taken[c] })
}

// begin loads the first state. A declaration that cannot be enforced is an error, unless the agent is to watch and has a
// last good state: then that is enforced, and the error is told.
func (l *loop) begin(ctx context.Context) error {
	lookup, err := scope(l.opts)
	if err != nil {
		return err
	}
	l.lookup = lookup
	d, err := declared(l.opts, l.store, lookup)
	if err != nil {
		if !l.opts.Watch || len(l.store.Active()) == 0 {
			return err
		}
		l.refused(err)
		if d, err = lastGood(l.opts, l.store, lookup); err != nil {
			return err
		}
	}
	if err := l.adopt(ctx, d); err != nil {
		return err
	}
	l.subs.watchDeclarations(l.opts)
	l.rearm()
	l.sweep(ctx)
	// Where systemd did not start this process, there is nobody to tell.
	_ = systemd.Notify(systemd.Ready)
	l.step(ctx, converge.Tick{})
	return nil
}

// sweep removes the temporary files that a killed agent left in the directories that are managed.
func (l *loop) sweep(ctx context.Context) {
	var dirs []string
	for _, p := range l.parts {
		if p.claim.Kind == declare.ClaimPath {
			dirs = append(dirs, path.Dir(p.claim.ID))
		}
	}
	slices.Sort(dirs)
	s, ok := l.opts.Types[declare.TypeFile].(host.Sweeper) // which makes directories and symlinks too
	if !ok {
		return
	}
	if err := s.Sweep(ctx, slices.Compact(dirs)); err != nil {
		l.book.trouble("remove temporary files that were left behind", err)
	}
}

// observe looks at the facts again and reloads if one has changed. The kernel tells more often than that: the name of any
// container that starts wakes who watches the host's own.
func (l *loop) observe(ctx context.Context) {
	if lookup, err := scope(l.opts); err == nil && sameFacts(l.lookup, lookup) {
		return
	}
	l.reload(ctx)
}

// sameFacts reports whether two observations of a host are the same.
func sameFacts(a, b declare.Lookup) bool {
	for _, f := range declare.FactNames() {
		x, hasX := a(f.Name)
		y, hasY := b(f.Name)
		if hasX != hasY || x != y {
			return false
		}
	}
	return true
}

// reload takes in new declarations or new facts. Declarations that cannot be enforced change nothing and are told; the last
// good ones are then compiled anew for the facts.
func (l *loop) reload(ctx context.Context) {
	lookup, err := scope(l.opts)
	if err != nil {
		l.refused(err)
		return
	}
	l.lookup = lookup
	d, err := declared(l.opts, l.store, lookup)
	if err == nil {
		l.refuse = nil
	} else {
		l.refused(err)
		if d, err = lastGood(l.opts, l.store, lookup); err != nil {
			l.book.trouble("read the active state", err)
			return
		}
	}
	if err := l.adopt(ctx, d); err != nil {
		l.refused(err)
	}
	l.subs.watchDeclarations(l.opts) // there may be new directories
	l.rearm()
}

// refused notes why the newest declaration is not the one enforced.
func (l *loop) refused(err error) {
	l.refuse = problems(err)
	for i := range l.refuse {
		l.book.show(&l.refuse[i])
	}
}

// adopt commits a state, binds its resources, watches them, and gives the graph to the engine.
func (l *loop) adopt(ctx context.Context, d *desired) error {
	graph := d.compiled.Graph
	if l.engine != nil && d.active(l.store) && sameDesire(l.engine.Graph(), graph) {
		return nil // the facts that changed matter to nothing
	}
	if err := d.commit(l.store); err != nil {
		return err
	}
	l.bodies.swap(l.store.Active(), graph, d.lookup)
	parts := make([]*part, graph.Len())
	for i := range parts {
		parts[i] = l.part(ctx, d, &d.compiled.Items[i], graph.Vertices[i].Digest)
	}
	l.parts = parts
	if err := l.subs.swap(ctx, parts); err != nil {
		l.book.trouble("watch units", err)
	}
	l.book.unsaved, l.book.loaded = true, true
	if l.engine != nil {
		effects, err := l.engine.Swap(time.Now(), graph)
		if err != nil {
			return err
		}
		l.carryOut(ctx, effects)
		return nil
	}
	pending, budgets := l.store.Resume(time.Now())
	if !l.opts.Watch {
		budgets = nil // a person who asks for one run wants every resource tried now
	}
	engine, err := converge.New(graph, l.opts.engine(), newRand(), converge.Resume{Converged: l.store.Converged(), Pending: pending, Budgets: budgets})
	l.engine = engine
	return err
}

// sameDesire reports whether two graphs of one set of entries want the same: their facts may differ.
func sameDesire(a, b *converge.Graph) bool {
	return slices.EqualFunc(a.Vertices, b.Vertices, func(x, y converge.Vertex) bool {
		return x.Key == y.Key && x.Digest == y.Digest && x.NotApplicable == y.NotApplicable
	})
}

// part makes the part of an item, or takes over the one that is there for the same desire.
func (l *loop) part(ctx context.Context, d *desired, it *core.Item, digest converge.Digest) *part {
	if l.engine != nil {
		if id := l.engine.Graph().ID(core.Key(it.Claim)); id != converge.None && l.parts[id].digest == digest && l.parts[id].when == it.When {
			p := *l.parts[id]
			p.title, p.config, p.place, p.plan = it.Title, it.Config, it.Place.String(), host.Plan{}
			return &p
		}
	}
	p := newPart(it, digest)
	if it.Removal >= 0 {
		e, err := catalog.Decode(d.removals[it.Removal].Body)
		if err != nil {
			p.err = reason.Of(err)
			return p
		}
		it.Resource = e.Resource
		p.removal = &removal{how: it.OnRemove}
	}
	if p.when == "" && p.err == nil {
		l.bind(ctx, p, it.Resource)
	}
	it.Resource = declare.Resource{}
	return p
}

// bind makes a part's resource ready, or notes why it cannot be.
func (l *loop) bind(ctx context.Context, p *part, r declare.Resource) {
	p.res, p.err = bind(ctx, l.opts.Types[p.kind], l.declaredAs(p, r))
}

// declaredAs is what a type gets to know of a part. A removed resource has no body in the active state: it is kept.
func (l *loop) declaredAs(p *part, r declare.Resource) host.Declared {
	d := host.Declared{Title: p.title, Resource: r}
	key, digest := p.key(), p.digest
	if p.removal != nil {
		d.Body = func() (declare.Resource, error) { return r, nil }
		return d
	}
	d.Body = func() (declare.Resource, error) { return l.bodies.read(key, digest) }
	return d
}

func bind(ctx context.Context, t host.Type, d host.Declared) (host.Resource, *reason.Error) {
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	res, err := t.Bind(ctx, d)
	return res, reason.Of(err)
}

// problems lists the mistakes inside an error that came from loading.
func problems(err error) []Problem {
	var faults declare.Faults
	if !errors.As(err, &faults) {
		return []Problem{*problem(reason.Of(err))}
	}
	list := make([]Problem, len(faults))
	for i, f := range faults {
		list[i] = Problem{Code: f.Code, Message: f.Place().String() + ": " + f.Message, Hint: f.Hint}
	}
	return list
}

// engine returns the engine's bounds: the lanes of the types, each once.
func (o *Options) engine() converge.Options {
	var out converge.Options
	seen := map[string]bool{}
	for _, t := range o.Types {
		if l := t.Lane(); !seen[l.Name] {
			seen[l.Name] = true
			out.Lanes = append(out.Lanes, l)
		}
	}
	return out
}

// release gives memory back that loading and converging needed and idling does not.
func release() {
	runtime.GC()
	debug.FreeOSMemory()
}
