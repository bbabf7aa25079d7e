package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

const (
	// missesMax is how many nodes an explanation names that were nearest to taking an instance, each for another reason: as many as people
	// compare.
	missesMax = 3
	// filteredMax is how many conditions an explanation lists; what is beyond is one entry. A selector has a few, and nodes may have any
	// number of different taints.
	filteredMax = 32
	// keptMax is how many nodes an explanation names where room is made: enough to go and look.
	keptMax = 10
)

// Explanation says why not all instances of a group were placed: which conditions kept how many nodes away, and what would help. It is about
// the moment after those that were placed.
type Explanation struct {
	Wanted, Placed int
	Nodes          int // in all
	// Filtered are the conditions in the order in which they were asked: each counts the nodes that it was the first to keep away, so that
	// together they are all nodes.
	Filtered []Filtered
	// Nearest are nodes that were nearest to taking an instance, the nearest first.
	Nearest []Miss
	// Gang says that what there was room for was not placed because it was not all.
	Gang bool
	// Kept are nodes where room is made, the first ones: instances of lower priority are told to go, or are ending.
	Kept []string
	// reasons are those of all nodes.
	reasons mask
}

// Filtered is one condition with the nodes that it has kept away.
type Filtered struct {
	Reason  fit.Reason
	What    string
	Nodes   int
	Left    int    // of all nodes, after it
	Example string // one of the nodes
}

// Miss is a node that would take an instance but for a few reasons.
type Miss struct {
	Node     string
	Refusals []fit.Refusal
}

// Code is the reason of the closed set.
func (e *Explanation) Code() reason.Code {
	if e.Gang {
		return reason.GangIncomplete
	}
	return reason.NoNodeFits
}

// String says it in one line, the most useful first.
func (e *Explanation) String() string {
	var b strings.Builder
	if e.Gang {
		fmt.Fprintf(&b, "0 of %d placed, because there is room for %d at once", e.Wanted, e.Placed)
	} else {
		fmt.Fprintf(&b, "%d of %d placed", e.Placed, e.Wanted)
	}
	fmt.Fprintf(&b, "; of %d nodes ", e.Nodes)
	if len(e.Filtered) == 0 {
		b.WriteString("none is there")
	}
	for i, f := range e.Filtered {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", f.Nodes, f.String())
	}
	for i, m := range e.Nearest {
		b.WriteString([]string{"; ", ", or "}[min(i, 1)])
		b.WriteString(m.Cure())
	}
	if len(e.Kept) > 0 {
		fmt.Fprintf(&b, "; room is made on %s", strings.Join(e.Kept, ", "))
	}
	return b.String()
}

// String says which nodes those are, such as "with taint dedicated=gpu:NoSchedule".
func (f Filtered) String() string {
	words := map[fit.Reason]string{fit.Unhealthy: "unhealthy", fit.Cordoned: "cordoned", fit.WrongLabels: "without", fit.WrongArchitecture: "of another architecture",
		fit.NoRuntime: "without runtime", fit.Tainted: "with taint", fit.NoDirectory: "without directory", fit.Refused: "refused lately", fit.DataWhere: "other than", fit.PortTaken: "with taken port",
		fit.NoDevice: "with too few", fit.NoCPU: "with too little cpu", fit.NoMemory: "with too little memory", fit.NoDisk: "with too little disk", fit.NoPlace: "with as many instances as there may be",
		fit.NotNear: "not near", fit.TooNear: "too near", fit.Uneven: "too uneven over"}[f.Reason]
	if f.What == "" {
		return words
	}
	return words + " " + f.What
}

// Cure is what would make the node take an instance.
func (m Miss) Cure() string {
	var here, there []string
	for _, r := range m.Refusals {
		// What is changed of the workload holds everywhere.
		if r.Reason == fit.Tainted || r.Reason == fit.WrongArchitecture {
			there = append(there, r.Cure())
		} else {
			here = append(here, r.Cure())
		}
	}
	text := strings.Join(there, " and ")
	if len(here) > 0 {
		if text != "" {
			text += " and "
		}
		return text + strings.Join(here, " and ") + " on " + m.Node
	}
	return text + ", as for " + m.Node
}

