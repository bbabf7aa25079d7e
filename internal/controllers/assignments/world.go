package assignments

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/assign"
	"tako.dev/tako/internal/fleet/rollout"
)

// world is what the loop knows. Only its goroutine touches it.
type world struct {
	began     time.Time
	hosts     map[string]*host   // by name
	configs   map[string]*config // by ID
	chosen    map[*config]bool   // those that select a host
	dirty     map[*config]bool   // those of which something has changed that their rollouts follow from
	stale     map[*config]bool   // those whose status may have to be written
	releasing map[*config]bool   // those that let something go on
	gated     map[*config]bool   // those for whose gates something is measured
	placed    map[string]*v1alpha1.Assignment
	leaving   map[string]*v1alpha1.Assignment // whose nodes were deleted
	revisions *revisions
	orders    orders
	workloads workloads
	again     bool // assign.Decide is to be asked, whatever the rollouts say
	released  bool // in the last decision something was let go on
	retryAt   time.Time
	unwritten bool      // there were more statuses to write than at once
	mayDecide time.Time // the next decision is not to come before
	planning
	drawing
}

// planning is which hosts are to be planned.
type planning struct {
	planned map[string]bool // those of which the Assignment is, and maybe some that are not there
	hostsAt time.Time       // no host is planned by itself before; zero: none is
}

// drawing is when peers are drawn anew.
type drawing struct {
	groups  map[string]string // of hosts by name, as they were when peers were drawn
	drawAt  time.Time         // when it is looked whose peers are to be drawn anew; zero: nothing of that has changed
	mayDraw time.Time         // and not before
}

func newWorld(now time.Time) *world {
	return &world{
		began: now, hosts: map[string]*host{}, planning: planning{planned: map[string]bool{}}, configs: map[string]*config{}, placed: map[string]*v1alpha1.Assignment{}, drawing: drawing{groups: map[string]string{}}, leaving: map[string]*v1alpha1.Assignment{},
		chosen: map[*config]bool{}, dirty: map[*config]bool{}, stale: map[*config]bool{}, releasing: map[*config]bool{}, gated: map[*config]bool{},
		revisions: newRevisions(), orders: orders{}, workloads: newWorkloads(), again: true,
	}
}

// hostSpec is what matters here of a Node.
type hostSpec struct {
	name           string
	uid            types.UID
	environment    string
	labels         map[string]string
	holds          []v1alpha1.NodeHold
	allowDeletions string
	sealingKey     []byte // of who may speak for the node
	joined         bool
	deleting       bool
}

func shapeNode(obj any) (string, *hostSpec) {
	n := obj.(*v1alpha1.Node)
	h := &hostSpec{
		name: n.Name, uid: n.UID, environment: n.Spec.Environment, labels: n.Labels, holds: n.Spec.Holds, allowDeletions: n.Spec.AllowDeletions,
		deleting: n.DeletionTimestamp != nil,
	}
	if n.Status.Identity != nil {
		h.joined, h.sealingKey = true, n.Status.Identity.SealingKey
	}
	return n.Name, h
}

// host is a node.
type host struct {
	hostSpec
	configs  map[*config]bool // that select it
	lost     map[string]bool  // configs of which it was to have what cannot be made any more, and has not got it
	seen     presence.Seen
	assigned *v1alpha1.Assignment // what is stored of this very node; nil: nothing
	placedAt time.Time            // when that became known
	since    uint64               // the version of it from which on it says the same of configs; 0: its own
	reached  map[string]reached   // by config; not of others than those that it has
	rows     []assign.Row         // what was decided last
	dirty    bool                 // its Assignment is to be planned
	wakeAt   time.Time            // when it is by itself: a hold ends
	drawn    *[]v1alpha1.NodePeer // whom it asks, where that was decided since this server leads; nil: as it is stored
}

// configSpec is what matters here of a NodeConfig or ClusterNodeConfig.
type configSpec struct {
	id, kind, namespace, name string
	uid                       types.UID
	created                   time.Time
	generation                int64
	selector                  declare.Selector
	rollout                   declare.Rollout
	priority                  int
	pausedBy                  string
	status                    v1alpha1.NodeConfigStatus
	deleting                  bool
}

