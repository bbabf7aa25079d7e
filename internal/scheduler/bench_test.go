package scheduler

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/scheduler/fit"
)

// plant is a snapshot of nodes of 4 processors and 32 GiB in three zones, of which one in ten has each of ten values of a label.
func plant(nodes int) *Snapshot {
	s := New(1)
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		s.SetNode(Node{Node: fit.Node{Name: name, Architecture: "amd64", Capacity: fit.Amounts{CPU: 4000, Memory: 32 << 30, Disk: 1 << 40},
			Labels: labels("zone", fmt.Sprintf("z%d", i%3), "pool", fmt.Sprint(i%10), "host", name)}})
	}
	return s
}

// alike is a workload of 100m and 500Mi.
func alike(i int) Workload {
	return Workload{Key: fmt.Sprintf("w%d", i), Revision: "1", Namespace: "n", Labels: labels("app", fmt.Sprint(i)),
		Request: fit.Request{Amounts: fit.Amounts{CPU: 100, Memory: 500 << 20}}}
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("n/%s-%d", prefix, i)
	}
	return list
}

// oneCore makes the collector take its share of the same core.
func oneCore(b *testing.B) {
	was := runtime.GOMAXPROCS(1)
	b.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

func own(i int, key string) workload.Affinity {
	return workload.Affinity{Selector: matching("app", fmt.Sprint(i)), TopologyKey: key}
}

// BenchmarkAlike places as many identical replicas in one decision as a large workload has.
func BenchmarkAlike(b *testing.B) {
	oneCore(b)
	const nodes = 5000
	for _, c := range []struct {
		name     string
		replicas int
		change   func(*workload.Placement)
	}{
		{"basic", 50_000, func(*workload.Placement) {}},
		{"spread", 50_000, func(p *workload.Placement) { p.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}} }},
		{"anti-affinity", nodes, func(p *workload.Placement) { p.AntiAffinity = []workload.Affinity{own(0, "")} }},
		{"anti-affinity-label", nodes, func(p *workload.Placement) { p.AntiAffinity = []workload.Affinity{own(0, "host")} }},
		{"affinity", 50_000, func(p *workload.Placement) { p.Affinity = []workload.Affinity{own(0, "zone")} }},
		{"preferred", 50_000, func(p *workload.Placement) {
			p.Preferred = []workload.PreferredNodes{{Selector: matching("pool", "3"), Weight: new(int32(10))}}
			p.AntiAffinity = []workload.Affinity{{Selector: matching("app", "0"), Weight: new(int32(10))}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := alike(0)
			c.change(&w.Placement)
			g := &Group{Name: "g", Workload: w.Key, Revision: w.Revision, Instances: names("i", c.replicas)}
			var took time.Duration
			for range b.N {
				s := plant(nodes)
				s.SetWorkload(w)
				began := time.Now()
				d := s.Place(g, start)
				took += time.Since(began)
				if len(d.Bindings) != c.replicas {
					b.Fatalf("%d placed: %v", len(d.Bindings), d.Explanation)
				}
			}
			b.ReportMetric(float64(c.replicas*b.N)/took.Seconds(), "placements/s")
		})
	}
}

// varied are workloads of which each has other requests and another selector.
func varied(count int, change func(i int, w *Workload)) []Workload {
	list := make([]Workload, count)
	for i := range list {
		w := alike(i)
		w.Request.Amounts = fit.Amounts{CPU: int64(50 + i%97), Memory: int64(100+i%211) << 20}
		w.Request.Selector.MatchExpressions = []declare.SelectorRequirement{{Key: "pool", Operator: declare.OpNotIn, Values: []string{fmt.Sprint(i % 10)}}}
		if i%3 == 0 {
			w.Request.Selector.MatchLabels = labels("zone", fmt.Sprintf("z%d", i%5%3))
		}
		change(i, &w)
		list[i] = w
	}
	return list
}

// mixed gives workloads affinities and spreads of all kinds.
func mixed(i int, w *Workload) {
	p := &w.Placement
	switch i % 5 {
	case 0:
		p.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone"}}
		w.Request.Selector.MatchLabels = nil
	case 1:
		p.AntiAffinity = []workload.Affinity{own(i, "")}
	case 2:
		p.Affinity = []workload.Affinity{own(i, "zone")}
	case 3:
		p.TopologySpread = []workload.TopologySpread{{TopologyKey: "zone", WhenUnsatisfiable: workload.ScheduleAnyway}}
		p.AntiAffinity = []workload.Affinity{{Selector: matching("app", fmt.Sprint(i)), Weight: new(int32(50))}}
	case 4:
		p.Affinity = []workload.Affinity{{Selector: matching("app", fmt.Sprint(i-1)), TopologyKey: "zone", Weight: new(int32(50))}}
		p.Preferred = []workload.PreferredNodes{{Selector: matching("pool", "3"), Weight: new(int32(10))}}
	}
}

// impossible makes one in twenty workloads one that no node takes, and lets it go first.
func impossible(i int, w *Workload) {
	if i%20 == 7 {
		w.Request.Amounts.CPU, w.Priority = 64_000, 100
	}
}