// survey is what is found out of every node for an explanation.
type survey struct {
	left     bitset
	filtered []Filtered
	fails    []uint8 // of each node: how many conditions speak against it
	only     []uint8 // of each node: the reason of the last of them
	reasons  mask
}

// explain looks at all nodes once. What a condition over sets says costs one operation; only amounts and rules are asked of each node.
func (s *Snapshot) explain(p *pass, wanted, placed int) *Explanation {
	e := &Explanation{Wanted: wanted, Placed: placed, Nodes: len(s.numbers)}
	v := &survey{fails: make([]uint8, len(s.nodes)), only: make([]uint8, len(s.nodes))}
	v.left.copyOf(s.all, len(s.all))
	var kept, fails bitset
	s.filter(p, func(f filter) {
		fails.copyOf(s.all, len(s.all))
		if f.keep {
			fails.drop(f.set)
		} else {
			fails.keep(f.set)
		}
		v.against(s, fails, &kept, f.why, f.what)
	})
	s.surveyRoom(p, v, &kept)
	s.surveyRules(p, v, &kept)
	e.Filtered, e.reasons = clip(v.filtered), v.reasons
	e.Nearest = s.nearest(p, v)
	return e
}

// against counts a condition that some nodes fail.
func (v *survey) against(s *Snapshot, fails bitset, kept *bitset, why fit.Reason, what string) {
	fails.each(func(i int32) {
		if v.fails[i] < 255 {
			v.fails[i]++
		}
		v.only[i] = uint8(why)
	})
	kept.copyOf(v.left, len(v.left))
	kept.keep(fails)
	n := kept.count()
	if n == 0 {
		return
	}
	v.left.drop(fails)
	v.reasons |= maskOf(why)
	v.filtered = append(v.filtered, Filtered{Reason: why, What: what, Nodes: n, Left: v.left.count(), Example: s.nodes[s.lowest(*kept)].Name})
}

// lowest is the node of a set that is told as the example: the one with the first name, whatever order they came in.
func (s *Snapshot) lowest(set bitset) int32 {
	best := int32(-1)
	set.each(func(i int32) {
		if best < 0 || s.nodes[i].Name < s.nodes[best].Name {
			best = i
		}
	})
	return best
}

func (s *Snapshot) surveyRoom(p *pass, v *survey, kept *bitset) {
	r := &p.class.spec.Request
	failing := func(fails func(i int32) bool) bitset {
		set := make(bitset, len(s.all))
		s.all.each(func(i int32) {
			if fails(i) {
				set.add(i)
			}
		})
		return set
	}
	for _, d := range r.Devices {
		v.against(s, failing(func(i int32) bool { return s.nodes[i].devices[d.Name] < d.Count }), kept, fit.NoDevice, d.Name)
	}
	a := r.Amounts
	for _, c := range []struct {
		why  fit.Reason
		need int64
		have func(i int32) int64
	}{
		{fit.NoCPU, a.CPU, func(i int32) int64 { return s.left[i].CPU }},
		{fit.NoMemory, a.Memory, func(i int32) int64 { return s.left[i].Memory }},
		{fit.NoDisk, a.Disk, func(i int32) int64 { return s.left[i].Disk }},
		{fit.NoPlace, a.Instances, func(i int32) int64 { return s.left[i].Instances }},
	} {
		if c.need > 0 {
			v.against(s, failing(func(i int32) bool { return c.have(i) < c.need }), kept, c.why, "")
		}
	}
}

func (s *Snapshot) surveyRules(p *pass, v *survey, kept *bitset) {
	for k := range p.rules[:p.hard] {
		r := &p.rules[k]
		fails := make(bitset, len(s.all))
		s.all.each(func(i int32) {
			if !r.allows(r.counter.topology.domain(i)) {
				fails.add(i)
			}
		})
		why := [...]fit.Reason{near: fit.NotNear, apart: fit.TooNear, spread: fit.Uneven}[r.kind]
		what := r.what
		if what == "" {
			what = "nodes"
		}
		v.against(s, fails, kept, why, what)
	}
}

