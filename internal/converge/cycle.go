package converge

import "slices"

// cycleSearchMax bounds the vertices of one tangle from which the shortest cycle is searched: beyond it a short cycle is
// found, not always the shortest.
const cycleSearchMax = 256

// yieldDropsMax bounds how often a single automatic edge is chosen to yield; a tangle that is left after that loses all
// of its automatic edges.
const yieldDropsMax = 1000

// findCycles returns the shortest cycle of each tangle (strongly connected component).
func findCycles(n int, edges []Edge) []Cycle {
	var cycles []Cycle
	for _, e := range edges {
		if e.From == e.To {
			cycles = append(cycles, Cycle{[]Edge{e}})
		}
	}
	if len(cycles) > 0 {
		return cycles
	}
	for _, tangle := range tangles(n, edges) {
		cycles = append(cycles, shortestCycle(n, tangle, edges))
	}
	return cycles
}

// yieldAuto returns the explicit edges and as many automatic edges as fit without a cycle, and those that do not. Where one
// has to go, it is the last automatic edge of a shortest cycle.
func yieldAuto(n int, explicit, auto []Edge) (kept, dropped []Edge) {
	kept = append(slices.Clone(explicit), auto...)
	for drops := 0; ; drops++ {
		knots := tangles(n, kept)
		if len(knots) == 0 {
			return kept, dropped
		}
		var out []Edge
		for _, tangle := range knots {
			if drops >= yieldDropsMax {
				out = append(out, autoWithin(tangle, kept)...)
				continue
			}
			cycle := shortestCycle(n, tangle, kept)
			last := slices.IndexFunc(cycle.Edges, func(e Edge) bool { return e.Kind == Auto })
			for i, e := range cycle.Edges {
				if e.Kind == Auto && slices.Index(kept, e) > slices.Index(kept, cycle.Edges[last]) {
					last = i
				}
			}
			out = append(out, cycle.Edges[last])
		}
		kept = slices.DeleteFunc(kept, func(e Edge) bool { return slices.Contains(out, e) })
		dropped = append(dropped, out...)
	}
}

func autoWithin(tangle []ID, edges []Edge) []Edge {
	inside := make(map[ID]bool, len(tangle))
	for _, id := range tangle {
		inside[id] = true
	}
	var found []Edge
	for _, e := range edges {
		if e.Kind == Auto && inside[e.From] && inside[e.To] {
			found = append(found, e)
		}
	}
	return found
}

// tangles returns the strongly connected components with more than one vertex, each sorted, in order of their first
// vertex: Tarjan's algorithm with an explicit stack, because a chain of 100,000 vertices would be too deep for recursion.
func tangles(n int, edges []Edge) [][]ID {
	out, _ := adjacency(n, edges)
	const unseen = -1
	var (
		index, low = make([]int32, n), make([]int32, n)
		onStack    = make([]bool, n)
		stack      []ID
		next       int32
		found      [][]ID
	)
	for i := range index {
		index[i] = unseen
	}
	type frame struct {
		id  ID
		arc int
	}
	for root := range n {
		if index[root] != unseen {
			continue
		}
		frames := []frame{{id: ID(root)}}
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.id
			if f.arc == 0 {
				index[v], low[v] = next, next
				next++
				stack = append(stack, v)
				onStack[v] = true
			}
			if f.arc < len(out[v]) {
				w := out[v][f.arc].to
				f.arc++
				if index[w] == unseen {
					frames = append(frames, frame{id: w})
				} else if onStack[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				parent := frames[len(frames)-1].id
				low[parent] = min(low[parent], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != v {
				at--
			}
			component := slices.Clone(stack[at:])
			for _, w := range component {
				onStack[w] = false
			}
			stack = stack[:at]
			if len(component) > 1 {
				slices.Sort(component)
				found = append(found, component)
			}
		}
	}
	slices.SortFunc(found, func(a, b []ID) int { return int(a[0] - b[0]) })
	return found
}

// shortestCycle finds a shortest cycle inside a strongly connected component by breadth-first search from its vertices.
func shortestCycle(n int, tangle []ID, edges []Edge) Cycle {
	inside := make([]bool, n)
	for _, id := range tangle {
		inside[id] = true
	}
	from := make(map[ID][]Edge, len(tangle))
	for _, e := range edges {
		if inside[e.From] && inside[e.To] {
			from[e.From] = append(from[e.From], e)
		}
	}
	var best []Edge
	for _, start := range tangle[:min(len(tangle), cycleSearchMax)] {
		if c := cycleThrough(start, from); best == nil || len(c) < len(best) {
			best = c
		}
	}
	return Cycle{best}
}

// cycleThrough returns a shortest cycle through start, which is on one.
func cycleThrough(start ID, from map[ID][]Edge) []Edge {
	reached := map[ID]Edge{}
	queue := []ID{start}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range from[v] {
			if e.To == start {
				cycle := []Edge{e}
				for at := v; at != start; at = reached[at].From {
					cycle = append(cycle, reached[at])
				}
				slices.Reverse(cycle)
				return cycle
			}
			if _, seen := reached[e.To]; !seen {
				reached[e.To] = e
				queue = append(queue, e.To)
			}
		}
	}
	return nil
}
