package scheduler

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// TestWakes: each change that makes it possible to place what waits wakes it, whatever it waits for.
func TestWakes(t *testing.T) {
	node := func(change func(*Node)) func(*Snapshot) {
		return func(s *Snapshot) {
			n := plain(0, "a")
			n.Revision = 9
			change(&n)
			s.SetNode(n)
		}
	}
	gone := func(name string) func(*Snapshot) { return func(s *Snapshot) { s.RemoveInstance(name) } }
	port := []fit.Port{{Protocol: workload.TCP, Number: 80}}
	apartFrom := func(app string) []workload.Affinity { return []workload.Affinity{{Selector: matching("app", app)}} }
	for name, c := range map[string]struct {
		begin func(*Node)
		other func(*Workload) // of which there is an instance, other-0
		wants func(*Workload)
		then  func(*Snapshot)
	}{
		"healthy":    {begin: func(n *Node) { n.Unhealthy = "silent" }, then: node(func(*Node) {})},
		"uncordoned": {begin: func(n *Node) { n.Unschedulable = true }, then: node(func(*Node) {})},
		"labelled":   {wants: func(w *Workload) { w.Request.Selector = matching("disk", "ssd") }, then: node(func(n *Node) { n.Labels["disk"] = "ssd" })},
		"other kind": {wants: func(w *Workload) { w.Request.Architectures = []string{"arm64"} }, then: node(func(n *Node) { n.Architecture = "arm64" })},
		"runtime":    {wants: func(w *Workload) { w.Request.Runtime = workload.OCI }, then: node(func(n *Node) { n.Runtimes = []workload.Runtime{workload.OCI} })},
		"untainted":  {begin: func(n *Node) { n.Taints = []fit.Taint{{Taint: gpuOnly}} }, then: node(func(*Node) {})},
		"directory":  {wants: func(w *Workload) { w.Request.Directories = []string{"/srv"} }, then: node(func(n *Node) { n.Directories = []string{"/srv"} })},
		"device":     {wants: func(w *Workload) { w.Request.Devices = []fit.DeviceCount{{Name: "gpu", Count: 1}} }, then: node(func(n *Node) { n.Devices = map[string][]string{"gpu": {"0"}} })},
		"larger":     {wants: func(w *Workload) { w.Request.Amounts.CPU = 3000 }, then: node(func(n *Node) { n.Capacity.CPU = 4000 })},
		"another":    {wants: func(w *Workload) { w.Request.Amounts.Disk = 1 }, then: func(s *Snapshot) { n := plain(1, "b"); n.Capacity.Disk = 5; s.SetNode(n) }},
		"less there": {other: func(w *Workload) { w.Request.Amounts.Memory = 2 << 30 }, wants: func(w *Workload) { w.Request.Amounts.Memory = 1 }, then: gone("other-0")},
		"port":       {other: func(w *Workload) { w.Request.Ports = port }, wants: func(w *Workload) { w.Request.Ports = port }, then: gone("other-0")},
		"not near":   {wants: func(w *Workload) { w.Placement.AntiAffinity = apartFrom("other") }, other: func(*Workload) {}, then: gone("other-0")},
		"kept away":  {other: func(w *Workload) { w.Placement.AntiAffinity = apartFrom("web") }, then: gone("other-0")},
		"near": {wants: func(w *Workload) { w.Placement.Affinity = apartFrom("friend") }, then: func(s *Snapshot) {
			place(s, sized("friend", 10, 0), "friend-0")
		}},
		"placement": {wants: func(w *Workload) { w.Placement.Affinity = apartFrom("friend") }, then: func(s *Snapshot) { s.SetWorkload(sized("web", 100, 0)) }},
		"budget": {other: func(w *Workload) { w.Request.Amounts.CPU = 2000; w.Priority = -1 }, then: func(s *Snapshot) {
			s.Committed("other-0", 3)
			s.SetBudget("other", 1)
		}},
		"not placed after all": {other: func(w *Workload) { w.Request.Amounts.CPU = 2000 }, then: func(s *Snapshot) { s.NotCommitted("other-0") }},
	} {
		s, q := New(1), NewQueue()
		n := plain(0, "a")
		if c.begin != nil {
			c.begin(&n)
		}
		s.SetNode(n)
		if c.other != nil {
			w := sized("other", 0, 0)
			c.other(&w)
			place(s, w, "other-0")
		}
		w := sized("web", 100, 0)
		if c.wants != nil {
			c.wants(&w)
		}
		s.SetWorkload(w)
		q.Put(groupOf(w, "web-0"), 0)
		if d := run(s, q, start); len(d) != 1 || len(d[0].Bindings) != 0 {
			t.Errorf("%s: before: %+v", name, d)
		}
		if d := run(s, q, start.Add(time.Hour)); len(d) != 0 {
			t.Errorf("%s: it is tried though nothing has changed: %+v", name, d)
		}
		c.then(s)
		if d := run(s, q, start.Add(2*time.Hour)); len(d) != 1 || len(d[0].Bindings)+len(d[0].Evictions) != 1 {
			t.Errorf("%s: after: %+v", name, d)
		}
	}
}

