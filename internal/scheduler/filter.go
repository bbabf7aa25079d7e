package scheduler

import (
	"cmp"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/scheduler/fit"
)

// filter is one condition on nodes: those in its set are kept, or those in it are dropped.
type filter struct {
	why  fit.Reason
	what string
	keep bool
	set  bitset
}

// filter calls a function with each condition of a group that can be told of all nodes at once, in the order of fit.Reason. What is left
// after all of them still has to have room, and to be allowed by the rules. A set is valid during the call.
func (s *Snapshot) filter(p *pass, visit func(filter)) {
	s.filterKinds(p, visit)
	s.filterPlaces(p, visit)
	s.filterPorts(p, visit)
}

// filterKinds is about what nodes are: those that are left would take such an instance if it were alone.
func (s *Snapshot) filterKinds(p *pass, visit func(filter)) {
	a, r := &s.attributes, &p.class.spec.Request
	visit(filter{why: fit.Unhealthy, set: a.unhealthy})
	visit(filter{why: fit.Cordoned, set: a.cordoned})
	for i := range p.class.needs {
		n := &p.class.needs[i]
		a.matching(&p.scratch, s.all, &n.selector)
		visit(filter{fit.WrongLabels, n.text, true, p.scratch})
	}
	if len(r.Architectures) > 0 {
		p.scratch.copyOf(nil, len(s.all))
		for _, name := range r.Architectures {
			p.scratch.join(a.architectures[name])
		}
		visit(filter{fit.WrongArchitecture, "", true, p.scratch})
	}
	if r.Runtime != "" {
		visit(filter{fit.NoRuntime, string(r.Runtime), true, a.runtimes[r.Runtime]})
	}
	for _, t := range s.notTolerated(r) {
		visit(filter{why: fit.Tainted, what: fit.TaintText(t), set: a.taints[t]})
	}
	for _, d := range r.Directories {
		visit(filter{fit.NoDirectory, d, true, a.directories[d]})
	}
}

// filterPlaces is about where this group may go.
func (s *Snapshot) filterPlaces(p *pass, visit func(filter)) {
	p.refused.copyOf(nil, len(s.all))
	p.retryAt = s.avoided.nodes(p.class.key.Workload, p.now, func(i int32, _ *avoided) { p.refused.add(i) })
	visit(filter{why: fit.Refused, set: p.refused})
	if p.group.Must {
		p.scratch.copyOf(nil, len(s.all))
		if p.pinned >= 0 {
			p.scratch.add(p.pinned)
		}
		visit(filter{fit.DataWhere, p.group.Node, true, p.scratch})
	}
}

// filterPorts is about the ports that somebody has.
func (s *Snapshot) filterPorts(p *pass, visit func(filter)) {
	for _, port := range p.class.spec.Request.Ports {
		visit(filter{why: fit.PortTaken, what: port.String(), set: s.ports[port]})
	}
}

// notTolerated are the taints of any node that keep such an instance off it, in the order of their words.
func (s *Snapshot) notTolerated(r *fit.Request) []declare.Taint {
	var list []declare.Taint
	for t := range s.attributes.taints {
		if t.Effect != declare.TaintPreferNoSchedule && !fit.Tolerated(t, r.Tolerations) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b declare.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return list
}
