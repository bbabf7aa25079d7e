package scheduler

import (
	"slices"

	"tako.dev/tako/internal/scheduler/fit"
)

// ruleState is a rule during one decision, with the counts of its domains.
type ruleState struct {
	*rule
	local   bool    // each domain is one node at most
	copied  bool    // counts are a copy, which we keep up to date ourselves
	counts  []int32 // by domain
	domains []int32 // of a spread: those that could take such an instance
	floor   int32   // of a spread: how many the emptiest has
	lowest  int     // how many domains have as few
}

// stateOf makes a rule ready. A spread looks at the domains of the nodes that would take such an instance if it were alone: one where all
// nodes are cordoned, or of another architecture, holds nobody up.
func (s *Snapshot) stateOf(r *rule, p *pass) ruleState {
	t, c := r.counter.topology, r.counter
	st := ruleState{rule: r, local: t.single()}
	if t.key == "" {
		counts := p.memory(len(s.nodes))
		for node, n := range c.sparse {
			counts[node] = n
		}
		st.counts, st.copied = counts, true
	} else {
		for len(c.dense) < len(t.nodes) {
			c.dense = append(c.dense, 0)
		}
		st.counts = c.dense
	}
	if r.kind == spread {
		seen := p.memory(len(st.counts))
		p.eligible.each(func(i int32) {
			if d := t.domain(i); d >= 0 && seen[d] == 0 {
				seen[d] = 1
				st.domains = append(st.domains, d)
			}
		})
		st.measure()
	}
	return st
}

// memory is a slice of zeros that is used again for the next decision.
func (p *pass) memory(n int) []int32 {
	at := len(p.locals)
	if at < cap(p.locals) {
		p.locals = p.locals[:at+1]
	} else {
		p.locals = append(p.locals, nil)
	}
	m := slices.Grow(p.locals[at][:0], n)[:n]
	clear(m)
	p.locals[at] = m
	return m
}

// measure finds the emptiest domains.
func (r *ruleState) measure() {
	r.floor, r.lowest = 0, 0
	for i, d := range r.domains {
		switch n := r.counts[d]; {
		case i == 0 || n < r.floor:
			r.floor, r.lowest = n, 1
		case n == r.floor:
			r.lowest++
		}
	}
}

// least is what the fullest domain is compared with: nothing, while there are fewer domains than there have to be.
func (r *ruleState) least() int32 {
	if len(r.domains) < int(r.minDomains) {
		return 0
	}
	return r.floor
}

// allows reports whether a condition lets one more instance into a domain; -1 is a node that has none.
func (r *ruleState) allows(d int32) bool {
	switch r.kind {
	case near:
		// The first of those that want to be near to one another begins anywhere.
		return d >= 0 && (r.counts[d] > 0 || r.own && r.counter.total == 0)
	case apart:
		return d < 0 || r.counts[d] == 0
	default:
		return d >= 0 && r.counts[d]+1-r.least() <= r.skew
	}
}

// placed tells that one instance more is on a node, and reports whether that lets others go where they could not.
func (r *ruleState) placed(node int32) bool {
	d := r.counter.topology.domain(node)
	if d < 0 || !r.own {
		return false
	}
	if r.copied {
		r.counts[d]++
	}
	if r.kind != spread || r.counts[d] != r.floor+1 {
		return false
	}
	if r.lowest--; r.lowest > 0 {
		return false
	}
	r.measure()
	return true
}

// allowsShared asks the conditions about domains of several nodes, of one of them.
func (p *pass) allowsShared(node int32) bool {
	for i := range p.rules[:p.hard] {
		if r := &p.rules[i]; !r.local && !r.allows(r.counter.topology.domain(node)) {
			return false
		}
	}
	return true
}

// allowsLocal asks the conditions about single nodes.
func (p *pass) allowsLocal(node int32) bool {
	for i := range p.rules[:p.hard] {
		if r := &p.rules[i]; r.local && !r.allows(r.counter.topology.domain(node)) {
			return false
		}
	}
	return true
}

// refusal says why a rule does not allow a node.
func (r *ruleState) refusal(node int32) fit.Refusal {
	switch r.kind {
	case near:
		return fit.Refusal{Reason: fit.NotNear, What: r.what}
	case apart:
		return fit.Refusal{Reason: fit.TooNear, What: r.what}
	}
	what := r.what
	if what == "" {
		what = "node"
	}
	refusal := fit.Refusal{Reason: fit.Uneven, What: what}
	if d := r.counter.topology.domain(node); d >= 0 {
		refusal.Need, refusal.Have = int64(r.skew), int64(r.counts[d]+1-r.least())
	}
	return refusal
}
