package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// plansMax is how many nodes are compared, beyond those that are needed, before room is made on the best of them. To look at more finds victims
// that matter hardly less, and takes as long as placing thousands.
const plansMax = 100

// plan is one node where room for one instance can be made.
type plan struct {
	node     int32
	victims  []int32
	priority int32 // the highest of a victim
}

// lift takes away the room that is kept for a group, so that the group itself may use it, and says where it was. It wakes nobody: most of it
// is kept again at once.
func (s *Snapshot) lift(group string) []int32 {
	var nodes []int32
	for _, k := range slices.Clone(s.rooms[group]) {
		nodes = append(nodes, s.instances[k].node)
		s.drop(k)
	}
	return nodes
}

// lifted tells that room is not kept any more where it was, so that others may want it.
func (s *Snapshot) lifted(group string, were []int32) {
	for _, node := range were {
		if !slices.ContainsFunc(s.rooms[group], func(k int32) bool { return s.instances[k].node == node }) {
			s.changes.note(takenBySomebody)
			return
		}
	}
}

// Forget tells that a group is not wanted any more: the room that was kept for it is everybody's again. Who was told to go for it goes.
func (s *Snapshot) Forget(group string) { s.lifted(group, s.lift(group)) }

// keep keeps room for an instance of a group, also where others hold it that are still ending.
func (s *Snapshot) keep(p *pass, node int32, d *Decision) {
	k := s.take(instance{name: p.group.Name, class: p.class, node: node, room: true})
	s.rooms[p.group.Name] = append(s.rooms[p.group.Name], k)
	if len(d.Explanation.Kept) < keptMax {
		d.Explanation.Kept = append(d.Explanation.Kept, s.nodes[node].Name)
	}
}

// makeRoom looks for nodes where instances of lower priority hold what is missing, tells as few as will do to go, and keeps what they leave.
// Where room was being made already, nobody is told again: first comes what is ending anyhow. It returns for how many there is no room to be made.
func (s *Snapshot) makeRoom(p *pass, missing int, kept []int32, d *Decision) int {
	kept = slices.Clone(kept)
	for _, b := range d.Bindings {
		node := s.numbers[b.Node]
		if at := slices.Index(kept, node); at >= 0 {
			kept = slices.Delete(kept, at, at+1)
		}
	}
	for _, node := range kept {
		if missing == 0 {
			return 0
		}
		if victims, ok := s.victims(p, node); ok && len(victims) == 0 && s.ruled(p, node) && p.open.has(node) {
			s.keep(p, node, d)
			missing--
		}
	}
	if missing == 0 || !s.anyLower(p.class.spec.Priority) {
		return missing
	}
	plans := s.plans(p, missing+plansMax)
	slices.SortFunc(plans, func(a, b plan) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(len(a.victims), len(b.victims)), cmp.Compare(s.ties[b.node], s.ties[a.node]))
	})
	for _, one := range plans {
		if missing == 0 {
			return 0
		}
		// Those that were chosen before have used budgets and changed what the rules see; what does not hold any more is asked again next time.
		victims, ok := s.victims(p, one.node)
		if !ok || !s.ruled(p, one.node) {
			continue
		}
		for _, k := range victims {
			s.evict(k, p.group.Name, d)
		}
		s.keep(p, one.node, d)
		for r := range p.rules {
			p.rules[r].expect(one.node)
		}
		missing--
	}
	return missing
}

// plans are up to so many nodes where room can be made. Groups begin at different ones, so that they do not all choose among the same.
func (s *Snapshot) plans(p *pass, most int) []plan {
	var plans []plan
	begin := int32(s.tie(p.group.Name) % uint64(len(s.nodes)))
	for _, wrapped := range []bool{false, true} {
		p.open.each(func(i int32) {
			if (i < begin) != wrapped || len(plans) == most {
				return
			}
			victims, ok := s.victims(p, i)
			if !ok || !s.ruled(p, i) {
				return
			}
			one := plan{node: i, victims: victims}
			for _, k := range victims {
				one.priority = max(one.priority, s.instances[k].class.spec.Priority)
			}
			plans = append(plans, one)
		})
	}
	return plans
}

// expect counts an instance that is not there yet, for the rest of this decision.
func (r *ruleState) expect(node int32) {
	d := r.counter.topology.domain(node)
	if d < 0 || !r.own {
		return
	}
	if !r.copied {
		r.counts, r.copied = slices.Clone(r.counts), true
	}
	r.placed(node)
}

// anyLower reports whether there is an instance anywhere that one of a priority could displace, or would if it were not going already.
func (s *Snapshot) anyLower(priority int32) bool {
	for _, c := range s.classes {
		if c.spec.Priority < priority && len(c.on) > 0 && (c.evicting > 0 || c.ending > 0 || s.budget(c.key.Workload) > 0) {
			return true
		}
	}
	return false
}

func (s *Snapshot) ruled(p *pass, node int32) bool {
	return p.allowsShared(node) && p.allowsLocal(node)
}

