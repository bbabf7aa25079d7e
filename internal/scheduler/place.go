package scheduler

import (
	"math"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/scheduler/fit"
)

// Group are instances of one revision that have no node yet, and are alike.
type Group struct {
	Name      string // it keeps its name while there is something of it to place
	Workload  string
	Revision  string
	Instances []string // the names that they are to have
	Gang      bool     // all of them or none
	// Node has the data of the instance, or is the one that it is for; Must says that it goes there or nowhere.
	Node string
	Must bool
}

// Binding says which node an instance goes to.
type Binding struct {
	Instance string
	Node     string
	// Revision is that of the node's column when this was decided, and Ahead how many bindings to that node were on their way before this one.
	// The store accepts it when the column has that revision still, or the one that the binding before it was given.
	Revision int64
	Ahead    int
}

// Eviction says that an instance is to go so that one of a group of higher priority comes.
type Eviction struct {
	Instance string
	Node     string
	For      string // the group; empty: for nobody, its node does not fit any more
}

// Decision is what becomes of a group.
type Decision struct {
	Group     string
	Bindings  []Binding
	Evictions []Eviction
	// Explanation says why not all were placed; nil where all were.
	Explanation *Explanation
	// Seen numbers the last change that was known to it.
	Seen uint64
	// RetryAt is when time alone may change it; zero: not by itself.
	RetryAt time.Time
}

// pass is one decision while it is made. Its slices are used again for the next.
type pass struct {
	now      time.Time
	group    *Group
	class    *class
	pinned   int32  // the group's node, or -1
	eligible bitset // the nodes that would take such an instance if it were alone
	open     bitset // of them, those that the group may go to
	nodes    bitset // of them, those where its ports are free
	refused  bitset
	scratch  bitset
	retryAt  time.Time
	rules    []ruleState
	hard     int // the first so many rules are conditions
	base     []int64
	own      []int32
	buckets  []bucket
	byValue  map[uint64]int32 // bucket and one, by value
	values   []int32          // the same, where there are few values
	locals   [][]int32        // memory of the rules about single nodes
}

// bucket are nodes that the rules see as one, the best on top.
type bucket struct {
	sample int32 // any of its nodes
	heap   []entry
	parked []entry // those that the rules about single nodes do not allow now
}

// entry is a node with what it is worth.
type entry struct {
	score int64
	tie   uint64
	node  int32
}

func (e entry) before(o entry) bool { return e.score > o.score || e.score == o.score && e.tie > o.tie }

// What things are worth. Free room is 0 to 1000; a wish that people have declared counts more than that, by its weight.
const (
	roomWorth    = 1000
	wishWorth    = 100     // for each point of weight
	spreadWorth  = 1000    // for each instance more than elsewhere, of a soft spread
	siblingWorth = 200     // for each instance of the same workload on the node, where they are to be spread
	imageWorth   = 300     // for an image that is there already
	taintWorth   = 5_000   // for a taint that says that others are better
	dataWorth    = 20_000  // for the node that has the data
	missingWorth = 1 << 30 // for a node that has no value of a label by which a soft spread goes: it comes last
	keptWorth    = 1 << 40 // for the node where room is kept for the group
	countMax     = 100     // instances that are counted for a wish
)

// valuesMax is how many values there may be for a table of them; beyond, a map takes less memory.
const valuesMax = 1 << 14

// Place decides about a group, and assumes what it decides.
func (s *Snapshot) Place(g *Group, now time.Time) Decision {
	d := Decision{Group: g.Name}
	c := s.classes[classKey{g.Workload, g.Revision}]
	if c == nil || c.gone || len(g.Instances) == 0 {
		s.Forget(g.Name)
		d.Seen = s.changes.number
		return d
	}
	p := &s.pass
	kept := s.lift(g.Name) // before anything is asked of nodes: room that is kept for the group is its own
	s.prepare(p, g, c, now)
	s.fill(p, kept)
	for _, name := range g.Instances {
		if _, taken := s.names[name]; taken {
			continue // it was bound already: the group is older than what the store has told
		}
		i, ok := s.choose(p)
		if !ok {
			break
		}
		s.assume(p, i, name, &d)
	}
	if missing := s.missing(g); missing > 0 {
		d.Explanation = s.explain(p, len(g.Instances), len(g.Instances)-missing)
		d.RetryAt, d.Explanation.Gang = p.retryAt, g.Gang
		if g.Gang {
			s.together(p, missing, kept, &d)
		} else {
			s.makeRoom(p, missing, kept, &d)
		}
	}
	s.lifted(g.Name, kept)
	s.unprepare(p)
	d.Seen = s.changes.number
	return d
}

