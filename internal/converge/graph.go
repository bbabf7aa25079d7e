package converge

import (
	"fmt"
	"strings"
)

// Key identifies a vertex across graphs: what it acts upon. There is at most one vertex per key.
type Key string

// ID is a vertex's index in its Graph.
type ID int32

// None is no vertex.
const None ID = -1

// Digest identifies what is desired of a vertex: the same digest, the same desire.
type Digest [32]byte

// Vertex is one thing to converge.
type Vertex struct {
	Key           Key
	Title         string // for explanations
	Lane          string // which Lane it runs in
	Digest        Digest
	NotApplicable bool // nothing is wanted of it here
}

// EdgeKind says why one vertex comes after another.
type EdgeKind uint8

// The edge kinds.
const (
	Require EdgeKind = iota // To needs From converged
	Notify                  // To comes after From has settled, and is told when From changed
	Auto                    // like Require, but it follows from what the two are, and is dropped where it would close a cycle
)

func (k EdgeKind) String() string { return [...]string{"require", "notify", "automatic"}[k] }

// Edge orders To after From.
type Edge struct {
	From, To ID
	Kind     EdgeKind
	Why      string // for Auto: "parent directory"; otherwise empty
}

// arc is one end of an edge as its vertex stores it.
type arc struct {
	to   ID
	kind EdgeKind
}

// Graph is an acyclic set of vertices and edges, immutable after NewGraph.
type Graph struct {
	Vertices []Vertex
	edges    []Edge // those kept, sorted as given
	dropped  []Edge // automatic edges that yielded
	out, in  [][]arc
	ids      map[Key]ID
}

// Cycle is a closed chain of explicit edges: each edge's To is the next one's From.
type Cycle struct{ Edges []Edge }

// NewGraph builds a graph. Automatic edges that would close a cycle are dropped. Cycles of explicit edges are returned,
// the shortest of each tangle, and then there is no graph. An edge to itself counts as a cycle. Keys must be unique:
// a key given twice is a fault of the caller and panics.
func NewGraph(vertices []Vertex, edges []Edge) (*Graph, []Cycle) {
	g := &Graph{Vertices: vertices, ids: make(map[Key]ID, len(vertices))}
	for i, v := range vertices {
		if _, twice := g.ids[v.Key]; twice {
			panic("converge: two vertices have the key " + string(v.Key))
		}
		g.ids[v.Key] = ID(i)
	}
	var explicit, auto []Edge
	for _, e := range edges {
		if e.Kind == Auto {
			if e.From != e.To {
				auto = append(auto, e)
			}
			continue
		}
		explicit = append(explicit, e)
	}
	if cycles := findCycles(len(vertices), explicit); len(cycles) > 0 {
		return nil, cycles
	}
	g.edges, g.dropped = yieldAuto(len(vertices), explicit, auto)
	g.out, g.in = adjacency(len(vertices), g.edges)
	return g, nil
}

// ID returns the vertex with the key, or None.
func (g *Graph) ID(k Key) ID {
	if id, ok := g.ids[k]; ok {
		return id
	}
	return None
}

// Len returns the number of vertices.
func (g *Graph) Len() int { return len(g.Vertices) }

// Dropped returns the automatic edges that yielded to explicit ones.
func (g *Graph) Dropped() []Edge { return g.dropped }

// Before returns the edges that end at id, in the order they were given, explicit ones first.
func (g *Graph) Before(id ID) []Edge {
	var found []Edge
	for _, e := range g.edges {
		if e.To == id {
			found = append(found, e)
		}
	}
	return found
}

// Order returns all vertices so that each comes after everything it is ordered after; equals by ID.
func (g *Graph) Order() []ID {
	waiting := make([]int, g.Len())
	var ready []ID
	for i := range g.Vertices {
		if waiting[i] = len(g.in[i]); waiting[i] == 0 {
			ready = append(ready, ID(i))
		}
	}
	for next := 0; next < len(ready); next++ {
		for _, a := range g.out[ready[next]] {
			if waiting[a.to]--; waiting[a.to] == 0 {
				ready = append(ready, a.to)
			}
		}
	}
	return ready
}

// Explain renders a cycle for a person, with the reason of each edge.
func (c Cycle) Explain(title func(ID) string) string {
	var b strings.Builder
	for i, e := range c.Edges {
		if i > 0 {
			b.WriteString("; ")
		}
		switch e.Kind {
		case Notify:
			fmt.Fprintf(&b, "%s notifies %s", title(e.From), title(e.To))
		case Require, Auto:
			fmt.Fprintf(&b, "%s requires %s", title(e.To), title(e.From))
		}
	}
	return b.String()
}

// adjacency builds both directions. The arcs of all vertices share one array, because most vertices have one or two.
func adjacency(n int, edges []Edge) (out, in [][]arc) {
	outs, ins := make([]int, n), make([]int, n)
	for _, e := range edges {
		outs[e.From]++
		ins[e.To]++
	}
	carve := func(counts []int) [][]arc {
		all := make([]arc, 0, len(edges))
		lists := make([][]arc, n)
		for i, c := range counts {
			start := len(all)
			all = all[:start+c]
			lists[i] = all[start : start : start+c]
		}
		return lists
	}
	out, in = carve(outs), carve(ins)
	for _, e := range edges {
		out[e.From] = append(out[e.From], arc{e.To, e.Kind})
		in[e.To] = append(in[e.To], arc{e.From, e.Kind})
	}
	return out, in
}
