package relations

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/present"
)

const (
	// linesMax bounds a tree: some screens, which is more than anybody reads.
	linesMax = 200
	// droppedMax bounds the orders that are not kept in it.
	droppedMax = 20
)

// Tree is the graph for a person. Below what it is about stands what that waits for, then what waits for it; without, what waits for
// nothing is at the left. What stands several times has what is below it at the first place only.
func (g *Graph) Tree(style present.Style) string {
	t := tree{graph: g, style: style, resources: map[string]*Resource{}, before: map[string][]*Edge{}, after: map[string][]*Edge{}}
	for i := range g.Resources {
		t.resources[g.Resources[i].Claim] = &g.Resources[i]
	}
	for i := range g.Edges {
		if e := &g.Edges[i]; e.Dropped == "" && t.resources[e.From] != nil && t.resources[e.To] != nil {
			t.before[e.To] = append(t.before[e.To], e)
			t.after[e.From] = append(t.after[e.From], e)
		}
	}
	if len(g.About) > 0 {
		t.around()
	} else {
		t.whole()
	}
	t.end()
	return t.out.String()
}

type tree struct {
	graph         *Graph
	style         present.Style
	resources     map[string]*Resource
	before, after map[string][]*Edge
	seen          map[string]bool // what is below it was written
	lines, cut    int
	out           strings.Builder
}

// around writes what the graph is about, and what is around that.
func (t *tree) around() {
	for _, claim := range t.graph.About {
		r := t.resources[claim]
		if r == nil {
			continue
		}
		t.line("● ", r, "")
		t.seen = map[string]bool{claim: true}
		t.side("waits for nothing", "waits for", claim, t.before, func(e *Edge) string { return e.From })
		t.seen = map[string]bool{claim: true}
		t.side("nothing waits for it", "waited for by", claim, t.after, func(e *Edge) string { return e.To })
	}
}

// side writes one side of a resource.
func (t *tree) side(none, some, claim string, edges map[string][]*Edge, other func(*Edge) string) {
	if len(edges[claim]) == 0 {
		fmt.Fprintf(&t.out, "  %s\n", none)
		return
	}
	fmt.Fprintf(&t.out, "  %s\n", some)
	t.below("  ", claim, edges, other)
}

// whole writes everything, from what waits for nothing.
func (t *tree) whole() {
	t.seen = map[string]bool{}
	for i := range t.graph.Resources {
		r := &t.graph.Resources[i]
		if len(t.before[r.Claim]) > 0 || len(t.after[r.Claim]) == 0 {
			continue
		}
		t.line("● ", r, "")
		t.below("", r.Claim, t.after, func(e *Edge) string { return e.To })
	}
}

// below writes what is below a resource, each with the reason of its edge.
func (t *tree) below(indent, claim string, edges map[string][]*Edge, other func(*Edge) string) {
	list := edges[claim]
	for i, e := range list {
		next, branch, further := other(e), "├─ ", "│  "
		if i == len(list)-1 {
			branch, further = "└─ ", "   "
		}
		note := reasonOf(e)
		again := t.seen[next] && len(edges[next]) > 0
		if again {
			note += "; see above"
		}
		if !t.line(indent+branch, t.resources[next], note) || again || t.seen[next] {
			continue
		}
		t.seen[next] = true
		t.below(indent+further, next, edges, other)
	}
}

// line writes one resource, and reports whether there was room for it.
func (t *tree) line(begin string, r *Resource, note string) bool {
	if t.lines == linesMax {
		t.cut++
		return false
	}
	t.lines++
	fmt.Fprintf(&t.out, "%s%s  %s", begin, present.Quote(r.Title), r.outcome().Render(t.style))
	if note != "" {
		fmt.Fprintf(&t.out, "  (%s)", present.Escape(note))
	}
	t.out.WriteByte('\n')
	return true
}

// reasonOf is why an edge is there, in words that hold from both of its ends.
func reasonOf(e *Edge) string {
	if e.Why == "" {
		return e.Kind
	}
	return e.Kind + ": " + e.Why
}

// end writes what is not in the tree.
func (t *tree) end() {
	dropped := 0
	for i := range t.graph.Edges {
		e := &t.graph.Edges[i]
		if e.Dropped == "" {
			continue
		}
		if dropped++; dropped == 1 {
			t.out.WriteString("not kept\n")
		}
		if dropped <= droppedMax {
			fmt.Fprintf(&t.out, "  %s before %s (%s): %s\n", present.Quote(t.title(e.From)), present.Quote(t.title(e.To)), present.Escape(reasonOf(e)), present.Escape(e.Dropped))
		}
	}
	if dropped > droppedMax {
		fmt.Fprintf(&t.out, "  … and %d more\n", dropped-droppedMax)
	}
	if t.cut > 0 || t.graph.Omitted+t.graph.OmittedEdges > 0 {
		fmt.Fprintf(&t.out, "… there is more: name a resource to see what is around it, or write -o json or -o dot\n")
	}
	if t.graph.Omitted > 0 {
		fmt.Fprintf(&t.out, "%d resources are not listed at all\n", t.graph.Omitted)
	}
	if n := t.graph.Unrelated; n > 0 && len(t.graph.About) == 0 {
		fmt.Fprintf(&t.out, "%d resources wait for nothing, and nothing waits for them\n", n)
	}
}

// title is how a claim is called.
func (t *tree) title(claim string) string {
	if r := t.resources[claim]; r != nil {
		return r.Title
	}
	return claim
}
