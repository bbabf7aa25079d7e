//go:build e2e

package workloads

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// loaded is what became of the requests of a client.
type loaded struct {
	asked, failed int64
	versions      map[string]bool // of those who have answered
}

// load has a client ask whoever is ready, some twenty times in each tenth of a second, until stop is called.
func (f *fleet) load(t *testing.T) (stop func() loaded) {
	var endpoints atomic.Pointer[[]int32]
	look := func() {
		var ports []int32
		for _, in := range f.instances("web") {
			if in.Status.Ready && in.Spec.Stop == nil {
				ports = append(ports, in.Status.Ports["http"])
			}
		}
		if len(ports) > 0 {
			endpoints.Store(&ports)
		}
	}
	look()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var asked, failed atomic.Int64
	versions := sync.Map{}
	all.Go(func() {
		for ctx.Err() == nil {
			look()
		}
	})
	for worker := range 2 {
		all.Go(func() {
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			for i := worker; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				ports := *endpoints.Load()
				a, err := ask(t.Context(), ports[i%len(ports)])
				asked.Add(1)
				if err != nil {
					failed.Add(1)
					t.Logf("port %d: %v", ports[i%len(ports)], err)
				}
				versions.Store(a.version, true)
			}
		})
	}
	return func() loaded {
		cancel()
		all.Wait()
		l := loaded{asked.Load(), failed.Load(), map[string]bool{}}
		versions.Range(func(version, _ any) bool {
			l.versions[version.(string)] = true
			return true
		})
		return l
	}
}
