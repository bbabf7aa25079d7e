package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// reference is a scheduler as one would write it first: it keeps lists, and walks all of them for each question.
type reference struct {
	nodes     map[string]Node
	workloads map[classKey]Workload
	instances map[string]Instance
	rooms     []Instance // kept; Name is the group's
	avoided   map[string]map[string]time.Time
}

func newReference() *reference {
	return &reference{nodes: map[string]Node{}, workloads: map[classKey]Workload{}, instances: map[string]Instance{}, avoided: map[string]map[string]time.Time{}}
}

func (r *reference) workloadOf(in Instance) Workload {
	return r.workloads[classKey{in.Workload, in.Revision}]
}

// left is what nobody holds of a node; room that is kept for a group counts for all others.
func (r *reference) left(node, group string) fit.Left {
	n := r.nodes[node]
	left := fit.Left{Amounts: n.Capacity.Placed(), Devices: map[string]int64{}, Ports: map[fit.Port]string{}}
	for name, ids := range n.Devices {
		left.Devices[name] = int64(len(ids))
	}
	hold := func(in Instance) {
		q := r.workloadOf(in).Request
		left.Amounts = left.Amounts.Minus(q.Amounts)
		for _, d := range q.Devices {
			left.Devices[d.Name] -= d.Count
		}
		for _, p := range q.Ports {
			left.Ports[p] = in.Name
		}
	}
	for _, in := range r.instances {
		if in.Node == node {
			hold(in)
		}
	}
	for _, in := range r.rooms {
		if in.Node == node && in.Name != group {
			hold(in)
		}
	}
	return left
}

// domain is the value of a node for a topology key.
func (r *reference) domain(node, key string) (string, bool) {
	if key == "" {
		return node, true
	}
	v, ok := r.nodes[node].Labels[key]
	return v, ok
}

// count is how many instances are in the domain of a node, and in any.
func (r *reference) count(node, key string, ending bool, matches func(Workload) bool) (here, total int) {
	d, ok := r.domain(node, key)
	for _, in := range r.instances {
		if in.Ending && !ending || !matches(r.workloadOf(in)) {
			continue
		}
		if o, has := r.domain(in.Node, key); has {
			total++
			if ok && o == d {
				here++
			}
		}
	}
	return here, total
}

func affine(own string, a *workload.Affinity, o Workload) bool {
	namespaces := a.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{own}
	}
	return slices.Contains(namespaces, o.Namespace) && a.Selector.Matches(o.Labels)
}

// why is the first reason why a node takes no instance of a group.
func (r *reference) why(node string, g *Group, now time.Time) (fit.Reason, bool) {
	w := r.workloads[classKey{g.Workload, g.Revision}]
	left := r.left(node, g.Name)
	n := r.nodes[node]
	found := fit.Check(&n.Node, &left, &w.Request)
	first := fit.Reason(fit.Reasons)
	for _, f := range found {
		first = min(first, f.Reason)
	}
	if until := r.avoided[w.Key][node]; until.After(now) {
		first = min(first, fit.Refused)
	}
	if g.Must && g.Node != node {
		first = min(first, fit.DataWhere)
	}
	if int(first) < fit.Reasons {
		return first, true
	}
	for i := range w.Placement.Affinity {
		a := &w.Placement.Affinity[i]
		if a.Weight != nil {
			continue
		}
		here, total := r.count(node, a.TopologyKey, false, func(o Workload) bool { return affine(w.Namespace, a, o) })
		if _, ok := r.domain(node, a.TopologyKey); !ok || here == 0 && (total > 0 || !affine(w.Namespace, a, w)) {
			return fit.NotNear, true
		}
	}
	if r.tooNear(node, w) {
		return fit.TooNear, true
	}
	for i := range w.Placement.TopologySpread {
		if t := &w.Placement.TopologySpread[i]; t.WhenUnsatisfiable != workload.ScheduleAnyway && r.uneven(node, w, t) {
			return fit.Uneven, true
		}
	}
	return 0, false
}

func (r *reference) tooNear(node string, w Workload) bool {
	for i := range w.Placement.AntiAffinity {
		a := &w.Placement.AntiAffinity[i]
		if here, _ := r.count(node, a.TopologyKey, true, func(o Workload) bool { return affine(w.Namespace, a, o) }); a.Weight == nil && here > 0 {
			return true
		}
	}
	for _, in := range r.instances {
		o := r.workloadOf(in)
		for i := range o.Placement.AntiAffinity {
			a := &o.Placement.AntiAffinity[i]
			x, okX := r.domain(node, a.TopologyKey)
			y, okY := r.domain(in.Node, a.TopologyKey)
			if a.Weight == nil && affine(o.Namespace, a, w) && okX && okY && x == y {
				return true
			}
		}
	}
	return false
}

func (r *reference) uneven(node string, w Workload, t *workload.TopologySpread) bool {
	same := func(o Workload) bool { return o.Key == w.Key && o.Revision == w.Revision }
	if _, ok := r.domain(node, t.TopologyKey); !ok {
		return true
	}
	domains := map[string]int{}
	for name, n := range r.nodes {
		if d, ok := r.domain(name, t.TopologyKey); ok && r.kind(n, w) {
			domains[d], _ = r.count(name, t.TopologyKey, false, same)
		}
	}
	least, skew, minDomains := 0, 1, 1
	if len(domains) > 0 {
		least = slices.Min(slices.Collect(maps.Values(domains)))
	}
	if t.MaxSkew != nil {
		skew = int(*t.MaxSkew)
	}
	if t.MinDomains != nil {
		minDomains = int(*t.MinDomains)
	}
	if len(domains) < minDomains {
		least = 0
	}
	here, _ := r.count(node, t.TopologyKey, false, same)
	return here+1-least > skew
}