func shapeConfig(obj any) (string, *configSpec) {
	var d *declare.NodeConfig
	var m *metav1.ObjectMeta
	c := &configSpec{}
	switch o := obj.(type) {
	case *v1alpha1.NodeConfig:
		d, m, c.status = o.Declaration(), &o.ObjectMeta, o.Status
	case *v1alpha1.ClusterNodeConfig:
		d, m, c.status = o.Declaration(), &o.ObjectMeta, o.Status
	}
	c.id, c.kind, c.namespace, c.name, c.uid, c.created = catalog.ConfigName(d), d.Kind, m.Namespace, m.Name, m.UID, m.CreationTimestamp.Time
	c.generation, c.selector, c.rollout, c.priority, c.deleting = m.Generation, d.Spec.Selector, d.Spec.Rollout, d.Priority(), m.DeletionTimestamp != nil
	if c.rollout.Pause {
		c.pausedBy = setBy(m.ManagedFields, "f:spec", "f:rollout", "f:pause")
	}
	return c.id, c
}

// setBy is who has set a field last; empty where that is not known.
func setBy(managed []metav1.ManagedFieldsEntry, path ...string) string {
	who, when := "", time.Time{}
	for _, entry := range managed {
		if entry.FieldsV1 == nil || entry.Time != nil && entry.Time.Time.Before(when) {
			continue
		}
		fields := entry.FieldsV1.GetRawBytes()
		for _, name := range path {
			var inside map[string]json.RawMessage
			if json.Unmarshal(fields, &inside) != nil {
				fields = nil
				break
			}
			fields = inside[name]
		}
		if fields != nil {
			who = entry.Manager
			if entry.Time != nil {
				when = entry.Time.Time
			}
		}
	}
	return who
}

func shapeAssignment(obj any) (string, *v1alpha1.Assignment) {
	a := obj.(*v1alpha1.Assignment)
	return a.Name, a
}

// config is a config with what was decided about it.
type config struct {
	configSpec
	hosts   []*host                     // that it selects, by name
	newest  rollout.Target              // what its nodes are to have in the end
	as      int64                       // the generation that declares that
	fault   error                       // why that cannot be compiled now
	was     rollout.Status              // how its rollout stood at the last decision
	release map[string]assign.Target    // what may go on now, by node
	gone    bool                        // what is proven cannot be given to anybody any more
	refused map[string][]rollout.Target // by node
	awaited map[string]bool             // nodes where others wait for it
	blocked bool                        // something that is refused is in the way of what stays
	told    assign.Told
	wakeAt  time.Time
	letter
}

func compareConfigs(a, b *config) int { return cmp.Compare(a.id, b.id) }

// goal is what its nodes are to have in the end: the newest, unless that has failed and was rolled back.
func (c *config) goal() rollout.Target {
	if c.was.Target == c.newest {
		return c.was.Goal
	}
	return c.newest
}

// touch has the rollout of a config decided about.
func (w *world) touch(c *config) { w.dirty[c] = true }

// clean notes that it was.
func (w *world) clean(c *config) { delete(w.dirty, c) }

// forget lets a config go.
func (w *world) forget(c *config) {
	for _, h := range c.hosts {
		delete(h.configs, c)
		w.again = true
	}
	for _, set := range []map[*config]bool{w.chosen, w.dirty, w.stale, w.releasing, w.gated} {
		delete(set, c)
	}
	delete(w.configs, c.id)
	delete(w.orders, c.id)
}

// absorb takes in what the watches, the layers and the presence have told.
func (a *Assignments) absorb(w *world, now time.Time) {
	nodes := a.nodes.Take()
	w.absorbHosts(nodes, a.options.Presence)
	if w.regroups(nodes) {
		w.drawSoon(now)
	}
	w.absorbConfigs(a.configs[0].Take())
	w.absorbConfigs(a.configs[1].Take())
	placed := a.placed.Take()
	w.absorbPlaced(placed)
	a.keepHeads(w, slices.Collect(maps.Keys(placed)))
	for _, name := range a.options.Presence.Changes() {
		if h := w.hosts[name]; h != nil {
			told := h.peerAddress()
			if h.seen, _ = a.options.Presence.Of(h.uid); h.peerAddress() != told {
				w.drawSoon(now)
			}
			if w.orders.caughtUp(h) {
				w.replan(h)
			}
			w.touchConfigs(h)
		}
	}
	changed := a.options.Changes.Take()
	for _, id := range changed {
		if c := w.configs[id]; c != nil {
			w.touchHosts(c)
		}
	}
	var tenants []string
	w.workloads.absorb(a.tenants.Take(), func(t *tenant) {
		if t.is.LeaseSeconds > 0 { // another copy may be made by when its host has heard of it
			w.plan(t.node)
			return
		}
		tenants = append(tenants, t.node)
	})
	for _, node := range w.workloads.patience.take(tenants, now) {
		w.plan(node)
	}
	w.workloads.outdated(changed, now, w.plan)
	retry := due(&w.retryAt, now)
	for c := range w.chosen {
		if due(&c.wakeAt, now) {
			w.touch(c)
		}
		if retry && c.fault != nil {
			w.touchHosts(c)
		}
	}
	if due(&w.drawAt, now) {
		w.draw(now)
	}
	if due(&w.hostsAt, now) {
		for _, h := range w.hosts {
			if due(&h.wakeAt, now) {
				w.replan(h)
			}
			w.hostsAt = earlier(w.hostsAt, h.wakeAt)
		}
	}
}

