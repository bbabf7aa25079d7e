package assignments

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/assign"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// agreeMax is how often rollouts and assignment are asked in turn about one state of the world. It settles at the second time, or one
	// later for each tie between two configs on a node; what does not is gone on with a second later.
	agreeMax = 8
	// retryAfter is how long what could not be read, compiled or written waits: ours, long for a store and short for a person.
	retryAfter = time.Second
)

// round decides and writes, and returns when to do so again though nothing has happened; zero: not by itself.
func (a *Assignments) round(ctx context.Context, w *world) time.Time {
	now := time.Now()
	a.compile(ctx, w, now)
	if err := a.agree(ctx, w, now); err != nil {
		a.options.Log.Error("assignments cannot be decided", "err", err)
		w.again = true
		w.retry(now)
		return w.wakeAt()
	}
	a.write(ctx, w, now)
	return w.wakeAt()
}

// retry asks for a round soon.
func (w *world) retry(now time.Time) {
	if w.retryAt.IsZero() {
		w.retryAt = now.Add(retryAfter)
	}
}

// dirtyConfigs are those whose rollouts are to be decided about, by ID.
func (w *world) dirtyConfigs() []*config {
	var dirty []*config
	for _, c := range w.configs {
		if c.dirty {
			dirty = append(dirty, c)
		}
	}
	slices.SortFunc(dirty, func(a, b *config) int { return cmp.Compare(a.id, b.id) })
	return dirty
}

// wakeAt is when time alone changes something.
func (w *world) wakeAt() time.Time {
	at := w.retryAt
	for _, c := range w.configs {
		at = earlier(at, c.wakeAt)
		if c.dirty {
			at = earlier(at, time.Now()) // something was written
		}
		if c.stale {
			at = earlier(at, c.mayWrite)
		}
	}
	for _, h := range w.hosts {
		at = earlier(at, h.wakeAt)
	}
	return at
}

// earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// compile finds out of the configs that are touched whether their newest revision makes a layer. One that does not goes to no node.
func (a *Assignments) compile(ctx context.Context, w *world, now time.Time) {
	for _, c := range w.dirtyConfigs() {
		c.fault = nil
		if c.newest.Revision == "" {
			continue
		}
		if _, err := a.options.Layers.Of(ctx, c.id, c.newest.Revision); err != nil {
			c.fault = err
			if !lasting(err) {
				w.retry(now)
			}
		}
	}
}

// lasting: it stays until an object changes, and then there is news of it.
func lasting(err error) bool { return reason.Is(err, reason.LayerReference) }

// agree asks the rollouts of the touched configs who may go on, and what comes of it on the nodes, until both agree.
func (a *Assignments) agree(ctx context.Context, w *world, now time.Time) error {
	for range agreeMax {
		for _, c := range w.dirtyConfigs() {
			a.roll(ctx, c, w, now)
		}
		released := false
		for _, c := range w.configs {
			released = released || len(c.release) > 0
		}
		if !w.again && !released && !w.released {
			return nil
		}
		v := a.view(ctx, w, now)
		d, err := assign.Decide(v)
		if err != nil {
			return err
		}
		w.again, w.released = w.revisions.missing, released
		if !w.take(&d) {
			return nil
		}
	}
	for _, c := range w.dirtyConfigs() { // what was decided is right, and may not be all that can go on
		c.dirty, c.wakeAt = false, earlier(c.wakeAt, now.Add(retryAfter))
	}
	return nil
}

// roll decides about one rollout, and notes who goes on. That stays so until something touches the config: also when it could not be
// written.
func (a *Assignments) roll(ctx context.Context, c *config, w *world, now time.Time) {
	d := rollout.Decide(c.view(w.began), now)
	if d.Status.Proven != c.was.Proven {
		w.again = true
	}
	c.was, c.wakeAt, c.dirty, c.stale = d.Status, d.WakeAt, false, true
	c.release = map[string]assign.Target{}
	for _, m := range d.Moves {
		if a.compiles(ctx, c, m.Target) {
			c.release[m.Node] = assign.Target(m.Target)
		}
	}
}