// kind reports whether a node would take such an instance if it were alone.
func (r *reference) kind(n Node, w Workload) bool {
	for _, f := range fit.Check(&n.Node, &fit.Left{}, &w.Request) {
		if f.Reason <= fit.NoDirectory {
			return false
		}
	}
	return true
}

// agree checks what was decided about a group against the reference, and enters it there.
func (r *reference) agree(g *Group, d Decision, now time.Time) error {
	for _, b := range d.Bindings {
		if why, no := r.why(b.Node, g, now); no {
			return fmt.Errorf("%s was placed on %s, which does not take it: %v", b.Instance, b.Node, why)
		}
		if _, there := r.instances[b.Instance]; there {
			return fmt.Errorf("%s was placed twice", b.Instance)
		}
		r.instances[b.Instance] = Instance{Name: b.Instance, Workload: g.Workload, Revision: g.Revision, Node: b.Node}
	}
	placed := 0
	for _, name := range g.Instances {
		if _, there := r.instances[name]; there {
			placed++
		}
	}
	if e := d.Explanation; e == nil {
		if placed < len(g.Instances) {
			return fmt.Errorf("%d of %d were placed, without a word", placed, len(g.Instances))
		}
		return nil
	} else if !e.Gang {
		return r.agreeWhy(g, e, now)
	}
	return nil
}

func (r *reference) agreeWhy(g *Group, e *Explanation, now time.Time) error {
	want, got := map[fit.Reason]int{}, map[fit.Reason]int{}
	for name := range r.nodes {
		why, no := r.why(name, g, now)
		if !no {
			return fmt.Errorf("nothing was placed on %s, which takes it (%s)", name, e)
		}
		want[why]++
	}
	sum := 0
	for _, f := range e.Filtered {
		got[f.Reason] += f.Nodes
		sum += f.Nodes
		if why, _ := r.why(f.Example, g, now); why != f.Reason {
			return fmt.Errorf("%s is no example of %v, but of %v", f.Example, f.Reason, why)
		}
	}
	if sum != len(r.nodes) || e.Nodes != sum || !maps.Equal(got, want) {
		return fmt.Errorf("the explanation counts %v of %d nodes, the reference %v of %d: %s", got, e.Nodes, want, len(r.nodes), e)
	}
	for _, m := range e.Nearest {
		if len(m.Refusals) == 0 {
			return fmt.Errorf("%s is near, and nothing speaks against it", m.Node)
		}
	}
	return nil
}

// same compares the sums that a snapshot keeps with those of the reference.
func (r *reference) same(s *Snapshot) error {
	for name := range r.nodes {
		i, known := s.numbers[name]
		if !known {
			return fmt.Errorf("node %s is not known", name)
		}
		left := r.left(name, "")
		if s.left[i] != left.Amounts {
			return fmt.Errorf("of %s %+v is left, and should be %+v", name, s.left[i], left.Amounts)
		}
		for d, n := range left.Devices {
			if s.nodes[i].devices[d] != n {
				return fmt.Errorf("%s has %d %s, and should have %d", name, s.nodes[i].devices[d], d, n)
			}
		}
		if len(s.nodes[i].ports) != len(left.Ports) {
			return fmt.Errorf("%s has %d ports taken, and should have %d", name, len(s.nodes[i].ports), len(left.Ports))
		}
		if err := tiersOf(s, i); err != nil {
			return err
		}
	}
	if len(s.names) != len(r.instances) || len(s.numbers) != len(r.nodes) {
		return fmt.Errorf("%d instances on %d nodes are known, there are %d on %d", len(s.names), len(s.numbers), len(r.instances), len(r.nodes))
	}
	for _, c := range s.counters {
		total := int32(0)
		for _, o := range s.classes {
			if !c.counts(o) {
				continue
			}
			for node, t := range o.on {
				if c.topology.domain(node) >= 0 {
					total += t.counted(c.ending)
				}
			}
		}
		sum := int32(0)
		for _, n := range c.sparse {
			sum += n
		}
		for _, n := range c.dense {
			sum += n
		}
		if total != c.total || sum != total {
			return fmt.Errorf("counter %q has %d, in domains %d, and should have %d", c.id, c.total, sum, total)
		}
	}
	return nil
}

// tiersOf checks what could be given back on a node.
func tiersOf(s *Snapshot, i int32) error {
	want := map[int32]fit.Amounts{}
	for _, k := range s.nodes[i].on {
		if in := &s.instances[k]; !in.room && !in.ending && !in.evicting {
			want[in.class.spec.Priority] = want[in.class.spec.Priority].Plus(in.class.spec.Request.Amounts)
		}
	}
	got := map[int32]fit.Amounts{}
	for _, t := range s.nodes[i].tiers {
		got[t.priority] = t.amounts
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("tiers of %s are %v, and should be %v", s.nodes[i].Name, got, want)
	}
	return nil
}

func labels(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func matching(pairs ...string) declare.Selector {
	return declare.Selector{MatchLabels: labels(pairs...)}
}

// gpuOnly keeps off what does not tolerate it.
var gpuOnly = declare.Taint{Key: "dedicated", Value: "gpu", Effect: declare.TaintNoSchedule}
