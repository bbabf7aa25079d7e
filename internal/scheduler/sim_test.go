package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"tako.dev/tako/internal/scheduler/fit"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 60

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// column is what the store has of one node.
type column struct {
	Node
	instances map[string]Instance
	// own is the revision that the last binding of ours gave it, or -1 where that was refused.
	own int64
	// shrunk is what the agent has found missing, and has not told yet.
	shrunk fit.Amounts
}

// declared is one workload as the store has it.
type declared struct {
	Workload
	replicas int
	gang     bool
	allowed  int // how many may be told to go at once
}

// world is a store with agents, and a scheduler that learns of it late.
type world struct {
	chance
	now       time.Time
	revision  int64
	columns   map[string]*column
	workloads map[string]*declared
	specs     map[string]Workload // of all that there ever were: instances outlive their workload
	watch     []func()            // what the scheduler is still to be told, in order
	answers   []func()            // the answers to what it has written, in order
	commits   []Binding
	evictions []Eviction
	pending   map[string]Group  // that the scheduler was given, by name, with what is missing
	flying    map[string]string // bindings that the store has not answered, with their groups
	budgeted  map[string]int
	told      map[string]bool // those that were told to go, and have not been refused
	named     int
	s         *Snapshot
	q         *Queue
	wrong     []string
	happened
}

// happened counts what a simulation is to have tried.
type happened struct{ evicted, stale, rejected int }

