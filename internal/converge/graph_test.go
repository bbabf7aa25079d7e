package converge

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func named4() []Vertex { return []Vertex{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}} }

func title(id ID) string { return string(named4()[id].Key) }

func TestNewGraph(t *testing.T) {
	for _, c := range []struct {
		name            string
		edges           []Edge
		cycles, dropped []string
	}{
		{name: "nothing"},
		{name: "chain", edges: []Edge{{From: 0, To: 1}, {From: 1, To: 2, Kind: Notify}, {From: 2, To: 3, Kind: Auto}}},
		{name: "itself", edges: []Edge{{From: 1, To: 1}}, cycles: []string{"b requires b"}},
		{name: "itself, automatic", edges: []Edge{{From: 1, To: 1, Kind: Auto}}},
		{name: "two ways", edges: []Edge{{From: 0, To: 1}, {From: 1, To: 0, Kind: Notify}}, cycles: []string{"b requires a; b notifies a"}},
		{name: "the short one of a tangle", edges: []Edge{{From: 0, To: 1}, {From: 1, To: 2}, {From: 2, To: 0}, {From: 2, To: 1}},
			cycles: []string{"c requires b; b requires c"}},
		{name: "two tangles", edges: []Edge{{From: 3, To: 2}, {From: 2, To: 3}, {From: 1, To: 0}, {From: 0, To: 1}, {From: 1, To: 2}},
			cycles: []string{"b requires a; a requires b", "d requires c; c requires d"}},
		{name: "automatic yields", edges: []Edge{{From: 1, To: 0, Kind: Auto}, {From: 0, To: 1}}, dropped: []string{"a requires b"}},
		{name: "no more than needed", edges: []Edge{{From: 2, To: 0, Kind: Auto}, {From: 1, To: 3, Kind: Auto}, {From: 0, To: 1}, {From: 1, To: 2}},
			dropped: []string{"a requires c"}},
		{name: "one yields, the others fit", edges: []Edge{{From: 0, To: 2, Kind: Auto}, {From: 1, To: 0, Kind: Auto}, {From: 2, To: 1, Kind: Auto}, {From: 2, To: 0}},
			dropped: []string{"c requires a"}},
	} {
		g, cycles := NewGraph(named4(), c.edges)
		var got, dropped []string
		for _, cycle := range cycles {
			got = append(got, cycle.Explain(title))
		}
		if !slices.Equal(got, c.cycles) {
			t.Errorf("%s: cycles %q, want %q", c.name, got, c.cycles)
		}
		if (g == nil) != (c.cycles != nil) {
			t.Errorf("%s: a graph and cycles, or neither", c.name)
		}
		if g == nil {
			continue
		}
		for _, e := range g.Dropped() {
			dropped = append(dropped, Cycle{[]Edge{e}}.Explain(title))
		}
		if !slices.Equal(dropped, c.dropped) {
			t.Errorf("%s: dropped %q, want %q", c.name, dropped, c.dropped)
		}
	}
}

func TestGraphPanicsOnFaultsOfItsCaller(t *testing.T) {
	for name, build := range map[string]func(){
		"key twice":    func() { NewGraph([]Vertex{{Key: "a"}, {Key: "a"}}, nil) },
		"edge nowhere": func() { NewGraph([]Vertex{{Key: "a"}}, []Edge{{From: 0, To: 1}}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			build()
		}()
	}
}

// reach is the length of the shortest way between any two vertices, 0 where there is none: the naive model.
func reach(n int, edges []Edge) [][]int {
	d := make([][]int, n)
	for i := range d {
		d[i] = make([]int, n)
	}
	for _, e := range edges {
		d[e.From][e.To] = 1
	}
	for via := range n {
		for i := range n {
			for j := range n {
				if d[i][via] > 0 && d[via][j] > 0 && (d[i][j] == 0 || d[i][via]+d[via][j] < d[i][j]) {
					d[i][j] = d[i][via] + d[via][j]
				}
			}
		}
	}
	return d
}

func drawGraph(t *rapid.T) (vertices []Vertex, edges []Edge) {
	n := rapid.IntRange(1, 9).Draw(t, "vertices")
	for i := range n {
		vertices = append(vertices, Vertex{Key: Key(fmt.Sprint(i))})
	}
	kinds := rapid.SampledFrom([]EdgeKind{Auto, Auto, Order, Require, Notify})
	for range rapid.IntRange(0, 16).Draw(t, "edges") {
		end := rapid.IntRange(0, n-1)
		edges = append(edges, Edge{From: ID(end.Draw(t, "from")), To: ID(end.Draw(t, "to")), Kind: kinds.Draw(t, "kind")})
	}
	return vertices, edges
}

func explicitOf(edges []Edge) []Edge {
	return slices.DeleteFunc(slices.Clone(edges), func(e Edge) bool { return e.Kind.yields() })
}

func TestGraphHoldsWhatItPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vertices, edges := drawGraph(t)
		explicit := explicitOf(edges)
		g, cycles := NewGraph(vertices, edges)
		model := reach(len(vertices), explicit)
		if g == nil {
			checkCycles(t, model, explicit, cycles)
			return
		}
		if len(cycles) > 0 {
			t.Fatalf("a graph and cycles: %v", cycles)
		}
		for v := range vertices {
			if model[v][v] > 0 {
				t.Fatalf("%d is on a cycle, which was not found", v)
			}
		}
		checkYielded(t, g, edges)
		checkOrder(t, g)
	})
}

