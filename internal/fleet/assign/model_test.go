package assign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

// world is a few nodes and configs that collide often, and what is assigned.
type world struct {
	view  View
	plain map[RevisionID]map[string]string // path -> content, of the files of a revision
}

func newWorld(t *rapid.T) *world {
	w := &world{View{Revisions: map[RevisionID]*Revision{}}, map[RevisionID]map[string]string{}}
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		w.view.Nodes = append(w.view.Nodes, Node{Name: fmt.Sprint("n", i)})
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "configs") {
		c := Config{ID: fmt.Sprint("ClusterNodeConfig/c", i), Kind: declare.KindClusterNodeConfig, Created: time.Unix(int64(rapid.IntRange(0, 2).Draw(t, "created")), 0)}
		for r := range 3 {
			id := RevisionID{c.ID, fmt.Sprint("r", r), ""}
			files := rapid.MapOfN(rapid.SampledFrom([]string{"/a", "/b", "/c"}), rapid.SampledFrom([]string{"x", "y"}), 0, 2).Draw(t, "files")
			w.plain[id] = files
			w.view.Revisions[id] = revisionOf(t, files)
		}
		w.view.Configs = append(w.view.Configs, c)
	}
	return w
}

type fataler interface{ Fatal(args ...any) }

func revisionOf(t fataler, files map[string]string) *Revision {
	var resources []declare.Resource
	for _, path := range slices.Sorted(maps.Keys(files)) {
		resources = append(resources, declare.Resource{Name: "f" + path[1:], File: &declare.File{Path: path, Content: files[path]}})
	}
	r, err := NewRevision(resources)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// change draws what people and rollouts do between two decisions.
func (w *world) change(t *rapid.T) {
	target := rapid.Custom(func(t *rapid.T) Target {
		return Target{rapid.SampledFrom([]string{"", "r0", "r1", "r2"}).Draw(t, "revision"), rapid.SampledFrom([]int{1100, 1100, 1200}).Draw(t, "priority"), ""}
	})
	for i := range w.view.Configs {
		c := &w.view.Configs[i]
		c.Newest, c.Proven, c.Release, c.Selector = target.Draw(t, "newest"), target.Draw(t, "proven"), map[string]Target{}, declare.Selector{}
		if rapid.IntRange(0, 5).Draw(t, "selects") == 0 {
			c.Selector.MatchLabels = map[string]string{"few": "yes"}
		}
		for _, n := range w.view.Nodes {
			if rapid.Bool().Draw(t, "release") {
				c.Release[n.Name] = target.Draw(t, "released")
			}
		}
	}
	for i := range w.view.Nodes {
		w.view.Nodes[i].Labels = map[string]string{"few": rapid.SampledFrom([]string{"yes", "no"}).Draw(t, "few")}
	}
}

// collides compares what is declared, byte by byte.
func (w *world) collides(a, b Row) bool {
	if a.Config == b.Config || a.Priority != b.Priority {
		return false
	}
	for path, content := range w.plain[a.id()] {
		if other, both := w.plain[b.id()][path]; both && other != content {
			return true
		}
	}
	return false
}

// naive is the algorithm of the package's comment for one node, over maps: what is there, what would go there now, what comes later.
func (w *world) naive(n *Node) []Row {
	have, now, later, after := map[string]Row{}, map[string]Row{}, map[string]Row{}, map[string]Row{}
	rank := map[string]int{}
	for _, c := range w.view.Configs {
		if !c.Selects(n) {
			continue
		}
		for _, r := range n.Assigned {
			if r.Config == c.ID {
				have[c.ID] = r
			}
		}
		for _, o := range w.view.Configs {
			if o.Created.Before(c.Created) || o.Created.Equal(c.Created) && o.ID < c.ID {
				rank[c.ID]++
			}
		}
		released, newest := c.Release[n.Name], c.Newest
		row, next := Row{released.Priority, c.ID, released.Revision, ""}, Row{newest.Priority, c.ID, newest.Revision, ""}
		switch {
		case row.Revision != "" && row != have[c.ID]:
			now[c.ID] = row
		case next.Revision == "":
		case have[c.ID] == (Row{}):
			later[c.ID] = next
		case have[c.ID] != next:
			after[c.ID] = next
		}
	}
	// In the end: what is there goes on as if it could now.
	end, endLater := maps.Clone(now), maps.Clone(later)
	maps.Copy(end, after)
	w.drop(have, end, endLater, rank)
	both := func(kept map[string]Row) func(string, Row) bool {
		return func(id string, _ Row) bool { _, is := kept[id]; return !is }
	}
	maps.DeleteFunc(now, both(end))
	maps.DeleteFunc(later, both(endLater))
	w.drop(have, now, later, rank)
	maps.Copy(have, now)
	return slices.SortedFunc(maps.Values(have), compareRows)
}

// drop takes out of what goes on now or later what cannot.
func (w *world) drop(have, now, later map[string]Row, rank map[string]int) {
	isNew := func(id string) bool { _, is := have[id]; return !is }
	drop := func(from map[string]Row, others map[string]Row, when func(id, other string) bool) bool {
		var gone []string
		for id, r := range from {
			for other, row := range others {
				if other != id && w.collides(r, row) && when(id, other) {
					gone = append(gone, id)
				}
			}
		}
		for _, id := range gone {
			delete(from, id)
		}
		return len(gone) > 0
	}
	inPlace := func(_, other string) bool { _, goes := now[other]; return !goes }
	hopeless := func(id, other string) bool {
		_, goes := now[other]
		return goes && w.collides(now[id], now[other])
	}
	for {
		dropped := drop(now, have, inPlace)
		dropped = drop(later, have, inPlace) || dropped
		switch {
		case dropped:
		case drop(now, have, hopeless):
		case drop(now, now, func(id, other string) bool {
			switch {
			case isNew(id) != isNew(other):
				return isNew(id)
			case isNew(id):
				return true
			}
			return rank[id] > rank[other]
		}):
		case drop(later, now, func(_, other string) bool { return !isNew(other) }):
		default:
			fresh, coming := maps.Clone(now), maps.Clone(later)
			maps.DeleteFunc(fresh, func(id string, _ Row) bool { return !isNew(id) })
			a := drop(now, coming, func(id, _ string) bool { return isNew(id) })
			if b := drop(later, fresh, func(string, string) bool { return true }); !a && !b {
				return
			}
		}
	}
}

func decide(t fataler, v View) Decision {
	d, err := Decide(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// assign makes what was decided what is.
func (w *world) assign(d Decision) {
	for i := range w.view.Nodes {
		w.view.Nodes[i].Assigned = d.Rows[w.view.Nodes[i].Name]
	}
}

func TestDecideIsTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			w.change(t)
			d := decide(t, w.view)
			for i := range w.view.Nodes {
				n := &w.view.Nodes[i]
				if want := w.naive(n); !slices.Equal(d.Rows[n.Name], want) {
					t.Fatalf("node %s has %v, the model %v", n.Name, d.Rows[n.Name], want)
				}
				w.check(t, n, d)
			}
			// The order means nothing.
			shuffled := w.view
			seed := rapid.Uint64().Draw(t, "seed")
			shuffled.Nodes, shuffled.Configs = shuffle(seed, w.view.Nodes), shuffle(seed, w.view.Configs)
			for i := range shuffled.Nodes {
				shuffled.Nodes[i].Assigned = shuffle(seed, shuffled.Nodes[i].Assigned)
			}
			if other := decide(t, shuffled); !reflect.DeepEqual(d, other) {
				t.Fatalf("in another order it is\n%+v\nnot\n%+v", other, d)
			}
			// Deciding again ends: a config gets what is let go on at most once on each node.
			for again := 0; ; again++ {
				w.assign(d)
				next := decide(t, w.view)
				if reflect.DeepEqual(d.Rows, next.Rows) {
					break
				}
				if again > len(w.view.Configs) {
					t.Fatalf("it is\n%+v\nand again\n%+v", d, next)
				}
				d = next
			}
		}
	})
}

