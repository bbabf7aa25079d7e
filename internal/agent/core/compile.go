package core

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// Removal is a resource that has left the declaration and still has to be undone.
type Removal struct {
	Claim    declare.Claim
	Title    string
	Config   string
	Type     declare.ResourceType
	Digest   converge.Digest // of what was desired
	OnRemove declare.OnRemove
	After    []declare.Claim  // what it came after; it is undone before those that are undone too
	Resource declare.Resource // as it was declared
}

// Input is what a host's graph is made of.
type Input struct {
	Entries  []catalog.Entry
	Removals []Removal // of claims that no entry has
	Lookup   declare.Lookup
	Lane     func(declare.ResourceType) string
	Zones    Zones
}

// Item is one vertex of the graph, as the agent needs it.
type Item struct {
	Claim    declare.Claim
	Title    string
	Config   string
	Type     declare.ResourceType
	Place    declare.Place
	OnRemove declare.OnRemove
	Entry    int               // index in Input.Entries; -1 for a removal
	Removal  int               // index in Input.Removals; -1 for an entry
	Resource *declare.Resource // expanded; otherwise the one of its entry. It is not changed, but replaced
	When     string            // why it is not applicable: its condition; empty where it is
	Err      *reason.Error     // it cannot be had on this host; of a secret until its content is filled in
	Unfit    bool              // nothing but another compilation cures Err
	After    []declare.Claim   // what it comes after in this graph
	Hold     *catalog.Hold     // it is looked at and not changed; see Compiled.Hold
}

// Compiled is a host's graph; Items[id] belongs to Graph.Vertices[id].
type Compiled struct {
	Graph *converge.Graph
	Items []Item
}

// Key is a claim as converge knows it.
func Key(c declare.Claim) converge.Key { return converge.Key(c.String()) }

// Compile builds the graph. Cycles of explicit edges inside one config are faults, with the reason of each edge and where
// each resource is declared; then there is no graph.
func Compile(in Input) (*Compiled, []declare.Fault) {
	all := len(in.Entries) + len(in.Removals)
	c := compiler{in: in, ids: make(map[declare.Claim]converge.ID, all), vertices: make([]converge.Vertex, 0, all), items: make([]Item, 0, all)}
	for i := range in.Entries {
		c.addEntry(i)
	}
	c.assemble()
	for i := range in.Removals {
		c.addRemoval(i)
	}
	for i := range in.Entries {
		c.order(converge.ID(i), &in.Entries[i])
	}
	for i := range in.Removals {
		c.reverse(converge.ID(len(in.Entries)+i), &in.Removals[i])
	}
	for round := 1; ; round++ {
		graph, cycles := converge.NewGraph(c.vertices, slices.Concat(c.edges, c.cross))
		if len(cycles) == 0 {
			return &Compiled{Graph: graph, Items: c.items}, nil
		}
		if !c.yield(cycles, round < yieldRounds) {
			return nil, c.faults(cycles)
		}
	}
}

// yieldRounds bounds the search for what must yield: each round builds the graph anew, and takes one edge out of each tangle.
const yieldRounds = 20

// yield drops, of the edges between configs, the last one of each cycle, or without gently all: orders that two configs make together are
// nobody's declaration. It is false where the cycles have none, and then they are somebody's.
func (c *compiler) yield(cycles []converge.Cycle, gently bool) bool {
	before := len(c.cross)
	if !gently {
		c.cross = nil
	}
	for _, cycle := range cycles {
		last := -1
		for _, e := range cycle.Edges {
			last = max(last, slices.Index(c.cross, e))
		}
		if last >= 0 {
			c.cross = slices.Delete(c.cross, last, last+1)
		}
	}
	return len(c.cross) < before
}

type compiler struct {
	in       Input
	ids      map[declare.Claim]converge.ID
	vertices []converge.Vertex
	items    []Item
	edges    []converge.Edge
	cross    []converge.Edge     // notifications between configs
	windows  map[string]*windows // by how they are declared
	kinds    map[declare.ClaimKind][]converge.ID
}

