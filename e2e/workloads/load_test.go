//go:build e2e

package workloads

import (
	"context"
	"fmt"
	"strings"
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

// served is how long a web server under load goes on serving after it was told to end: what a client knows of it may be as old as that.
const served = 4 * time.Second

// webUnderLoad declares the web server of clients that look at who is ready.
func (f *fleet) webUnderLoad(version, spec string) string {
	return strings.Replace(f.web(version, spec), "{name: DRAIN, value: 1s}", fmt.Sprintf("{name: DRAIN, value: %v}", served), 1)
}

// endpoints are the ports of who was ready at a time.
type endpoints struct {
	at    time.Time
	ports []int32
}

// load has a client ask whoever is ready of webUnderLoad, some twenty times in each tenth of a second, until stop is called. What it knows is
// never too old, however slow the machine is: then it asks less.
func (f *fleet) load(t *testing.T) (stop func() loaded) {
	var ready atomic.Pointer[endpoints]
	look := func() {
		at := time.Now()
		var ports []int32
		for _, in := range f.instances("web") {
			if in.Status.Ready && in.Spec.Stop == nil {
				ports = append(ports, in.Status.Ports["http"])
			}
		}
		if len(ports) > 0 {
			ready.Store(&endpoints{at, ports})
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
				known := ready.Load()
				if known == nil || time.Since(known.at) > served/2 {
					continue
				}
				port := known.ports[i%len(known.ports)]
				a, err := ask(t.Context(), port)
				if err != nil {
					failed.Add(1)
					t.Logf("port %d, known for %v: %v", port, time.Since(known.at), err)
				}
				asked.Add(1)
				versions.Store(a.version, true)
			}
		})
	}
	end := func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(end) // a test that has failed does not stop it
	return func() loaded {
		end()
		l := loaded{asked.Load(), failed.Load(), map[string]bool{}}
		versions.Range(func(version, _ any) bool {
			l.versions[version.(string)] = true
			return true
		})
		return l
	}
}
