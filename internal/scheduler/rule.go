package scheduler

import (
	"slices"
	"strings"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// topology is one way to part nodes: by the values of a label, or each node by itself.
type topology struct {
	key    string           // of the label; empty: each node by itself
	of     []int32          // the domain of each node; -1: it has none
	number map[string]int32 // of each value
	nodes  []int32          // how many there are in each domain
	shared int              // domains of more than one node
	refs   int              // counters that use it
}

// domain is the part that a node is in, or -1.
func (t *topology) domain(node int32) int32 {
	if t.key == "" {
		return node
	}
	return t.of[node]
}

// locate enters in which part a node is. A value keeps its number, because counters are by number; there are as many as nodes have ever had.
func (t *topology) locate(i int32, n *Node) {
	if t.key == "" {
		return
	}
	for int(i) >= len(t.of) {
		t.of = append(t.of, -1)
	}
	if was := t.of[i]; was >= 0 {
		if t.nodes[was]--; t.nodes[was] == 1 {
			t.shared--
		}
		t.of[i] = -1
	}
	if n == nil {
		return
	}
	v, ok := n.Labels[t.key]
	if !ok {
		return
	}
	d, known := t.number[v]
	if !known {
		d = int32(len(t.nodes))
		t.number[v], t.nodes = d, append(t.nodes, 0)
	}
	if t.nodes[d]++; t.nodes[d] == 2 {
		t.shared++
	}
	t.of[i] = d
}

// single reports whether each domain is one node at most, so that a rule about it is one about the node.
func (t *topology) single() bool { return t.key == "" || t.shared == 0 }

// counter counts the instances of certain classes by domains of one topology.
type counter struct {
	id       string // of what is counted; the same for rules that count the same
	topology *topology
	counts   func(*class) bool
	ending   bool            // instances that are ending count too
	dense    []int32         // by domain, of a topology of a label
	sparse   map[int32]int32 // by node: most workloads are on few of them
	total    int32
	refs     int // rules that use it
	// repels, for what keeps others away: the selector of those that it keeps away.
	repels func(*class) bool
}

func (c *counter) add(domain, by int32) {
	if domain < 0 || by == 0 {
		return
	}
	c.total += by
	if c.topology.key == "" {
		if c.sparse[domain] += by; c.sparse[domain] == 0 {
			delete(c.sparse, domain)
		}
		return
	}
	for int(domain) >= len(c.dense) {
		c.dense = append(c.dense, 0)
	}
	c.dense[domain] += by
}

// ruleKind is what a rule wants of a domain.
type ruleKind uint8

const (
	near       ruleKind = iota // some are there
	apart                      // none is there
	spread                     // not many more than elsewhere
	nearWish                   // better where some are
	apartWish                  // better where few are
	spreadWish                 // better where few of the same are
)

// rule is a condition or a wish about where others are.
type rule struct {
	kind       ruleKind
	counter    *counter
	what       string // in words
	weight     int64
	skew       int32
	minDomains int32
	own        bool // an instance that is placed by it counts in it
}

func (r *rule) hard() bool { return r.kind <= spread }

// rulesOf makes the rules of a class, with the counters that they need.
func (s *Snapshot) rulesOf(c *class) []rule {
	var list []rule
	term := func(a *workload.Affinity, hard, wish ruleKind) {
		r := rule{kind: hard, weight: 1, what: termText(a)}
		if a.Weight != nil {
			r.kind, r.weight = wish, int64(*a.Weight)
		}
		matches, id := matcher(c.spec.Namespace, a)
		// What is ending is no company any more, but still in the way.
		r.counter = s.counterOf("of:"+id, a.TopologyKey, matches, r.kind == apart || r.kind == apartWish, nil)
		r.own = matches(c)
		list = append(list, r)
	}
	p := &c.spec.Placement
	for i := range p.Affinity {
		term(&p.Affinity[i], near, nearWish)
	}
	for i := range p.AntiAffinity {
		term(&p.AntiAffinity[i], apart, apartWish)
	}
	for i := range p.TopologySpread {
		t := &p.TopologySpread[i]
		r := rule{kind: spread, skew: 1, minDomains: 1, own: true, what: t.TopologyKey}
		if t.MaxSkew != nil {
			r.skew = *t.MaxSkew
		}
		if t.MinDomains != nil {
			r.minDomains = *t.MinDomains
		}
		if t.WhenUnsatisfiable == workload.ScheduleAnyway {
			r.kind = spreadWish
		}
		// Only instances of this revision count: those of the one before go.
		r.counter = s.counterOf("class:"+c.key.Workload+"\x00"+c.key.Revision, t.TopologyKey, func(o *class) bool { return o == c }, false, nil)
		list = append(list, r)
	}
	return list
}

// keepers makes the counters of those that a class keeps away from its own instances: the condition holds for both sides.
func (s *Snapshot) keepers(c *class) []*counter {
	var list []*counter
	for i := range c.spec.Placement.AntiAffinity {
		a := &c.spec.Placement.AntiAffinity[i]
		if a.Weight != nil {
			continue
		}
		matches, id := matcher(c.spec.Namespace, a)
		holds := func(o *class) bool { return slices.Contains(o.keeps, id) }
		list = append(list, s.counterOf("keeps:"+id, a.TopologyKey, holds, true, matches))
	}
	return list
}

// matcher tells which classes an affinity is about, and an identity that is the same for affinities about the same.
func matcher(own string, a *workload.Affinity) (matches func(*class) bool, id string) {
	namespaces := slices.Clone(a.Namespaces)
	if len(namespaces) == 0 {
		namespaces = []string{own}
	}
	slices.Sort(namespaces)
	selector := a.Selector
	matches = func(o *class) bool {
		return slices.Contains(namespaces, o.spec.Namespace) && selector.Matches(o.spec.Labels)
	}
	return matches, strings.Join(namespaces, ",") + "\x00" + fit.SelectorText(selector) + "\x00" + a.TopologyKey
}

func termText(a *workload.Affinity) string {
	text := fit.SelectorText(a.Selector)
	if text == "" {
		text = "any instance"
	}
	if a.TopologyKey == "" {
		return text + " (same node)"
	}
	return text + " (same " + a.TopologyKey + ")"
}

// counterOf finds a counter, or makes it and counts what is there.
func (s *Snapshot) counterOf(id, key string, counts func(*class) bool, ending bool, repels func(*class) bool) *counter {
	id += "\x00" + key
	if ending {
		id += "\x00ending"
	}
	if c := s.counters[id]; c != nil {
		c.refs++
		return c
	}
	c := &counter{id: id, topology: s.topologyOf(key), counts: counts, ending: ending, repels: repels, refs: 1, sparse: map[int32]int32{}}
	s.counters[id] = c
	for _, o := range s.classes {
		if counts(o) {
			o.feeds = append(o.feeds, c)
			for node, t := range o.on {
				c.add(c.topology.domain(node), t.counted(ending))
			}
		}
		if repels != nil && repels(o) {
			o.repelled = append(o.repelled, c)
		}
	}
	return c
}

// uncount is called for each use of a counter that ends.
func (s *Snapshot) uncount(c *counter) {
	if c.refs--; c.refs > 0 {
		return
	}
	delete(s.counters, c.id)
	for _, o := range s.classes {
		same := func(x *counter) bool { return x == c }
		o.feeds, o.repelled = slices.DeleteFunc(o.feeds, same), slices.DeleteFunc(o.repelled, same)
	}
	if t := c.topology; t != nil {
		if t.refs--; t.refs == 0 {
			delete(s.topologies, t.key)
		}
	}
}

func (s *Snapshot) topologyOf(key string) *topology {
	t := s.topologies[key]
	if t == nil {
		t = &topology{key: key, number: map[string]int32{}}
		s.topologies[key] = t
		for i := range s.nodes {
			if s.nodes[i].there {
				t.locate(int32(i), &s.nodes[i].Node)
			} else {
				t.locate(int32(i), nil) // another node may come to be there
			}
		}
	}
	t.refs++
	return t
}
