package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// budgets tells how many of each workload may be told to go.
func (w *world) budgets() {
	ending := map[string]int{}
	for _, in := range w.living() {
		if in.Ending {
			ending[in.Workload]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.workloads)) {
		allowed := max(w.workloads[key].allowed-ending[key], 0)
		if was, told := w.budgeted[key]; told && was == allowed {
			continue
		}
		w.budgeted[key] = allowed
		w.watch = append(w.watch, func() {
			if w.workloads[key] != nil {
				w.s.SetBudget(key, allowed)
			}
		})
	}
}

// declare makes a workload, which is wanted from now on.
func (w *world) declare() {
	w.named++
	one := w.chance.workload(w.IntN(4), w.named)
	one.Key = fmt.Sprintf("%s@%d", one.Key, w.named)
	one.Priority = int32(w.IntN(4))
	one.Placement.WhenLabelsChange = pickOne(w.chance, workload.Stay, workload.Move)
	d := &declared{Workload: one, replicas: 1 + w.IntN(6), gang: w.oneIn(5), allowed: w.IntN(3)}
	w.workloads[one.Key], w.specs[one.Key] = d, one
	g := Group{Name: one.Key, Workload: one.Key, Revision: one.Revision, Gang: d.gang}
	for i := range d.replicas {
		g.Instances = append(g.Instances, fmt.Sprintf("%s/%d", one.Key, i))
	}
	w.watch = append(w.watch, func() {
		w.s.SetWorkload(one)
		w.s.SetBudget(one.Key, d.allowed)
		if w.workloads[one.Key] == d {
			w.pending[g.Name] = g
			w.q.Put(g, one.Priority)
		}
	})
}

// withdraw ends a workload with its instances.
func (w *world) withdraw(key string) {
	revision := w.workloads[key].Revision
	delete(w.workloads, key)
	w.watch = append(w.watch, func() {
		delete(w.pending, key)
		w.q.Remove(key)
		w.s.RemoveWorkload(key, revision)
	})
}

// happen is something that changes in the world.
func (w *world) happen() {
	nodes := slices.Sorted(maps.Keys(w.columns))
	c := w.columns[nodes[w.IntN(len(nodes))]]
	switch w.IntN(14) {
	case 0, 1, 2:
		if len(w.workloads) < 8 {
			w.declare()
		}
	case 3:
		if len(w.workloads) > 0 && w.oneIn(2) {
			w.withdraw(pickOne(w.chance, slices.Sorted(maps.Keys(w.workloads))...))
		}
	case 4:
		w.setNode(w.node(c.Name))
	case 5:
		if name := fmt.Sprintf("node-%d", w.IntN(12)); w.columns[name] == nil {
			w.setNode(w.node(name))
		}
	case 6:
		if len(w.columns) > 3 && w.oneIn(2) {
			w.removeNode(c)
		}
	case 7:
		n := c.Node
		n.Unschedulable = !n.Unschedulable
		w.setNode(n)
	case 8:
		c.shrunk = fit.Amounts{CPU: c.Capacity.CPU / 2}
	case 9:
		if c.shrunk.CPU > 0 {
			c.Capacity, c.shrunk = c.Capacity.Minus(c.shrunk), fit.Amounts{}
			w.touch(c, nil)
		}
	case 10:
		if names := slices.Sorted(maps.Keys(c.instances)); len(names) > 0 {
			w.end(c, pickOne(w.chance, names...))
		}
	}
}

func (w *world) removeNode(c *column) {
	for _, in := range c.instances {
		delete(w.told, in.Name)
	}
	delete(w.columns, c.Name)
	w.watch = append(w.watch, func() { w.s.RemoveNode(c.Name) })
}