// BenchmarkVaried places 1,000 workloads of ten instances by way of the queue.
func BenchmarkVaried(b *testing.B) {
	oneCore(b)
	const nodes, count, replicas = 5000, 1000, 10
	for _, c := range []struct {
		name   string
		change func(i int, w *Workload)
	}{
		{"distinct", func(int, *Workload) {}},
		{"mixed", mixed},
		{"impossible", impossible},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			var each []time.Duration
			placed := 0
			list := varied(count, c.change)
			for range b.N {
				s, q := plant(nodes), NewQueue()
				for i := range list {
					s.SetWorkload(list[i])
					q.Put(Group{Name: list[i].Key, Workload: list[i].Key, Revision: "1", Instances: names(list[i].Key, replicas)}, list[i].Priority)
				}
				began := time.Now()
				for {
					one := time.Now()
					g, ok := q.Next(s, start)
					if !ok {
						break
					}
					d := s.Place(&g, start)
					if placed += len(d.Bindings); d.Explanation != nil {
						q.Back(s, g, d, start)
					} else {
						q.Remove(g.Name)
					}
					each = append(each, time.Since(one))
				}
				took += time.Since(began)
				if want := map[string]int{"impossible": count / 20}[c.name]; q.Len() != want {
					b.Fatalf("%d groups are left, %d were to be", q.Len(), want)
				}
			}
			slices.Sort(each)
			b.ReportMetric(float64(placed)/took.Seconds(), "placements/s")
			b.ReportMetric(float64(each[len(each)*99/100].Microseconds()), "p99-µs/decision")
		})
	}
}

// BenchmarkPreempt makes room for groups of ten on nodes that are full of what may be displaced.
func BenchmarkPreempt(b *testing.B) {
	oneCore(b)
	s := plant(5000)
	low := alike(0)
	low.Request.Amounts.CPU = 200
	s.SetWorkload(low)
	full := names("low", 100_000)
	s.Place(&Group{Name: "low", Workload: low.Key, Revision: "1", Instances: full}, start)
	for _, name := range full {
		s.Committed(name, 1)
	}
	s.SetBudget(low.Key, len(full))
	high := alike(1)
	high.Priority = 10
	s.SetWorkload(high)
	g := &Group{Name: "high", Workload: high.Key, Revision: "1", Instances: names("high", 10)}
	for b.Loop() {
		d := s.Place(g, start)
		if len(d.Evictions) != 10 {
			b.Fatal(d)
		}
		for _, e := range d.Evictions {
			s.NotEvicted(e.Instance)
		}
		s.Forget(g.Name)
	}
}

// BenchmarkExplain explains over 20,000 nodes why two of five have no place.
func BenchmarkExplain(b *testing.B) {
	oneCore(b)
	s := plant(20_000)
	w := alike(0)
	w.Request.Selector = matching("pool", "3")
	w.Request.Amounts.CPU = 3000
	s.SetWorkload(w)
	for i := range 20_000 {
		if i%10 == 3 && i > 30 {
			n := s.nodes[i].Node
			if n.Capacity.CPU = 2000; i%20 == 3 {
				n.Taints = []fit.Taint{{Taint: declare.Taint{Key: "dedicated", Value: fmt.Sprint(i % 50), Effect: declare.TaintNoSchedule}}}
			}
			s.SetNode(n)
		}
	}
	g := &Group{Name: "g", Workload: w.Key, Revision: w.Revision, Instances: names("i", 5)}
	if d := s.Place(g, start); len(d.Bindings) != 3 {
		b.Fatalf("%d of 5 were placed: %v", len(d.Bindings), d.Explanation)
	}
	for b.Loop() {
		if d := s.Place(g, start); d.Explanation == nil || d.Explanation.Placed != 3 {
			b.Fatal(d.Explanation)
		}
	}
}

// BenchmarkGrowth places groups of ten and single instances on ever more nodes, and on nodes with ever more instances.
func BenchmarkGrowth(b *testing.B) {
	oneCore(b)
	grow := func(nodes, instances, replicas int) func(b *testing.B) {
		return func(b *testing.B) {
			s := plant(nodes)
			w := alike(0)
			s.SetWorkload(w)
			s.Place(&Group{Name: "before", Workload: w.Key, Revision: "1", Instances: names("before", instances)}, start)
			g := &Group{Name: "g", Workload: w.Key, Revision: "1", Instances: names("i", replicas)}
			for b.Loop() {
				if d := s.Place(g, start); len(d.Bindings) != replicas {
					b.Fatal(d.Explanation)
				}
				for _, name := range g.Instances {
					s.RemoveInstance(name)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*replicas), "ns/placement")
		}
	}
	for _, nodes := range []int{100, 1000, 5000, 20_000} {
		b.Run(fmt.Sprintf("nodes=%d/replicas=10", nodes), grow(nodes, nodes, 10))
		b.Run(fmt.Sprintf("nodes=%d/replicas=1", nodes), grow(nodes, nodes, 1))
	}
	for _, instances := range []int{0, 10_000, 50_000, 150_000} {
		b.Run(fmt.Sprintf("instances=%d/replicas=10", instances), grow(5000, instances, 10))
	}
}
