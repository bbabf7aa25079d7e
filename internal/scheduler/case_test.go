package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/scheduler/fit"
)

// site is a snapshot with nodes of 2 processors and 2 GiB, one in each of some zones in turn.
func site(zones ...string) *Snapshot {
	s := New(7)
	for i, z := range zones {
		s.SetNode(plain(i, z))
	}
	return s
}

func plain(i int, zone string) Node {
	n := Node{Node: fit.Node{Name: fmt.Sprintf("node-%d", i), Architecture: "amd64", Capacity: fit.Amounts{CPU: 2000, Memory: 2 << 30}}, Revision: 1}
	if zone != "" {
		n.Labels = labels("zone", zone)
	}
	return n
}

// sized is a workload whose instances take so many thousandths of a processor.
func sized(key string, cpu int64, priority int32) Workload {
	return Workload{Key: key, Revision: "1", Namespace: "n", Labels: labels("app", key), Priority: priority, Request: fit.Request{Amounts: fit.Amounts{CPU: cpu}}}
}

func groupOf(w Workload, names ...string) Group {
	return Group{Name: w.Key + "/" + w.Revision, Workload: w.Key, Revision: w.Revision, Instances: names}
}

// place declares a workload and decides about a group of it.
func place(s *Snapshot, w Workload, names ...string) Decision {
	s.SetWorkload(w)
	g := groupOf(w, names...)
	return s.Place(&g, start)
}

// run lets a queue decide until nobody's turn is left, and returns the decisions.
func run(s *Snapshot, q *Queue, now time.Time) []Decision {
	var all []Decision
	for range 1000 {
		g, ok := q.Next(s, now)
		if !ok {
			break
		}
		d := s.Place(&g, now)
		if all = append(all, d); d.Explanation == nil {
			q.Remove(g.Name)
		} else {
			q.Back(s, g, d, now)
		}
	}
	return all
}

func tell(c *casetest.Case, s *Snapshot, in Instance) {
	c.NoError(s.SetInstance(in), "tell of "+in.Name)
}

func byZone(s *Snapshot, d Decision) map[string]int {
	n := map[string]int{}
	for _, b := range d.Bindings {
		n[s.nodes[s.numbers[b.Node]].Labels["zone"]]++
	}
	return n
}

func TestWorkloadCase22_SurgeAtAFullCluster(t *testing.T) {
	c := casetest.Start(t)
	s := site("a", "b")
	old := sized("web", 2000, 0)
	place(s, old, "web-0", "web-1")
	s.Committed("web-0", 2)
	s.Committed("web-1", 2)
	s.SetBudget("web", 2)
	next := old
	// Even a revision that is more important than the one before does not push that out.
	next.Revision, next.Priority = "2", 100
	d := place(s, next, "web-2")
	c.Equal(len(d.Bindings)+len(d.Evictions), 0, "bindings and evictions")
	c.Equal(d.Explanation.Code(), reason.NoNodeFits, "the code")
	c.Check(strings.Contains(d.Explanation.String(), "2 with too little cpu; +2 cpu on node-"), "it does not say what is missing: %s", d.Explanation)
}

func TestWorkloadCase31_TwoForOneSlot(t *testing.T) {
	c := casetest.Start(t)
	s, q := site("a"), NewQueue()
	for _, key := range []string{"x", "y"} {
		w := sized(key, 1500, 5)
		s.SetWorkload(w)
		s.SetBudget(key, 1)
		q.Put(groupOf(w, key+"-0"), w.Priority)
	}
	all := run(s, q, start)
	c.Equal(len(all), 2, "decisions")
	c.Equal(len(all[0].Bindings), 1, "bindings of the first")
	c.Equal(len(all[1].Bindings)+len(all[1].Evictions), 0, "bindings and evictions of the other")
	c.Check(all[1].Explanation != nil && all[1].Explanation.Filtered[0].Reason == fit.NoCPU, "the other does not say why: %v", all[1].Explanation)
	again := 0
	for i := range 3600 {
		again += len(run(s, q, start.Add(time.Duration(i)*time.Second)))
	}
	c.Equal(again, 0, "decisions in an hour in which nothing happens")
}