func (w *world) fault(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func newWorld(rng *rand.Rand) *world {
	w := &world{chance: chance{rng}, now: start, columns: map[string]*column{}, workloads: map[string]*declared{}, specs: map[string]Workload{}, pending: map[string]Group{},
		flying: map[string]string{}, budgeted: map[string]int{}, told: map[string]bool{}, s: New(rng.Uint64()), q: NewQueue()}
	for i := range 4 + w.IntN(5) {
		w.setNode(w.node(fmt.Sprintf("node-%d", i)))
	}
	return w
}

// touch gives a column a new revision and tells of it.
func (w *world) touch(c *column, also func()) {
	w.revision++
	c.Revision = w.revision
	n := c.Node
	n.Labels = maps.Clone(n.Labels)
	w.watch = append(w.watch, func() {
		if also != nil {
			also()
		}
		w.s.SetNode(n)
	})
}

func (w *world) setNode(n Node) {
	c := w.columns[n.Name]
	if c == nil {
		c = &column{instances: map[string]Instance{}, own: -1}
		w.columns[n.Name] = c
	}
	// The larger part of nodes is there to be used.
	n.Unhealthy = ""
	c.Node, c.shrunk = n, fit.Amounts{}
	w.touch(c, nil)
}

// left is what the store has left of a node.
func (w *world) left(c *column) fit.Amounts {
	left := c.Capacity.Placed()
	for _, in := range c.instances {
		left = left.Minus(w.request(in).Amounts)
	}
	return left
}

func (w *world) request(in Instance) *fit.Request {
	r := w.specs[in.Workload].Request
	return &r
}

// remove takes an instance out of the store: its processes have ended.
func (w *world) remove(c *column, name string) {
	delete(c.instances, name)
	delete(w.told, name)
	w.touch(c, func() { w.s.RemoveInstance(name) })
}

// end tells an instance to go.
func (w *world) end(c *column, name string) {
	in := c.instances[name]
	in.Ending = true
	c.instances[name] = in
	w.touch(c, func() {
		if _, there := w.s.numbers[in.Node]; there {
			_ = w.s.SetInstance(in)
		}
	})
}

// commit lets the store answer the next binding: it accepts what was decided on what it has.
func (w *world) commit() {
	b := w.commits[0]
	w.commits = w.commits[1:]
	group := w.flying[b.Instance]
	delete(w.flying, b.Instance)
	g := w.groupOf(group)
	c := w.columns[b.Node]
	accepted := false
	if c != nil {
		want := b.Revision
		if b.Ahead > 0 {
			want = c.own
		}
		accepted = want == c.Revision
	}
	if !accepted {
		w.stale++
		if c != nil {
			c.own = -1
		}
		w.answers = append(w.answers, func() { w.s.NotCommitted(b.Instance) })
		w.again(g, b.Instance)
		return
	}
	in := Instance{Name: b.Instance, Workload: g.Workload, Revision: g.Revision, Node: b.Node}
	if _, there := w.living()[b.Instance]; there {
		w.fault("%s is there twice", b.Instance)
	}
	if r := w.request(in); !r.Amounts.Within(w.left(c)) {
		w.fault("the store accepted %s on %s, which has %+v left and would need %+v", b.Instance, b.Node, w.left(c), r.Amounts)
	}
	c.instances[b.Instance] = in
	w.touch(c, func() { _ = w.s.SetInstance(in) })
	c.own = c.Revision
	revision := c.Revision
	w.answers = append(w.answers, func() { w.s.Committed(b.Instance, revision) })
	if !in.requestWithin(w, c) {
		w.reject(c, in)
	}
}

// requestWithin reports whether the node really has what the store thinks.
func (in Instance) requestWithin(w *world, c *column) bool {
	return w.request(in).Amounts.Within(w.left(c).Plus(w.request(in).Amounts).Minus(c.shrunk))
}

// reject lets the agent refuse what it cannot take. What it really has is told later.
func (w *world) reject(c *column, in Instance) {
	w.rejected++
	delete(c.instances, in.Name)
	w.touch(c, func() { w.s.Rejected(in, "it has less", w.now) })
	w.again(w.groupOf(in.Workload), fmt.Sprintf("%s-again%d", in.Name, w.revision))
}

func (w *world) groupOf(key string) Group {
	d := w.workloads[key]
	return Group{Name: key, Workload: key, Revision: w.specs[key].Revision, Gang: d != nil && d.gang}
}

// again gives the scheduler an instance that has no node.
func (w *world) again(g Group, name string) {
	d := w.workloads[g.Name]
	if d == nil {
		return
	}
	w.answers = append(w.answers, func() {
		if w.workloads[g.Name] != d {
			return
		}
		p, waits := w.pending[g.Name]
		if !waits {
			p = g
		}
		p.Instances = append(slices.Clone(p.Instances), name)
		w.pending[g.Name] = p
		w.q.Put(p, d.Priority)
	})
}

func (w *world) living() map[string]Instance {
	all := map[string]Instance{}
	for _, c := range w.columns {
		maps.Copy(all, c.instances)
	}
	return all
}

// decide lets the scheduler do what it can.
func (w *world) decide(most int) {
	for range most {
		g, ok := w.q.Next(w.s, w.now)
		if !ok {
			return
		}
		d := w.s.Place(&g, w.now)
		w.check(g, d)
		w.commits = append(w.commits, d.Bindings...)
		for _, b := range d.Bindings {
			w.flying[b.Instance] = g.Name
			g.Instances = slices.DeleteFunc(slices.Clone(g.Instances), func(n string) bool { return n == b.Instance })
		}
		for _, e := range d.Evictions {
			if w.told[e.Instance] {
				w.fault("%s is told to go twice", e.Instance)
			}
			w.told[e.Instance] = true
			w.evictions = append(w.evictions, e)
		}
		if len(g.Instances) == 0 {
			delete(w.pending, g.Name)
			w.q.Remove(g.Name)
		} else {
			w.pending[g.Name] = g
			w.q.Back(w.s, g, d, w.now)
		}
	}
}

// check looks at one decision by itself.
func (w *world) check(g Group, d Decision) {
	if g.Gang && len(d.Bindings) != 0 && d.Explanation != nil {
		w.fault("%d of the gang %s were placed", len(d.Bindings), g.Name)
	}
	if c := w.s.classes[classKey{g.Workload, g.Revision}]; (c == nil || c.gone) && len(d.Bindings) > 0 {
		w.fault("%s is placed, and is not there", g.Name)
	}
	for _, e := range d.Evictions {
		k := w.s.names[e.Instance]
		victim := &w.s.instances[k]
		if victim.class.spec.Priority >= w.s.classes[classKey{g.Workload, g.Revision}].spec.Priority || victim.class.key.Workload == g.Workload {
			w.fault("%s has to go for %s, which is not above it", e.Instance, g.Name)
		}
		if w.s.budget(victim.class.key.Workload) < 0 {
			w.fault("more of %s are told to go than its budget has", victim.class.key.Workload)
		}
	}
	for i := range w.s.nodes {
		if !w.s.nodes[i].there {
			continue
		}
		held := fit.Amounts{}
		for _, k := range w.s.nodes[i].on {
			held = held.Plus(w.s.instances[k].class.spec.Request.Amounts)
		}
		if w.s.capacity[i].Minus(held) != w.s.left[i] {
			w.fault("of %s %+v is left, and should be %+v", w.s.nodes[i].Name, w.s.left[i], w.s.capacity[i].Minus(held))
		}
	}
}

// carryOut lets the store answer the next eviction: the budget is its own.
func (w *world) carryOut() {
	e := w.evictions[0]
	w.evictions = w.evictions[1:]
	c := w.columns[e.Node]
	if c == nil {
		return
	}
	in, there := c.instances[e.Instance]
	if !there || in.Ending {
		return
	}
	ending := 0
	for _, o := range w.living() {
		if o.Workload == in.Workload && o.Ending {
			ending++
		}
	}
	if d := w.workloads[in.Workload]; d != nil && ending >= d.allowed {
		delete(w.told, e.Instance)
		w.answers = append(w.answers, func() { w.s.NotEvicted(e.Instance) })
		return
	}
	w.evicted++
	w.end(c, e.Instance)
}