// Stands reports whether what was found for an instance of a group, which the store has not accepted, may be tried once more: the instance holds its room, and
// its node is still one that the group may go to.
func (s *Snapshot) Stands(g *Group, name string, now time.Time) bool {
	k, there := s.names[name]
	if !there || !s.instances[k].assumed {
		return false
	}
	in, c := &s.instances[k], s.classes[classKey{g.Workload, g.Revision}]
	if c == nil || c.gone || c != in.class {
		return false
	}
	p := &s.pass
	s.prepare(p, g, c, now)
	defer s.unprepare(p)
	return p.open.has(in.node)
}

// missing is how many of a group have no node.
func (s *Snapshot) missing(g *Group) int {
	n := 0
	for _, name := range g.Instances {
		if _, there := s.names[name]; !there {
			n++
		}
	}
	return n
}

// together has a gang wait that cannot be placed as a whole now. Where room for all of it is there or being made, it is kept, also that which is free: others
// would take it while victims go. Otherwise nobody goes, and nothing is kept.
func (s *Snapshot) together(p *pass, missing int, kept []int32, d *Decision) {
	// Room is made for one on each node at a time.
	for before := missing + 1; 0 < missing && missing < before; kept = nil {
		before, missing = missing, s.makeRoom(p, missing, kept, d)
	}
	free := make([]int32, len(d.Bindings))
	for i, b := range d.Bindings {
		free[i] = s.numbers[b.Node]
	}
	s.undo(d)
	if missing == 0 {
		for _, node := range free {
			s.keep(p, node, d)
		}
		return
	}
	for _, e := range d.Evictions {
		k := s.names[e.Instance]
		s.stays(&s.instances[k], k)
	}
	d.Evictions, d.Explanation.Kept = nil, nil
	s.lift(p.group.Name)
}

// undo takes back what was assumed.
func (s *Snapshot) undo(d *Decision) {
	for _, b := range slices.Backward(d.Bindings) {
		s.drop(s.names[b.Instance])
	}
	d.Bindings = nil
}

// prepare finds the nodes that a group may go to, and the rules that say where others are.
func (s *Snapshot) prepare(p *pass, g *Group, c *class, now time.Time) {
	p.now, p.group, p.class, p.pinned, p.retryAt = now, g, c, -1, time.Time{}
	if g.Node != "" {
		if i, known := s.numbers[g.Node]; known {
			p.pinned = i
		}
	}
	p.nodes.copyOf(s.all, len(s.all))
	narrow := func(f filter) {
		if f.keep {
			p.nodes.keep(f.set)
		} else {
			p.nodes.drop(f.set)
		}
	}
	s.filterKinds(p, narrow)
	p.eligible.copyOf(p.nodes, len(s.all))
	s.filterPlaces(p, narrow)
	p.open.copyOf(p.nodes, len(s.all))
	s.filterPorts(p, narrow)
	s.prepareRules(p)
}

// prepareRules makes the rules of a class ready to be asked of domains. Conditions come first, in the order in which people are told.
func (s *Snapshot) prepareRules(p *pass) {
	p.rules, p.locals = p.rules[:0], p.locals[:0]
	add := func(r *rule) { p.rules = append(p.rules, s.stateOf(r, p)) }
	for _, kind := range []ruleKind{near, apart, spread} {
		if kind == spread {
			for _, k := range sortedCounters(p.class.repelled) {
				if k.total > 0 || k.counts(p.class) {
					add(&rule{kind: apart, counter: k, what: keptAwayText(k), own: k.counts(p.class)})
				}
			}
		}
		for i := range p.class.rules {
			if p.class.rules[i].kind == kind {
				add(&p.class.rules[i])
			}
		}
	}
	p.hard = len(p.rules)
	for i := range p.class.rules {
		if r := &p.class.rules[i]; !r.hard() {
			add(r)
		}
	}
}