// TestWorkloadCase32_AdmissionAgrees has each node's own ledger admit what the scheduler binds, and then a node that has less than it says.
func TestWorkloadCase32_AdmissionAgrees(t *testing.T) {
	c := casetest.Start(t)
	for seed := range uint64(20) {
		f := newFleet(chance{rand.New(rand.NewPCG(seed, 5))})
		ledgers := map[string]*fit.Ledger{}
		for name, n := range f.r.nodes {
			ledgers[name] = fit.NewLedger(n.Node)
		}
		for range 20 {
			g := f.group()
			d := f.s.Place(g, f.now)
			for _, b := range d.Bindings {
				r := f.s.classes[classKey{g.Workload, g.Revision}].spec.Request
				if why := ledgers[b.Node].Admit(b.Instance, r); !c.Check(why == nil, "seed %d: %s refuses %s: %v", seed, b.Node, b.Instance, why) {
					return
				}
			}
		}
	}
	s, q := site("a", "b"), NewQueue()
	s.SetNode(func() Node { n := plain(1, "b"); n.Unschedulable, n.Revision = true, 2; return n }())
	refused, last := map[string]int{}, Decision{}
	for i := range 3600 {
		now := start.Add(time.Duration(i) * time.Second)
		for _, key := range []string{"u", "v", "w"} {
			w := sized(key, 100, 0)
			s.SetWorkload(w)
			if i == 0 {
				q.Put(groupOf(w, key+"-0"), 0)
			}
		}
		for _, d := range run(s, q, now) {
			if d.Explanation != nil {
				last = d
			}
			for _, b := range d.Bindings {
				key := b.Instance[:1]
				refused[b.Node]++
				s.Rejected(Instance{Name: b.Instance, Workload: key, Revision: "1", Node: b.Node}, "needs 100m cpu, 50m is free", now)
				q.Put(groupOf(sized(key, 100, 0), fmt.Sprintf("%s-%d", key, i)), 0)
			}
		}
	}
	c.Check(refused["node-0"] >= 3 && refused["node-0"] <= 12, "in an hour the node was asked %d times", refused["node-0"])
	c.Equal(refused["node-1"], 0, "placements on the cordoned node")
	c.Check(last.Explanation != nil && strings.Contains(fmt.Sprint(last.Explanation.Nearest), "needs 100m cpu, 50m is free"), "the quarantine says no reason: %+v", last.Explanation)
	w := sized("new", 100, 0)
	s.SetWorkload(w)
	g := groupOf(w, "new-0")
	d := s.Place(&g, start.Add(time.Hour))
	c.Equal(len(d.Bindings), 0, "bindings of a workload that was never refused to a node in quarantine")
}

func TestWorkloadCase33_RefusedElsewhere(t *testing.T) {
	c := casetest.Start(t)
	s := site("a", "b")
	w := sized("web", 500, 0)
	first := place(s, w, "web-0").Bindings[0]
	s.Committed("web-0", 2)
	s.Rejected(Instance{Name: "web-0", Workload: "web", Revision: "1", Node: first.Node}, "port 80/TCP is taken", start)
	c.Equal(len(s.names), 0, "instances after the refusal")
	d := place(s, w, "web-1", "web-2", "web-3", "web-4", "web-5")
	for _, b := range d.Bindings {
		c.Check(b.Node != first.Node, "%s goes to the node that has refused", b.Instance)
	}
	c.Equal(len(d.Bindings), 4, "bindings")
	c.Check(strings.Contains(d.Explanation.String(), "1 refused lately"), "it does not say that it avoids a node: %s", d.Explanation)
	c.Equal(d.RetryAt, start.Add(avoidMin), "when it tries again")
	g := groupOf(w, "web-5")
	c.Equal(len(s.Place(&g, d.RetryAt).Bindings), 1, "bindings when the time is over")
	for i := range avoidedMax + 50 {
		s.Rejected(Instance{Name: "x", Workload: fmt.Sprint("w", i), Revision: "1", Node: first.Node}, "no", start.Add(2*time.Hour))
	}
	c.Equal(s.avoided.count, avoidedMax, "refusals that are remembered at once")
	s.Rejected(Instance{Name: "x", Workload: "last", Revision: "1", Node: first.Node}, "no", start.Add(9*time.Hour))
	c.Equal(s.avoided.count, 2, "refusals that are remembered hours later")
}

func TestWorkloadCase34_EndingOccupies(t *testing.T) {
	c := casetest.Start(t)
	s := site("a")
	w := sized("web", 2000, 0)
	place(s, w, "web-0")
	tell(c, s, Instance{Name: "web-0", Workload: "web", Revision: "1", Node: "node-0", Ending: true})
	c.Equal(len(place(s, w, "web-1").Bindings), 0, "bindings while the old one is ending")
	s.RemoveInstance("web-0")
	c.Equal(len(place(s, w, "web-1").Bindings), 1, "bindings when its processes have ended")
}

