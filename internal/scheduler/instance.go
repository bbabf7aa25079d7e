package scheduler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

// SetWorkload tells that a revision of a workload is there, or that what is declared of where its instances go has changed, which makes no new
// revision. Instances that are placed stay where they are.
func (s *Snapshot) SetWorkload(w Workload) {
	old := s.classes[classKey{w.Key, w.Revision}]
	switch {
	case old == nil:
		s.define(w)
	case !reflect.DeepEqual(old.spec, w):
		s.redefine(old, w)
	default:
		old.gone = false
	}
}

// redefine puts another class in the place of one, and what belongs to that into it.
func (s *Snapshot) redefine(old *class, w Workload) {
	var moved []instance
	for _, i := range s.nodesOf(old) {
		for _, k := range slices.Clone(s.nodes[i].on) {
			in := &s.instances[k]
			if in.class != old {
				continue
			}
			moved = append(moved, *in)
			if in.evicting { // it goes as it was told to: what its budget has is not touched
				s.stays(in, k)
			}
			s.drop(k)
		}
	}
	s.retire(old)
	c := s.define(w)
	for _, in := range moved {
		if in.room {
			s.rooms[in.name] = append(s.rooms[in.name], s.take(instance{name: in.name, class: c, node: in.node, room: true}))
			continue
		}
		k := s.enter(in.name, c, in.node)
		if in.assumed {
			s.instances[k].assumed = true
			s.nodes[in.node].onWay++
		}
		switch {
		case in.ending:
			s.end(k)
		case in.evicting:
			s.goes(k)
		}
	}
	s.changes.note(everything)
}

