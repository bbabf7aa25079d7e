package assignments

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/measures"
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
		w.paced(now)
		return w.wakeAt()
	}
	a.want(w)
	write(ctx, a.failureJobs(w))
	assigned := a.assignmentJobs(ctx, w, now)
	jobs := slices.Concat(assigned, a.releaseJobs(w), a.statusJobs(w, now))
	w.paced(now)
	write(ctx, jobs)
	if len(assigned) > 0 {
		w.workloads.patience.written(len(assigned), time.Since(now), time.Now())
	}
	return w.wakeAt()
}

// paced notes when the next decision may come, after one that began at a moment.
func (w *world) paced(began time.Time) {
	now := time.Now()
	w.mayDecide = now.Add(max(burstWait, thinkingPause*now.Sub(began)))
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
	for c := range w.dirty {
		dirty = append(dirty, c)
	}
	slices.SortFunc(dirty, func(a, b *config) int { return cmp.Compare(a.id, b.id) })
	return dirty
}

// wakeAt is when time alone changes something.
func (w *world) wakeAt() time.Time {
	at := earlier(w.retryAt, w.drawAt)
	if len(w.dirty) > 0 || w.unwritten { // something was written, or there is more to write
		at = earlier(at, time.Now())
	}
	for c := range w.chosen {
		at = earlier(at, c.wakeAt)
	}
	for c := range w.stale {
		at = earlier(at, c.mayWrite)
	}
	return earlier(earlier(at, w.hostsAt), w.workloads.wakeAt())
}

// earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// compile finds out what the newest revisions of the configs that are touched compile to now. One that makes no layer goes to no node.
// What no node is for is not compiled.
func (a *Assignments) compile(ctx context.Context, w *world, now time.Time) {
	for _, c := range w.dirtyConfigs() {
		c.fault = nil
		if c.newest.Revision == "" || len(c.hosts) == 0 {
			continue
		}
		layer, err := a.options.Layers.Of(ctx, c.id, c.newest.Revision)
		switch {
		case err == nil && layer.Root.String() != c.newest.Root:
			c.newest.Root, w.again = layer.Root.String(), true
		case err != nil:
			c.fault = err
			if !lasting(err) {
				w.retry(now)
			}
		}
		a.findLost(ctx, c, w)
	}
}

// findLost finds the hosts that were to have of a config what cannot be made any more, and say that they have nothing of it: a host that
// was set up anew while a value went from node to node. To the config it is a host that has nothing. Otherwise it would wait for ever.
func (a *Assignments) findLost(ctx context.Context, c *config, w *world) {
	for _, h := range c.hosts {
		lost := false
		if l := layerOf(h.stored(), c.id); l != nil && h.lacks(c.id) {
			_, err := layerAt(ctx, a.options.Layers, c.id, l.Revision, l.Root)
			lost = err != nil && lasting(err)
		}
		if lost == h.lost[c.id] {
			continue
		}
		if h.lost == nil {
			h.lost = map[string]bool{}
		}
		h.lost[c.id], w.again = lost, true
	}
}

// lacks: the host is there, and what it enforces, if anything, has nothing of a config.
func (h *host) lacks(config string) bool {
	r := h.seen.Report
	if h.presence() != rollout.Heard || r == nil || r.Enforced.Version > 0 && len(r.Configs) == 0 {
		return false
	}
	return !slices.ContainsFunc(r.Configs, func(x wire.ConfigReport) bool { return x.ID == config })
}

// lasting: it stays until an object changes, and then there is news of it.
func lasting(err error) bool {
	return layers.Lasting(err)
}

// layerAt is the layer of a revision at a root. Values that it takes from elsewhere may have changed: then it is had only as long as
// this server keeps it, and otherwise the error is LayerReference, as that of all that stays until there is news of it.
func layerAt(ctx context.Context, from Layers, config, revision, root string) (*layers.Layer, error) {
	digest, err := layers.ParseRoot(root)
	if err != nil {
		return nil, err
	}
	if layer, ok := from.At(config, digest); ok {
		return layer, nil
	}
	return compiled(ctx, from, config, revision, root)
}

