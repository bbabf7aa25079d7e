//go:build e2e

package workloads

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// loaded has clients ask all instances that are ready for work, until stop is called: each for about half of the time.
func (f *fleet) loaded(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			var ports []int32
			for i := n; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				if i%100 == n || len(ports) == 0 {
					ports = ports[:0]
					for _, in := range f.instances("web") {
						if in.Status.Ready && in.Spec.Stop == nil {
							ports = append(ports, in.Status.Ports["http"])
						}
					}
				}
				if len(ports) > 0 {
					f.work(ctx, ports[i%len(ports)])
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// work has an instance work. That one ends meanwhile is no failure here.
func (f *fleet) work(ctx context.Context, port int32) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))+"/work", nil)
	if err != nil {
		f.Error(err)
		return
	}
	reply, err := client.Do(request)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, reply.Body)
	_ = reply.Body.Close()
}

// TestScaled: under a real load there are more instances, and fewer when it is over and the stabilisation too.
func TestScaled(t *testing.T) {
	f := newFleet(t, 2)
	// Each requests 10m, so that 1000 % are 100m. Two clients ask for about 1000m.
	f.Apply(f.web("v1", "  scale: {max: 3, targets: [{name: cpu, cpu: 1000}], down: {stabilization: 20s}}"))
	f.until("complete with one", complete(1))
	stop := f.loaded(2)
	defer stop()
	w := f.until("complete with three", complete(3))
	if s := w.Status.Scale; w.Spec.Replicas != nil || s.Replicas != 3 || s.Declared != 1 || len(s.Grown) == 0 || !strings.Contains(s.Message, "cpu: ") {
		t.Errorf("declared are %v, scaled is %+v", w.Spec.Replicas, s)
	}
	f.says("ScaledUp", "events", "-n", environment)
	f.says("At its bound", "why", "workload/web", "-n", environment)
	f.says("3/3", "top", "workloads", "-n", environment)
	stop()
	w = f.until("complete with one again", complete(1))
	if s := w.Status.Scale; s.Code != "" || len(s.Shrunk) == 0 {
		t.Errorf("scaled is %+v", s)
	}
	f.says("ScaledDown", "events", "-n", environment)
	if warned := f.kubectl("scale", "workload/web", "--replicas=2", "-n", environment); !strings.Contains(warned, "follows what is measured") {
		t.Errorf("who scales by hand is told %q", warned)
	}
	f.until("complete with two, by hand", complete(2))
	f.until("complete with one, by what is measured", complete(1))
	f.end("web")
}

// says waits until a command says something.
func (f *fleet) says(what string, args ...string) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "tako "+strings.Join(args, " ")+" says "+what, func() (string, bool) {
		out, err := f.Try(args...)
		if err != nil {
			out += "\n" + err.Error()
		}
		return out, strings.Contains(out, what)
	})
}