func TestWorkloadCase35_SpreadCountsTheNewRevision(t *testing.T) {
	c := casetest.Start(t)
	s := site("a", "b", "c", "a", "b", "c")
	w := sized("web", 300, 0)
	w.Placement.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}}
	s.SetWorkload(w)
	for i := range 6 {
		tell(c, s, Instance{Name: fmt.Sprint("old-", i), Workload: "web", Revision: "1", Node: []string{"node-0", "node-3"}[i%2]})
	}
	w.Revision = "2"
	d := place(s, w, names("new", 6)...)
	c.Equal(byZone(s, d), map[string]int{"a": 2, "b": 2, "c": 2}, "the new revision by zone")
}

func TestWorkloadCase36_FullDomain(t *testing.T) {
	c := casetest.Start(t)
	s := site("a", "b", "c")
	place(s, func() Workload {
		w := sized("full", 1900, 0)
		w.Request.Selector = matching("zone", "a")
		return w
	}(), "full-0")
	w := sized("web", 300, 0)
	w.Placement.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}}
	d := place(s, w, names("web", 9)...)
	c.Equal(byZone(s, d), map[string]int{"b": 1, "c": 1}, "a hard spread by zone")
	c.Check(strings.Contains(d.Explanation.String(), "1 with too little cpu, 2 too uneven over zone"), "it does not say which zone is full: %s", d.Explanation)
	w.Key, w.Placement.TopologySpread[0].WhenUnsatisfiable = "soft", workload.ScheduleAnyway
	d = place(s, w, names("soft", 9)...)
	soft := byZone(s, d)
	c.Check(soft["b"]+soft["c"] == 9 && min(soft["b"], soft["c"]) == 4, "a soft spread by zone: %v", soft)
	c.Check(d.Explanation == nil, "a soft spread leaves some out: %v", d.Explanation)
}

func TestWorkloadCase37_SpreadWithoutAttribute(t *testing.T) {
	c := casetest.Start(t)
	for _, zones := range [][]string{{"", "", ""}, {"a", "", ""}, {"a", "b", ""}, {}} {
		for _, how := range []workload.WhenUnsatisfiable{workload.DoNotSchedule, workload.ScheduleAnyway} {
			s := site(zones...)
			s.SetNode(Node{Node: fit.Node{Name: "nothing"}}) // it has nothing, and no share of that is free
			w := sized("web", 0, 0)
			w.Placement.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone", WhenUnsatisfiable: how, MinDomains: new(int32(3)), MaxSkew: new(int32(2))}}
			c.Equal(len(place(s, w).Bindings), 0, "bindings where none is wanted")
			d := place(s, w, names("web", 4)...)
			labelled := 0
			for _, z := range zones {
				if z != "" {
					labelled++
				}
			}
			want := map[workload.WhenUnsatisfiable]int{workload.DoNotSchedule: min(2*labelled, 4), workload.ScheduleAnyway: 4}[how]
			c.Equal(len(d.Bindings), want, fmt.Sprintf("bindings with zones %q, %s", zones, how))
			c.Equal(d.Explanation == nil, want == 4, "that all is said")
			if how == workload.ScheduleAnyway && labelled > 0 {
				c.Check(byZone(s, d)[""] == 0, "nodes without a zone come before those with one: %v", byZone(s, d))
			}
		}
	}
}

func TestWorkloadCase38_GiantStarvesNobody(t *testing.T) {
	c := casetest.Start(t)
	s, q := site("a", "b", "c"), NewQueue()
	giant := sized("giant", 64_000, 1000)
	s.SetWorkload(giant)
	q.Put(groupOf(giant, "giant-0"), giant.Priority)
	tries, placed := 0, 0
	for i := range 600 {
		w := sized(fmt.Sprint("small-", i), 100, 0)
		s.SetWorkload(w)
		q.Put(groupOf(w, w.Key+"-0"), 0)
		for _, d := range run(s, q, start.Add(time.Duration(i)*100*time.Millisecond)) {
			if d.Group == "giant/1" {
				tries++
			}
			placed += len(d.Bindings)
		}
		s.RemoveInstance(w.Key + "-0") // there is more room than before each time
	}
	c.Equal(placed, 600, "small ones placed beside the giant")
	c.Check(tries >= 2 && tries <= 8, "the giant was tried %d times in a minute", tries)
	s.SetNode(Node{Node: fit.Node{Name: "huge", Capacity: fit.Amounts{CPU: 128_000, Memory: 1 << 40}}})
	c.Equal(len(run(s, q, start.Add(time.Hour))[0].Bindings), 1, "bindings of the giant when a node for it comes")
}

