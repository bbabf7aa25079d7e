package heads

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/trust"
)

var start = time.Unix(1_800_000_000, 0)

func (v *view) put(t testing.TB, name, uid string, version uint64, spec *v1alpha1.AssignmentSpec, now time.Time) []usage {
	t.Helper()
	c, err := ContentOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	return v.assign(name, &assigned{uid: uid, version: version, content: c}, revisionsOf(spec), now)
}

// Whatever happens to nodes and Assignments, in the view is what is stored and what was replaced lately, each counted as often as it
// is named, and a layer is used by the lists that have it.
func TestViewCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v, now, version := newView(), start, uint64(0)
		used := map[layerID]int{}
		note := func(all []usage) {
			for _, u := range all {
				if u.less {
					used[u.layerID]--
				} else {
					used[u.layerID]++
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			version++
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(rt, "later")) * time.Second)
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				spec := v1alpha1.AssignmentSpec{}
				for i := range rapid.IntRange(0, 3).Draw(rt, "layers") {
					spec.Layers = append(spec.Layers, assignedLayer(int32(i), fmt.Sprint("c", i), rapid.IntRange(0, 2).Draw(rt, "root")))
				}
				if rapid.Bool().Draw(rt, "own") {
					withOwn(t, &spec, name+"00000000000000000000000000000000"[len(name):])
				}
				if rapid.Bool().Draw(rt, "try") {
					withTry(t, &spec, assignedLayer(0, "c0", 1))
				}
				note(v.put(t, name, "u-"+name, version, &spec, now))
			case 2:
				note(v.unassign(name, version, now))
			case 3:
				v.enter(name, "u-"+name, version, now)
			case 4:
				v.leave(name, version, now)
			case 5:
				note(v.sweep(now))
			}
			checkView(rt, v)
		}
		note(v.sweep(now))
		for name := range v.assignments() {
			note(v.unassign(name, version+1, now))
		}
		for name := range v.known() {
			v.leave(name, version+1, now)
		}
		note(v.sweep(now.Add(retainFor + time.Second)))
		if len(v.lists)+len(v.owns)+len(v.layers)+len(v.nodes)+len(v.gone) > 3 || len(v.lists) > 0 || len(v.owns) > 0 || len(v.layers) > 0 || len(v.nodes) > 0 {
			rt.Fatalf("left are %d lists, %d own layers, %d layers, %d nodes", len(v.lists), len(v.owns), len(v.layers), len(v.nodes))
		}
		for id, n := range used {
			if n != 0 {
				rt.Fatalf("%v is used %d times", id, n)
			}
		}
	})
}

func checkView(t *rapid.T, v *view) {
	t.Helper()
	var states []*assigned
	for _, n := range v.nodes {
		if n.assigned != nil {
			states = append(states, n.assigned)
		}
	}
	for _, r := range v.retired {
		states = append(states, r.state)
	}
	lists, owns := map[catalog.Digest]int{}, map[catalog.Digest]int{}
	for _, a := range states {
		lists[a.content.Root]++
		if a.fallback != nil {
			lists[a.content.Try.Fallback]++
		}
		if a.own != nil {
			owns[a.content.OwnRoot]++
		}
	}
	for root, n := range lists {
		if l := v.lists[root]; l == nil || l.states != n || catalog.ListRoot(l.encoded) != root {
			t.Fatalf("list %s is named %d times: %+v", root, n, l)
		}
	}
	for root, n := range owns {
		if o := v.owns[root]; o == nil || o.states != n || catalog.TrieOf(o.items).Root() != root {
			t.Fatalf("own layer %s is named %d times", root, n)
		}
	}
	if len(lists) != len(v.lists) || len(owns) != len(v.owns) {
		t.Fatalf("%d lists and %d own layers, want %d and %d", len(v.lists), len(v.owns), len(lists), len(owns))
	}
	uses := map[layerID]int{}
	for _, l := range v.lists {
		for _, id := range l.layers {
			uses[id]++
		}
	}
	if !maps.EqualFunc(uses, v.layers, func(n int, u *layerUse) bool { return n == u.lists && u.revision != "" }) {
		t.Fatalf("layers %v, want %v", v.layers, uses)
	}
}

