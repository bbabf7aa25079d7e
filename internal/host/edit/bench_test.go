package edit

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

// BenchmarkShallow checks 1,000 edits of 100 files that are as declared. It reports the memory that each takes.
func BenchmarkShallow(b *testing.B) {
	g := newGround(b)
	body := func() (declare.Resource, error) { return declare.Resource{}, nil }
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var rs []host.Resource
	for i := range 1000 {
		p := g.path(fmt.Sprint("f", i%100))
		g.must(os.WriteFile(p, []byte("x\n"), 0o644))
		d := declared("a", declare.Edit{Path: p, Line: &declare.LineEdit{Text: "x"}})
		d.Body = body
		r, err := g.Bind(b.Context(), d)
		g.must(err)
		now, err := g.root.Stat(p)
		g.must(err)
		r.(*resource).remember(now.Signature, true)
		rs = append(rs, r)
	}
	for _, r := range rs {
		now, err := g.root.Stat(r.(*resource).path)
		g.must(err)
		r.(*resource).remember(now.Signature, true)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		for _, p := range g.Check(b.Context(), rs, host.Shallow) {
			if !p.Recognised {
				b.Fatalf("%+v", p)
			}
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(rs)), "B/resource")
}