func TestWorkloadCase39_Preemption(t *testing.T) {
	c := casetest.Start(t)
	low, high, third := sized("low", 1000, 0), sized("high", 2000, 10), sized("third", 1000, 0)
	begin := func(budget int) *Snapshot {
		s := site("a", "b")
		place(s, low, "low-0", "low-1", "low-2", "low-3")
		for i := range 4 {
			s.Committed(fmt.Sprint("low-", i), 2)
		}
		s.SetBudget("low", budget)
		return s
	}
	s := begin(1)
	d := place(s, high, "high-0")
	c.Equal(len(d.Evictions)+len(d.Bindings), 0, "evictions where two would have to go and one may")

	s = begin(2)
	d = place(s, high, "high-0", "high-1")
	c.Equal(len(d.Evictions), 2, "evictions where two may go")
	node := d.Evictions[0].Node
	c.Equal(d.Explanation.Kept, []string{node}, "where room is made")
	// They go slowly. Nobody is told twice, and nobody else takes what the first one leaves.
	victims := []string{d.Evictions[0].Instance, d.Evictions[1].Instance}
	tell(c, s, Instance{Name: victims[0], Workload: "low", Revision: "1", Node: node, Ending: true})
	for range 5 {
		d = place(s, high, "high-0", "high-1")
		c.Equal(len(d.Evictions)+len(d.Bindings), 0, "further evictions while they go")
	}
	s.RemoveInstance(victims[0])
	c.Equal(len(place(s, third, "third-0").Bindings), 0, "bindings of a third one to the room that is made")
	tell(c, s, Instance{Name: victims[1], Workload: "low", Revision: "1", Node: node, Ending: true})
	s.RemoveInstance(victims[1])
	c.Equal(len(place(s, third, "third-0").Bindings), 0, "bindings of a third one to the room that was made")
	d = place(s, high, "high-0", "high-1")
	c.Equal([]string{d.Bindings[0].Node, d.Bindings[0].Instance}, []string{node, "high-0"}, "where it goes in the end")

	s = begin(2)
	d = place(s, high, "high-0")
	for _, e := range d.Evictions {
		s.RemoveInstance(e.Instance)
	}
	c.Equal(len(place(s, third, "third-0").Bindings), 0, "bindings of a third one while room is kept")
	s.Forget("high/1")
	c.Equal(len(place(s, third, "third-0").Bindings), 1, "bindings of a third one when the first has gone")
}

func TestWorkloadCase40_RoomBetweenDecisionAndQueue(t *testing.T) {
	c := casetest.Start(t)
	s, q := site("a"), NewQueue()
	full, w := sized("full", 2000, 0), sized("web", 2000, 0)
	place(s, full, "full-0")
	s.SetWorkload(w)
	q.Put(groupOf(w, "web-0"), 0)
	g, _ := q.Next(s, start)
	d := s.Place(&g, start)
	c.Equal(len(d.Bindings), 0, "bindings at a full node")
	s.RemoveInstance("full-0") // the decision does not know, and the queue has nobody yet whom it could wake
	q.Back(s, g, d, start)
	c.Equal(q.WakeAt(), start.Add(retryMin), "when it is tried again")
	all := run(s, q, q.WakeAt())
	c.Check(len(all) == 1 && len(all[0].Bindings) == 1, "it was not woken: %+v", all)
}

func TestWorkloadCase41_LabelsChange(t *testing.T) {
	c := casetest.Start(t)
	for _, policy := range []workload.WhenLabelsChange{"", workload.Stay, workload.Move} {
		s := site("a", "a", "a", "b")
		w := sized("web", 500, 0)
		w.Request.Selector = matching("zone", "a")
		w.Placement.WhenLabelsChange = policy
		place(s, w, names("web", 6)...)
		for i := range 6 {
			s.Committed(fmt.Sprintf("n/web-%d", i), 1)
		}
		s.SetBudget("web", 1)
		for i := range 2 {
			n := plain(i, "b")
			n.Revision = 2
			s.SetNode(n)
		}
		var moved []string
		for range 3 {
			for _, e := range s.Moves() {
				moved = append(moved, e.Instance)
			}
		}
		if policy != workload.Move {
			c.Equal(len(moved), 0, "moves with policy "+string(policy))
			continue
		}
		c.Equal(len(moved), 1, "moves within a budget of one")
		for i := range 6 {
			name := fmt.Sprintf("n/web-%d", i)
			if node := s.nodes[s.instances[s.names[name]].node].Name; node != "node-2" {
				c.Equal(moved[0], name, "who moves: the first by name of those whose node does not fit")
				break
			}
		}
	}
}

