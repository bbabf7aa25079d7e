//go:build e2e

package workloads

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/reason"
)

// TestDrain: instances leave a host within their budget, and whoever asks them sees none fail; what cannot leave says why, until the deadline; what
// was drained is taken back.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	const spread = "  replicas: 3\n  rollout: {minReady: 1s}\n  disruptionBudget: {minAvailable: '3'}\n  placement: {topologySpread: [{topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]}"
	f.Apply(f.webUnderLoad("v1", spread))
	f.until("complete", complete(3))

	t.Run("under a budget, without a failed request", func(t *testing.T) {
		pids := f.answers("web")
		stop := f.load(t)
		there := f.on("host-0")
		f.Tako("node", "drain", "host-0", "--timeout", "4m")
		for _, name := range there {
			if runs(pids[name].pid, "greeter") {
				t.Errorf("it counts as drained, and process %d of %s runs", pids[name].pid, name)
			}
		}
		f.until("complete elsewhere", complete(3))
		if l := stop(); l.failed > 0 || l.asked < 100 {
			t.Errorf("of requests: %+v", l)
		}
		if left := f.on("host-0"); len(there) == 0 || len(left) > 0 {
			t.Errorf("before there were %v, and drained there are %v", there, left)
		}
		if why, _ := f.Try("why", "node/host-0"); !strings.Contains(why, "Drained") || !strings.Contains(why, "tako node uncordon host-0") {
			t.Errorf("why says:\n%s", why)
		}
	})
	t.Run("what cannot leave says why, and leaves at the deadline", func(t *testing.T) {
		f.Apply(f.webUnderLoad("v1", strings.Replace(spread, "{minAvailable: '3'}", "{minAvailable: '3', surgeFirst: false}", 1)))
		f.until("complete without surge", complete(3))
		out, err := f.Try("node", "drain", "host-1", "--timeout", "4m")
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != int(reason.ExitStalled) || !strings.Contains(out, "3 of 3 instances are available, and the disruption budget wants 3") {
			t.Errorf("%v: %s", err, out)
		}
		why, _ := f.Try("why", "node/host-1")
		for _, words := range []string{"Drain stuck", "TK0760", "held by workload/web", "its node is drained"} {
			if !strings.Contains(why, words) {
				t.Errorf("why does not say %q:\n%s", words, why)
			}
		}
		if left := f.on("host-1"); len(left) == 0 {
			t.Error("the budget did not hold")
		}
		f.Tako("node", "drain", "host-1", "--deadline", "3s", "--timeout", "4m")
		f.until("complete on what is left", complete(3))
		if nodes := slices.Compact(nodesOf(f.instances("web"))); !slices.Equal(nodes, []string{"host-2"}) {
			t.Errorf("it is on %v", nodes)
		}
	})
	t.Run("uncordoned, it takes instances again", func(t *testing.T) {
		f.Tako("node", "uncordon", "host-0", "host-1")
		f.Tako("node", "cordon", "host-2")
		f.kubectl("scale", "workload/web", "--replicas=5", "-n", environment)
		f.until("complete with five", complete(5))
		if nodes := nodesOf(f.instances("web")); !slices.Equal(nodes, []string{"host-0", "host-1", "host-2", "host-2", "host-2"}) {
			t.Errorf("it is on %v", nodes)
		}
		host.Eventually(t, rig.InTime, "no drain is told of any more", func() (string, bool) {
			var n v1alpha1.Node
			f.Get(&n, "node/host-0")
			for _, c := range n.Status.Conditions {
				if c.Type == v1alpha1.ConditionDrained {
					return shown(c), false
				}
			}
			return "", true
		})
	})
	f.end("web")
}

// on are the instances of the web server on a host, by name.
func (f *fleet) on(name string) []string {
	var there []string
	for _, in := range f.instances("web") {
		if in.Spec.Node == name {
			there = append(there, in.Name)
		}
	}
	return there
}
