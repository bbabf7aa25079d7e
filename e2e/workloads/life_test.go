//go:build e2e

package workloads

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

const spreadOverZones = `  replicas: 3
  placement:
    topologySpread:
    - {topologyKey: topology.kubernetes.io/zone}`

// TestWorkload follows one workload through its life on three hosts.
func TestWorkload(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.Apply(f.webUnderLoad("v1", spreadOverZones))
	f.until("complete", complete(3))
	if nodes := nodesOf(f.instances("web")); !slices.Equal(nodes, []string{"host-0", "host-1", "host-2"}) {
		t.Errorf("three instances, spread over three zones, are on %v", nodes)
	}
	before := f.answers("web")
	if len(before) != 3 {
		t.Fatalf("three instances are available, and %v answer", before)
	}

	t.Run("agent killed and started again restarts nothing", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(f.hosts)) {
			f.hosts[name].Kill()
			f.hosts[name].Start()
		}
		f.until("complete again", complete(3))
		if after := f.answers("web"); !maps.Equal(before, after) {
			t.Errorf("before: %v\nafter: %v", before, after)
		}
	})
	t.Run("server restarted restarts nothing", func(t *testing.T) {
		f.Server.Stop(t)
		f.Server.Start(t)
		f.until("complete again", complete(3))
		if after := f.answers("web"); !maps.Equal(before, after) {
			t.Errorf("before: %v\nafter: %v", before, after)
		}
	})
	t.Run("process killed is started again", func(t *testing.T) {
		a := before["web-0"]
		if err := exec.CommandContext(t.Context(), "kill", "-9", fmt.Sprint(a.pid)).Run(); err != nil {
			t.Fatal(err)
		}
		host.Eventually(t, rig.InTime, "web-0 runs again", func() (string, bool) {
			for _, in := range f.instances("web") {
				if in.Name == "web-0" && in.Status.Ready && in.Status.Restarts == 1 {
					return "", true
				}
			}
			return shown(f.instances("web")), false
		})
		f.until("complete again", complete(3))
	})
	t.Run("kubectl scales it", func(t *testing.T) {
		f.kubectl("scale", "workload/web", "--replicas=5", "-n", environment)
		f.until("complete with five", complete(5))
		f.kubectl("scale", "workload/web", "--replicas=2", "-n", environment)
		f.until("complete with two", complete(2))
	})
	t.Run("new revision without a failed request", func(t *testing.T) { f.underLoad(t) })
	t.Run("deleted, it ends", func(t *testing.T) {
		pids := f.answers("web")
		f.Tako("delete", "workload/web", "-n", environment)
		host.Eventually(t, rig.InTime, "no instance and no process is left", func() (string, bool) {
			left := f.instances("web")
			for _, a := range pids {
				if runs(a.pid, "greeter") {
					return fmt.Sprint(a, " runs"), false
				}
			}
			return shown(left), len(left) == 0
		})
	})
}

// kubectl runs the real one.
func (f *fleet) kubectl(args ...string) string {
	f.Helper()
	program, err := exec.LookPath("kubectl")
	if err != nil {
		f.Skip("needs kubectl 1.32: whether its users can scale is not known without it")
	}
	ctx, cancel := context.WithTimeout(f.Context(), rig.InTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, append(args, "--kubeconfig", f.Server.Kubeconfig(), "--cache-dir", f.Dir)...).CombinedOutput()
	if err != nil {
		f.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// underLoad rolls a new revision out while a client asks whoever is ready.
func (f *fleet) underLoad(t *testing.T) {
	stop := f.load(t)
	f.Apply(f.webUnderLoad("v2", "  replicas: 2\n  rollout: {maxUnavailable: '0', maxSurge: '1', minReady: 1s}"))
	f.until("complete with the new revision", complete(2))
	if l := stop(); !l.versions["v2"] || l.failed > 0 || l.asked < 100 {
		t.Errorf("of requests: %+v", l)
	}
	for name, a := range f.answers("web") {
		if a.version != "v2" {
			t.Errorf("%s answers %+v", name, a)
		}
	}
}

// TestBadRevision: a revision that never becomes ready stops at the canary, and the one before comes back by itself.
func TestBadRevision(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	const canary = "  replicas: 4\n  rollout: {strategy: Canary, progressDeadline: %s, steps: [{replicas: '1'}], maxUnavailable: '0'}"
	f.Apply(f.web("v1", fmt.Sprintf(canary, "10m")))
	first := f.until("complete", complete(4))
	stable := first.Status.Rollout.Target
	before := f.answers("web")
	f.Apply(f.web("v2", fmt.Sprintf(canary, "20s"), "READY=never"))
	w := f.until("rolled back", func(w *v1alpha1.Workload) bool {
		return w.Status.Phase == "RolledBack" && w.Status.AvailableReplicas == 4 && w.Status.TerminatingReplicas == 0
	})
	if w.Status.Rollout.Goal != stable || len(w.Status.Failed) != 1 || w.Status.Failed[0].Revision != w.Status.Rollout.Target {
		t.Errorf("rolled back to %+v, failed %+v; want back to %s", w.Status.Rollout, w.Status.Failed, stable)
	}
	after := f.answers("web")
	for name, a := range before {
		if after[name] != a {
			t.Errorf("%s was %+v and is %+v: what was stable has not been left alone", name, a, after[name])
		}
	}
	if why, _ := f.Try("why", "workload/web", "-n", environment); !strings.Contains(why, "503") {
		t.Errorf("why does not tell the last answer of the probe:\n%s", why)
	}
	f.end("web")
}

// TestNodeLost: a host that nobody hears is replaced; when it is back one copy stays.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.Apply(f.web("v1", "  replicas: 2\n  onUnreachable: {action: Replace, after: 15s}\n  placement: {antiAffinity: [{selector: {matchLabels: {app: web}}}]}"))
	f.until("complete", complete(2))
	lost := f.instances("web")[0].Spec.Node
	f.hosts[lost].Kill()
	f.until("complete without "+lost, func(w *v1alpha1.Workload) bool {
		return w.Status.AvailableReplicas == 2 && w.Status.AbandonedReplicas == 1
	})
	f.hosts[lost].Start()
	f.until("complete with one copy of each", func(w *v1alpha1.Workload) bool {
		return complete(2)(w) && w.Status.AbandonedReplicas == 0 && len(f.instances("web")) == 2
	})
	f.end("web")
}

// TestPending: what has no room says what would make it fit, and is placed when there is.
func TestPending(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.Apply(f.web("v1", "  replicas: 1\n  selector: {matchLabels: {disk: ssd}}"))
	f.until("pending", func(w *v1alpha1.Workload) bool { return w.Status.Pending != nil && w.Status.PendingReplicas == 1 })
	if why, _ := f.Try("why", "workload/web", "-n", environment); !strings.Contains(why, "disk=ssd") {
		t.Errorf("why does not say what would make it fit:\n%s", why)
	}
	f.kubectl("label", "node.tako.dev/host-1", "disk=ssd")
	f.until("complete", complete(1))
	if nodes := nodesOf(f.instances("web")); !slices.Equal(nodes, []string{"host-1"}) {
		t.Errorf("it is on %v", nodes)
	}
	f.end("web")
}