// compiled is the layer of a revision at a root, if it compiles to that now: then every server can make it.
func compiled(ctx context.Context, from Layers, config, revision, root string) (*layers.Layer, error) {
	layer, err := from.Of(ctx, config, revision)
	if err != nil {
		return nil, err
	}
	if layer.Root.String() != root {
		return nil, &reason.Error{Code: reason.LayerReference, Doing: "compile revision " + revision + " of " + config + " as it was",
			Cause: errors.New("a value that it takes from a Secret or a ConfigMap has changed since")}
	}
	return layer, nil
}

// agree asks the rollouts of the touched configs who may go on, and what comes of it on the nodes, until both agree.
func (a *Assignments) agree(ctx context.Context, w *world, now time.Time) error {
	for range agreeMax {
		for _, c := range w.dirtyConfigs() {
			a.roll(ctx, c, w, now)
		}
		if !w.again && len(w.releasing) == 0 && !w.released {
			return nil
		}
		w.released = len(w.releasing) > 0
		v := a.view(ctx, w, now)
		d, err := assign.Decide(v)
		if err != nil {
			return err
		}
		w.again = w.revisions.missing
		if !w.take(&d) {
			return nil
		}
	}
	for _, c := range w.dirtyConfigs() { // what was decided is right, and may not be all that can go on
		w.clean(c)
		c.wakeAt = earlier(c.wakeAt, now.Add(retryAfter))
	}
	return nil
}

// roll decides about one rollout, and notes who goes on. That stays so until something touches the config: also when it could not be
// written.
func (a *Assignments) roll(ctx context.Context, c *config, w *world, now time.Time) {
	v := c.view(w.began)
	c.gone = a.isGone(ctx, c, w, now)
	v.Gone = c.gone
	v.Gates = measures.Readings(a.options.Measures, c.namespace, c.gates())
	d := rollout.Decide(v, now)
	if len(c.hosts) > 0 && (d.Status.Proven != c.was.Proven || d.Status.Goal != c.was.Goal) {
		w.again = true
	}
	c.was, c.wakeAt = d.Status, d.WakeAt
	w.clean(c)
	w.stale[c] = true
	delete(w.gated, c)
	if len(c.gates()) > 0 {
		w.gated[c] = true
	}
	c.release = map[string]assign.Target{}
	for _, m := range d.Moves {
		if m.Target != c.newest || c.fault == nil {
			c.release[m.Node] = assign.Target(m.Target)
		}
	}
	if len(c.release) > 0 {
		w.releasing[c] = true
	} else {
		delete(w.releasing, c)
	}
}

// gates are those of a rollout that is under way, of what has neither failed nor worked before.
func (c *config) gates() []declare.Gate {
	s := &c.was
	if len(c.hosts) == 0 || c.newest == s.Proven || s.Failed.Of == c.newest && s.Failed.Generation == c.as {
		return nil
	}
	return c.rollout.Gates
}

// want has measured what gates are about, and nothing else.
func (a *Assignments) want(w *world) {
	if a.options.Measures == nil {
		return
	}
	queries := map[measures.Query]bool{}
	for c := range w.gated {
		for i := range c.gates() {
			queries[measures.QueryOf(c.namespace, &c.gates()[i].Prometheus)] = true
		}
	}
	a.options.Measures.Want(queries)
}

// isGone: what is proven is not what is declared, and cannot be given to anybody who has not got it.
func (a *Assignments) isGone(ctx context.Context, c *config, w *world, now time.Time) bool {
	p := c.was.Proven
	if p == c.newest || p.Revision == "" || len(c.hosts) == 0 {
		return false
	}
	_, err := compiled(ctx, a.options.Layers, c.id, p.Revision, p.Root)
	if err != nil && !lasting(err) {
		w.retry(now)
		return c.gone
	}
	return err != nil
}