// TestWakesWhileEnding: what is ending counts no more for a spread, so that others need not wait for its end.
func TestWakesWhileEnding(t *testing.T) {
	s, q := site("a", "a", "a", "a", "b"), NewQueue()
	w := sized("web", 1500, 0)
	w.Placement.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}}
	s.SetWorkload(w)
	q.Put(groupOf(w, "web-0", "web-1", "web-2", "web-3"), 0)
	// Two go to zone a and one to b, which is full then.
	d := run(s, q, start)[0]
	if len(d.Bindings) != 3 {
		t.Fatalf("before: %+v", d)
	}
	q.Put(groupOf(w, "web-3"), 0)
	run(s, q, start)
	for _, b := range d.Bindings {
		if b.Node != "node-4" {
			if err := s.SetInstance(Instance{Name: b.Instance, Workload: "web", Revision: "1", Node: b.Node, Ending: true}); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if d := run(s, q, start.Add(time.Hour)); len(d) != 1 || len(d[0].Bindings) != 1 {
		t.Errorf("after: %+v", d)
	}
}

// TestQueueOrder: priority first, then age, and what is put again keeps its age.
func TestQueueOrder(t *testing.T) {
	s, q := New(1), NewQueue()
	for i, priority := range []int32{0, 5, 0, 5, 9} {
		q.Put(Group{Name: fmt.Sprint("g", i)}, priority)
	}
	q.Put(Group{Name: "g0", Instances: []string{"x"}}, 0)
	q.Remove("g2")
	q.Put(Group{Name: "g3"}, 10)
	var got []string
	for {
		g, ok := q.Next(s, start)
		if !ok {
			break
		}
		got = append(got, g.Name)
		q.Remove(g.Name)
	}
	if fmt.Sprint(got) != "[g3 g4 g1 g0]" || q.Len() != 0 || !q.WakeAt().IsZero() {
		t.Errorf("%v, %d left", got, q.Len())
	}
}

// TestQueueRests: who fails again and again is tried more and more seldom, and at once when it is another group.
func TestQueueRests(t *testing.T) {
	s, q := site("a"), NewQueue()
	w := sized("web", 9000, 0)
	s.SetWorkload(w)
	q.Put(groupOf(w, "web-0"), 0)
	now, tries := start, 0
	for range 600 {
		s.changes.note(everything)
		tries += len(run(s, q, now))
		now = now.Add(time.Second)
	}
	if tries < 10 || tries > 20 {
		t.Errorf("%d tries in ten minutes in which everything changes all the time", tries)
	}
	q.Put(groupOf(w, "web-1"), 0)
	if len(run(s, q, now)) != 1 {
		t.Error("a group that has changed rests")
	}
}

// TestBudgetOverTime: what has begun to end is no room in a budget that was told before.
func TestBudgetOverTime(t *testing.T) {
	s := site("a", "b")
	low := sized("low", 2000, 0)
	place(s, low, "low-0", "low-1")
	s.SetBudget("low", 1)
	high := sized("high", 2000, 5)
	if d := place(s, high, "high-0", "high-1"); len(d.Evictions) != 0 {
		t.Fatalf("what the store has not accepted is told to go: %+v", d.Evictions)
	}
	s.Committed("low-0", 2)
	s.Committed("low-1", 2)
	first := place(s, high, "high-0", "high-1").Evictions
	if len(first) != 1 {
		t.Fatalf("with a budget of one they go: %+v", first)
	}
	end := Instance{Name: first[0].Instance, Workload: "low", Revision: "1", Node: first[0].Node, Ending: true}
	if err := s.SetInstance(end); err != nil {
		t.Fatal(err)
	}
	if d := place(s, high, "high-0", "high-1"); len(d.Evictions) != 0 {
		t.Errorf("while one is ending: %+v", d.Evictions)
	}
	s.RemoveInstance(end.Name)
	if d := place(s, high, "high-0", "high-1"); len(d.Evictions) != 0 || len(d.Bindings) != 1 {
		t.Errorf("when it has ended, and nobody has said that another one may go: %+v", d)
	}
	s.SetBudget("low", 1)
	if d := place(s, high, "high-1"); len(d.Evictions) != 1 {
		t.Errorf("when the budget allows it again: %+v", d)
	}
}
