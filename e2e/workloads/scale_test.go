//go:build e2e

package workloads

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/controllers/measures/prometheustest"
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
	t.Parallel()
	f := newFleet(t, 2)
	// Each requests 10m, so that 300 % are 30m. Two clients ask for about 1000m where nobody else works, and for enough of that where many do.
	f.Apply(f.web("v1", "  scale: {max: 3, targets: [{name: cpu, cpu: 300}], down: {stabilization: 20s}}"))
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
	f.until("two, by hand", func(w *v1alpha1.Workload) bool { return w.Status.Scale != nil && w.Status.Scale.Declared == 2 })
	f.until("complete with one, by what is measured", func(w *v1alpha1.Workload) bool {
		return complete(1)(w) && w.Status.Scale != nil && w.Status.Scale.Declared == 2 && len(w.Status.Scale.Shrunk) > 0
	})
	f.end("web")
}

// queue declares a program whose queue is measured, at a port of every host.
const queue = `apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: queue, namespace: %[1]s}
spec:
  template:
    runtime: Process
    tasks:
    - {name: greeter, command: [%[2]s], ports: [{name: http, port: %[3]d}], readiness: {http: {port: http, path: /ready}, period: 100ms}}
---
apiVersion: v1
kind: Secret
metadata: {name: prometheus, namespace: %[1]s}
stringData: {username: %[4]s, password: %[5]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: authorities, namespace: %[1]s}
data: {ca.crt: %[6]q}
`

// access is what a question to the Prometheus needs.
const (
	authority = ", ca: {configMap: {name: authorities, key: ca.crt}}"
	access    = authority + ", auth: {username: {name: prometheus, key: username}, password: {name: prometheus, key: password}}"
)

// TestScaledByPrometheus: a workload follows the queue of another one, as a real Prometheus that wants a password has scraped it, up and down. While that is
// not answered nothing shrinks, and nobody is told the password. A rollout goes by it too.
func TestScaledByPrometheus(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	prometheus := prometheustest.Start(t, prometheustest.Options{Targets: []string{"127.0.0.1:" + strconv.Itoa(port)}, Locked: true})
	f := newFleet(t, 2, "--prometheus", "main="+prometheus.URL)
	f.Apply(fmt.Sprintf(queue, environment, f.greeter, port, prometheustest.Username, prometheustest.Password, prometheus.CA))
	const target = "prometheus: {server: main, query: sum(greeter_queue_length), perInstance: 10%s}"
	scaled := func(access string) string {
		return f.web("v1", "  scale: {max: 3, targets: [{name: queue, "+fmt.Sprintf(target, access)+"}], down: {stabilization: 20s}}")
	}
	f.Apply(scaled(authority))
	f.until("complete with one, which nobody may ask more of", func(w *v1alpha1.Workload) bool {
		return complete(1)(w) && w.Status.Scale != nil && strings.Contains(w.Status.Scale.Message, "main says: 401 Unauthorized")
	})
	f.Apply(scaled(access))
	f.until("measured", func(w *v1alpha1.Workload) bool {
		return strings.Contains(w.Status.Scale.Message, "the answer is 0")
	})
	f.queued(port, 25)
	w := f.until("complete with three", complete(3))
	if s := w.Status.Scale; w.Spec.Replicas != nil || s.Replicas != 3 || s.Declared != 1 || len(s.Grown) == 0 {
		t.Errorf("declared are %v, scaled is %+v", w.Spec.Replicas, s)
	}
	f.says("ScaledUp", "events", "-n", environment)

	f.queued(port, 0)
	w = f.until("complete with one again", complete(1))
	if s := w.Status.Scale; s.Code != "" || len(s.Shrunk) == 0 {
		t.Errorf("scaled is %+v", s)
	}
	f.says("ScaledDown", "events", "-n", environment)
	for _, args := range [][]string{{"get", "workload/web", "-n", environment, "-o", "yaml"}, {"why", "workload/web", "-n", environment}, {"events", "-n", environment}} {
		if said := f.Tako(args...); strings.Contains(said, prometheustest.Password) || strings.Contains(said, prometheus.URL) {
			t.Errorf("tako %s says the password, or where the Prometheus is:\n%s", strings.Join(args, " "), said)
		}
	}
	f.end("web")
	f.gates(port)
	f.hostGates(port)
	f.end("queue")
}

// queued waits until the program at a port has a queue of a length.
func (f *fleet) queued(port, length int) {
	f.Helper()
	host.Eventually(f.T, rig.InTime, "the queue is "+strconv.Itoa(length), func() (string, bool) {
		reply, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/queue?length=" + strconv.Itoa(length))
		if err != nil {
			return err.Error(), false
		}
		_ = reply.Body.Close()
		return reply.Status, reply.StatusCode == http.StatusOK
	})
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
