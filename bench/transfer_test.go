package main

import (
	"math"
	"testing"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

func TestSlope(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(n float64) float64
		want float64
	}{
		"nothing":   {func(float64) float64 { return 7 }, 0},
		"each":      {func(n float64) float64 { return 3 * n }, 1},
		"each pair": {func(n float64) float64 { return n * n / 5 }, 2},
	} {
		var points []load.Point
		for _, n := range []float64{100, 1000, 10_000} {
			points = append(points, load.Point{N: n, Value: c.of(n)})
		}
		if got := load.Slope(points); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestParseBenchmarks(t *testing.T) {
	got := load.ParseBenchmarks(`goos: linux
BenchmarkDelta/entries=1000000/changes=1000-2         	      20	   9000000 ns/op	     70000 down-B	         8.5 cpu-ms
BenchmarkDescent/entries=1000-16	1	5 ns/op
BenchmarkBroken
PASS
`)
	if len(got) != 2 || got["BenchmarkDelta/entries=1000000/changes=1000"]["cpu-ms"] != 8.5 || got["BenchmarkDelta/entries=1000000/changes=1000"]["ns/op"] != 9e6 || got["BenchmarkDescent/entries=1000"]["ns/op"] != 5 {
		t.Errorf("%v", got)
	}
}

func TestMoved(t *testing.T) {
	if got, err := swarm.Moved("127.0.0.1:6444", swarm.NearAddress); err != nil || got != swarm.NearAddress+":6444" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := swarm.Moved("nowhere", swarm.NearAddress); err == nil {
		t.Error("no port")
	}
}