// checkCycles wants one cycle for each tangle, the shortest there is, and each edge to itself.
func checkCycles(t *rapid.T, model [][]int, explicit []Edge, cycles []Cycle) {
	shortest := map[int]int{} // by the smallest vertex of the tangle
	withoutLoops := reach(len(model), slices.DeleteFunc(slices.Clone(explicit), func(e Edge) bool { return e.From == e.To }))
	tangle := func(v int) int {
		for u := range v {
			if withoutLoops[u][v] > 0 && withoutLoops[v][u] > 0 {
				return u
			}
		}
		return v
	}
	loops := 0
	for v := range model {
		if n := withoutLoops[v][v]; n > 0 && (shortest[tangle(v)] == 0 || n < shortest[tangle(v)]) {
			shortest[tangle(v)] = n
		}
	}
	for _, e := range explicit {
		if e.From == e.To {
			loops++
		}
	}
	if len(cycles) != loops+len(shortest) {
		t.Fatalf("%d cycles, want %d to themselves and %d others", len(cycles), loops, len(shortest))
	}
	for _, c := range cycles {
		for i, e := range c.Edges {
			if e.To != c.Edges[(i+1)%len(c.Edges)].From || !slices.Contains(explicit, e) {
				t.Fatalf("no cycle: %v", c.Edges)
			}
		}
		if n := len(c.Edges); n > 1 && n != shortest[tangle(int(c.Edges[0].From))] {
			t.Fatalf("a cycle of %d edges, %v is the shortest", n, shortest)
		}
	}
}

// checkYielded wants nothing lost, and each automatic edge that was dropped in contradiction to those kept.
func checkYielded(t *rapid.T, g *Graph, edges []Edge) {
	var kept []Edge
	for v := range g.Vertices {
		before := g.Before(ID(v))
		if i := slices.IndexFunc(before, func(e Edge) bool { return e.Kind.yields() }); i >= 0 && len(explicitOf(before[i:])) > 0 {
			t.Fatalf("explicit edges after automatic ones: %v", before)
		}
		kept = append(kept, before...)
	}
	ways := reach(g.Len(), kept)
	for _, e := range g.Dropped() {
		if !e.Kind.yields() || ways[e.To][e.From] == 0 {
			t.Fatalf("%v was dropped, and contradicts nothing", e)
		}
	}
	loops := 0
	for _, e := range edges {
		if e.From == e.To {
			loops++
		}
	}
	if len(kept)+len(g.Dropped())+loops != len(edges) {
		t.Fatalf("%d edges kept, %d dropped, %d to themselves, of %d", len(kept), len(g.Dropped()), loops, len(edges))
	}
}

// checkOrder wants the order that always takes the smallest vertex that nothing is before any more.
func checkOrder(t *rapid.T, g *Graph) {
	var want []ID
	for len(want) < g.Len() {
		next := slices.IndexFunc(g.Vertices, func(v Vertex) bool {
			id := g.ID(v.Key)
			return !slices.Contains(want, id) &&
				!slices.ContainsFunc(g.Before(id), func(e Edge) bool { return !slices.Contains(want, e.From) })
		})
		if next < 0 {
			t.Fatalf("a cycle is left behind %v", want)
		}
		want = append(want, ID(next))
	}
	if got := g.Order(); !slices.Equal(got, want) {
		t.Fatalf("order %v, want %v", got, want)
	}
}

// many makes n vertices, and the edges that shape gives for each but the first.
func many(n int, shape func(i int) Edge) ([]Vertex, []Edge) {
	vertices, edges := make([]Vertex, n), make([]Edge, 0, n)
	for i := range n {
		vertices[i] = Vertex{Key: Key(fmt.Sprint(i)), Digest: Digest{1}}
		if i > 0 {
			edges = append(edges, shape(i))
		}
	}
	return vertices, edges
}

var shapes = map[string]func(i int) Edge{
	"chain": func(i int) Edge { return Edge{From: ID(i - 1), To: ID(i)} },
	"star":  func(i int) Edge { return Edge{From: 0, To: ID(i), Kind: Auto} },
	"well":  func(i int) Edge { return Edge{From: ID(i), To: 0, Kind: Notify} },
}

func BenchmarkNewGraph(b *testing.B) {
	for name, shape := range shapes {
		vertices, edges := many(100_000, shape)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g, _ := NewGraph(vertices, edges)
				g.Order()
			}
		})
	}
}
