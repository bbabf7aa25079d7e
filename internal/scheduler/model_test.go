package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// chance draws what a random fleet is made of.
type chance struct{ *rand.Rand }

func (c chance) oneIn(n int) bool { return c.IntN(n) == 0 }

func pickOne[T any](c chance, list ...T) T { return list[c.IntN(len(list))] }

func (c chance) node(name string) Node {
	n := Node{Node: fit.Node{Name: name, Labels: map[string]string{}, Architecture: pickOne(c, "amd64", "amd64", "amd64", "arm64"),
		Capacity: fit.Amounts{CPU: int64(c.IntN(4)+1) * 500, Memory: int64(c.IntN(4)+1) << 30, Disk: 100 << 30}}}
	if !c.oneIn(6) {
		n.Labels["zone"] = pickOne(c, "a", "b", "c")
	}
	if !c.oneIn(4) {
		n.Labels["rack"] = fmt.Sprint(c.IntN(12))
	}
	n.Labels["disk"] = pickOne(c, "ssd", "hdd")
	if c.oneIn(5) {
		n.Taints = append(n.Taints, fit.Taint{Taint: declare.Taint{Key: "dedicated", Value: pickOne(c, "gpu", "db"), Effect: pickOne(c, declare.TaintNoSchedule, declare.TaintNoExecute, declare.TaintPreferNoSchedule)}})
	}
	if c.oneIn(4) {
		n.Devices = map[string][]string{"gpu": {"0", "1"}}
	}
	if c.oneIn(3) {
		n.Directories = []string{"/srv"}
	}
	if !c.oneIn(3) {
		n.Runtimes = []workload.Runtime{workload.Process, workload.OCI}
	}
	n.Unschedulable = c.oneIn(8)
	if c.oneIn(10) {
		n.Unhealthy = "its agent is silent"
	}
	return n
}

func (c chance) affinity() workload.Affinity {
	a := workload.Affinity{Selector: matching("app", pickOne(c, "w0", "w1", "w2", "w3")), TopologyKey: pickOne(c, "", "zone", "rack")}
	switch c.IntN(5) {
	case 0:
		a.Weight = new(int32(5))
	case 1:
		a.Selector = matching("tier", pickOne(c, "x", "y"))
	case 2:
		a.Namespaces = []string{"n0", "n1"}
	}
	return a
}

func (c chance) workload(i, revision int) Workload {
	w := Workload{Key: fmt.Sprintf("w%d", i), Revision: fmt.Sprint(revision), Namespace: pickOne(c, "n0", "n0", "n1"),
		Labels: labels("app", fmt.Sprintf("w%d", i), "tier", pickOne(c, "x", "y"))}
	w.Request.Amounts = fit.Amounts{CPU: int64(c.IntN(5)) * 100, Memory: int64(c.IntN(5)) << 28}
	if c.oneIn(4) {
		w.Request.Selector = matching("disk", pickOne(c, "ssd", "hdd"))
	}
	if c.oneIn(6) {
		w.Request.Selector.MatchExpressions = []declare.SelectorRequirement{pickOne(c, declare.SelectorRequirement{Key: "zone", Operator: declare.OpIn, Values: []string{"a", "b"}},
			declare.SelectorRequirement{Key: "zone", Operator: declare.OpNotIn, Values: []string{"a"}}, declare.SelectorRequirement{Key: "rack", Operator: declare.OpExists},
			declare.SelectorRequirement{Key: "rack", Operator: declare.OpDoesNotExist})}
	}
	if c.oneIn(4) {
		w.Request.Tolerations = []workload.Toleration{pickOne(c, workload.Toleration{Key: "dedicated", Value: "gpu"}, workload.Toleration{Operator: workload.TolerationExists})}
	}
	if c.oneIn(6) {
		w.Request.Devices = []fit.DeviceCount{{Name: "gpu", Count: int64(1 + c.IntN(2))}}
	}
	if c.oneIn(5) {
		w.Request.Ports = []fit.Port{{Protocol: workload.TCP, Number: pickOne[int32](c, 80, 443)}}
	}
	if c.oneIn(8) {
		w.Request.Directories = []string{"/srv"}
	}
	if c.oneIn(6) {
		w.Request.Runtime = workload.OCI
	}
	if c.oneIn(6) {
		w.Request.Architectures = []string{"amd64"}
	}
	p := &w.Placement
	p.Strategy = pickOne(c, workload.Spread, workload.BinPack, "")
	if c.oneIn(3) {
		p.Affinity = append(p.Affinity, c.affinity())
	}
	for range c.IntN(3) {
		p.AntiAffinity = append(p.AntiAffinity, c.affinity())
	}
	if c.oneIn(3) {
		p.TopologySpread = append(p.TopologySpread, workload.TopologySpread{TopologyKey: pickOne(c, "zone", "rack"), MaxSkew: new(int32(1 + c.IntN(2))),
			MinDomains: new(int32(1 + c.IntN(4))), WhenUnsatisfiable: pickOne(c, workload.DoNotSchedule, workload.DoNotSchedule, workload.ScheduleAnyway)})
	}
	if c.oneIn(4) {
		p.Preferred = append(p.Preferred, workload.PreferredNodes{Selector: matching("disk", "ssd"), Weight: new(int32(7))})
	}
	return w
}