// controller keeps as many instances as are wanted: what is gone is replaced, and what nobody wants is told to go.
func (w *world) controller() {
	have := map[string]int{}
	for _, c := range w.columns {
		for _, in := range c.instances {
			if w.workloads[in.Workload] != nil && !in.Ending {
				have[in.Workload]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.columns)) {
		c := w.columns[name]
		for _, n := range slices.Sorted(maps.Keys(c.instances)) {
			if in := c.instances[n]; !in.Ending && w.workloads[in.Workload] == nil {
				w.end(c, n)
			}
		}
	}
	for _, g := range w.flying {
		have[g]++
	}
	for _, key := range slices.Sorted(maps.Keys(w.workloads)) {
		if len(w.watch)+len(w.answers) > 0 {
			return // it counts what is on its way by waiting for it
		}
		d, p := w.workloads[key], w.pending[key]
		for have[key]+len(p.Instances) < d.replicas {
			w.named++
			p = Group{Name: key, Workload: key, Revision: d.Revision, Gang: d.gang, Instances: append(slices.Clone(p.Instances), fmt.Sprintf("%s/r%d", key, w.named))}
			w.pending[key] = p
			w.q.Put(p, d.Priority)
		}
	}
}

// step lets a little of everything happen, in any order.
func (w *world) step(quiet bool) {
	w.now = w.now.Add(time.Duration(w.IntN(3000)) * time.Millisecond)
	if !quiet {
		w.happen()
	}
	if w.oneIn(3) || quiet {
		w.controller()
	}
	for range w.IntN(6) {
		if len(w.watch) > 0 {
			w.watch[0]()
			w.watch = w.watch[1:]
		}
	}
	for range w.IntN(4) {
		if len(w.answers) > 0 {
			w.answers[0]()
			w.answers = w.answers[1:]
		}
	}
	w.decide(w.IntN(3))
	for range w.IntN(3) {
		if len(w.commits) > 0 {
			w.commit()
		}
	}
	if len(w.evictions) > 0 && w.oneIn(2) {
		w.carryOut()
	}
	for _, name := range slices.Sorted(maps.Keys(w.columns)) {
		c := w.columns[name]
		for _, n := range slices.Sorted(maps.Keys(c.instances)) {
			if c.instances[n].Ending && w.oneIn(5) {
				w.remove(c, n)
			}
		}
	}
	if w.oneIn(4) {
		w.budgets()
	}
}

// settled checks what must be so when nothing happens any more: whoever waits has no place.
func (w *world) settled() {
	r := newReference()
	for name, c := range w.columns {
		r.nodes[name] = c.Node
		maps.Copy(r.instances, c.instances)
	}
	for key, c := range w.s.classes {
		r.workloads[key] = c.spec
	}
	for _, ks := range w.s.rooms {
		for _, k := range ks {
			in := &w.s.instances[k]
			r.rooms = append(r.rooms, Instance{Name: in.name, Workload: in.class.key.Workload, Revision: in.class.key.Revision, Node: w.s.nodes[in.node].Name})
			if _, waits := w.pending[in.name]; !waits {
				w.fault("room is kept for %s, which wants none", in.name)
			}
		}
	}
	if err := r.same(w.s); err != nil {
		w.fault("at last: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(w.workloads)) {
		d, have := w.workloads[key], 0
		for _, in := range r.instances {
			if in.Workload == key && !in.Ending {
				have++
			}
		}
		p := w.pending[key]
		if have+len(p.Instances) != d.replicas {
			w.fault("%s has %d, %d wait, and %d are wanted", key, have, len(p.Instances), d.replicas)
		}
		if len(p.Instances) == 0 || d.gang {
			continue
		}
		for name := range r.nodes {
			if why, no := r.why(name, &p, w.now); !no {
				w.fault("%s waits, and %s has room for it: %+v", key, name, *w.q.groups[key])
			} else if why == fit.Refused {
				w.fault("%s avoids %s still", key, name)
			}
		}
	}
	for key := range w.s.classes {
		if _, wanted := w.workloads[key.Workload]; !wanted {
			w.fault("%s is remembered, and nobody wants it", key.Workload)
		}
	}
}

// TestSimulation has a store, agents and a scheduler that hears of everything late; after every step nothing may be wrong, and in the end
// everybody who can be placed is.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), max(number("TAKO_SEEDS", simSeeds), simSeeds)
	if one := number("TAKO_SEED", 0); one != 0 {
		first, last = one, one
	}
	var bound, writes, evicted, stale, rejected int
	for seed := first; seed <= last; seed++ {
		w := newWorld(rand.New(rand.NewPCG(seed, 4)))
		fail := func(step int) {
			if len(w.wrong) > 0 {
				t.Fatalf("seed %d, step %d: %s\nreplay with TAKO_SEED=%d", seed, step, w.wrong[0], seed)
			}
		}
		for i := range 400 {
			w.step(false)
			fail(i)
		}
		for _, name := range slices.Sorted(maps.Keys(w.columns)) {
			w.columns[name].shrunk = fit.Amounts{}
		}
		for i := range 600 {
			w.step(true)
			if i == 300 {
				w.now = w.now.Add(2 * avoidMax) // what was refused is forgotten
			}
			fail(i)
		}
		for range 50 {
			w.now = w.now.Add(retryMax) // whoever rests has rested
			w.step(true)
		}
		for i := 0; len(w.watch)+len(w.answers)+len(w.commits)+len(w.evictions) > 0; i++ {
			w.step(true)
			if i == 1000 {
				w.fault("it does not come to rest: %d messages, %d answers, %d commits, %d evictions", len(w.watch), len(w.answers), len(w.commits), len(w.evictions))
			}
			fail(-1)
		}
		w.settled()
		fail(-1)
		bound += len(w.living())
		writes, evicted, stale, rejected = writes+int(w.revision), evicted+w.evicted, stale+w.stale, rejected+w.rejected
	}
	t.Logf("%d instances placed in the end, %d writes, %d bindings that were stale, %d refused by agents, %d evictions", bound, writes, stale, rejected, evicted)
	if min(bound, evicted, stale, rejected) == 0 {
		t.Error("something that is to be tried never happened")
	}
}
