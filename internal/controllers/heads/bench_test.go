package heads

import (
	"sync"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/server"
)

// BenchmarkAssignments is the way from Assignments that are written to signed heads in the hands of who waits for them: of 500 nodes at
// once, written 32 at a time into etcd on this disk.
func BenchmarkAssignments(b *testing.B) {
	const nodes, writers = 500, 32
	r := rigOf(b).run()
	var hosts []server.Identity
	for range nodes {
		hosts = append(hosts, r.join())
	}
	root := 0
	each := func() {
		root++
		var all sync.WaitGroup
		turn := make(chan struct{}, writers)
		want := rootOf(b, root)
		for _, who := range hosts {
			all.Go(func() {
				turn <- struct{}{}
				r.assign(who, func(s *v1alpha1.AssignmentSpec) { one(root)(s) })
				<-turn
			})
			all.Go(func() {
				r.head(who, func(h *catalog.Head) bool { got, _ := h.Root(); return got == want })
			})
		}
		all.Wait()
	}
	each()
	for b.Loop() {
		each()
	}
}

// BenchmarkAssignment is the same for one node alone, and how much of it comes after the write.
func BenchmarkAssignment(b *testing.B) {
	r := rigOf(b).run()
	who := r.join()
	root, after := 0, time.Duration(0)
	for b.Loop() {
		root++
		version := r.assign(who, one(root))
		written := time.Now()
		r.head(who, atVersion(version))
		after += time.Since(written)
	}
	b.ReportMetric(float64(after.Microseconds())/float64(b.N), "us-after-write")
}

func rootOf(b *testing.B, i int) catalog.Digest {
	spec := v1alpha1.AssignmentSpec{}
	one(i)(&spec)
	c, err := ContentOf(&spec)
	if err != nil {
		b.Fatal(err)
	}
	return c.Root
}