// view is what package assign decides about: all nodes, because what configs are told is about all; and the configs that are for any.
func (a *Assignments) view(ctx context.Context, w *world, now time.Time) assign.View {
	w.revisions.missing = false
	v := assign.View{Nodes: make([]assign.Node, 0, len(w.hosts)), Configs: make([]assign.Config, 0, len(w.chosen)), Revisions: map[assign.RevisionID]*assign.Revision{}}
	need := func(config, name, root string) {
		if id := (assign.RevisionID{Config: config, Name: name, Root: root}); name != "" && v.Revisions[id] == nil {
			if r := a.revision(ctx, w, id); r != nil {
				v.Revisions[id] = r
			}
		}
	}
	for _, h := range w.hosts {
		n := assign.Node{Name: h.name, Environment: h.environment, Labels: h.labels}
		if h.assigned != nil {
			for _, l := range h.assigned.Spec.Layers {
				if w.configs[l.Config] != nil && !h.lost[l.Config] {
					n.Assigned = append(n.Assigned, assign.Row{Priority: int(l.Priority), Config: l.Config, Revision: l.Revision, Root: l.Root})
					need(l.Config, l.Revision, l.Root)
				}
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	for c := range w.chosen {
		is := assign.Config{ID: c.id, Kind: c.kind, Namespace: c.namespace, Created: c.created, Selector: c.selector, Release: c.release}
		if c.newest.Root != "" {
			is.Newest = assign.Target(c.goal())
		}
		if !c.gone {
			is.Proven = assign.Target(c.was.Proven)
		}
		v.Configs = append(v.Configs, is)
		need(c.id, is.Newest.Revision, is.Newest.Root)
		need(c.id, is.Proven.Revision, is.Proven.Root)
		for _, t := range c.release {
			need(c.id, t.Revision, t.Root)
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
			h.rows = rows
			w.replan(h)
		}
	}
	refused, awaited, blocked := map[string]map[string][]rollout.Target{}, map[string]map[string]bool{}, map[string]bool{}
	for _, r := range d.Refused {
		if refused[r.Config] == nil {
			refused[r.Config] = map[string][]rollout.Target{}
		}
		refused[r.Config][r.Node] = append(refused[r.Config][r.Node], rollout.Target(r.Target))
		blocked[r.Config] = blocked[r.Config] || r.Why != assign.Later
	}
	for _, t := range d.Together {
		if awaited[t.Config] == nil {
			awaited[t.Config] = map[string]bool{}
		}
		awaited[t.Config][t.Node] = true
	}
	for c := range w.chosen {
		if told := d.Told[c.id]; blocked[c.id] != c.blocked || !reflect.DeepEqual(told, c.told) {
			c.told, c.blocked = told, blocked[c.id]
			w.stale[c] = true
		}
		if is := refused[c.id]; len(is)+len(c.refused) > 0 && !reflect.DeepEqual(is, c.refused) {
			c.refused, other = is, true
			w.touch(c)
		}
		if is := awaited[c.id]; !maps.Equal(is, c.awaited) {
			c.awaited, other = is, true
			w.touch(c)
		}
	}
	return other
}

// view is what package rollout decides about.
func (c *config) view(began time.Time) rollout.View {
	v := rollout.View{Config: c.id, Spec: c.rollout, Target: c.newest, PausedBy: c.pausedBy, Generation: c.as, Quiet: began, Was: c.was, Nodes: make([]rollout.Node, 0, len(c.hosts))}
	for _, h := range c.hosts {
		if !h.joined {
			continue
		}
		n := rollout.Node{Name: h.name, Labels: h.labels, Presence: h.presence(), Refused: c.refused[h.name], Awaited: c.awaited[h.name]}
		if n.Presence == rollout.Unheard {
			v.Quiet = began.Add(node.UnheardMax)
		}
		if l := h.layer(c.id); l != nil {
			n.Assigned, n.Since = rollout.Target{Revision: l.Revision, Priority: int(l.Priority), Root: l.Root}, l.Since.Time
			if n.Assigned != c.was.Proven || n.Since.After(c.was.ProvenAt) {
				n.Since = later(n.Since, h.placedAt).Add(h.window()) // every other version of its Assignment is for it to say again how it stands
			}
			if h.tries(c.id) {
				n.Since = n.Since.Add(time.Duration(h.assigned.Spec.Try.Seconds) * time.Second) // until then nothing is late
			}
			n.Report = h.remembered(l, h.report(c.id, n.Assigned))
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

// ordered tells whether a host enforces an operator's order in place of a config: what it says of the config is not of any revision.
func ordered(r *wire.Report, config string) bool {
	return slices.ContainsFunc(r.Statements, func(s wire.Statement) bool { return s.Layer == config && s.Code == 0 })
}

// report is what a node says of a config. Only what it says of the very state that is assigned counts: of an older one it may have been
// another layer by the same name. A state that it refused as a whole is no good for any of the configs in it that are not proven there.
func (h *host) report(config string, of rollout.Target) rollout.Report {
	r := h.seen.Report
	if r == nil || h.assigned == nil {
		return rollout.Report{}
	}
	if h.says(r.Verdict.Version) {
		if verdict, refused := refusals[r.Verdict.Type]; refused {
			return rollout.Report{Of: of, Verdict: verdict, Code: r.Verdict.Code, Message: r.Verdict.Message, Since: milliseconds(r.Verdict.Since)}
		}
	}
	if !h.says(r.Enforced.Version) || ordered(r, config) {
		return rollout.Report{}
	}
	for i := range r.Configs {
		x := &r.Configs[i]
		switch {
		case x.ID != config:
		case x.Converged && h.tries(config):
			return rollout.Report{} // it may still go back
		case x.Converged:
			return rollout.Report{Of: of, Verdict: rollout.Converged, Since: milliseconds(x.Since)}
		case x.Settled:
			return rollout.Report{Of: of, Verdict: rollout.Failed, Code: x.Code, Message: x.Message, Since: milliseconds(x.Since)}
		}
	}
	return rollout.Report{}
}

// says reports whether the state of a version says of configs what is assigned now.
func (h *host) says(version uint64) bool {
	is := versionOf(h.assigned)
	return version == is || h.since > 0 && h.since <= version && version < is
}

// reached is what a host has converged on, and since when it has had it.
type reached struct {
	target rollout.Target
	since  time.Time
}

// remembered is what a host says of a config, and where it says nothing yet what it has said before, if that was that it has converged and it
// was given nothing else since: it is busy, most often with another config in the same Assignment.
func (h *host) remembered(l *v1alpha1.AssignedLayer, is rollout.Report) rollout.Report {
	was := reached{rollout.Target{Revision: l.Revision, Priority: int(l.Priority), Root: l.Root}, l.Since.Time}
	switch {
	case is.Verdict == rollout.Converged:
		if h.reached == nil {
			h.reached = map[string]reached{}
		}
		h.reached[l.Config] = was
		return is
	case is == rollout.Report{} && h.reached[l.Config] == was && !h.tries(l.Config) && h.busyWith(l.Config):
		return rollout.Report{Of: was.target, Verdict: rollout.Converged}
	}
	delete(h.reached, l.Config)
	return is
}

// busyWith reports whether the host knows a config, and says nothing against it.
func (h *host) busyWith(config string) bool {
	return h.seen.Report != nil && slices.ContainsFunc(h.seen.Report.Configs, func(x wire.ConfigReport) bool {
		return x.ID == config && (x.Converged || !x.Settled)
	})
}

// tries reports whether the host goes back from what it has of a config unless that is confirmed.
func (h *host) tries(config string) bool {
	t := h.assigned.Spec.Try
	return t != nil && t.Config == config
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