// replan has the Assignment of a host planned.
func (w *world) replan(h *host) { h.dirty, w.planned[h.name] = true, true }

// wakeHost has a host planned by itself at a moment; zero: not.
func (w *world) wakeHost(h *host, at time.Time) {
	h.wakeAt, w.hostsAt = at, earlier(w.hostsAt, at)
}

// plan has the Assignment of a node planned, if there is one.
func (w *world) plan(node string) {
	if h := w.hosts[node]; h != nil {
		w.replan(h)
	}
}

// due reports whether a time has come, and takes it away then.
func due(at *time.Time, now time.Time) bool {
	if at.IsZero() || at.After(now) {
		return false
	}
	*at = time.Time{}
	return true
}

func (w *world) absorbHosts(news map[string]*hostSpec, from Presence) {
	for name, spec := range news {
		h := w.hosts[name]
		if spec == nil || spec.deleting {
			if h != nil {
				delete(w.hosts, name)
				w.reselect(h, false)
			}
			continue
		}
		switch {
		case h != nil && reflect.DeepEqual(h.hostSpec, *spec):
			continue
		case h == nil || h.uid != spec.uid:
			if h != nil {
				w.reselect(h, false)
			}
			h = &host{hostSpec: *spec, configs: map[*config]bool{}}
			h.seen, _ = from.Of(h.uid)
			w.hosts[name] = h
			w.attach(h)
		default:
			if !bytes.Equal(h.sealingKey, spec.sealingKey) {
				h.reached = nil // another machine
			}
			h.hostSpec = *spec
		}
		w.reselect(h, true)
	}
}

// attach gives a host the Assignment that is stored for it; one of an earlier node of its name is none.
func (w *world) attach(h *host) {
	h.assigned, h.placedAt, h.since = nil, time.Now(), 0
	if p := w.placed[h.name]; p != nil && p.Spec.NodeUID == h.uid && p.DeletionTimestamp == nil {
		h.assigned = p
		maps.DeleteFunc(h.reached, func(config string, _ reached) bool { return layerOf(p.Spec.Layers, config) == nil })
	}
	w.replan(h)
}

// reselect finds anew which configs are for a host; there says whether the host is.
func (w *world) reselect(h *host, there bool) {
	w.replan(h)
	w.again = true
	for _, c := range w.configs {
		i, found := slices.BinarySearchFunc(c.hosts, h.name, func(o *host, name string) int { return cmp.Compare(o.name, name) })
		selects := there && c.selects(h)
		switch {
		case !found && !selects:
			continue
		case found && !selects:
			c.hosts = slices.Delete(c.hosts, i, i+1)
		case found:
			c.hosts[i] = h
		default:
			c.hosts = slices.Insert(c.hosts, i, h)
		}
		w.choose(c, h, selects)
	}
}

// choose notes whether a config selects a host.
func (w *world) choose(c *config, h *host, selects bool) {
	if selects {
		h.configs[c] = true
	} else {
		delete(h.configs, c)
	}
	if len(c.hosts) > 0 {
		w.chosen[c] = true
	} else {
		delete(w.chosen, c)
		c.told, c.blocked, c.refused, c.awaited = assign.Told{}, false, nil, nil
		w.stale[c] = true
	}
	w.touch(c)
}

// selects reports whether a config is for a host.
func (c *config) selects(h *host) bool {
	as := assign.Config{Kind: c.kind, Namespace: c.namespace, Selector: c.selector}
	return as.Selects(&assign.Node{Name: h.name, Environment: h.environment, Labels: h.labels})
}

func (w *world) absorbConfigs(news map[string]*configSpec) {
	for id, spec := range news {
		c := w.configs[id]
		if spec == nil || spec.deleting {
			if c != nil {
				w.forget(c)
			}
			continue
		}
		if c == nil || c.uid != spec.uid {
			if c != nil {
				w.forget(c)
			}
			c = &config{configSpec: *spec, was: wasOf(spec.status.Rollout), as: spec.status.ObservedGeneration, refused: map[string][]rollout.Target{}}
			w.configs[id] = c
			w.pick(c)
		}
		w.renew(c, spec)
	}
}

