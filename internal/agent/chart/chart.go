// Package chart makes of the graph that an agent converges what a person is told of it. It is pure: who calls it owns the graph.
package chart

import (
	"slices"
	"strings"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/relations"
)

const (
	// ResourcesMax is how many resources are told of at most, unless fewer are asked for: with their edges some 3 MiB, below the bound of
	// what a host answers. A drawing of that many helps nobody; a program that wants all asks for each.
	ResourcesMax = 5000
	// edgesMax bounds the edges for the same reason.
	edgesMax = 20_000
	// bytesMax bounds the texts of both: a claim may have 4 KiB, and most have 40 bytes.
	bytesMax = 2 << 20
	// pathMax is how many resources of a way are named.
	pathMax = 6
)

// Of tells of a graph: of all that has edges, or, with about, of those and all that they wait for or that waits for them, the nearest
// first. describe describes a vertex. At most limit resources are told of, ResourcesMax where limit is 0 or more than that.
func Of(g *converge.Graph, about []converge.ID, limit int, describe func(converge.ID) relations.Resource) *relations.Graph {
	if limit <= 0 || limit > ResourcesMax {
		limit = ResourcesMax
	}
	c := chart{graph: g, describe: describe, after: after(g), dropped: g.Dropped(),
		out: &relations.Graph{Version: relations.Version, Resources: []relations.Resource{}, Edges: []relations.Edge{}}}
	c.choose(about, limit)
	c.list()
	return c.out
}

type chart struct {
	graph    *converge.Graph
	describe func(converge.ID) relations.Resource
	after    [][]converge.ID // by what comes first
	dropped  []converge.Edge
	chosen   map[converge.ID]bool
	bytes    int
	out      *relations.Graph
}

// after lists for each vertex what comes after it.
func after(g *converge.Graph) [][]converge.ID {
	out := make([][]converge.ID, g.Len())
	for id := range out {
		for _, e := range g.Before(converge.ID(id)) {
			out[e.From] = append(out[e.From], e.To)
		}
	}
	return out
}

// choose chooses what is told of.
func (c *chart) choose(about []converge.ID, limit int) {
	c.chosen = map[converge.ID]bool{}
	if len(about) == 0 {
		c.chooseAll(limit)
		return
	}
	for _, id := range about {
		c.out.About = append(c.out.About, string(c.graph.Vertices[id].Key))
	}
	wanted := map[converge.ID]bool{}
	c.reach(about, wanted, c.before)
	c.reach(about, wanted, func(id converge.ID) []converge.ID { return c.after[id] })
	for _, e := range c.dropped {
		if slices.Contains(about, e.From) || slices.Contains(about, e.To) {
			wanted[e.From], wanted[e.To] = true, true
		}
	}
	// The nearest first: what is asked about, then step by step to both sides.
	for ring := about; len(ring) > 0 && len(c.chosen) < limit; {
		var next []converge.ID
		for _, id := range ring {
			if c.chosen[id] || len(c.chosen) == limit {
				continue
			}
			c.chosen[id] = true
			for _, other := range slices.Concat(c.before(id), c.after[id], c.besides(id)) {
				if wanted[other] && !c.chosen[other] {
					next = append(next, other)
				}
			}
		}
		ring = next
	}
	c.out.Omitted = len(wanted) - len(c.chosen)
}

// chooseAll chooses what has edges, in the order in which it is converged.
func (c *chart) chooseAll(limit int) {
	yields := map[converge.ID]bool{}
	for _, e := range c.dropped {
		yields[e.From], yields[e.To] = true, true
	}
	for _, id := range c.graph.Order() {
		switch {
		case len(c.graph.Before(id)) == 0 && len(c.after[id]) == 0 && !yields[id]:
			c.out.Unrelated++
		case len(c.chosen) == limit:
			c.out.Omitted++
		default:
			c.chosen[id] = true
		}
	}
}

// reach adds all that can be reached from some vertices by next.
func (c *chart) reach(from []converge.ID, reached map[converge.ID]bool, next func(converge.ID) []converge.ID) {
	seen := map[converge.ID]bool{}
	for stack := slices.Clone(from); len(stack) > 0; {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[id] {
			continue
		}
		seen[id], reached[id] = true, true
		stack = append(stack, next(id)...)
	}
}

// before lists what a vertex comes after.
func (c *chart) before(id converge.ID) []converge.ID {
	edges := c.graph.Before(id)
	list := make([]converge.ID, len(edges))
	for i, e := range edges {
		list[i] = e.From
	}
	return list
}

// besides lists what an order that is not kept would have put before or after a vertex.
func (c *chart) besides(id converge.ID) []converge.ID {
	var list []converge.ID
	for _, e := range c.dropped {
		switch id {
		case e.From:
			list = append(list, e.To)
		case e.To:
			list = append(list, e.From)
		}
	}
	return list
}

// list lists what was chosen, in the order in which it is converged, and the edges between.
func (c *chart) list() {
	for _, id := range c.graph.Order() {
		if !c.chosen[id] {
			continue
		}
		r := c.describe(id)
		if c.bytes += len(r.Claim) + len(r.Title) + len(r.Config); c.bytes > bytesMax {
			delete(c.chosen, id)
			c.out.Omitted++
			continue
		}
		c.out.Resources = append(c.out.Resources, r)
	}
	for id := range c.graph.Len() {
		for _, e := range c.graph.Before(converge.ID(id)) {
			c.edge(e, "")
		}
	}
	for _, e := range c.dropped {
		if c.chosen[e.From] && c.chosen[e.To] {
			c.edge(e, c.against(e))
		}
	}
}

func (c *chart) edge(e converge.Edge, dropped string) {
	if !c.chosen[e.From] || !c.chosen[e.To] {
		return
	}
	told := relations.Edge{From: c.key(e.From), To: c.key(e.To), Kind: e.Kind.String(), Why: e.Why, Dropped: dropped}
	c.bytes += len(told.From) + len(told.To) + len(told.Why) + len(told.Dropped)
	if len(c.out.Edges) == edgesMax || c.bytes > bytesMax {
		c.out.OmittedEdges++
		return
	}
	c.out.Edges = append(c.out.Edges, told)
}

func (c *chart) key(id converge.ID) string { return string(c.graph.Vertices[id].Key) }

// against says why an order is not kept: a way leads from what was to come second to what was to come first.
func (c *chart) against(e converge.Edge) string {
	path := c.way(e.To, e.From)
	titles := make([]string, 0, pathMax+1)
	for i, id := range path {
		if len(path) > pathMax && i == pathMax-1 {
			titles = append(titles, "…", c.graph.Vertices[path[len(path)-1]].Title)
			break
		}
		titles = append(titles, c.graph.Vertices[id].Title)
	}
	return "it would close a cycle with " + strings.Join(titles, " before ")
}

// way is a shortest way along edges that are kept; nil where there is none.
func (c *chart) way(from, to converge.ID) []converge.ID {
	came := map[converge.ID]converge.ID{from: converge.None}
	for queue := []converge.ID{from}; len(queue) > 0; queue = queue[1:] {
		id := queue[0]
		if id == to {
			var path []converge.ID
			for ; id != converge.None; id = came[id] {
				path = append(path, id)
			}
			slices.Reverse(path)
			return path
		}
		for _, next := range c.after[id] {
			if _, seen := came[next]; !seen {
				came[next] = id
				queue = append(queue, next)
			}
		}
	}
	return nil
}