// add adds a vertex. One of a type that is not known here is never worked on, so any lane will do.
func (c *compiler) add(it Item, v converge.Vertex) {
	v.Key, v.Title, v.Lane = Key(it.Claim), it.Title, c.in.Lane(cmp.Or(it.Type, declare.TypeFile))
	c.ids[it.Claim] = converge.ID(len(c.items))
	c.items = append(c.items, it)
	c.vertices = append(c.vertices, v)
}

func (c *compiler) addEntry(i int) {
	e := &c.in.Entries[i]
	it := Item{Claim: e.Claim(), Title: e.Title(), Config: e.Config, Type: e.Resource.Type(), Place: e.Place,
		OnRemove: e.Resource.OnRemoveOrDefault(), Entry: i, Removal: -1, Resource: &e.Resource}
	applies, err := Applicable(e.Resource.When, c.in.Lookup)
	switch {
	case err != nil:
		it.Err, it.Unfit = reason.Of(err), true
	case !applies:
		it.When = e.Resource.When
	case e.Resource.Expand:
		expanded, err := e.Resource.Expanded(c.in.Lookup)
		if err != nil {
			it.Err = reason.Of(err)
			break
		}
		it.Resource = &expanded
	}
	if it.When == "" && it.Err == nil {
		it.Err = Unready(e)
	}
	digest, err := e.DesireOf(*it.Resource)
	if err != nil {
		it.Err = reason.Of(err)
	}
	window, err := c.windowsOf(it.Resource, it.Title)
	if err != nil {
		it.Err, it.Unfit = reason.Of(err), true
	}
	c.add(it, converge.Vertex{Digest: converge.Digest(digest), NotApplicable: it.When != "", Observe: it.Resource.Drift == declare.DriftObserve,
		Window: window, Frozen: it.Resource.Frozen()})
}

// Unready says why an entry by itself is not enough to act upon; nil if it is. With a secret it becomes so when its content is filled
// in.
func Unready(e *catalog.Entry) *reason.Error {
	switch {
	case e.Unsupported != nil:
		return e.Unsupported
	case e.Sealed != nil:
		return &reason.Error{Code: reason.SecretKeyMissing, Doing: "open the content of " + e.Title()}
	case e.Resource.Source() != nil:
		return &reason.Error{Code: reason.ContentNeedsServer, Doing: "get the content of " + e.Title(),
			Hint: "write the content in the place of where it is from, or let this host join a server and apply the declaration there"}
	}
	return nil
}

// Applicable evaluates a condition; the empty one holds.
func Applicable(when string, lookup declare.Lookup) (bool, error) {
	if when == "" {
		return true, nil
	}
	expr, err := declare.ParseWhen(when)
	if err != nil {
		return false, err
	}
	return expr.Eval(lookup)
}

func (c *compiler) addRemoval(i int) {
	r := &c.in.Removals[i]
	digest := sha256.Sum256(fmt.Appendf(nil, "remove %s %x", r.OnRemove, r.Digest))
	window, err := c.windowsOf(&r.Resource, r.Title)
	c.add(Item{Claim: r.Claim, Title: r.Title, Config: r.Config, Type: r.Type, OnRemove: r.OnRemove, Entry: -1, Removal: i, Resource: &r.Resource, Err: reason.Of(err), Unfit: err != nil},
		converge.Vertex{Digest: digest, Window: window, Frozen: r.Resource.Frozen()})
}

// order adds the edges that an entry wants.
func (c *compiler) order(id converge.ID, e *catalog.Entry) {
	for _, ref := range e.Require {
		kind, why := converge.Require, ""
		if ref.Cross {
			kind, why = converge.Auto, "required, but another config has won it"
		}
		c.edge(c.standing(ref.Claim), id, kind, why)
	}
	from := c.ids[c.standing(c.items[id].Claim)]
	for _, ref := range e.Notify {
		to, known := c.ids[ref.Claim]
		if !known || to == from {
			continue
		}
		edge := converge.Edge{From: from, To: to, Kind: converge.Notify}
		c.items[to].After = append(c.items[to].After, c.items[from].Claim)
		if ref.Cross || c.items[from].Config != e.Config {
			c.cross = append(c.cross, edge)
			continue
		}
		c.edges = append(c.edges, edge)
	}
	for _, ref := range e.Failure {
		to, known := c.ids[ref.Claim]
		if !known || to == id {
			continue
		}
		edge := converge.Edge{From: id, To: to, Kind: converge.Rescue}
		if ref.Cross {
			c.cross = append(c.cross, edge)
			continue
		}
		c.edges = append(c.edges, edge)
	}
	c.automatic(id, e)
}