// compiles: a node that got what makes no layer would get nothing.
func (a *Assignments) compiles(ctx context.Context, c *config, t rollout.Target) bool {
	if t == c.newest {
		return c.fault == nil
	}
	_, err := a.options.Layers.Of(ctx, c.id, t.Revision)
	return err == nil
}

// view is what package assign decides about: all nodes, because what configs are told is about all.
func (a *Assignments) view(ctx context.Context, w *world, now time.Time) assign.View {
	w.revisions.missing = false
	v := assign.View{Nodes: make([]assign.Node, 0, len(w.hosts)), Configs: make([]assign.Config, 0, len(w.configs)), Revisions: map[assign.RevisionID]*assign.Revision{}}
	need := func(config string, names ...string) {
		for _, name := range names {
			if id := (assign.RevisionID{Config: config, Name: name}); name != "" && v.Revisions[id] == nil {
				if r := a.revision(ctx, w, id); r != nil {
					v.Revisions[id] = r
				}
			}
		}
	}
	for _, h := range w.hosts {
		n := assign.Node{Name: h.name, Environment: h.environment, Labels: h.labels}
		if h.assigned != nil {
			for _, l := range h.assigned.Spec.Layers {
				n.Assigned = append(n.Assigned, assign.Row{Priority: int(l.Priority), Config: l.Config, Revision: l.Revision})
				if w.configs[l.Config] != nil {
					need(l.Config, l.Revision)
				}
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	for id, c := range w.configs {
		v.Configs = append(v.Configs, assign.Config{
			ID: id, Kind: c.kind, Namespace: c.namespace, Created: c.created, Selector: c.selector,
			Newest: assign.Target(c.newest), Proven: assign.Target(c.was.Proven), Release: c.release,
		})
		need(id, c.newest.Revision, c.was.Proven.Revision)
		for _, t := range c.release {
			need(id, t.Revision)
		}
	}
	w.revisions.keep(v.Revisions)
	if w.revisions.missing {
		w.retry(now)
	}
	return v
}

// take notes what was decided, and reports whether there are configs that something else is kept out of than before.
func (w *world) take(d *assign.Decision) (other bool) {
	for name, rows := range d.Rows {
		if h := w.hosts[name]; h.rows == nil || !slices.Equal(h.rows, rows) {
			h.rows, h.dirty = rows, true
		}
	}
	refused := map[string]map[string][]rollout.Target{}
	for _, r := range d.Refused {
		if refused[r.Config] == nil {
			refused[r.Config] = map[string][]rollout.Target{}
		}
		refused[r.Config][r.Node] = append(refused[r.Config][r.Node], rollout.Target(r.Target))
	}
	w.letOldest(refused)
	for id, c := range w.configs {
		if told := d.Told[id]; !reflect.DeepEqual(told, c.told) {
			c.told, c.stale = told, true
		}
		is := c.keepRefused(refused[id], d)
		if len(is)+len(c.refused) > 0 && !reflect.DeepEqual(is, c.refused) {
			c.refused, c.dirty, other = is, true, true
		}
	}
	return other
}

// letOldest breaks the tie between configs that would go on to one node at once and are in each other's way, and in nobody else's: it takes
// back what is told the one that was made first, so that this one alone tries again. Otherwise both would for ever.
func (w *world) letOldest(refused map[string]map[string][]rollout.Target) {
	first := map[string]*config{} // by node
	many := map[string]bool{}
	for id, nodes := range refused {
		c := w.configs[id]
		for name, targets := range nodes {
			t, goes := c.release[name]
			if !goes || !slices.Contains(targets, rollout.Target(t)) {
				continue
			}
			other := first[name]
			many[name] = other != nil
			if other == nil || cmp.Or(c.created.Compare(other.created), cmp.Compare(c.id, other.id)) < 0 {
				first[name] = c
			}
		}
	}
	for name, c := range first {
		if !many[name] {
			continue
		}
		refused[c.id][name] = slices.DeleteFunc(refused[c.id][name], func(t rollout.Target) bool { return assign.Target(t) == c.release[name] })
		if len(refused[c.id][name]) == 0 {
			delete(refused[c.id], name)
		}
	}
}

// keepRefused adds what is kept out of nodes that get something else now, which is not told of them any more. A rollout that forgot it
// would let go on just that instead, which is kept out, and so on.
func (c *config) keepRefused(is map[string][]rollout.Target, d *assign.Decision) map[string][]rollout.Target {
	for name, t := range c.release {
		if len(c.refused[name]) == 0 || !slices.Contains(d.Rows[name], assign.Row{Priority: t.Priority, Config: c.id, Revision: t.Revision}) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(c.refused[name]), func(o rollout.Target) bool { return assign.Target(o) == t })
		if is == nil {
			is = map[string][]rollout.Target{}
		}
		if len(others) > 0 {
			is[name] = others
		}
	}
	return is
}

// view is what package rollout decides about.
func (c *config) view(began time.Time) rollout.View {
	v := rollout.View{Config: c.id, Spec: c.rollout, Target: c.newest, PausedBy: c.pausedBy, Quiet: began, Was: c.was, Nodes: make([]rollout.Node, 0, len(c.hosts))}
	for _, h := range c.hosts {
		if !h.joined {
			continue
		}
		n := rollout.Node{Name: h.name, Labels: h.labels, Presence: h.presence(), Refused: c.refused[h.name]}
		if n.Presence == rollout.Unheard {
			v.Quiet = began.Add(node.UnheardMax)
		}
		if l := h.layer(c.id); l != nil {
			n.Assigned, n.Since = rollout.Target{Revision: l.Revision, Priority: int(l.Priority)}, l.Since.Time
			if n.Assigned != c.was.Proven || n.Since.After(c.was.ProvenAt) {
				n.Since = later(n.Since, h.placedAt) // every other version of its Assignment is for it to say again how it stands
			}
			n.Report = h.report(c.id, n.Assigned)
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// presence is how a rollout sees whether a node is there.
func (h *host) presence() rollout.Presence {
	switch {
	case h.seen.Presence == node.Unheard:
		return rollout.Unheard
	case h.seen.Presence == node.Here && h.seen.Believed:
		return rollout.Heard
	}
	return rollout.Silent
}

// report is what a node says of a config. Only what it says of the very state that is assigned counts: of an older one it may have been
// another layer by the same name. A state that it refused as a whole is no good for any of the configs in it that are not proven there.
func (h *host) report(config string, of rollout.Target) rollout.Report {
	r := h.seen.Report
	if r == nil || h.assigned == nil {
		return rollout.Report{}
	}
	version := versionOf(h.assigned)
	if r.Verdict.Version == version {
		if verdict, refused := refusals[r.Verdict.Type]; refused {
			return rollout.Report{Of: of, Verdict: verdict, Code: r.Verdict.Code, Message: r.Verdict.Message, Since: milliseconds(r.Verdict.Since)}
		}
	}
	if r.Enforced.Version != version {
		return rollout.Report{}
	}
	for i := range r.Configs {
		x := &r.Configs[i]
		switch {
		case x.ID != config:
		case x.Converged:
			return rollout.Report{Of: of, Verdict: rollout.Converged, Since: milliseconds(x.Since)}
		case x.Settled:
			return rollout.Report{Of: of, Verdict: rollout.Failed, Code: x.Code, Message: x.Message, Since: milliseconds(x.Since)}
		}
	}
	return rollout.Report{}
}

// refusals are the verdicts with which a host keeps what it had.
var refusals = map[wire.VerdictType]rollout.Verdict{
	wire.Rejected: rollout.Rejected, wire.Withheld: rollout.Withheld, wire.Quarantined: rollout.Quarantined,
}

// milliseconds is a time as the transfer has it; the zero time where it is not known.
func milliseconds(since int64) time.Time {
	if since == 0 {
		return time.Time{}
	}
	return time.UnixMilli(since)
}

// root is the root of the catalog that an Assignment makes.
func root(list catalog.List) (catalog.Digest, error) {
	b, err := list.Encode()
	if err != nil {
		return catalog.Digest{}, err
	}
	return catalog.ListRoot(b), nil
}