// clip bounds what is listed.
func clip(list []Filtered) []Filtered {
	if len(list) <= filteredMax {
		return list
	}
	rest := list[filteredMax-1:]
	last := Filtered{Reason: rest[0].Reason, What: fmt.Sprintf("and %d conditions more", len(rest)), Left: rest[len(rest)-1].Left, Example: rest[0].Example}
	for _, f := range rest {
		last.Nodes += f.Nodes
	}
	return append(list[:filteredMax-1:filteredMax-1], last)
}

// costs say which reason is sooner done away with, in thousandths of a node: a taint is tolerated with a line, an architecture never comes.
// What is missing of an amount costs its share of what the node has.
var costs = [fit.Reasons]int64{fit.Unhealthy: 900, fit.Cordoned: 300, fit.WrongLabels: 600, fit.WrongArchitecture: 2000, fit.NoRuntime: 800, fit.Tainted: 500, fit.NoDirectory: 700,
	fit.Refused: 400, fit.DataWhere: 1500, fit.PortTaken: 600, fit.NoDevice: 1000, fit.NoPlace: 1000, fit.NotNear: 800, fit.TooNear: 800, fit.Uneven: 700}

// nearest finds, of the nodes that the fewest conditions speak against, one for each of a few reasons.
func (s *Snapshot) nearest(p *pass, v *survey) []Miss {
	fewest := uint8(255)
	s.all.each(func(i int32) { fewest = min(fewest, max(v.fails[i], 1)) })
	type candidate struct {
		node int32
		cost int64
	}
	best := map[uint8]candidate{}
	s.all.each(func(i int32) {
		if v.fails[i] != fewest {
			return
		}
		c := candidate{i, s.cost(p, i, fit.Reason(v.only[i]))}
		was, known := best[v.only[i]]
		if !known || c.cost < was.cost || c.cost == was.cost && s.nodes[i].Name < s.nodes[was.node].Name {
			best[v.only[i]] = c
		}
	})
	list := make([]candidate, 0, len(best))
	for _, c := range best {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), strings.Compare(s.nodes[a.node].Name, s.nodes[b.node].Name))
	})
	var misses []Miss
	for _, c := range list[:min(len(list), missesMax)] {
		misses = append(misses, Miss{s.nodes[c.node].Name, s.refusals(p, c.node)})
	}
	return misses
}

// cost is how far a node is from taking an instance where one reason speaks against it.
func (s *Snapshot) cost(p *pass, i int32, why fit.Reason) int64 {
	need, left, has := p.class.spec.Request.Amounts, s.left[i], s.capacity[i]
	share := func(need, left, has int64) int64 { return (need - left) / (max(has, 1000)/1000 + 1) }
	switch why {
	case fit.NoCPU:
		return share(need.CPU, left.CPU, has.CPU)
	case fit.NoMemory:
		return share(need.Memory, left.Memory, has.Memory)
	case fit.NoDisk:
		return share(need.Disk, left.Disk, has.Disk)
	}
	return costs[why]
}

// refusals are all reasons why a node takes no instance of a group, in words with numbers.
func (s *Snapshot) refusals(p *pass, i int32) []fit.Refusal {
	left := s.heldOf(i)
	list := fit.Check(&s.nodes[i].Node.Node, &left, &p.class.spec.Request)
	if p.refused.has(i) {
		s.avoided.nodes(p.class.key.Workload, p.now, func(n int32, e *avoided) {
			if n == i {
				list = append(list, fit.Refusal{Reason: fit.Refused, What: e.text()})
			}
		})
	}
	if p.group.Must && p.pinned != i {
		list = append(list, fit.Refusal{Reason: fit.DataWhere, What: "the instance belongs on " + p.group.Node})
	}
	for k := range p.rules[:p.hard] {
		if r := &p.rules[k]; !r.allows(r.counter.topology.domain(i)) {
			list = append(list, r.refusal(i))
		}
	}
	slices.SortStableFunc(list, func(a, b fit.Refusal) int { return cmp.Compare(a.Reason, b.Reason) })
	return list
}
