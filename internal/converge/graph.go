package converge

import (
	"fmt"
	"slices"
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
	Window        Window // outside of which it is not refreshed; nil is always open
	Frozen        bool   // outside of the Window it is not applied either
	NotApplicable bool   // nothing is wanted of it here
	Observe       bool   // when it drifts, that is told, and it is left as it is
}

// EdgeKind says why one vertex comes after another.
type EdgeKind uint8

// The edge kinds.
const (
	Require EdgeKind = iota // To needs From converged
	Notify                  // To comes after From has settled, and is told when From changed
	Auto                    // like Require, but it follows from what the two are, and is dropped where it would close a cycle
	Rescue                  // To comes after From has settled, and is wanted only while From has failed
	Order                   // like Auto, but To does not need From: it comes after From has settled, converged or not
)

// needs reports whether To must not be acted upon while From is not converged.
func (k EdgeKind) needs() bool { return k == Require || k == Auto }

// yields reports whether an edge is dropped where it would close a cycle.
func (k EdgeKind) yields() bool { return k == Auto || k == Order }

func (k EdgeKind) String() string {
	return [...]string{"require", "notify", "automatic", "onFailure", "automatic"}[k]
}

// Edge orders To after From.
type Edge struct {
	From, To ID
	Kind     EdgeKind
	Why      string // for Auto and Order: "parent directory"; otherwise empty
}

// Graph is an acyclic set of vertices and edges, immutable after NewGraph.
type Graph struct {
	Vertices []Vertex
	edges    []Edge      // those kept, by To; of one vertex explicit ones first, then as given
	begin    []int32     // the edges that end at v are edges[begin[v]:begin[v+1]]
	out      arcs        // the same edges, by From
	dropped  []Edge      // automatic edges that yielded
	byKey    []ID        // sorted by key: a map would need ten times the memory
	standby  map[ID]bool // at which a Rescue ends, and that are applicable
}

// arc is an edge as the vertex that it begins at stores it.
type arc struct {
	to   ID
	kind EdgeKind
}

// Cycle is a closed chain of explicit edges: each edge's To is the next one's From.
type Cycle struct{ Edges []Edge }

// NewGraph builds a graph. Automatic edges that would close a cycle are dropped, and no more of them than that takes. Cycles
// of explicit edges are returned, the shortest of each tangle, and then there is no graph. An edge to itself is a cycle when
// it is explicit and nothing when it is automatic. Keys must be unique: a key given twice is a fault of the caller and
// panics, like an edge to a vertex that is not there.
func NewGraph(vertices []Vertex, edges []Edge) (*Graph, []Cycle) {
	g := &Graph{Vertices: vertices, byKey: sortedByKey(vertices), standby: map[ID]bool{}}
	var explicit, auto []Edge
	for _, e := range edges {
		switch {
		case !e.Kind.yields():
			explicit = append(explicit, e)
		case e.From != e.To:
			auto = append(auto, e)
		}
	}
	if cycles := findCycles(len(vertices), explicit); len(cycles) > 0 {
		return nil, cycles
	}
	g.edges, g.dropped = yieldAuto(len(vertices), explicit, auto)
	slices.SortStableFunc(g.edges, func(a, b Edge) int { return int(a.To - b.To) })
	g.begin = make([]int32, len(vertices)+1)
	for _, e := range g.edges {
		g.begin[e.To+1]++
	}
	for i := range vertices {
		g.begin[i+1] += g.begin[i]
	}
	g.out = arcsFrom(len(vertices), g.edges)
	for _, e := range g.edges {
		if e.Kind == Rescue && !vertices[e.To].NotApplicable {
			g.standby[e.To] = true
		}
	}
	return g, nil
}

// ID returns the vertex with the key, or None.
func (g *Graph) ID(k Key) ID {
	at, found := slices.BinarySearchFunc(g.byKey, k, func(id ID, k Key) int { return strings.Compare(string(g.Vertices[id].Key), string(k)) })
	if !found {
		return None
	}
	return g.byKey[at]
}