// automatic adds the edges that follow from what an entry is.
func (c *compiler) automatic(id converge.ID, e *catalog.Entry) {
	nearest := false
	for _, a := range e.Resource.AutoEdges() {
		if a.Other.ID == "" {
			c.afterAll(id, a)
			continue
		}
		other, known := c.ids[a.Other]
		if !known || other == id || c.items[other].Entry < 0 {
			continue
		}
		if a.Why == declare.ParentDirectory {
			if nearest {
				continue // the nearest parent comes after the farther ones itself
			}
			nearest = true
			if d := c.items[other].Resource.Directory; d != nil && d.Below() {
				a.Loose = true // what is wrong with something else below is no reason to wait
			}
		}
		if c.rescues(id, other) {
			a.Loose = true // it is wanted just when the other one has failed
		}
		if a.Before {
			c.edges = append(c.edges, converge.Edge{From: id, To: other, Kind: kindOf(a), Why: a.Why})
			c.items[other].After = append(c.items[other].After, c.items[id].Claim)
			continue
		}
		c.edge(a.Other, id, kindOf(a), a.Why)
	}
}

// rescues says whether an item is there for the failure of another one.
func (c *compiler) rescues(id, other converge.ID) bool {
	return slices.ContainsFunc(c.in.Entries[c.items[other].Entry].Failure, func(r catalog.Ref) bool { return r.Claim == c.items[id].Claim })
}

func kindOf(a declare.AutoEdge) converge.EdgeKind {
	if a.Loose {
		return converge.Order
	}
	return converge.Auto
}

// afterAll orders an entry after all entries that claim something of a kind.
func (c *compiler) afterAll(id converge.ID, a declare.AutoEdge) {
	for _, other := range c.ofKind(a.Other.Kind) {
		if other != id {
			c.edge(c.items[other].Claim, id, kindOf(a), a.Why)
		}
	}
}

// ofKind lists the entries that claim something of a kind, in their order.
func (c *compiler) ofKind(kind declare.ClaimKind) []converge.ID {
	ids, known := c.kinds[kind]
	if known {
		return ids
	}
	for i := range c.in.Entries {
		if c.items[i].Claim.Kind == kind {
			ids = append(ids, converge.ID(i))
		}
	}
	if c.kinds == nil {
		c.kinds = map[declare.ClaimKind][]converge.ID{}
	}
	c.kinds[kind] = ids
	return ids
}

// edge orders to after the vertex that claims from, if there is one.
func (c *compiler) edge(from declare.Claim, to converge.ID, kind converge.EdgeKind, why string) {
	id, known := c.ids[from]
	if !known || id == to {
		return
	}
	c.edges = append(c.edges, converge.Edge{From: id, To: to, Kind: kind, Why: why})
	c.items[to].After = append(c.items[to].After, from)
}

// reverse orders a removal before the removals of what it came after.
func (c *compiler) reverse(id converge.ID, r *Removal) {
	for _, claim := range r.After {
		other, known := c.ids[claim]
		if known && other != id && c.items[other].Removal >= 0 {
			c.edges = append(c.edges, converge.Edge{From: id, To: other, Kind: converge.Auto, Why: "removed in reverse order"})
		}
	}
}

// faults explains cycles where their resources are declared.
func (c *compiler) faults(cycles []converge.Cycle) []declare.Fault {
	var faults []declare.Fault
	for _, cycle := range cycles {
		title := func(id converge.ID) string { return c.items[id].Title }
		first := c.items[cycle.Edges[0].From]
		f := declare.Fault{Code: reason.DependencyCycle, File: first.Place.File, Line: first.Place.Line, Column: first.Place.Column,
			Path: first.Place.Path, Message: "dependency cycle: " + cycle.Explain(title), Hint: "drop one of these relations"}
		for _, e := range cycle.Edges[1:] {
			place := c.items[e.From].Place
			place.Note = strings.TrimSpace(title(e.From))
			f.Related = append(f.Related, place)
		}
		faults = append(faults, f)
	}
	return faults
}
