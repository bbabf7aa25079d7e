package converge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// bench makes an engine over n vertices of a shape.
func bench(b *testing.B, n int, shape func(i int) Edge) *Engine {
	b.Helper()
	vertices, edges := many(n, shape)
	g, _ := NewGraph(vertices, edges)
	e, err := New(g, Options{Lanes: []Lane{{Parallel: 4, Batch: 16}}}, rand.New(rand.NewPCG(1, 1)), Resume{})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// drain ends everything in the best way until the engine rests.
func drain(e *Engine, out Effects) {
	now := time.Unix(0, 0)
	flying := out.Start
	for len(flying) > 0 {
		op := flying[0]
		flying = flying[1:]
		results := make([]Result, len(op.IDs))
		for i := range results {
			results[i].Changed = true
		}
		flying = append(flying, e.Step(now, Done{Token: op.Token, Results: results}).Start...)
	}
}

// BenchmarkFirstConverge checks and applies everything once. Its time for a vertex must not grow with their number.
func BenchmarkFirstConverge(b *testing.B) {
	for _, shape := range []string{"chain", "star", "well"} {
		for _, n := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprint(shape, "/", n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					e := bench(b, n, shapes[shape])
					drain(e, e.Step(time.Unix(0, 0), Tick{}))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/vertex")
			})
		}
	}
}

// BenchmarkTouchHub is one event of a directory with 100,000 files.
func BenchmarkTouchHub(b *testing.B) {
	e := bench(b, 100_000, shapes["star"])
	drain(e, e.Step(time.Unix(0, 0), Tick{}))
	for b.Loop() {
		out := e.Step(time.Unix(0, 0), Touched{IDs: []ID{0}})
		for _, op := range out.Start {
			e.Step(time.Unix(0, 0), Done{Token: op.Token, Results: []Result{{InSync: true}}})
		}
	}
}

// An idle agent of 1,000 files has a few megabytes, so a vertex has a few hundred bytes of the engine and the graph.
func TestStateIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(state{}); size > 152 {
		t.Errorf("%d bytes of state for a vertex", size)
	}
}
