package scheduler

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"tako.dev/tako/internal/scheduler/fit"
)

// SetNode tells that a node is there, or has changed. A revision below the one that is known is an old message, and is dropped.
func (s *Snapshot) SetNode(n Node) {
	n.Capacity = clampAmounts(n.Capacity)
	i, known := s.numbers[n.Name]
	if !known {
		i = s.newNode(n.Name)
		s.changes.note(everything)
	}
	st := &s.nodes[i]
	if known && n.Revision < st.Revision {
		return
	}
	if known {
		if reflectsSame(&st.Node, &n) {
			st.Revision = n.Revision
			return
		}
		s.attributes.set(i, &st.Node, false)
		s.changes.note(helpedBy(&st.Node, &n))
	}
	s.relocate(i, &n)
	for name, ids := range n.Devices {
		if st.devices == nil {
			st.devices = map[string]int64{}
		}
		st.devices[name] += int64(len(ids))
	}
	for name, ids := range st.Devices {
		st.devices[name] -= int64(len(ids))
	}
	s.left[i] = s.left[i].Plus(n.Capacity.Minus(s.capacity[i]))
	s.capacity[i] = n.Capacity
	st.Node = n
	s.attributes.set(i, &st.Node, true)
}

func (s *Snapshot) newNode(name string) int32 {
	var i int32
	if last := len(s.unused) - 1; last >= 0 {
		i, s.unused = s.unused[last], s.unused[:last]
	} else {
		i = int32(len(s.nodes))
		s.nodes, s.ties = append(s.nodes, nodeState{}), append(s.ties, 0)
		s.left, s.capacity = append(s.left, fit.Amounts{}), append(s.capacity, fit.Amounts{})
	}
	s.nodes[i] = nodeState{there: true}
	s.ties[i], s.left[i], s.capacity[i] = s.tie(name), fit.Amounts{}, fit.Amounts{}
	s.numbers[name] = i
	s.all.add(i)
	return i
}