// renew takes in another version of a config.
func (w *world) renew(c *config, spec *configSpec) {
	old := c.configSpec
	c.configSpec = *spec
	if !reflect.DeepEqual(old.selector, spec.selector) {
		w.pick(c)
	}
	w.stale[c] = true
	newest, known := newestOf(spec)
	switch was := c.was.Target; {
	case !known: // until the controller of revisions has looked
		newest = was
	case newest.Revision == was.Revision && newest.Priority == was.Priority:
		newest.Root = was.Root // as far as is known before it is compiled
	}
	as := c.as
	if known {
		c.as = spec.generation
	}
	if newest.Revision != c.newest.Revision || newest.Priority != c.newest.Priority {
		c.newest, c.fault = newest, nil
		w.again = w.again || len(c.hosts) > 0
	}
	if old.generation != spec.generation || c.as != as || c.newest != c.was.Target || !reflect.DeepEqual(old.rollout, spec.rollout) {
		w.touch(c)
	}
	if (old.rollout.Try == "") != (spec.rollout.Try == "") {
		for _, h := range c.hosts {
			w.replan(h)
		}
	}
}

// newestOf is what the nodes of a config are to have in the end, once its revision is made.
func newestOf(c *configSpec) (rollout.Target, bool) {
	revised := meta.FindStatusCondition(c.status.Conditions, v1alpha1.ConditionRevised)
	if revised == nil || revised.Status != metav1.ConditionTrue || revised.ObservedGeneration != c.generation {
		return rollout.Target{}, false
	}
	return rollout.Target{Revision: c.status.Revision, Priority: c.priority}, true
}

// pick finds the hosts of a config.
func (w *world) pick(c *config) {
	before := c.hosts
	c.hosts = nil
	for _, h := range w.hosts {
		if c.selects(h) {
			c.hosts = append(c.hosts, h)
		}
	}
	slices.SortFunc(c.hosts, func(a, b *host) int { return cmp.Compare(a.name, b.name) })
	for _, h := range before {
		w.choose(c, h, false)
	}
	for _, h := range c.hosts {
		w.choose(c, h, true)
	}
	w.touch(c)
	w.again = w.again || len(before)+len(c.hosts) > 0
}

func (w *world) absorbPlaced(news map[string]*v1alpha1.Assignment) {
	for name, p := range news {
		if old := w.placed[name]; p != nil && old != nil && old.UID == p.UID && versionOf(p) <= versionOf(old) {
			continue // what was written here is told late
		}
		w.notice(name, p)
		if p == nil {
			delete(w.placed, name)
		} else {
			w.placed[name] = p
			w.orders.stored(p)
		}
		if h := w.hosts[name]; h != nil {
			w.attach(h)
			w.again = true
			w.touchConfigs(h)
		}
	}
}

// versionOf is the version of the signed state that an Assignment stands for.
func versionOf(p *v1alpha1.Assignment) uint64 {
	v, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// idleWait is how long a rollout that is over waits until what its nodes say is counted: ours, short for a person, and long against the
// reports of all the others after a change of one config, of which each is about every config on its node.
const idleWait = 100 * time.Millisecond

// touchConfigs has the rollouts of a host's configs decided about; soon, where nothing but counts can follow.
func (w *world) touchConfigs(h *host) {
	soon := time.Now().Add(idleWait)
	for c := range h.configs {
		if c.idleOn(h) {
			c.wakeAt = earlier(c.wakeAt, soon)
		} else {
			w.touch(c)
		}
	}
}

// idleOn: the rollout is over, and the host has what it brought, or went back to.
func (c *config) idleOn(h *host) bool {
	if over := c.was.Phase == rollout.Complete || c.was.Phase == rollout.RolledBack; !over || len(c.release) > 0 || c.was.Target != c.newest || c.was.Proven != c.was.Goal {
		return false
	}
	l, goal := h.layer(c.id), c.was.Goal
	return l != nil && l.Revision == goal.Revision && int(l.Priority) == goal.Priority && l.Root == goal.Root
}

// touchHosts has the layers of a config looked at again, on all its hosts.
func (w *world) touchHosts(c *config) {
	w.touch(c)
	c.fault = nil
	for _, h := range c.hosts {
		w.replan(h)
	}
}
