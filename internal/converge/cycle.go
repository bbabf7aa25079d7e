package converge

import "slices"

// cycleSearchMax bounds the edges that are looked at in the search for the shortest cycle of one tangle, to well under a
// second. It is enough for a complete answer in a tangle of a thousand vertices with a thousand edges; beyond it a short
// cycle is found, not always the shortest.
const cycleSearchMax = 1 << 20

// findCycles returns every edge to itself and the shortest cycle of each tangle (strongly connected component).
func findCycles(n int, edges []Edge) []Cycle {
	var cycles []Cycle
	for _, e := range edges {
		if e.From == e.To {
			cycles = append(cycles, Cycle{[]Edge{e}})
		}
	}
	tangle, count := tangles(arcsFrom(n, edges))
	if count == 0 {
		return cycles
	}
	search := newCycleSearch(n, tangle, edges)
	members := make([][]ID, count+1)
	for v, t := range tangle {
		members[t] = append(members[t], ID(v))
	}
	for _, ids := range members[1:] {
		cycles = append(cycles, Cycle{search.shortest(ids)})
	}
	return cycles
}

// tangles numbers the strongly connected components of more than one vertex from 1, in order of their first vertex, and says
// of each vertex which one it is in; 0 is none. Tarjan's algorithm with an explicit stack, because a chain of 100,000
// vertices would be too deep for recursion.
func tangles(out arcs) (tangle []int32, count int32) {
	n := out.len()
	t := tarjan{out: out, index: make([]int32, n), low: make([]int32, n), onStack: make([]bool, n), tangle: make([]int32, n)}
	for root := range n {
		if t.index[root] == 0 {
			t.visit(ID(root))
		}
	}
	// Components are found from the inside out; number them as a reader meets them.
	renamed := make([]int32, t.found+1)
	for v, c := range t.tangle {
		if c != 0 && renamed[c] == 0 {
			count++
			renamed[c] = count
		}
		t.tangle[v] = renamed[c]
	}
	return t.tangle, count
}

type tarjan struct {
	out        arcs
	index, low []int32 // from 1; index 0 has not been visited
	onStack    []bool
	stack      []ID
	next       int32
	tangle     []int32
	found      int32
	frames     []frame
}

// frame is a vertex on the way of the search, and which of its arcs is next.
type frame struct {
	id  ID
	arc int
}

func (t *tarjan) visit(root ID) {
	t.enter(root)
	for len(t.frames) > 0 {
		f := &t.frames[len(t.frames)-1]
		v := f.id
		if out := t.out.from(v); f.arc < len(out) {
			w := out[f.arc].to
			f.arc++
			if t.index[w] == 0 {
				t.enter(w)
			} else if t.onStack[w] {
				t.low[v] = min(t.low[v], t.index[w])
			}
			continue
		}
		t.frames = t.frames[:len(t.frames)-1]
		if len(t.frames) > 0 {
			parent := t.frames[len(t.frames)-1].id
			t.low[parent] = min(t.low[parent], t.low[v])
		}
		if t.low[v] == t.index[v] {
			t.leave(v)
		}
	}
}

func (t *tarjan) enter(v ID) {
	t.next++
	t.index[v], t.low[v] = t.next, t.next
	t.stack = append(t.stack, v)
	t.onStack[v] = true
	t.frames = append(t.frames, frame{id: v})
}

// leave takes the component that v is the first of off the stack.
func (t *tarjan) leave(v ID) {
	at := len(t.stack) - 1
	for t.stack[at] != v {
		at--
	}
	component := t.stack[at:]
	t.stack = t.stack[:at]
	if len(component) > 1 {
		t.found++
	}
	for _, w := range component {
		t.onStack[w] = false
		if len(component) > 1 {
			t.tangle[w] = t.found
		}
	}
}

// cycleSearch looks for short cycles by breadth-first search along the edges that stay inside a tangle.
type cycleSearch struct {
	edges []Edge
	from  [][]int32 // indexes into edges
	via   []int32   // the edge by which a vertex was reached
	seen  []int32   // the search that reached it last
	depth []int32
	run   int32
	queue []ID
	looks int
}

func newCycleSearch(n int, tangle []int32, edges []Edge) *cycleSearch {
	s := &cycleSearch{edges: edges, from: make([][]int32, n), via: make([]int32, n), seen: make([]int32, n), depth: make([]int32, n)}
	for i, e := range edges {
		if tangle[e.From] != 0 && tangle[e.From] == tangle[e.To] && e.From != e.To {
			s.from[e.From] = append(s.from[e.From], int32(i))
		}
	}
	return s
}

// shortest returns a shortest cycle among the vertices of one tangle.
func (s *cycleSearch) shortest(tangle []ID) []Edge {
	s.looks = 0
	best := s.through(tangle[0], len(tangle)+1)
	for _, start := range tangle[1:] {
		if len(best) == 2 || s.looks > cycleSearchMax {
			break
		}
		if c := s.through(start, len(best)); c != nil {
			best = c
		}
	}
	return best
}

// through returns a shortest cycle through start, if there is one of fewer than limit edges.
func (s *cycleSearch) through(start ID, limit int) []Edge {
	s.run++
	s.queue = append(s.queue[:0], start)
	s.seen[start], s.depth[start] = s.run, 0
	for at := 0; at < len(s.queue); at++ {
		v := s.queue[at]
		if int(s.depth[v])+1 >= limit {
			return nil
		}
		for _, i := range s.from[v] {
			s.looks++
			to := s.edges[i].To
			if to == start {
				s.via[start] = i
				return s.back(start)
			}
			if s.seen[to] != s.run {
				s.seen[to], s.depth[to], s.via[to] = s.run, s.depth[v]+1, i
				s.queue = append(s.queue, to)
			}
		}
	}
	return nil
}

// back follows the edges by which the search came round to start.
func (s *cycleSearch) back(start ID) []Edge {
	var cycle []Edge
	for at := start; ; {
		e := s.edges[s.via[at]]
		cycle = append(cycle, e)
		if at = e.From; at == start {
			slices.Reverse(cycle)
			return cycle
		}
	}
}