func shuffle[T any](seed uint64, list []T) []T {
	list = slices.Clone(list)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// check is invariants 1, 2 and 4 for one node.
func (w *world) check(t *rapid.T, n *Node, d Decision) {
	rows := d.Rows[n.Name]
	for i, a := range rows {
		for _, b := range rows[:i] {
			if w.collides(a, b) {
				t.Fatalf("%v and %v are both on %s", a, b, n.Name)
			}
		}
	}
	refused := map[string]Refusal{}
	for _, r := range d.Refused {
		if r.Node == n.Name {
			refused[r.Config] = r
		}
	}
	for i := range w.view.Configs {
		c := &w.view.Configs[i]
		of := func(list []Row) (found Row) {
			for _, r := range list {
				if r.Config == c.ID {
					found = r
				}
			}
			return found
		}
		before, after, released := of(n.Assigned), of(rows), c.Release[n.Name]
		row := Row{released.Priority, c.ID, released.Revision, ""}
		r, isRefused := refused[c.ID]
		switch {
		case !c.Selects(n):
			if after != (Row{}) || isRefused {
				t.Fatalf("%s does not select %s, and has %v there", c.ID, n.Name, after)
			}
		case after != before && after != row:
			t.Fatalf("%s had %v on %s, may have %v, and has %v", c.ID, before, n.Name, row, after)
		case row.Revision != "" && after != row && !isRefused && !slices.Contains(d.Together, Together{n.Name, c.ID, released}):
			t.Fatalf("%s may have %v on %s, has %v, and nobody is told", c.ID, row, n.Name, after)
		case isRefused:
			w.checkTold(t, n.Name, r, d)
		}
	}
}

// checkTold: whoever is kept out is told, and so is who is in the way, if it is there or would be there.
func (w *world) checkTold(t *rapid.T, node string, r Refusal, d Decision) {
	found := false
	for _, c := range d.Told[r.Config].Conflicts {
		if !slices.Contains(c.Places.Nodes, node) || c.InPlace || c.Revision != r.Target.Revision {
			continue
		}
		found = true
		if !slices.ContainsFunc(d.Told[c.Other].Conflicts, func(o Conflict) bool {
			return o.Other == r.Config && o.Revision == c.OtherRevision && slices.Contains(o.Places.Nodes, node) &&
				o.Difference == (Difference{c.Difference.Field, c.Difference.OtherValue, c.Difference.Value})
		}) {
			t.Fatalf("%s is told of %+v, and %s is told %+v", r.Config, c, c.Other, d.Told[c.Other])
		}
	}
	if !found {
		t.Fatalf("%+v, and it is told %+v", r, d.Told[r.Config])
	}
}
