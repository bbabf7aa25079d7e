package file_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

const benchFiles = 1000

// benchResources binds files in a new directory. They are never removed while something is measured: for five seconds ext4
// makes every new file search its way past inodes that have just become free.
func benchResources(g *ground, dir string) []host.Resource {
	g.must(os.Mkdir(g.path(dir), 0o755))
	rs := make([]host.Resource, benchFiles)
	for i := range rs {
		name := fmt.Sprintf("%s/file-%04d.conf", dir, i)
		rs[i] = g.bindFile(declare.File{Path: g.path(name), Content: "content of " + name + "\n"})
	}
	return rs
}

// inBatches calls do with as many resources as the lane puts into one operation.
func (g *ground) inBatches(rs []host.Resource, batch int, do func(rs []host.Resource)) {
	for len(rs) > 0 {
		n := min(batch, len(rs))
		do(rs[:n])
		rs = rs[n:]
	}
}

func (g *ground) applyAll(rs []host.Resource, batch int) {
	g.inBatches(rs, batch, func(rs []host.Resource) {
		for _, res := range g.Apply(g.Context(), g.Check(g.Context(), rs, host.Shallow)) {
			g.must(res.Err)
		}
	})
}

// BenchmarkApply makes 1,000 files durably, in batches of several sizes, some at once.
func BenchmarkApply(b *testing.B) {
	for _, parallel := range []int{1, 2, 4} {
		for _, batch := range []int{64, 128, 256} {
			b.Run(fmt.Sprintf("%dx%d", parallel, batch), func(b *testing.B) {
				g := newGround(b)
				for round := 0; b.Loop(); round++ {
					b.StopTimer()
					rs := benchResources(g, strconv.Itoa(round))
					b.StartTimer()
					batches := make(chan []host.Resource, len(rs))
					g.inBatches(rs, batch, func(rs []host.Resource) { batches <- rs })
					close(batches)
					var all sync.WaitGroup
					for range parallel {
						all.Go(func() {
							for rs := range batches {
								g.applyAll(rs, batch)
							}
						})
					}
					all.Wait()
				}
			})
		}
	}
}

// BenchmarkCheck looks at 1,000 files that are as declared.
func BenchmarkCheck(b *testing.B) {
	for _, depth := range []host.Depth{host.Shallow, host.Deep} {
		b.Run([]string{"shallow", "deep"}[depth], func(b *testing.B) {
			g := newGround(b)
			rs := benchResources(g, "files")
			batch := g.Lane().Batch
			g.applyAll(rs, batch)
			for b.Loop() {
				g.inBatches(rs, batch, func(rs []host.Resource) {
					for _, p := range g.Check(g.Context(), rs, depth) {
						if !p.Empty() {
							b.Fatalf("%+v", p)
						}
					}
				})
			}
		})
	}
}

// BenchmarkRepair repairs a drifted file; the backup of what it had drifted to is in the store already, or not.
func BenchmarkRepair(b *testing.B) {
	for _, drift := range []string{"known", "new"} {
		b.Run(drift, func(b *testing.B) {
			g := newGround(b)
			r := g.bindFile(declare.File{Path: g.path("file"), Content: "declared\n"})
			g.made(r)
			for round := 0; b.Loop(); round++ {
				b.StopTimer()
				text := "drift"
				if drift == "new" {
					text = strconv.Itoa(round)
				}
				g.write("file", text, 0o644)
				b.StartTimer()
				g.made(r)
			}
		})
	}
}