func keptAwayText(k *counter) string {
	if k.topology.key == "" {
		return "instances that keep away from it (same node)"
	}
	return "instances that keep away from it (same " + k.topology.key + ")"
}

func sortedCounters(list []*counter) []*counter {
	if len(list) > 1 {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b *counter) int { return strings.Compare(a.id, b.id) })
	}
	return list
}

// fill sorts the nodes into buckets by the values that rules look at, and each bucket by worth.
func (s *Snapshot) fill(p *pass, kept []int32) {
	s.prepareWorth(p, kept)
	p.buckets = p.buckets[:0]
	var shared []*topology
	for i := range p.rules {
		if t := p.rules[i].counter.topology; !p.rules[i].local && !slices.Contains(shared, t) {
			shared = append(shared, t)
		}
	}
	p.clearValues(shared)
	enough := p.enough()
	p.nodes.each(func(i int32) {
		if s.takes(p.class, i) && p.mayEver(i) {
			p.buckets[p.bucketOf(shared, i)].offer(entry{s.worth(p, i), s.ties[i], i}, enough)
		}
	})
	for i := range p.buckets {
		h := p.buckets[i].heap
		for j := len(h)/2 - 1; j >= 0; j-- {
			sink(h, j)
		}
	}
}

// enough is how many nodes of a bucket are looked at again: as many as there are instances, because each that is placed takes one node at most
// from being the best. Where a rule that changes meanwhile speaks of single nodes, any of them may have its turn.
func (p *pass) enough() int {
	for i := range p.rules[:p.hard] {
		if r := &p.rules[i]; r.local && r.kind != apart {
			return math.MaxInt
		}
	}
	return len(p.group.Instances)
}

// mayEver reports whether a node is not kept from a group for good: who is near now stays there during the decision.
func (p *pass) mayEver(node int32) bool {
	for i := range p.rules[:p.hard] {
		if r := &p.rules[i]; r.local && r.kind == apart && !r.allows(r.counter.topology.domain(node)) {
			return false
		}
	}
	return true
}

// offer adds a node to a bucket while that is filled, in the place of the worst where there are enough.
func (b *bucket) offer(e entry, enough int) {
	switch {
	case len(b.heap) < enough:
		if b.heap = append(b.heap, e); len(b.heap) == enough {
			for j := enough/2 - 1; j >= 0; j-- {
				sinkWorst(b.heap, j)
			}
		}
	case e.before(b.heap[0]):
		b.heap[0] = e
		sinkWorst(b.heap, 0)
	}
}