// TestItemsAreKeptOnce: what a state has as the one before had it is in memory once, and what differs is as it says now.
func TestItemsAreKeptOnce(t *testing.T) {
	item := func(claim, body string) catalog.Item {
		return catalog.Item{Claim: strings.Clone(claim), Body: []byte(body)}
	}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string) (all []catalog.Item) {
			bodies := rapid.MapOf(rapid.StringMatching("[a-e]"), rapid.StringMatching("[xy]")).Draw(rt, what)
			for _, claim := range slices.Sorted(maps.Keys(bodies)) {
				all = append(all, item(claim, bodies[claim]))
			}
			return all
		}
		before, is := draw("before"), draw("is")
		wanted := slices.Clone(is)
		keepItems(is, before)
		if !reflect.DeepEqual(is, wanted) {
			rt.Fatalf("%v, not %v", is, wanted)
		}
		for _, i := range is {
			for _, b := range before {
				if i.Claim == b.Claim && bytes.Equal(i.Body, b.Body) && &i.Body[0] != &b.Body[0] {
					rt.Errorf("%s is there twice", i.Claim)
				}
			}
		}
	})
}

func TestWakes(t *testing.T) {
	v := newView()
	spec := &v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{assignedLayer(1, "a", 1)}}
	ask := func() <-chan struct{} { return v.nodeLocked("n").waiting() }
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	v.enter("n", "u", 1, start)
	first := ask()
	if ask() != first {
		t.Error("another channel, and nothing has changed")
	}
	v.put(t, "n", "u", 5, spec, start)
	second := ask()
	if !closed(first) || closed(second) {
		t.Error("not told of the Assignment")
	}
	v.put(t, "n", "u", 4, spec, start)
	v.enter("n", "u", 3, start)
	v.assign("n", &assigned{uid: "u", version: 6}, nil, start) // nothing can be made of it
	if closed(second) || v.nodes["n"].assigned.version != 5 {
		t.Error("told of what is no news")
	}
	v.leave("n", 7, start)
	if !closed(second) {
		t.Error("not told that the node has gone")
	}
}

func TestStrangers(t *testing.T) {
	v := newView()
	who := server.Identity{Name: "n", UID: "u"}
	_, changed, err := v.strangerLocked(who, start)
	if err != nil {
		t.Fatal(err)
	}
	v.settle(start, start)
	if _, again, err := v.strangerLocked(who, start); err != nil || again != changed {
		t.Errorf("a view that was complete before he came says that he is none: %v", err)
	}
	v.settle(start.Add(time.Second), start)
	<-changed
	if _, _, err := v.strangerLocked(who, start); err == nil {
		t.Error("there is no such node, and it is waited for")
	}
	if _, changed, err = v.strangerLocked(server.Identity{Name: "m", UID: "w"}, start); err != nil {
		t.Fatal(err)
	}
	v.enter("m", "w", 1, start)
	<-changed
	v.enter("m", "x", 2, start) // deleted and made again
	if _, _, err := v.strangerLocked(server.Identity{Name: "m", UID: "w"}, start); err == nil {
		t.Error("the node before is still one")
	}
}

// BenchmarkViewMemory measures what a node costs that has ten layers, which it shares with others, and a key and a hold of its own, with a
// signed head and somebody who waits.
func BenchmarkViewMemory(b *testing.B) {
	const nodes = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		v := newView()
		for i := range nodes {
			name := fmt.Sprintf("node-%05d", i)
			spec := v1alpha1.AssignmentSpec{NodeUID: types.UID(name)}
			for j := range 10 {
				spec.Layers = append(spec.Layers, assignedLayer(int32(j), fmt.Sprint("config-", j), j+i%100*100))
			}
			withOwn(b, &spec, fmt.Sprintf("%032x", i))
			v.enter(name, name, 1, start)
			v.put(b, name, name, 2, &spec, start)
			n := v.nodes[name]
			n.waiting()
			n.signed.head = make([]byte, 400)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/nodes, "B/node")
		runtime.KeepAlive(v)
	}
}

func newKeys(t testing.TB) *trust.Keys {
	t.Helper()
	keys, err := trust.NewKeys(trust.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// BenchmarkSign is what one head costs when an Assignment has changed: reading it, and signing.
func BenchmarkSign(b *testing.B) {
	spec := v1alpha1.AssignmentSpec{}
	for j := range 10 {
		spec.Layers = append(spec.Layers, assignedLayer(int32(j), fmt.Sprint("config-", j), j))
	}
	withOwn(b, &spec, fmt.Sprintf("%032x", 1))
	keys := newKeys(b)
	for b.Loop() {
		c, err := ContentOf(&spec)
		if err != nil {
			b.Fatal(err)
		}
		s, err := Derive(c, catalog.Node{Cluster: keys.Cluster(), Name: "n", UID: "u"}, 1, 2, Issued("u", start)).Sign(keys.Heads())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
