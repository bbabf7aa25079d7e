package scheduler

import (
	"fmt"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

// TestGang: all or nothing, and what was tried leaves no trace.
func TestGang(t *testing.T) {
	s := site("a", "b", "c")
	w := sized("train", 1500, 0)
	s.SetWorkload(w)
	g := groupOf(w, names("train", 4)...)
	g.Gang = true
	d := s.Place(&g, start)
	if len(d.Bindings) != 0 || len(s.names) != 0 || d.Explanation.Code() != reason.GangIncomplete {
		t.Fatalf("a gang of four on three nodes: %+v, %d are remembered", d, len(s.names))
	}
	if want := "0 of 4 placed, because there is room for 3 at once; of 3 nodes 3 with too little cpu; +1 cpu on node-0"; d.Explanation.String() != want {
		t.Errorf("got %s, want %s", d.Explanation, want)
	}
	s.SetNode(plain(3, "a"))
	if d = s.Place(&g, start); len(d.Bindings) != 4 {
		t.Fatalf("on four nodes: %v", d.Explanation)
	}
}

// TestGangMakesRoom: a gang displaces others where that makes room for all of it at once, keeps that room while they go, what was free with it, and is placed
// when the last one has gone. Where budgets leave room for a part only, nobody goes and nothing is kept.
func TestGangMakesRoom(t *testing.T) {
	s := site("a", "b")
	low, high, same := sized("low", 1000, 0), sized("high", 1000, 9), sized("same", 1000, 9)
	if d := place(s, low, names("low", 3)...); len(d.Bindings) != 3 {
		t.Fatalf("%v", d.Explanation)
	}
	for _, name := range names("low", 3) {
		s.Committed(name, 0)
	}
	s.SetWorkload(high)
	gang := groupOf(high, names("high", 4)...)
	gang.Gang = true
	s.SetBudget(low.Key, 2)
	if d := s.Place(&gang, start); len(d.Evictions)+len(d.Bindings)+len(d.Explanation.Kept) != 0 || s.budget(low.Key) != 2 || len(s.names) != 3 {
		t.Fatalf("two may go and three would have to: %+v, %v", d, d.Explanation)
	}
	if d := place(s, sized("small", 1000, 0), "small-0"); len(d.Bindings) != 1 {
		t.Fatalf("what was free is kept: %v", d.Explanation)
	}
	s.NotCommitted("small-0")

	s.SetBudget(low.Key, 3)
	d := s.Place(&gang, start)
	if len(d.Evictions) != 3 || len(d.Bindings) != 0 || d.Explanation.Code() != reason.GangIncomplete || len(s.rooms[gang.Name]) != 4 {
		t.Fatalf("three may go: %+v, %v", d, d.Explanation)
	}
	if d := place(s, same, "same-0"); len(d.Bindings)+len(d.Evictions) != 0 {
		t.Errorf("another one takes what is kept: %+v", d)
	}
	for i, name := range names("low", 3) {
		if d := s.Place(&gang, start); len(d.Evictions)+len(d.Bindings) != 0 || len(s.rooms[gang.Name]) != 4 {
			t.Errorf("after %d have gone: %+v", i, d)
		}
		s.RemoveInstance(name)
	}
	if d := s.Place(&gang, start); len(d.Bindings) != 4 || d.Explanation != nil || len(s.rooms[gang.Name]) != 0 {
		t.Errorf("when the last one has gone: %+v, %v", d, d.Explanation)
	}
}

// TestStands: what was found for an instance stands as long as the store has told nothing of it, and its node is one that its group may go to, full as it is.
func TestStands(t *testing.T) {
	web := sized("web", 2000, 0)
	for name, c := range map[string]struct {
		then func(*Snapshot)
		want bool
	}{
		"nothing has happened": {func(*Snapshot) {}, true},
		"another is refused":   {func(s *Snapshot) { place(s, sized("other", 2000, 0), "other-0") }, true},
		"accepted":             {func(s *Snapshot) { s.Committed("web-0", 0) }, false},
		"given back":           {func(s *Snapshot) { s.NotCommitted("web-0") }, false},
		"its node is gone":     {func(s *Snapshot) { s.RemoveNode("node-0") }, false},
		"its revision is gone": {func(s *Snapshot) { s.RemoveWorkload(web.Key, web.Revision) }, false},
		"its node is cordoned": {func(s *Snapshot) {
			n := plain(0, "a")
			n.Revision, n.Unschedulable = 9, true
			s.SetNode(n)
		}, false},
	} {
		s := site("a")
		g := groupOf(web, "web-0")
		d := place(s, web, "web-0")
		if len(d.Bindings) != 1 {
			t.Fatalf("%s: %v", name, d.Explanation)
		}
		c.then(s)
		if is := s.Stands(&g, "web-0", start); is != c.want {
			t.Errorf("%s: it stands: %v", name, is)
		}
	}
}

// TestBindingsNameTheColumn: a binding says what it was decided on, and how many were on their way before it.
func TestBindingsNameTheColumn(t *testing.T) {
	s := site("a")
	w := sized("web", 100, 0)
	want := func(d Decision, revisions ...[2]int64) {
		t.Helper()
		var got [][2]int64
		for _, b := range d.Bindings {
			got = append(got, [2]int64{b.Revision, int64(b.Ahead)})
		}
		if fmt.Sprint(got) != fmt.Sprint(revisions) {
			t.Errorf("bindings name %v, want %v", got, revisions)
		}
	}
	want(place(s, w, "a", "b"), [2]int64{1, 0}, [2]int64{1, 1})
	s.Committed("a", 5)
	want(place(s, w, "c"), [2]int64{5, 1})
	s.NotCommitted("b")
	s.NotCommitted("c")
	s.NotCommitted("a") // it is a fact already
	want(place(s, w, "d"), [2]int64{5, 0})
	if len(s.names) != 2 {
		t.Errorf("%d instances are remembered, want a and d", len(s.names))
	}
	old := plain(0, "a")
	old.Revision, old.Unschedulable = 4, true
	s.SetNode(old) // a message that was overtaken
	want(place(s, w, "e"), [2]int64{5, 1})
}

// TestWishes: what is better is taken while it is there, and nothing of it keeps anybody from being placed.
func TestWishes(t *testing.T) {
	node := func(i int, change func(*Node)) Node {
		n := plain(i, "a")
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		better   func(*Node)
		workload func(*Workload)
		group    func(*Group)
	}{
		"preferred": {better: func(n *Node) { n.Labels["disk"] = "ssd" }, workload: func(w *Workload) {
			w.Placement.Preferred = []workload.PreferredNodes{{Selector: matching("disk", "ssd"), Weight: new(int32(20))}}
		}},
		"image":     {better: func(n *Node) { n.Images = []string{"sha256:1"} }, workload: func(w *Workload) { w.Images = []string{"sha256:1"} }},
		"data":      {group: func(g *Group) { g.Node = "node-3" }},
		"more free": {better: func(n *Node) { n.Capacity.CPU = 64_000 }},
		"less free": {better: func(n *Node) { n.Capacity.CPU = 400 }, workload: func(w *Workload) { w.Placement.Strategy = workload.BinPack }},
	} {
		s := New(3)
		for i := range 6 {
			s.SetNode(node(i, func(n *Node) {
				if i == 3 && c.better != nil {
					c.better(n)
				}
			}))
		}
		w := sized("web", 100, 0)
		if c.workload != nil {
			c.workload(&w)
		}
		s.SetWorkload(w)
		g := groupOf(w, "web-0")
		if c.group != nil {
			c.group(&g)
		}
		if d := s.Place(&g, start); len(d.Bindings) != 1 || d.Bindings[0].Node != "node-3" {
			t.Errorf("%s: %+v", name, d)
		}
		g.Instances = names("more", 20)
		if d := s.Place(&g, start); len(d.Bindings) != 20 {
			t.Errorf("%s: a wish keeps some from being placed: %v", name, d.Explanation)
		}
	}
	s := New(3)
	for i := range 3 {
		s.SetNode(node(i, func(n *Node) {
			if i < 2 {
				n.Taints = []fit.Taint{{Taint: declare.Taint{Key: "slow", Effect: declare.TaintPreferNoSchedule}}}
			}
		}))
	}
	if d := place(s, sized("web", 500, 0), names("web", 5)...); len(d.Bindings) != 5 || d.Bindings[3].Node != "node-2" || d.Bindings[4].Node == "node-2" {
		t.Errorf("nodes that others are better than: %+v", d)
	}
}

// TestSiblingsApart: replicas of which nothing is said go to different nodes.
func TestSiblingsApart(t *testing.T) {
	s := site("a", "b", "c", "d")
	seen := map[string]int{}
	for _, b := range place(s, sized("web", 10, 0), names("web", 8)...).Bindings {
		seen[b.Node]++
	}
	for node, n := range seen {
		if n != 2 {
			t.Errorf("%s has %d of 8 on 4 nodes", node, n)
		}
	}
}

// TestDataMust: an instance waits for the node that has its data, and says so.
func TestDataMust(t *testing.T) {
	s := site("a", "b")
	w := sized("db", 1500, 0)
	place(s, w, "db-0", "db-1")
	s.SetWorkload(w)
	g := groupOf(w, "db-2")
	s.SetNode(plain(2, "a"))
	g.Node, g.Must = "node-1", true
	d := s.Place(&g, start)
	if len(d.Bindings) != 0 {
		t.Fatalf("it went to %+v", d.Bindings)
	}
	if want := "0 of 1 placed; of 3 nodes 2 other than node-1, 1 with too little cpu; +1 cpu on node-1, or make room where the data is, or let it stick by Prefer on node-2"; d.Explanation.String() != want {
		t.Errorf("got  %s\nwant %s", d.Explanation, want)
	}
	g.Must = false
	if d := s.Place(&g, start); len(d.Bindings) != 1 || d.Bindings[0].Node != "node-2" {
		t.Errorf("with Prefer: %+v", d)
	}
}

// TestFewVictims: as few go as will do, the least important ones, and those that hold what is missing.
func TestFewVictims(t *testing.T) {
	s := site("a")
	port := []fit.Port{{Protocol: workload.TCP, Number: 80}}
	for i, w := range []Workload{sized("p0", 300, 0), sized("p1", 300, 1), sized("p2", 300, 2), sized("web", 100, 3)} {
		if w.Key == "web" {
			w.Request.Ports = port
		}
		place(s, w, fmt.Sprint("i", i))
		s.Committed(fmt.Sprint("i", i), 1)
		s.SetBudget(w.Key, 1)
	}
	w := sized("high", 1600, 10)
	d := place(s, w, "high-0")
	if got := fmt.Sprint(d.Evictions); got != "[{i0 node-0 high/1} {i1 node-0 high/1}]" {
		t.Errorf("for 1600m of 1000m free they go: %s", got)
	}
	s.Forget("high/1")
	s.NotEvicted("i0")
	s.NotEvicted("i1")
	w = sized("other", 100, 10)
	w.Request.Ports = port
	if got := fmt.Sprint(place(s, w, "other-0").Evictions); got != "[{i3 node-0 other/1}]" {
		t.Errorf("for port 80 they go: %s", got)
	}
	w.Key = "third"
	if d := place(s, w, "third-0"); len(d.Evictions)+len(d.Explanation.Kept) != 0 {
		t.Errorf("the port is kept for one already: %+v, %v", d.Evictions, d.Explanation.Kept)
	}
}

// TestPlacementChanges: what is declared of the placement of a revision that runs counts from then on, and moves nothing.
func TestPlacementChanges(t *testing.T) {
	s := site("a", "b")
	w := sized("web", 100, 0)
	place(s, w, "web-0", "web-1")
	w.Placement.AntiAffinity = []workload.Affinity{{Selector: matching("app", "web")}}
	w.Priority = 7
	if d := place(s, w, "web-2"); len(d.Bindings)+len(d.Evictions) != 0 || len(s.names) != 2 {
		t.Errorf("each node has one: %+v", d)
	}
	w.Placement = workload.Placement{}
	if d := place(s, w, "web-2"); len(d.Bindings) != 1 {
		t.Errorf("nothing speaks against it any more: %v", d.Explanation)
	}
	if len(s.counters) != 0 || len(s.topologies) != 0 {
		t.Errorf("%d counters and %d topologies are left that nobody needs", len(s.counters), len(s.topologies))
	}
}

// TestNothingIsLeft: what is gone is forgotten.
func TestNothingIsLeft(t *testing.T) {
	s := site("a", "b")
	for i := range 50 {
		w := sized("web", 100, 0)
		w.Revision = fmt.Sprint(i)
		w.Placement.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}}
		w.Placement.AntiAffinity = []workload.Affinity{{Selector: matching("app", "other"), TopologyKey: "zone"}}
		name := fmt.Sprint("web-", i)
		place(s, w, name)
		s.RemoveWorkload("web", w.Revision)
		s.RemoveInstance(name)
	}
	s.RemoveNode("node-0")
	s.RemoveNode("node-1")
	if n := len(s.classes) + len(s.counters) + len(s.topologies) + len(s.revisions) + len(s.budgets) + len(s.attributes.labels) + len(s.attributes.architectures) + len(s.numbers); n != 0 {
		t.Errorf("%d things are remembered: %v, %v", n, s.counters, s.attributes)
	}
	if len(s.instances) > 2 || len(s.nodes) != 2 {
		t.Errorf("memory grew to %d instances and %d nodes", len(s.instances), len(s.nodes))
	}
}

// TestUntold: what names something that is not there is refused, and changes nothing.
func TestUntold(t *testing.T) {
	s := site("a")
	for _, in := range []Instance{{Name: "x", Workload: "web", Revision: "1", Node: "node-0"}, {Name: "x", Workload: "web", Revision: "1", Node: "nowhere"}} {
		if err := s.SetInstance(in); !reason.Is(err, reason.InternalFault) {
			t.Errorf("%+v: %v", in, err)
		}
	}
	g := Group{Name: "g", Workload: "web", Revision: "1", Instances: []string{"x"}}
	if d := s.Place(&g, start); len(d.Bindings) != 0 || len(s.names) != 0 {
		t.Errorf("a workload that is not there: %+v", d)
	}
}
