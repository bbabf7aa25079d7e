package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/relations"
)

// graphOf makes a graph of vertices 0 to n-1 with these edges.
func graphOf(t interface{ Fatalf(string, ...any) }, n int, edges ...converge.Edge) *converge.Graph {
	vertices := make([]converge.Vertex, n)
	for i := range vertices {
		vertices[i] = converge.Vertex{Key: converge.Key(fmt.Sprint("path:/", i)), Title: fmt.Sprint("file/", i)}
	}
	g, cycles := converge.NewGraph(vertices, edges)
	if len(cycles) > 0 {
		t.Fatalf("the graph has cycles: %v", cycles)
	}
	return g
}

func describe(id converge.ID) relations.Resource {
	return relations.Resource{Claim: fmt.Sprint("path:/", id), Title: fmt.Sprint("file/", id), Outcome: "kept"}
}

func claims(g *relations.Graph) string {
	var all []string
	for _, r := range g.Resources {
		all = append(all, strings.TrimPrefix(r.Claim, "path:/"))
	}
	return strings.Join(all, " ")
}

// A resource is told of with all that it waits for and all that waits for it, and with nothing else.
func TestOf(t *testing.T) {
	g := graphOf(t, 8,
		converge.Edge{From: 0, To: 1, Kind: converge.Require}, converge.Edge{From: 1, To: 2, Kind: converge.Notify}, converge.Edge{From: 2, To: 3, Kind: converge.Rescue},
		converge.Edge{From: 0, To: 4, Kind: converge.Auto, Why: "parent directory"}, converge.Edge{From: 5, To: 2, Kind: converge.Auto, Why: "owner"},
		converge.Edge{From: 3, To: 0, Kind: converge.Auto, Why: "unit file"})
	for _, c := range []struct {
		about     []converge.ID
		limit     int
		resources string
		edges     int
		omitted   int
		unrelated int
	}{
		{nil, 0, "0 1 4 5 2 3", 6, 0, 2},
		{nil, 3, "0 1 4", 2, 3, 2},
		{[]converge.ID{2}, 0, "0 1 5 2 3", 5, 0, 0},
		{[]converge.ID{4}, 0, "0 4", 1, 0, 0},
		{[]converge.ID{2}, 2, "1 2", 1, 3, 0},
		{[]converge.ID{6}, 0, "6", 0, 0, 0},
		{[]converge.ID{4, 5}, 0, "0 4 5 2 3", 4, 0, 0},
	} {
		got := Of(g, c.about, c.limit, describe)
		if claims(got) != c.resources || len(got.Edges) != c.edges || got.Omitted != c.omitted || got.Unrelated != c.unrelated {
			t.Errorf("about %v, at most %d: %q with %d edges, %d omitted, %d unrelated; want %+v", c.about, c.limit, claims(got), len(got.Edges), got.Omitted, got.Unrelated, c)
		}
	}
	edges := Of(g, nil, 0, describe).Edges
	if want := (relations.Edge{From: "path:/0", To: "path:/4", Kind: relations.Automatic, Why: "parent directory"}); !slices.Contains(edges, want) {
		t.Errorf("%+v is not in %+v", want, edges)
	}
	want := relations.Edge{From: "path:/3", To: "path:/0", Kind: relations.Automatic, Why: "unit file",
		Dropped: "it would close a cycle with file/0 before file/1 before file/2 before file/3"}
	if !slices.Contains(edges, want) {
		t.Errorf("%+v is not in %+v", want, edges)
	}
}

// Kinds are told by the words that relations has for them.
func TestKinds(t *testing.T) {
	for kind, want := range map[converge.EdgeKind]string{converge.Require: relations.Require, converge.Notify: relations.Notify, converge.Auto: relations.Automatic,
		converge.Rescue: relations.OnFailure} {
		if kind.String() != want {
			t.Errorf("%v is %s", kind, want)
		}
	}
}

// TestAroundIsWhatIsReached compares what is told of with what a naive walk reaches.
func TestAroundIsWhatIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		var edges []converge.Edge
		for range rapid.IntRange(0, 20).Draw(t, "edges") {
			from, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			if from < to {
				edges = append(edges, converge.Edge{From: converge.ID(from), To: converge.ID(to), Kind: converge.Require})
			}
		}
		g := graphOf(t, n, edges...)
		about := converge.ID(rapid.IntRange(0, n-1).Draw(t, "about"))
		want := map[string]bool{}
		for id := range n {
			if reaches(edges, converge.ID(id), about) || reaches(edges, about, converge.ID(id)) {
				want[fmt.Sprint("path:/", id)] = true
			}
		}
		got := Of(g, []converge.ID{about}, 0, describe)
		if len(got.Resources) != len(want) || got.Omitted != 0 {
			t.Fatalf("about %d of %v: %s, want %v", about, edges, claims(got), want)
		}
		seen := map[string]int{}
		for i, r := range got.Resources {
			seen[r.Claim] = i
			if !want[r.Claim] {
				t.Fatalf("%s has nothing to do with %d in %v", r.Claim, about, edges)
			}
		}
		for _, e := range got.Edges {
			if seen[e.From] >= seen[e.To] {
				t.Fatalf("%s comes before %s and is listed after it", e.From, e.To)
			}
		}
		limit := rapid.IntRange(1, n).Draw(t, "limit")
		few := Of(g, []converge.ID{about}, limit, describe)
		if len(few.Resources)+few.Omitted != len(want) || len(few.Resources) > limit || len(few.Resources) == 0 {
			t.Fatalf("at most %d: %d told and %d omitted of %d", limit, len(few.Resources), few.Omitted, len(want))
		}
	})
}

// reaches reports whether a way leads from one vertex to another, by trying all.
func reaches(edges []converge.Edge, from, to converge.ID) bool {
	if from == to {
		return true
	}
	return slices.ContainsFunc(edges, func(e converge.Edge) bool { return e.From == from && reaches(edges, e.To, to) })
}

// What is told fits into an answer, however many resources there are and however long their claims.
func TestOfIsBounded(t *testing.T) {
	const n = 20_000
	var edges []converge.Edge
	for i := 1; i < n; i++ {
		edges = append(edges, converge.Edge{From: converge.ID(i / 2), To: converge.ID(i), Kind: converge.Require})
	}
	g := graphOf(t, n, edges[1:]...)
	long := func(id converge.ID) relations.Resource {
		r := describe(id)
		r.Title = strings.Repeat("x", 4000)
		return r
	}
	got := Of(g, nil, 0, long)
	size := 0
	for _, r := range got.Resources {
		size += len(r.Title)
	}
	if size > bytesMax || len(got.Resources) == 0 || len(got.Resources)+got.Omitted+got.Unrelated != n {
		t.Errorf("%d resources of %d bytes, %d omitted, %d unrelated", len(got.Resources), size, got.Omitted, got.Unrelated)
	}
	if got := Of(g, nil, 0, describe); len(got.Resources) != ResourcesMax || len(got.Edges) >= edgesMax {
		t.Errorf("%d resources, %d edges", len(got.Resources), len(got.Edges))
	}
}
