package declare

import (
	"cmp"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// cycleSearchMax bounds the edges that are looked at in the search for the shortest cycle of one tangle, to well under a
// second. It is enough for a complete answer in a tangle of a thousand resources with a thousand references each; beyond it a
// short cycle is found, not always the shortest. It is the bound of the graph that hosts make, so that both say the same.
const cycleSearchMax = 1 << 20

// Cycles returns a fault for each tangle of resources that come after one another in a circle by require, notify and onFailure: its
// shortest cycle, with the reason of each edge, in the words that a host has for it. Faults have paths and no places. It is for
// a spec that has passed Validate, as a host looks for cycles only where nothing else is wrong; references to nothing, and of a
// resource to itself, are Validate's to tell and count for nothing here.
func Cycles(s *NodeConfigSpec) []Fault {
	o := newOrder(s)
	tangle, count := o.tangles()
	if count == 0 {
		return nil
	}
	members := make([][]int, count+1)
	for v, t := range tangle {
		members[t] = append(members[t], v)
	}
	search := newCycleSearch(o, tangle)
	faults := make([]Fault, 0, count)
	for _, vertices := range members[1:] {
		faults = append(faults, o.explain(search.shortest(vertices)))
	}
	return faults
}

// order is the graph of what a config orders itself: a vertex for each resource, in the order of their claims, which is that
// of entries on a host.
type order struct {
	resources []*Resource // by vertex
	index     []int       // by vertex, in the spec
	edges     []orderEdge
	out       [][]int // by vertex, indexes into edges
}

// orderEdge says that to comes after from.
type orderEdge struct {
	from, to int
	word     string // how a sentence about it says that
}

// The words for the edges. Of what is required, the later one is the subject.
const (
	wordRequires = "requires"
	wordNotifies = "notifies"
	wordCalls    = "when it fails wants"
)

func newOrder(s *NodeConfigSpec) *order {
	n := len(s.Resources)
	o := &order{resources: make([]*Resource, n), index: make([]int, n), out: make([][]int, n)}
	claims := make([]Claim, n)
	for i := range s.Resources {
		claims[i], o.index[i] = s.Resources[i].Claim(), i
	}
	slices.SortFunc(o.index, func(a, b int) int {
		return cmp.Or(cmp.Compare(claims[a].Kind, claims[b].Kind), cmp.Compare(claims[a].ID, claims[b].ID))
	})
	byName := make(map[string]int, n)
	for v, i := range o.index {
		o.resources[v] = &s.Resources[i]
		byName[s.Resources[i].Name] = v
	}
	relations := Relations(s.Resources)
	for v := range o.resources {
		relation := &relations[o.index[v]]
		for _, name := range relation.Require {
			if from, known := byName[name]; known && from != v {
				o.add(orderEdge{from: from, to: v, word: wordRequires})
			}
		}
		for _, name := range relation.Notify {
			if to, known := byName[name]; known && to != v {
				o.add(orderEdge{from: v, to: to, word: wordNotifies})
			}
		}
		for _, name := range relation.OnFailure {
			if to, known := byName[name]; known && to != v {
				o.add(orderEdge{from: v, to: to, word: wordCalls})
			}
		}
	}
	return o
}

func (o *order) add(e orderEdge) {
	o.out[e.from] = append(o.out[e.from], len(o.edges))
	o.edges = append(o.edges, e)
}

// explain makes the fault of a cycle.
func (o *order) explain(cycle []orderEdge) Fault {
	steps := make([]string, 0, len(cycle))
	f := Fault{Code: reason.DependencyCycle, Path: ResourcePath(o.index[cycle[0].from]), Hint: "drop one of these relations"}
	for i, e := range cycle {
		from, to := o.resources[e.from].Title(), o.resources[e.to].Title()
		if e.word == wordRequires {
			from, to = to, from
		}
		steps = append(steps, from+" "+e.word+" "+to)
		if i > 0 {
			f.Related = append(f.Related, Place{Path: ResourcePath(o.index[e.from]), Note: o.resources[e.from].Title()})
		}
	}
	f.Message = "dependency cycle: " + strings.Join(steps, "; ")
	return f
}

// tangles numbers the strongly connected components of more than one vertex from 1, in order of their first vertex, and says
// of each vertex which one it is in; 0 is none. By Kosaraju: along the edges to a finishing order, then against them in the
// reverse of it. Without recursion, because a chain of 100,000 resources would be too deep for it.
func (o *order) tangles() (tangle []int, count int) {
	n := len(o.out)
	in := make([][]int, n)
	for i, e := range o.edges {
		in[e.to] = append(in[e.to], i)
	}
	finished := make([]int, 0, n)
	seen := make([]bool, n)
	for v := range n {
		finished = o.walk(v, finished, seen)
	}
	component := make([]int, n) // by its root, from 1; 0 is not reached yet
	size := make([]int, n+1)
	for _, root := range slices.Backward(finished) {
		if component[root] != 0 {
			continue
		}
		component[root] = root + 1
		for reached := []int{root}; len(reached) > 0; {
			v := reached[len(reached)-1]
			reached = reached[:len(reached)-1]
			size[root+1]++
			for _, i := range in[v] {
				if from := o.edges[i].from; component[from] == 0 {
					component[from] = root + 1
					reached = append(reached, from)
				}
			}
		}
	}
	return numbered(component, size)
}

// walk visits what can be reached from root and has not been seen, and appends it to finished, each vertex after those that
// it leads to.
func (o *order) walk(root int, finished []int, seen []bool) []int {
	type frame struct{ vertex, edge int }
	if seen[root] {
		return finished
	}
	seen[root] = true
	for frames := []frame{{vertex: root}}; len(frames) > 0; {
		f := &frames[len(frames)-1]
		if f.edge == len(o.out[f.vertex]) {
			finished = append(finished, f.vertex)
			frames = frames[:len(frames)-1]
			continue
		}
		to := o.edges[o.out[f.vertex][f.edge]].to
		f.edge++
		if !seen[to] {
			seen[to] = true
			frames = append(frames, frame{vertex: to})
		}
	}
	return finished
}

// numbered gives numbers to the components of more than one vertex, as a reader meets them, and 0 to the others.
func numbered(component, size []int) (tangle []int, count int) {
	tangle = make([]int, len(component))
	numbers := make([]int, len(size))
	for v, c := range component {
		if size[c] < 2 {
			continue
		}
		if numbers[c] == 0 {
			count++
			numbers[c] = count
		}
		tangle[v] = numbers[c]
	}
	return tangle, count
}

// cycleSearch looks for short cycles by breadth-first search along the edges that stay inside a tangle.
type cycleSearch struct {
	order  *order
	tangle []int
	seen   []int // by vertex: the search that reached it last
	via    []int // by vertex: the edge by which it was reached
	depth  []int // by vertex: how many edges from the start
	run    int
	looks  int
}

func newCycleSearch(o *order, tangle []int) *cycleSearch {
	n := len(tangle)
	return &cycleSearch{order: o, tangle: tangle, seen: make([]int, n), via: make([]int, n), depth: make([]int, n)}
}

// shortest returns a shortest cycle of one tangle; of several, the one that is found first from the first vertex.
func (s *cycleSearch) shortest(vertices []int) []orderEdge {
	s.looks = 0
	best := s.through(vertices[0], len(vertices)+1)
	for _, start := range vertices[1:] {
		if len(best) == 2 || s.looks > cycleSearchMax {
			break
		}
		if c := s.through(start, len(best)); c != nil {
			best = c
		}
	}
	return best
}

// through returns a shortest cycle through start, nil if there is none of fewer than limit edges.
func (s *cycleSearch) through(start, limit int) []orderEdge {
	s.run++
	s.seen[start], s.depth[start] = s.run, 0
	queue := []int{start}
	for at := 0; at < len(queue) && s.depth[queue[at]]+1 < limit; at++ {
		v := queue[at]
		for _, i := range s.order.out[v] {
			to := s.order.edges[i].to
			if s.tangle[to] != s.tangle[v] {
				continue
			}
			s.looks++
			if to == start {
				s.via[start] = i
				return s.back(start)
			}
			if s.seen[to] != s.run {
				s.seen[to], s.depth[to], s.via[to] = s.run, s.depth[v]+1, i
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// back follows the edges by which the search came round to start.
func (s *cycleSearch) back(start int) []orderEdge {
	var cycle []orderEdge
	for at := start; ; {
		e := s.order.edges[s.via[at]]
		cycle = append(cycle, e)
		if at = e.from; at == start {
			slices.Reverse(cycle)
			return cycle
		}
	}
}