// victims are the instances that would have to go from a node for one of the group to come, the least important first; none where what is
// ending leaves enough. Without ok there is no way: not even all of lower priority hold enough, or budgets speak against it. They make room:
// nobody has to go for being near.
func (s *Snapshot) victims(p *pass, node int32) (list []int32, ok bool) {
	st, spec := &s.nodes[node], &p.class.spec
	if !spec.Request.Amounts.Within(s.capacity[node]) {
		return nil, false
	}
	most := s.left[node]
	for _, t := range st.tiers {
		if t.priority < spec.Priority {
			most = most.Plus(t.amounts)
		}
	}
	for _, k := range st.on {
		if in := &s.instances[k]; in.ending || in.evicting {
			most = most.Plus(in.class.spec.Request.Amounts)
		}
	}
	if !spec.Request.Amounts.Within(most) {
		return nil, false
	}
	left := s.heldOf(node)
	left.Devices = maps.Clone(left.Devices)
	var may []int32
	for _, k := range st.on {
		switch in := &s.instances[k]; {
		case in.room:
		case in.ending || in.evicting:
			s.release(&left, k)
		case in.class.spec.Priority < spec.Priority && in.class.key.Workload != spec.Key:
			may = append(may, k)
		}
	}
	s.keptPorts(&left, st)
	if len(fit.Held(&left, &spec.Request)) == 0 {
		return nil, true
	}
	slices.SortFunc(may, s.lessImportant)
	budgets := map[string]int{}
	for _, k := range may {
		w := s.instances[k].class.key.Workload
		if _, known := budgets[w]; !known {
			budgets[w] = s.budget(w)
		}
		if budgets[w] > 0 && !s.instances[k].assumed {
			budgets[w]--
			list = append(list, k)
			s.release(&left, k)
			if len(fit.Held(&left, &spec.Request)) == 0 {
				return s.reprieve(&left, list, &spec.Request), true
			}
		}
	}
	return nil, false
}

// release gives back what an instance holds, in a copy of what is left of its node.
func (s *Snapshot) release(left *fit.Left, k int32) {
	r := &s.instances[k].class.spec.Request
	left.Amounts = left.Amounts.Plus(r.Amounts)
	for _, d := range r.Devices {
		left.Devices[d.Name] += d.Count
	}
	for _, port := range r.Ports {
		if left.Ports[port] == s.instances[k].name {
			delete(left.Ports, port)
		}
	}
}

// retake takes again what release has given back.
func (s *Snapshot) retake(left *fit.Left, k int32) {
	r := &s.instances[k].class.spec.Request
	left.Amounts = left.Amounts.Minus(r.Amounts)
	for _, d := range r.Devices {
		left.Devices[d.Name] -= d.Count
	}
	for _, port := range r.Ports {
		left.Ports[port] = s.instances[k].name
	}
}

// keptPorts takes the ports that are kept for others, which no instance can release.
func (s *Snapshot) keptPorts(left *fit.Left, st *nodeState) {
	for _, k := range st.on {
		if in := &s.instances[k]; in.room {
			for _, port := range in.class.spec.Request.Ports {
				left.Ports[port] = in.name
			}
		}
	}
}

// reprieve lets those stay whose going would not help, the most important ones first.
func (s *Snapshot) reprieve(left *fit.Left, list []int32, r *fit.Request) []int32 {
	for i := len(list) - 1; i >= 0; i-- {
		s.retake(left, list[i])
		if len(fit.Held(left, r)) == 0 {
			list = slices.Delete(list, i, i+1)
		} else {
			s.release(left, list[i])
		}
	}
	return list
}

// lessImportant orders instances by who goes first.
func (s *Snapshot) lessImportant(a, b int32) int {
	x, y := &s.instances[a], &s.instances[b]
	return cmp.Or(cmp.Compare(x.class.spec.Priority, y.class.spec.Priority), strings.Compare(x.name, y.name))
}

// evict says that an instance is to go.
func (s *Snapshot) evict(k int32, group string, d *Decision) {
	in := &s.instances[k]
	s.goes(k)
	d.Evictions = append(d.Evictions, Eviction{Instance: in.name, Node: s.nodes[in.node].Name, For: group})
}

// Evicting tells that an instance was told to go by who decided before: nobody else has to go for the same room.
func (s *Snapshot) Evicting(name string) {
	k, there := s.names[name]
	if !there {
		return
	}
	if in := &s.instances[k]; !in.evicting && !in.ending && !in.assumed {
		s.goes(k)
	}
}

// NotEvicted tells that the store has refused an eviction, because the workload's budget was used up meanwhile. The instance stays.
func (s *Snapshot) NotEvicted(name string) {
	k, there := s.names[name]
	if !there || !s.instances[k].evicting {
		return
	}
	s.stays(&s.instances[k], k)
	s.changes.note(takenBySomebody)
}

// goes notes that an instance was told to go, and stays that it was not.
func (s *Snapshot) goes(k int32) {
	in := &s.instances[k]
	s.yields(k, -1)
	in.evicting = true
	in.class.evicting++
}

func (s *Snapshot) stays(in *instance, k int32) {
	in.evicting = false
	in.class.evicting--
	s.yields(k, 1)
}

// Moves are the instances that are to leave their nodes because those do not fit by their labels any more, and whose workload says Move, in
// order of their names and within the budgets. It says so once of each.
func (s *Snapshot) Moves() []Eviction {
	var list []int32
	for _, c := range s.classes {
		if c.spec.Placement.WhenLabelsChange != workload.Move {
			continue
		}
		for node := range c.on {
			if !fit.Misplaced(&s.nodes[node].Node.Node, &c.spec.Request) {
				continue
			}
			for _, k := range s.nodes[node].on {
				if in := &s.instances[k]; in.class == c && !in.room && !in.ending && !in.evicting && !in.assumed {
					list = append(list, k)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b int32) int { return strings.Compare(s.instances[a].name, s.instances[b].name) })
	var d Decision
	for _, k := range list {
		if s.budget(s.instances[k].class.key.Workload) > 0 {
			s.evict(k, "", &d)
		}
	}
	return d.Evictions
}
