package setting

import (
	"fmt"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

// BenchmarkShallow is the cost of a look at settings that are as declared, each.
func BenchmarkShallow(b *testing.B) {
	dir := b.TempDir()
	g := newGround(b, dir)
	const n = 1000
	typ := g.types[declare.TypeHostEntry]
	var rs []host.Resource
	body := ""
	for i := range n {
		e := declare.HostEntry{Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Names: []string{fmt.Sprintf("host-%d", i)}}
		body += e.Address + " " + e.Names[0] + "\n"
		_, r := g.Bound(declare.Resource{Name: "x", HostEntry: &e})
		rs = append(rs, r)
	}
	g.put(b, hostsFile, body)
	typ.Check(b.Context(), rs, host.Deep)
	typ.Check(b.Context(), rs, host.Deep)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range typ.Check(b.Context(), rs, host.Shallow) {
			if !p.Recognised {
				b.Fatal(p)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "us/resource")
}

// BenchmarkDeep reads the file for each.
func BenchmarkDeep(b *testing.B) {
	g := newGround(b, b.TempDir())
	const n = 1000
	var rs []host.Resource
	body := ""
	for i := range n {
		e := declare.HostEntry{Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Names: []string{fmt.Sprintf("host-%d", i)}}
		body += e.Address + " " + e.Names[0] + "\n"
		_, r := g.Bound(declare.Resource{Name: "x", HostEntry: &e})
		rs = append(rs, r)
	}
	g.put(b, hostsFile, body)
	for b.Loop() {
		g.types[declare.TypeHostEntry].Check(b.Context(), rs, host.Deep)
	}
}