// fleet is a snapshot and the reference beside it.
type fleet struct {
	chance
	s       *Snapshot
	r       *reference
	named   int
	refused map[string]int // of each node: the third time nothing is placed there, of which the reference does not know
	now     time.Time
	changed int64
}

func newFleet(c chance) *fleet {
	f := &fleet{chance: c, s: New(1), r: newReference(), now: start, refused: map[string]int{}}
	for i := range 3 + c.IntN(8) {
		f.setNode(c.node(fmt.Sprintf("node-%d", i)))
	}
	for i := range 4 {
		w := c.workload(i, 1)
		f.r.workloads[classKey{w.Key, w.Revision}] = w
		f.s.SetWorkload(w)
	}
	return f
}

func (f *fleet) setNode(n Node) {
	f.changed++
	n.Revision = f.changed
	f.r.nodes[n.Name] = n
	f.s.SetNode(n)
}

func (f *fleet) some(names []string) string {
	slices.Sort(names)
	return names[f.IntN(len(names))]
}

func (f *fleet) anyNode() string     { return f.some(slices.Collect(maps.Keys(f.r.nodes))) }
func (f *fleet) anyInstance() string { return f.some(slices.Collect(maps.Keys(f.r.instances))) }

func (f *fleet) group() *Group {
	w := f.workloads()[f.IntN(len(f.r.workloads))]
	g := &Group{Name: "g", Workload: w.Workload, Revision: w.Revision, Gang: f.oneIn(6)}
	for range 1 + f.IntN(6) {
		f.named++
		g.Instances = append(g.Instances, fmt.Sprintf("i%d", f.named))
	}
	if f.oneIn(6) && len(f.r.nodes) > 0 {
		g.Node, g.Must = f.anyNode(), f.oneIn(2)
	}
	return g
}

func (f *fleet) workloads() []classKey {
	list := slices.Collect(maps.Keys(f.r.workloads))
	slices.SortFunc(list, func(a, b classKey) int {
		return slices.Compare([]string{a.Workload, a.Revision}, []string{b.Workload, b.Revision})
	})
	return list
}

