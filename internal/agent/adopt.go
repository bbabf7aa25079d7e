package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/ground"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/program"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/subscribe"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// bindTime bounds binding one resource: it may ask the system for a user's number.
const bindTime = 10 * time.Second

// scope returns what expressions see of this host now, and why some of what they might see is not there.
func (o *Options) scope() (lookup declare.Lookup, refused []error, err error) {
	fact, refused, err := o.Facts.Collect()
	if err != nil {
		return nil, nil, err
	}
	return declare.Scope{NodeName: o.NodeName, Labels: o.Labels, Fact: fact}.Lookup, refused, nil
}

// scope returns what expressions see of this host now. What is refused of it is told for as long as that is so.
func (l *loop) scope() (declare.Lookup, error) {
	lookup, refused, err := l.opts.scope()
	if err == nil {
		l.book.Stand(refused)
	}
	return lookup, err
}

// begin loads the first state. A declaration that cannot be enforced is an error, unless the agent is to watch and has a
// last good state: then that is enforced, and the error is told.
func (l *loop) begin(ctx context.Context) error {
	lookup, err := l.scope()
	if err != nil {
		return err
	}
	l.lookup = lookup
	if l.joined != nil {
		if err := l.awake(); err != nil {
			return err
		}
	}
	l.subs.WatchDeclarations(l.source.files()) // before they are read, so that what changes from now on is told
	d, err := l.source.desired(l.store, lookup, l.opts.lane)
	if err == nil {
		err = l.adopt(ctx, d)
	}
	if err != nil {
		// What a cluster has given up is not enforced for want of room either.
		if !l.opts.Watch || l.store.Active().Len() == 0 || l.joined != nil && reason.Is(err, reason.StateUnwritable) {
			return err
		}
		l.refused(err)
		if d, err = load.LastGoodAt(l.store, l.joined.proof(), lookup, l.opts.lane); err == nil {
			err = l.adopt(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	if l.joined != nil {
		l.makeAppointment(&l.joined.life)
		l.wantInstances()
	}
	l.rearm()
	l.sweep(ctx)
	if err := forget(ctx, l.errands()); err != nil {
		l.book.Trouble("forget old content", err)
	}
	return nil
}

// ready says that the host is being kept, and takes the first step. Who has waited for that may ask at once: the socket that it returns is
// open before, and answers when the loop serves.
func (l *loop) ready(ctx context.Context) *socket.Socket {
	s := socket.New(l.opts.StateDir)
	if l.opts.Watch {
		_ = s.Open() // who serves it tries again, and tells
	}
	// Where systemd did not start this process, there is nobody to tell.
	_ = systemd.Notify(systemd.Ready)
	if l.opts.Now {
		l.step(ctx, converge.Release{})
	} else {
		l.step(ctx, converge.Tick{})
	}
	return s
}

// sweep removes the temporary files that a killed agent has left.
func (l *loop) sweep(ctx context.Context) {
	if err := ground.Sweep(ctx, l.opts.Types, l.standing); err != nil {
		l.book.Trouble("remove temporary files that were left behind", err)
	}
}

// observe looks at the facts again and reloads if one has changed. The kernel tells more often than that: the name of any
// container that starts wakes who watches the host's own. Nothing else tells of that name, nor windows of the host's zone.
func (l *loop) observe(ctx context.Context) {
	for i, p := range l.parts {
		if p.claim().Kind == declare.ClaimHostname {
			l.step(ctx, converge.Touched{IDs: []converge.ID{converge.ID(i)}})
		}
	}
	l.step(ctx, converge.Tick{})
	if lookup, err := l.scope(); err == nil && !l.unread && load.SameFacts(l.lookup, lookup) {
		return
	}
	l.happened() // the servers get to know them
	l.reload(ctx)
}

// reload takes in new declarations or new facts. Declarations that cannot be enforced change nothing and are told; the last
// good ones are then compiled anew for the facts.
func (l *loop) reload(ctx context.Context) {
	lookup, err := l.scope()
	if err != nil {
		if !l.unread { // it is tried again and again, and told once
			l.unread = true
			l.refused(err)
		}
		return
	}
	l.unread, l.lookup = false, lookup
	l.subs.WatchDeclarations(l.source.files()) // there may be new directories
	d, err := l.source.desired(l.store, lookup, l.opts.lane)
	l.unkept, l.amiss = false, nil
	switch {
	case err == nil && l.joined != nil: // what is refused is the servers' newest state, and not this one
	case err == nil:
		l.refuse = nil
	default:
		l.refused(err)
		if d, err = load.LastGoodAt(l.store, l.joined.proof(), lookup, l.opts.lane); err != nil {
			l.book.Trouble("read the active state", err)
			return
		}
	}
	if err := l.adopt(ctx, d); err != nil {
		l.refused(err)
	}
	l.wantInstances() // what the host has may be something else by now
	l.rearm()
}

// refused notes why the newest declaration is not the one enforced; of a host that has joined, what is wrong with the one that is.
func (l *loop) refused(err error) {
	l.unkept = reason.Is(err, reason.StateUnwritable)
	list := problems(err)
	if l.joined != nil {
		l.amiss = list
	} else {
		l.refuse = list
	}
	for i := range list {
		l.book.Show(&list[i])
	}
}

// adopt commits a state, binds its resources, watches them, and gives the graph to the engine.
func (l *loop) adopt(ctx context.Context, d *load.State) error {
	graph := d.Compiled.Graph
	if l.engine != nil && d.Active(l.store) && d.Wants(l.engine.Graph()) {
		l.delivered, l.expiry = d.Delivered, d.Expiry.After(l.expiry)
		return nil // the facts that changed matter to nothing
	}
	if err := d.Commit(l.store); err != nil {
		return err
	}
	l.delivered = d.Delivered
	l.expires(d.Expiry)
	l.source.complete(d)
	d.Compiled.Hold(l.holds(), time.Now())
	l.windowed = slices.ContainsFunc(graph.Vertices, func(v converge.Vertex) bool { return v.Window != nil })
	l.bodies.Swap(d)
	parts, made := make([]*part, graph.Len()), make([]part, graph.Len())
	var again []converge.ID // parts that the engine has no reason to look at, although something about them has changed
	for i := range parts {
		parts[i] = &made[i]
		l.makePart(ctx, parts[i], d, &d.Compiled.Items[i], &graph.Vertices[i])
		if l.changed(parts[i]) {
			again = append(again, converge.ID(i))
		}
	}
	l.parts = parts
	moved := l.ground.Lay(l.standing)
	if err := l.subs.Swap(ctx, subscribers(parts)); err != nil {
		l.book.Trouble("watch units", err)
	}
	l.book.Unsaved, l.loaded = true, true
	if l.engine != nil {
		effects, err := l.engine.Swap(l.now(), graph)
		if err != nil {
			return err
		}
		l.carryOut(ctx, effects)
		l.look(ctx, again)
		l.lookBelow(ctx, moved)
		return nil
	}
	pending, budgets := l.store.Resume(time.Now())
	if !l.opts.Watch {
		budgets = nil // a person who asks for one run wants every resource tried now
	}
	engine, err := converge.New(graph, l.opts.engine(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), converge.Resume{Converged: l.store.Converged(), Pending: pending, Budgets: budgets})
	l.engine = engine
	return err
}

func subscribers(parts []*part) []subscribe.Subscriber {
	members := make([]subscribe.Subscriber, len(parts))
	for i, p := range parts {
		members[i] = p
	}
	return members
}

// makePart makes the part of an item, or takes over the one that is there for the same desire.
func (l *loop) makePart(ctx context.Context, p *part, d *load.State, it *core.Item, v *converge.Vertex) {
	if l.engine != nil {
		if id := l.engine.Graph().ID(v.Key); id != converge.None && l.parts[id].vertex.Digest == v.Digest && l.parts[id].when == it.When {
			*p = *l.parts[id]
			p.vertex, p.config, p.found, p.unfit = v, it.Config, nil, it.Unfit
			p.setHold(it.Hold)
			if p.unfit {
				p.err = it.Err
			}
			if p.res == nil && p.removal == nil && it.Err == nil && p.when == "" {
				l.bind(ctx, p, *it.Resource) // its secret can be opened by now
			}
			it.Resource = nil
			return
		}
	}
	*p = newPart(it, v)
	if it.Removal >= 0 {
		e, err := catalog.Decode(d.Removals[it.Removal].Body)
		if err != nil {
			p.err = reason.Of(err)
			return
		}
		it.Resource = &e.Resource
		p.removal = &removal{how: it.OnRemove, resource: e.Resource}
	}
	if p.when == "" && p.err == nil {
		l.bind(ctx, p, *it.Resource)
	}
	it.Resource = nil
}

// bind makes a part's resource ready, or notes why it cannot be.
func (l *loop) bind(ctx context.Context, p *part, r declare.Resource) {
	p.res, p.err = bind(ctx, l.opts.Types[p.kind], l.declaredAs(p, r))
}

// declaredAs is what a type gets to know of a part. A removed resource has no body in the active state: it is kept.
func (l *loop) declaredAs(p *part, r declare.Resource) host.Declared {
	d := host.Declared{Title: p.title(), Key: string(p.Key()), Resource: r, Below: l.ground.Below}
	key, digest := p.Key(), p.vertex.Digest
	if p.removal != nil {
		d.Leaving, d.Body = true, kept(r)
		return d
	}
	d.Body = func() (declare.Resource, error) { return l.bodies.Read(key, digest) }
	return d
}

// kept is the body of what is in memory.
func kept(r declare.Resource) func() (declare.Resource, error) {
	return func() (declare.Resource, error) { return r, nil }
}

func bind(ctx context.Context, t host.Type, d host.Declared) (host.Resource, *reason.Error) {
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	res, err := t.Bind(ctx, d)
	if err != nil {
		return nil, reason.Of(err) // it is bound again at the next check
	}
	return res, nil
}

// problems lists the mistakes inside an error that came from loading.
func problems(err error) []Problem {
	var faults declare.Faults
	if !errors.As(err, &faults) {
		return []Problem{*report.ProblemOf(reason.Of(err))}
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

// lane names the lane of a type.
func (o *Options) lane(t declare.ResourceType) string { return o.Types[t].Lane().Name }

// changed tells whether a part is to be looked at although its desire is what it was.
func (l *loop) changed(p *part) bool {
	if l.engine == nil {
		return false
	}
	id := l.engine.Graph().ID(p.Key())
	if id == converge.None || l.parts[id].vertex.Digest != p.vertex.Digest {
		return false
	}
	was := l.parts[id]
	return (was.hold == nil) != (p.hold == nil) || was.res == nil && p.res != nil
}

// release gives memory back that loading and converging needed and idling does not.
func (l *loop) release() {
	runtime.GC()
	debug.FreeOSMemory()
	program.GiveBack()
}
