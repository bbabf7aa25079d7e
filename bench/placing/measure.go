package placing

import (
	"context"
	"fmt"
	"time"

	"tako.dev/tako/bench/load"
)

const (
	directory = "./internal/scheduler"
	times     = "5x"
	// slowerMax is how much longer the others may take where some can never be placed.
	slowerMax  = 0.20
	explainMax = 10.0 // milliseconds
)

// Measure runs the benchmarks of the scheduler and of a peer, and tells what was measured: with its bar, without one, or how it grows.
func Measure(ctx context.Context, add func(what, measured, bar string, met bool), state func(what, measured string), grows func(what, unit string, points []load.Point)) error {
	found, err := load.Benchmarks(ctx, "", directory, "^Benchmark(Alike|Varied|Explain|Growth)$", times)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name, what string
		bar        float64
	}{
		{"Alike/basic", "identical replicas", 200_000},
		{"Alike/spread", "identical replicas, hard spread over zones", 100_000},
		{"Alike/anti-affinity", "identical replicas, required anti-affinity by host", 50_000},
		{"Alike/affinity", "identical replicas, required affinity by zone", 50_000},
		{"Alike/preferred", "identical replicas, preferred nodes and anti-affinity", 100_000},
		{"Varied/distinct", "1,000 workloads of 10, distinct requests and selectors", 20_000},
		{"Varied/mixed", "1,000 workloads of 10, mixed affinity and spread", 10_000},
	} {
		f := found["Benchmark"+c.name]
		if f == nil {
			return fmt.Errorf("benchmark %s was not run", c.name)
		}
		text := fmt.Sprintf("%.0f a second", f["placements/s"])
		if p99, ok := f["p99-µs/decision"]; ok {
			text += fmt.Sprintf(", p99 of a decision %.2f ms", p99/1000)
		}
		if least := floor[c.name]; least > 0 {
			text += fmt.Sprintf(", %.0f x the floor that Kubernetes publishes", f["placements/s"]/least)
		}
		add("scheduler: 5,000 nodes, "+c.what, text, fmt.Sprintf(">= %.0f a second", c.bar), f["placements/s"] >= c.bar)
	}
	distinct, impossible, explain := found["BenchmarkVaried/distinct"], found["BenchmarkVaried/impossible"], found["BenchmarkExplain"]
	if impossible == nil || explain == nil {
		return fmt.Errorf("not all benchmarks of %s were run", directory)
	}
	slower := distinct["placements/s"]/impossible["placements/s"] - 1
	add("scheduler: the same, distinct, with 5 % impossible ones that go first: slower by", fmt.Sprintf("%.0f %%, p99 of a decision %.2f ms",
		slower*100, impossible["p99-µs/decision"]/1000), "<= 20 %", slower <= slowerMax)
	took := explain["ns/op"] / 1e6
	add("scheduler: 20,000 nodes, explanation where 3 of 5 are placed", fmt.Sprintf("%.2f ms", took), "<= 10 ms", took <= explainMax)
	if err := growth(found, grows); err != nil {
		return err
	}
	peers(ctx, float64(time.Second)/found["BenchmarkGrowth/nodes=1000/replicas=10"]["ns/placement"], state)
	return nil
}

// growth tells how the time of a placement grows.
func growth(found map[string]load.Figures, grows func(what, unit string, points []load.Point)) error {
	for _, c := range []struct {
		what, name string
		sizes      []int
	}{
		{"nodes, groups of 10", "nodes=%d/replicas=10", []int{100, 1000, 5000, 20_000}},
		{"nodes, one at a time", "nodes=%d/replicas=1", []int{100, 1000, 5000, 20_000}},
		{"instances on 5,000 nodes, groups of 10", "instances=%d/replicas=10", []int{10_000, 50_000, 150_000}},
	} {
		var points []load.Point
		for _, n := range c.sizes {
			f := found["BenchmarkGrowth/"+fmt.Sprintf(c.name, n)]
			if f == nil {
				return fmt.Errorf("benchmark of growth with %d %s was not run", n, c.what)
			}
			points = append(points, load.Point{N: float64(n), Value: f["ns/placement"] / 1000})
		}
		grows("scheduler: growth with "+c.what+": one placement", "µs", points)
	}
	return nil
}