// nodesOf are the nodes where a class has instances, or room kept for some, in order.
func (s *Snapshot) nodesOf(c *class) []int32 {
	nodes := slices.Collect(maps.Keys(c.on))
	for _, list := range s.rooms {
		for _, k := range list {
			if s.instances[k].class == c {
				nodes = append(nodes, s.instances[k].node)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// define enters a class.
func (s *Snapshot) define(w Workload) *class {
	key := classKey{w.Key, w.Revision}
	c := &class{key: key, spec: w, on: map[int32]tally{}}
	for _, one := range fit.Requirements(w.Request.Selector) {
		c.needs = append(c.needs, need{one, fit.SelectorText(one)})
	}
	for i := range w.Placement.AntiAffinity {
		if a := &w.Placement.AntiAffinity[i]; a.Weight == nil {
			_, id := matcher(w.Namespace, a)
			c.keeps = append(c.keeps, id)
		}
	}
	for _, f := range s.counters {
		if f.counts(c) {
			c.feeds = append(c.feeds, f)
		}
		if f.repels != nil && f.repels(c) {
			c.repelled = append(c.repelled, f)
		}
	}
	s.classes[key] = c
	s.revisions[w.Key] = append(s.revisions[w.Key], c)
	c.rules, c.keepers = s.rulesOf(c), s.keepers(c)
	return c
}

// RemoveWorkload tells that a revision is not declared any more. Room that was kept for it is everybody's, and it is forgotten when its last
// instance is.
func (s *Snapshot) RemoveWorkload(key, revision string) {
	if c := s.classes[classKey{key, revision}]; c != nil {
		for group, list := range s.rooms {
			if s.instances[list[0]].class == c {
				s.Forget(group)
			}
		}
		c.gone = true
		s.letGo(c)
	}
}

func (s *Snapshot) letGo(c *class) {
	if !c.gone || c.count > 0 {
		return
	}
	s.retire(c)
	if len(s.revisions[c.key.Workload]) == 0 {
		delete(s.budgets, c.key.Workload)
		s.avoided.forgetWorkload(c.key.Workload)
	}
}

// retire takes a class out that has no instances.
func (s *Snapshot) retire(c *class) {
	delete(s.classes, c.key)
	rest := slices.DeleteFunc(s.revisions[c.key.Workload], func(o *class) bool { return o == c })
	if s.revisions[c.key.Workload] = rest; len(rest) == 0 {
		delete(s.revisions, c.key.Workload)
	}
	for _, r := range c.rules {
		s.uncount(r.counter)
	}
	for _, k := range c.keepers {
		s.uncount(k)
	}
}

// SetInstance tells what the store has of an instance. What was assumed of it is a fact by that. The error is one of the caller: it names a
// node or a workload that it has not told of.
func (s *Snapshot) SetInstance(in Instance) error {
	node, known := s.numbers[in.Node]
	if !known {
		return untold("instance "+in.Name, "node "+in.Node)
	}
	c := s.classes[classKey{in.Workload, in.Revision}]
	if c == nil {
		return untold("instance "+in.Name, fmt.Sprintf("revision %s of workload %s", in.Revision, in.Workload))
	}
	if k, there := s.names[in.Name]; there {
		old := &s.instances[k]
		if old.class == c && old.node == node {
			s.settle(k)
			if in.Ending && !old.ending {
				s.end(k)
			}
			return nil
		}
		// Changed in place, or another one of its name: what it had is free once, and what it has now is held once.
		s.forget(k)
	}
	k := s.enter(in.Name, c, node)
	if in.Ending {
		s.end(k)
	}
	return nil
}

func untold(doing, what string) error {
	return &reason.Error{Code: reason.InternalFault, Doing: "tell the scheduler of " + doing, Cause: fmt.Errorf("%s is not known to it", what)}
}

// enter puts an instance onto a node.
func (s *Snapshot) enter(name string, c *class, node int32) int32 {
	k := s.take(instance{name: name, class: c, node: node})
	s.names[name] = k
	s.tell(c, node, 1, 0)
	s.yields(k, 1)
	s.changes.note(maskOf(fit.NotNear, fit.Uneven))
	return k
}

// take enters something that holds what an instance holds.
func (s *Snapshot) take(in instance) int32 {
	var k int32
	if last := len(s.free) - 1; last >= 0 {
		k, s.free = s.free[last], s.free[:last]
		s.instances[k] = in
	} else {
		k = int32(len(s.instances))
		s.instances = append(s.instances, in)
	}
	st := &s.nodes[in.node]
	s.instances[k].slot = int32(len(st.on))
	st.on = append(st.on, k)
	in.class.count++
	s.holds(k, 1)
	return k
}

// tell counts instances that have come, or gone, or begun to end.
func (s *Snapshot) tell(c *class, node, live, ending int32) {
	t := c.on[node]
	t.live, t.ending = t.live+live, t.ending+ending
	c.ending += int(ending)
	if c.on[node] = t; t == (tally{}) {
		delete(c.on, node)
	}
	for _, f := range c.feeds {
		by := live
		if f.ending {
			by += ending
		}
		f.add(f.topology.domain(node), by)
	}
}

// end is called when an instance begins to end: it holds what it has, and is no company any more.
func (s *Snapshot) end(k int32) {
	in := &s.instances[k]
	if in.evicting {
		s.gave(in)
	} else {
		s.yields(k, -1)
	}
	in.ending = true
	s.tell(in.class, in.node, -1, 1)
	s.changes.note(maskOf(fit.NotNear, fit.Uneven) | takenBySomebody)
}

// RemoveInstance tells that an instance is gone, its processes included.
func (s *Snapshot) RemoveInstance(name string) {
	if k, there := s.names[name]; there {
		s.forget(k)
	}
}

// forget takes an instance out of everything, and says that there is more room by that.
func (s *Snapshot) forget(k int32) {
	s.drop(k)
	s.changes.note(maskOf(fit.NotNear, fit.TooNear, fit.Uneven) | takenBySomebody)
}

// drop takes an instance, or kept room, out of everything.
func (s *Snapshot) drop(k int32) {
	in := s.instances[k]
	s.holds(k, -1)
	st := &s.nodes[in.node]
	last := st.on[len(st.on)-1]
	st.on[in.slot] = last
	s.instances[last].slot = in.slot
	st.on = st.on[:len(st.on)-1]
	switch {
	case in.room:
		rest := slices.DeleteFunc(s.rooms[in.name], func(o int32) bool { return o == k })
		if s.rooms[in.name] = rest; len(rest) == 0 {
			delete(s.rooms, in.name)
		}
	default:
		switch {
		case in.evicting:
			s.gave(&in)
		case !in.ending:
			s.yields(k, -1)
		}
		s.settle(k)
		delete(s.names, in.name)
		if in.ending {
			s.tell(in.class, in.node, 0, -1)
		} else {
			s.tell(in.class, in.node, -1, 0)
		}
	}
	s.instances[k] = instance{}
	s.free = append(s.free, k)
	in.class.count--
	s.letGo(in.class)
}

// settle ends that an instance is assumed.
func (s *Snapshot) settle(k int32) {
	if in := &s.instances[k]; in.assumed {
		in.assumed = false
		s.nodes[in.node].onWay--
	}
}

// Committed tells that the store has accepted a binding, and which revision the node's column has by that.
func (s *Snapshot) Committed(name string, revision int64) {
	if k, there := s.names[name]; there {
		s.settle(k)
		st := &s.nodes[s.instances[k].node]
		st.Revision = max(st.Revision, revision)
	}
}

// NotCommitted tells that the store has refused a binding, because something else was written of the node, or that nobody knows. It counts
// no more; where it was accepted after all, SetInstance says so.
func (s *Snapshot) NotCommitted(name string) {
	if k, there := s.names[name]; there && s.instances[k].assumed {
		s.forget(k)
	}
}

// SetBudget tells how many instances of a workload may be told to go now, those left out that are ending already.
func (s *Snapshot) SetBudget(workload string, allowed int) {
	if allowed > s.budgets[workload] {
		s.changes.note(takenBySomebody)
	}
	s.budgets[workload] = allowed
}

// gave is called when an instance that we have told to go has begun to: what was told of the budget before does not know of it.
func (s *Snapshot) gave(in *instance) {
	in.evicting = false
	in.class.evicting--
	s.budgets[in.class.key.Workload]--
}

// budget is how many may be told to go by what we know: some have not begun to, and what was told of the budget does not know of them.
func (s *Snapshot) budget(workload string) int {
	allowed := s.budgets[workload]
	for _, c := range s.revisions[workload] {
		allowed -= c.evicting
	}
	return allowed
}
