package relations

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/present"
)

// Dot is the graph for Graphviz, dot(1): `tako why node/web-7 --graph -o dot | dot -Tsvg`.
func (g *Graph) Dot() string {
	var b strings.Builder
	b.WriteString("digraph tako {\n  rankdir=LR\n  node [shape=box]\n")
	about := map[string]bool{}
	for _, claim := range g.About {
		about[claim] = true
	}
	for i := range g.Resources {
		r := &g.Resources[i]
		label := dotText(r.Title) + `\n` + dotText(r.outcome().String())
		more := ""
		if about[r.Claim] {
			more = ", peripheries=2"
		}
		fmt.Fprintf(&b, "  \"%s\" [label=\"%s\"%s]\n", dotText(r.Claim), label, more)
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		label, style := reasonOf(e), map[string]string{Require: "solid", Notify: "bold", Automatic: "dashed", OnFailure: "dotted"}[e.Kind]
		more := ""
		if e.Dropped != "" {
			label += "; not kept"
			more = ", color=gray, fontcolor=gray, constraint=false"
		}
		fmt.Fprintf(&b, "  \"%s\" -> \"%s\" [label=\"%s\", style=\"%s\"%s]\n", dotText(e.From), dotText(e.To), dotText(label), style, more)
	}
	if g.Omitted > 0 {
		fmt.Fprintf(&b, "  label=\"%d resources are not drawn\"\n", g.Omitted)
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText is a text for between the quotes of the language of dot(1), in which a backslash begins an escape.
func dotText(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(present.Escape(s))
}
