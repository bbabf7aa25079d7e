package scheduler

import (
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// prepareWorth finds what nodes are worth to a group whatever else is on them.
func (s *Snapshot) prepareWorth(p *pass, kept []int32) {
	p.base, p.own = p.base[:0], p.own[:0]
	spec := &p.class.spec
	base := func() []int64 {
		if len(p.base) == 0 {
			p.base = slices.Grow(p.base, len(s.nodes))[:len(s.nodes)]
			clear(p.base)
		}
		return p.base
	}
	for i := range spec.Placement.Preferred {
		w := &spec.Placement.Preferred[i]
		weight := int64(1)
		if w.Weight != nil {
			weight = int64(*w.Weight)
		}
		s.attributes.matching(&p.scratch, s.all, &w.Selector)
		b := base()
		p.scratch.each(func(i int32) { b[i] += weight * wishWorth })
	}
	for t, set := range s.attributes.taints {
		if t.Effect == declare.TaintPreferNoSchedule && !fit.Tolerated(t, spec.Request.Tolerations) {
			b := base()
			set.each(func(i int32) { b[i] -= taintWorth })
		}
	}
	for _, m := range spec.Images {
		if set := s.attributes.images[m]; set != nil {
			b := base()
			set.each(func(i int32) { b[i] += imageWorth })
		}
	}
	if p.pinned >= 0 {
		base()[p.pinned] += dataWorth
	}
	for _, i := range kept {
		base()[i] += keptWorth
	}
	if spec.Placement.Strategy == workload.BinPack {
		return
	}
	p.own = slices.Grow(p.own, len(s.nodes))[:len(s.nodes)]
	clear(p.own)
	for _, c := range s.revisions[spec.Key] {
		for i, t := range c.on {
			p.own[i] += t.live
		}
	}
}

// worth is how good a node is for one more instance, but for what the rules about domains of several nodes say.
func (s *Snapshot) worth(p *pass, i int32) int64 {
	spec := &p.class.spec
	left, has := s.left[i].Minus(spec.Request.Amounts), &s.capacity[i]
	var room int64
	if has.CPU > 0 {
		room += max(left.CPU, 0) * (roomWorth / 2) / has.CPU
	}
	if has.Memory > 0 {
		room += max(left.Memory, 0) * (roomWorth / 2) / has.Memory
	}
	if spec.Placement.Strategy == workload.BinPack {
		room = roomWorth - room
	}
	if len(p.own) > 0 {
		room -= int64(min(p.own[i], countMax)) * siblingWorth
	}
	if len(p.base) > 0 {
		room += p.base[i]
	}
	for k := range p.rules[p.hard:] {
		if r := &p.rules[p.hard+k]; r.local {
			room += r.wish(r.counter.topology.domain(i))
		}
	}
	return room
}

// sharedWorth is what the wishes about domains of several nodes say of one of them.
func (p *pass) sharedWorth(node int32) int64 {
	var sum int64
	for k := range p.rules[p.hard:] {
		if r := &p.rules[p.hard+k]; !r.local {
			sum += r.wish(r.counter.topology.domain(node))
		}
	}
	return sum
}

// wish is what a domain is worth to a wish. It is always finite: what is missing, or nothing at all, has its place among the others.
func (r *ruleState) wish(d int32) int64 {
	switch {
	case r.kind == spreadWish && d < 0:
		return -missingWorth
	case r.kind == spreadWish:
		return -int64(r.counts[d]) * spreadWorth
	case d < 0:
		return 0
	case r.kind == nearWish && r.counts[d] > 0:
		return r.weight * wishWorth
	case r.kind == apartWish:
		return -int64(min(r.counts[d], countMax)) * r.weight * wishWorth
	}
	return 0
}