// step changes something, or places something.
func (f *fleet) step() error {
	f.now = f.now.Add(10 * time.Second)
	switch what := f.IntN(12); {
	case what == 0 && len(f.r.nodes) < 12:
		f.setNode(f.node(fmt.Sprintf("node-%d", f.IntN(14))))
	case what == 1 && len(f.r.nodes) > 0:
		f.setNode(f.node(f.anyNode()))
	case what == 2 && len(f.r.nodes) > 2:
		name := f.anyNode()
		delete(f.r.nodes, name)
		maps.DeleteFunc(f.r.instances, func(_ string, in Instance) bool { return in.Node == name })
		for _, byNode := range f.r.avoided {
			delete(byNode, name)
		}
		delete(f.refused, name)
		f.s.RemoveNode(name)
	case what == 3 && len(f.r.instances) > 0:
		in := f.r.instances[f.anyInstance()]
		in.Ending = true
		f.r.instances[in.Name] = in
		return f.s.SetInstance(in)
	case what <= 5 && len(f.r.instances) > 0:
		name := f.anyInstance()
		delete(f.r.instances, name)
		f.s.RemoveInstance(name)
	case what == 6 && len(f.r.instances) > 0:
		in := f.r.instances[f.anyInstance()]
		delete(f.r.instances, in.Name)
		if f.r.avoided[in.Workload] == nil {
			f.r.avoided[in.Workload] = map[string]time.Time{}
		}
		if f.r.avoided[in.Workload][in.Node].IsZero() && f.refused[in.Node] < quarantineAfter-1 {
			f.refused[in.Node]++
			f.s.Rejected(in, "it said so", f.now)
			f.r.avoided[in.Workload][in.Node] = f.now.Add(avoidMin)
		} else {
			f.s.RemoveInstance(in.Name)
		}
		return nil
	case what == 7 && f.oneIn(2):
		old := f.workloads()[f.IntN(len(f.r.workloads))]
		w := f.workload(int(old.Workload[1]-'0'), 0)
		w.Revision = old.Revision
		f.r.workloads[old] = w
		f.s.SetWorkload(w)
	case what == 7:
		old := f.workloads()[f.IntN(len(f.r.workloads))]
		if slices.ContainsFunc(slices.Collect(maps.Values(f.r.instances)), func(in Instance) bool { return in.Workload == old.Workload }) {
			return nil
		}
		f.s.RemoveWorkload(old.Workload, old.Revision)
		delete(f.r.workloads, old)
		delete(f.r.avoided, old.Workload)
		w := f.workload(int(old.Workload[1]-'0'), f.IntN(1000))
		f.r.workloads[classKey{w.Key, w.Revision}] = w
		f.s.SetWorkload(w)
	default:
		g := f.group()
		d := f.s.Place(g, f.now)
		return f.r.agree(g, d, f.now)
	}
	return nil
}

// TestModel compares the scheduler with one that keeps nothing up to date, on random fleets that change between decisions.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		f := newFleet(chance{rand.New(rand.NewPCG(seed, 2))})
		for i := range 60 {
			if err := f.step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			if err := f.r.same(f.s); err != nil {
				t.Fatalf("after step %d: %v", i, err)
			}
		}
	})
}

// TestDeterminism: the same changes and the same seed give the same decisions, whatever order maps have.
func TestDeterminism(t *testing.T) {
	run := func(seed uint64) []string {
		f := newFleet(chance{rand.New(rand.NewPCG(seed, 3))})
		var all []string
		for range 80 {
			g := f.group()
			d := f.s.Place(g, f.now)
			all = append(all, fmt.Sprint(d.Bindings, d.Evictions, d.Explanation))
			if err := f.r.agree(g, d, f.now); err != nil {
				t.Fatal(err)
			}
			if len(f.r.instances) > 10 {
				name := f.anyInstance()
				delete(f.r.instances, name)
				f.s.RemoveInstance(name)
			}
		}
		return all
	}
	for seed := range uint64(10) {
		if a, b := run(seed), run(seed); !slices.Equal(a, b) {
			t.Fatalf("seed %d: two runs differ:\n%v\n%v", seed, a, b)
		}
	}
}

// TestOnePassIsOneByOne: placing a group is placing its instances one after the other, each on the best node.
func TestOnePassIsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		begin := func() *fleet {
			f := newFleet(chance{rand.New(rand.NewPCG(seed, 6))})
			for i := range f.IntN(40) { // more nodes than instances
				f.setNode(f.node(fmt.Sprintf("more-%d", i)))
			}
			return f
		}
		a, b := begin(), begin()
		for range 5 {
			g, same := a.group(), b.group()
			g.Gang = false
			d := a.s.Place(g, start)
			var one []Binding
			for _, name := range same.Instances {
				single := *same
				single.Instances, single.Gang = []string{name}, false
				one = append(one, b.s.Place(&single, start).Bindings...)
			}
			if fmt.Sprint(d.Bindings) != fmt.Sprint(one) {
				t.Fatalf("in one pass:\n%v\none by one:\n%v", d.Bindings, one)
			}
		}
	})
}
