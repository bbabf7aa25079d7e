package presence

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/transfer/server"
)

// BenchmarkReport is one report of one host, and what follows from it, while all hosts have something to store: as it is after a change of
// what all of them have.
func BenchmarkReport(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			s := newStore()
			r, err := New(Options{Objects: s, Recorder: s})
			if err != nil {
				b.Fatal(err)
			}
			now := time.Now()
			var hosts []server.Identity
			for i := range nodes {
				n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), UID: types.UID(fmt.Sprint(i))}}
				_ = feed{r}.Add(n)
				hosts = append(hosts, server.Identity{Name: n.Name, UID: string(n.UID)})
				r.Opened(hosts[i], uint64(i+1))
				r.Heard(hosts[i], uint64(i+1), report("x", 1, 1, 7))
			}
			r.decide(now)
			number := uint64(1)
			for i := 0; b.Loop(); i++ {
				number++
				r.Heard(hosts[i%nodes], uint64(i%nodes+1), report("x", 1, number, 7))
				r.decide(now)
				if batch, _ := r.toStore(now); len(batch) > 0 {
					b.Fatal("something is due")
				}
				r.Changes()
			}
		})
	}
}