// tie is a number that has nothing to do with the order in which nodes come.
func (s *Snapshot) tie(name string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s", s.seed, name)
	x := h.Sum64()
	// FNV leaves names that differ in their last sign close to one another.
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// relocate enters a node's domains anew, and takes what is on it along.
func (s *Snapshot) relocate(i int32, n *Node) {
	for _, t := range s.topologies {
		if t.key == "" {
			continue
		}
		was := int32(-1)
		if int(i) < len(t.of) {
			was = t.of[i]
		}
		t.locate(i, n)
		if was == t.of[i] {
			continue
		}
		for _, c := range s.classesOn(i) {
			for _, f := range c.feeds {
				if f.topology == t {
					f.add(was, -c.on[i].counted(f.ending))
					f.add(t.of[i], c.on[i].counted(f.ending))
				}
			}
		}
	}
}

// classesOn are the classes that have instances on a node, each once.
func (s *Snapshot) classesOn(i int32) []*class {
	seen := map[*class]bool{}
	var list []*class
	for _, k := range s.nodes[i].on {
		if c := s.instances[k].class; !s.instances[k].room && !seen[c] {
			seen[c] = true
			list = append(list, c)
		}
	}
	return list
}

// RemoveNode tells that a node is gone, and with it what was on it. Whoever wants that elsewhere makes new instances.
func (s *Snapshot) RemoveNode(name string) {
	i, known := s.numbers[name]
	if !known {
		return
	}
	for len(s.nodes[i].on) > 0 {
		s.forget(s.nodes[i].on[0])
	}
	st := &s.nodes[i]
	s.attributes.set(i, &st.Node, false)
	for _, t := range s.topologies {
		t.locate(i, nil)
	}
	s.avoided.forgetNode(i)
	s.all.remove(i)
	delete(s.numbers, name)
	s.nodes[i] = nodeState{}
	s.unused = append(s.unused, i)
	// Where it was the emptiest of a spread, others may go on now.
	s.changes.note(maskOf(fit.Uneven))
}

// clampAmounts keeps what a node says of itself within what can be added up.
func clampAmounts(a fit.Amounts) fit.Amounts {
	const most = 1 << 50
	return fit.Amounts{CPU: min(max(a.CPU, 0), most), Memory: min(max(a.Memory, 0), most), Disk: min(max(a.Disk, 0), most), Instances: a.Placed().Instances}
}

// reflectsSame reports whether a node differs in its revision at most.
func reflectsSame(a, b *Node) bool {
	return helpedBy(a, b) == 0 && slices.Equal(a.Images, b.Images) && a.Unhealthy == b.Unhealthy
}

// helpedBy are the reasons of which one may hold no more after a change of a node. A spread looks at which nodes there are to be had at all,
// so that any change may matter to it.
func helpedBy(was, is *Node) mask {
	var m mask
	differs := func(yes bool, reasons ...fit.Reason) {
		if yes {
			m |= maskOf(reasons...) | maskOf(fit.Uneven)
		}
	}
	differs((was.Unhealthy == "") != (is.Unhealthy == ""), fit.Unhealthy)
	differs(was.Unschedulable != is.Unschedulable, fit.Cordoned)
	differs(!maps.Equal(was.Labels, is.Labels), fit.WrongLabels, fit.NotNear, fit.TooNear)
	differs(was.Architecture != is.Architecture, fit.WrongArchitecture)
	differs(!slices.Equal(was.Runtimes, is.Runtimes), fit.NoRuntime)
	differs(!slices.Equal(was.Taints, is.Taints), fit.Tainted)
	differs(!slices.Equal(was.Directories, is.Directories), fit.NoDirectory)
	differs(!maps.EqualFunc(was.Devices, is.Devices, slices.Equal[[]string]), fit.NoDevice)
	differs(was.Capacity != is.Capacity, fit.NoCPU, fit.NoMemory, fit.NoDisk, fit.NoPlace)
	return m
}

// holds enters what an instance holds of its node, or gives it back: by is 1 or -1.
func (s *Snapshot) holds(k int32, by int64) {
	in := &s.instances[k]
	st, r := &s.nodes[in.node], &in.class.spec.Request
	left := &s.left[in.node]
	left.CPU, left.Memory, left.Disk, left.Instances = left.CPU-by*r.Amounts.CPU, left.Memory-by*r.Amounts.Memory, left.Disk-by*r.Amounts.Disk, left.Instances-by*r.Amounts.Instances
	for _, d := range r.Devices {
		if st.devices == nil {
			st.devices = map[string]int64{}
		}
		st.devices[d.Name] -= by * d.Count
	}
	for _, p := range r.Ports {
		if by > 0 {
			if st.ports == nil {
				st.ports = map[fit.Port][]int32{}
			}
			st.ports[p] = append(st.ports[p], k)
			mark(s.ports, p, in.node, true)
			continue
		}
		if st.ports[p] = slices.DeleteFunc(st.ports[p], func(o int32) bool { return o == k }); len(st.ports[p]) == 0 {
			delete(st.ports, p)
			mark(s.ports, p, in.node, false)
		}
	}
}

// yields enters an instance among those that could be told to go for one of higher priority, or takes it out.
func (s *Snapshot) yields(k int32, by int32) {
	in := &s.instances[k]
	st, priority := &s.nodes[in.node], in.class.spec.Priority
	at, found := slices.BinarySearchFunc(st.tiers, priority, func(t tier, p int32) int { return int(t.priority) - int(p) })
	if !found {
		st.tiers = slices.Insert(st.tiers, at, tier{priority: priority})
	}
	t, a := &st.tiers[at], in.class.spec.Request.Amounts
	t.count += by
	if by > 0 {
		t.amounts = t.amounts.Plus(a)
	} else {
		t.amounts = t.amounts.Minus(a)
	}
	if t.count == 0 {
		st.tiers = slices.Delete(st.tiers, at, at+1)
	}
}