// sinkWorst moves an entry down to its place in a heap that has the worst on top.
func sinkWorst(h []entry, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child].before(h[child+1]) {
			child++
		}
		if !h[i].before(h[child]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// clearValues forgets which value has which bucket.
func (p *pass) clearValues(shared []*topology) {
	values := 1
	for _, t := range shared {
		if values *= len(t.nodes) + 1; values > valuesMax {
			p.values, p.byValue = p.values[:0], map[uint64]int32{}
			return
		}
	}
	p.byValue = nil
	p.values = slices.Grow(p.values[:0], values)[:values]
	clear(p.values)
}

// bucketOf is the bucket of a node, which is made where it is the first one there.
func (p *pass) bucketOf(shared []*topology, i int32) int32 {
	var value uint64
	for _, t := range shared {
		value = value*uint64(len(t.nodes)+1) + uint64(t.of[i]+1)
	}
	if p.byValue == nil {
		if p.values[value] == 0 {
			p.values[value] = p.newBucket(i) + 1
		}
		return p.values[value] - 1
	}
	at, known := p.byValue[value]
	if !known {
		at = p.newBucket(i)
		p.byValue[value] = at
	}
	return at
}

// newBucket adds a bucket, with the memory of one from a pass before.
func (p *pass) newBucket(sample int32) int32 {
	at := len(p.buckets)
	if at < cap(p.buckets) {
		p.buckets = p.buckets[:at+1]
		b := &p.buckets[at]
		b.heap, b.parked = b.heap[:0], b.parked[:0]
	} else {
		p.buckets = append(p.buckets, bucket{})
	}
	p.buckets[at].sample = sample
	return int32(at)
}

// takes reports whether a node has what an instance needs that others may hold: what fit.Held says, without words.
func (s *Snapshot) takes(c *class, i int32) bool {
	r := &c.spec.Request
	if !r.Amounts.Within(s.left[i]) {
		return false
	}
	if len(r.Devices) == 0 && len(r.Ports) == 0 {
		return true
	}
	st := &s.nodes[i]
	for _, d := range r.Devices {
		if st.devices[d.Name] < d.Count {
			return false
		}
	}
	for _, port := range r.Ports {
		if len(st.ports[port]) > 0 {
			return false
		}
	}
	return true
}

// choose finds the best node that the rules allow.
func (s *Snapshot) choose(p *pass) (bucketIndex int, ok bool) {
	var best entry
	for i := range p.buckets {
		b := &p.buckets[i]
		if len(b.heap) == 0 || !p.allowsShared(b.sample) {
			continue
		}
		p.park(b)
		if len(b.heap) == 0 {
			continue
		}
		top := b.heap[0]
		top.score += p.sharedWorth(b.sample)
		if !ok || top.before(best) {
			best, bucketIndex, ok = top, i, true
		}
	}
	return bucketIndex, ok
}

// park puts nodes aside that a rule about single nodes does not allow, until one is on top that all allow.
func (p *pass) park(b *bucket) {
	for len(b.heap) > 0 && !p.allowsLocal(b.heap[0].node) {
		b.parked = append(b.parked, b.heap[0])
		b.heap = pop(b.heap)
	}
}

// assume places an instance on the best node of a bucket.
func (s *Snapshot) assume(p *pass, at int, name string, d *Decision) {
	b := &p.buckets[at]
	node := b.heap[0].node
	st := &s.nodes[node]
	d.Bindings = append(d.Bindings, Binding{Instance: name, Node: st.Name, Revision: st.Revision, Ahead: st.onWay})
	k := s.enter(name, p.class, node)
	s.instances[k].assumed = true
	st.onWay++
	if len(p.own) > 0 {
		p.own[node]++
	}
	more := false
	for i := range p.rules {
		more = p.rules[i].placed(node) || more
	}
	if s.takes(p.class, node) {
		b.heap[0].score = s.worth(p, node)
		sink(b.heap, 0)
	} else {
		b.heap = pop(b.heap)
	}
	if !more {
		return
	}
	// The emptiest node has one more: nodes that had as many as the spread allows may have another one.
	for i := range p.buckets {
		o := &p.buckets[i]
		for _, e := range o.parked {
			o.heap = append(o.heap, e)
			rise(o.heap, len(o.heap)-1)
		}
		o.parked = o.parked[:0]
	}
}

// sink moves an entry of a heap down to its place.
func sink(h []entry, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// rise moves an entry of a heap up to its place.
func rise(h []entry, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func pop(h []entry) []entry {
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	if last > 0 {
		sink(h, 0)
	}
	return h
}

// unprepare forgets what belongs to a group, and keeps the memory.
func (s *Snapshot) unprepare(p *pass) {
	p.group, p.class = nil, nil
	clear(p.rules)
}

// heldOf is what nobody holds of a node, for words.
func (s *Snapshot) heldOf(i int32) fit.Left {
	st := &s.nodes[i]
	left := fit.Left{Amounts: s.left[i], Devices: st.devices, Ports: map[fit.Port]string{}}
	for p, by := range st.ports {
		left.Ports[p] = s.instances[by[0]].name
	}
	return left
}