func TestWorkloadCase44_PartialSuccessIsExplained(t *testing.T) {
	c := casetest.Start(t)
	s := site("a", "a", "a", "a", "a", "a")
	for i, change := range []func(*Node){func(n *Node) { n.Unschedulable = true }, func(n *Node) { n.Taints = []fit.Taint{{Taint: gpuOnly}} }, func(n *Node) { n.Capacity.CPU = 1200 }} {
		n := plain(i, "a")
		n.Revision = 2
		change(&n)
		s.SetNode(n)
	}
	d := place(s, sized("web", 1300, 0), names("web", 5)...)
	c.Equal(len(d.Bindings), 3, "bindings")
	e := d.Explanation
	c.Equal([]int{e.Placed, e.Wanted, e.Nodes}, []int{3, 5, 6}, "placed, wanted, nodes")
	sum := 0
	for _, f := range e.Filtered {
		sum += f.Nodes
		c.Check(f.Example != "", "%v has no example", f)
	}
	c.Equal(sum, 6, "nodes that are accounted for")
	c.Equal(e.String(), "3 of 5 placed; of 6 nodes 1 cordoned, 1 with taint dedicated=gpu:NoSchedule, 4 with too little cpu; +100m cpu on node-2, "+
		"or uncordon it on node-0, or tolerate dedicated=gpu:NoSchedule, as for node-1", "the words")
}

func TestWorkloadCase45_CapacityShrinks(t *testing.T) {
	c := casetest.Start(t)
	s := site("a")
	w := sized("web", 900, 0)
	place(s, w, "web-0", "web-1")
	n := plain(0, "a")
	n.Capacity.CPU, n.Revision = 1000, 2
	s.SetNode(n)
	d := place(s, w, "web-2")
	c.Equal(len(d.Bindings)+len(d.Evictions), 0, "bindings and evictions on a node that has less than is held")
	c.Equal(d.Explanation.Nearest[0].Refusals[0].String(), "needs 900m cpu, -800m is free", "why")
	c.Equal(len(place(s, sized("nothing", 0, 0), "nothing-0").Bindings), 1, "bindings of what needs nothing of it")
	s.RemoveInstance("web-0")
	s.RemoveInstance("web-1")
	c.Equal(len(place(s, w, "web-2").Bindings), 1, "bindings when there is room again")
}

// A node has places for so many instances, however little they ask for: what is beyond goes elsewhere, or says so.
func TestPlacesOfANode(t *testing.T) {
	s := New(1)
	s.SetNode(Node{Node: fit.Node{Name: "n0", Capacity: fit.Amounts{CPU: 1 << 40, Memory: 1 << 50, Disk: 1 << 50}}})
	s.SetWorkload(Workload{Key: "prod/web", Revision: "a", Request: fit.Request{Amounts: fit.Amounts{CPU: 1, Instances: 1}}})
	g := &Group{Name: "g", Workload: "prod/web", Revision: "a"}
	for i := range fit.InstancesMax + 1 {
		g.Instances = append(g.Instances, fmt.Sprint("prod/web-", i))
	}
	d := s.Place(g, time.Unix(1_900_000_000, 0))
	if len(d.Bindings) != fit.InstancesMax || d.Explanation == nil {
		t.Fatalf("%d are placed, %v", len(d.Bindings), d.Explanation)
	}
	for _, words := range []string{"1 with as many instances as there may be", "move an instance away"} {
		if text := d.Explanation.String(); !strings.Contains(text, words) {
			t.Errorf("%q does not say %q", text, words)
		}
	}
	s.RemoveInstance("prod/web-0")
	if d := s.Place(&Group{Name: "g", Workload: "prod/web", Revision: "a", Instances: g.Instances[fit.InstancesMax:]}, time.Unix(1_900_000_001, 0)); len(d.Bindings) != 1 {
		t.Errorf("with one place free: %+v", d)
	}
}