// after lists the edges that begin at id, in the order that all edges have.
func (g *Graph) after(id ID) []arc { return g.out.from(id) }

// Len returns the number of vertices.
func (g *Graph) Len() int { return len(g.Vertices) }

// Dropped returns the automatic edges that yielded to explicit ones.
func (g *Graph) Dropped() []Edge { return g.dropped }

// Before returns the edges that end at id, explicit ones first, otherwise in the order they were given. The caller does not
// change them.
func (g *Graph) Before(id ID) []Edge { return g.edges[g.begin[id]:g.begin[id+1]:g.begin[id+1]] }

// Order returns all vertices so that each comes after everything it is ordered after. Wherever several may come next, the
// smallest ID does: what nobody orders stays as it was given.
func (g *Graph) Order() []ID {
	waiting := make([]int, g.Len())
	var ready idHeap
	for i := range g.Vertices {
		if waiting[i] = len(g.Before(ID(i))); waiting[i] == 0 {
			ready = append(ready, ID(i)) // in ascending order, which is a heap
		}
	}
	order := make([]ID, 0, g.Len())
	for len(ready) > 0 {
		id := ready.pop()
		order = append(order, id)
		for _, a := range g.after(id) {
			if waiting[a.to]--; waiting[a.to] == 0 {
				ready.push(a.to)
			}
		}
	}
	return order
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
		case Rescue:
			fmt.Fprintf(&b, "%s when it fails wants %s", title(e.From), title(e.To))
		case Require, Auto, Order:
			fmt.Fprintf(&b, "%s requires %s", title(e.To), title(e.From))
		}
	}
	return b.String()
}

// sortedByKey lists vertices by their keys, which must be unique.
func sortedByKey(vertices []Vertex) []ID {
	ids := make([]ID, len(vertices))
	for i := range ids {
		ids[i] = ID(i)
	}
	slices.SortFunc(ids, func(a, b ID) int { return strings.Compare(string(vertices[a].Key), string(vertices[b].Key)) })
	for i := 1; i < len(ids); i++ {
		if k := vertices[ids[i]].Key; k == vertices[ids[i-1]].Key {
			panic("converge: two vertices have the key " + string(k))
		}
	}
	return ids
}

// arcs are edges by where they begin.
type arcs struct {
	all   []arc
	begin []int32 // those of v are all[begin[v]:begin[v+1]]
}

func (a arcs) len() int { return len(a.begin) - 1 }

func (a arcs) from(id ID) []arc { return a.all[a.begin[id]:a.begin[id+1]] }

// arcsFrom sorts edges by where they begin; those of one vertex stay in the order given.
func arcsFrom(n int, edges []Edge) arcs {
	starts := make([]int32, n+1)
	for _, e := range edges {
		starts[e.From+1]++
	}
	for i := range n {
		starts[i+1] += starts[i]
	}
	all, next := make([]arc, len(edges)), slices.Clone(starts)
	for _, e := range edges {
		all[next[e.From]] = arc{e.To, e.Kind}
		next[e.From]++
	}
	return arcs{all, starts}
}

// idHeap is a binary heap of vertices, the smallest first. It is not container/heap because that puts every ID into an
// interface, which costs an allocation each.
type idHeap []ID

func (h *idHeap) push(id ID) {
	*h = append(*h, id)
	s := *h
	for i := len(s) - 1; i > 0 && s[i] < s[(i-1)/2]; i = (i - 1) / 2 {
		s[i], s[(i-1)/2] = s[(i-1)/2], s[i]
	}
}

func (h *idHeap) pop() ID {
	s := *h
	least, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	*h = s
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return least
		}
		if child+1 < last && s[child+1] < s[child] {
			child++
		}
		if s[i] <= s[child] {
			return least
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
