//go:build e2e

package workloads

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// updated is a workload that waits with so many instances of the new revision, and all available.
func updated(phase string, newer, replicas int32) func(*v1alpha1.Workload) bool {
	return func(w *v1alpha1.Workload) bool {
		s := &w.Status
		return s.Phase == phase && s.UpdatedReplicas == newer && s.AvailableReplicas == replicas && s.Replicas == replicas && s.TerminatingReplicas == 0
	}
}

// answering is how many instances answer with each version.
func (f *fleet) answering(workload string) map[string]int {
	f.Helper()
	versions := map[string]int{}
	for _, a := range f.answers(workload) {
		versions[a.version]++
	}
	return versions
}

func (f *fleet) rollout(verb string, args ...string) string {
	f.Helper()
	return f.Tako(append([]string{"rollout", verb, "workload/web", "-n", environment}, args...)...)
}

// TestRolloutByHand: a canary goes on when a person says so, stops where one says so, and goes back when one says so; and `rollout status` says whom it
// waits for.
func TestRolloutByHand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	const spec = "  replicas: 4\n  rollout: {strategy: Canary, promotion: Manual, steps: [{replicas: 1}, {replicas: 50%}]}"
	f.Apply(f.web("v1", spec))
	f.until("complete: the first revision has no steps", complete(4))

	f.Apply(f.web("v2", spec))
	f.until("at its first step", updated("Waiting", 1, 4))
	if got := f.answering("web"); got["v2"] != 1 || got["v1"] != 3 {
		t.Errorf("at the first step: %v", got)
	}
	if said := f.rollout("status"); !strings.Contains(said, "step 1 of 2 waits for approval") {
		t.Errorf("rollout status:\n%s", said)
	}
	if out, err := f.Try("rollout", "status", "workload/web", "-n", environment, "--wait", "--timeout", "1s"); err == nil || strings.Contains(out, "Complete") {
		t.Errorf("rollout status --wait of what waits: %v\n%s", err, out)
	}
	f.rollout("promote")
	f.until("at its second step", updated("Waiting", 2, 4))

	f.rollout("pause")
	f.until("paused", updated("Paused", 2, 4))
	f.rollout("promote")
	f.rollout("resume")
	w := f.until("complete", complete(4))
	if got := f.answering("web"); got["v2"] != 4 {
		t.Errorf("in the end: %v", got)
	}
	second := w.Status.Stable
	if history := f.rollout("history"); !strings.Contains(history, second) {
		t.Errorf("history:\n%s", history)
	}

	f.rollout("undo")
	f.until("at the first step back", updated("Waiting", 1, 4))
	f.rollout("promote", "--all")
	w = f.until("complete again", complete(4))
	if got := f.answering("web"); got["v1"] != 4 || w.Status.Stable == second {
		t.Errorf("after undo: %v, stable is %s", got, w.Status.Stable)
	}

	// What only one may have, and never gets ready, goes back alone, and no other one has had it.
	f.Apply(strings.NewReplacer("path: /ready", "path: /ready, scheme: https", "steps:", "progressDeadline: 15s, steps:").Replace(f.web("v3", spec)))
	w = f.until("rolled back", updated("RolledBack", 4, 4))
	if got := f.answering("web"); got["v1"] != 4 || len(w.Status.Failed) != 1 {
		t.Errorf("after a revision that is never ready: %v, failed %+v", got, w.Status.Failed)
	}
	f.end("web")
}

// gated declares the web server with a canary that is looked at for two seconds, by the queue of another program.
func (f *fleet) gated(version, server string) string {
	return f.web(version, fmt.Sprintf("  replicas: 3\n"+
		"  rollout: {strategy: Canary, steps: [{replicas: 1, pause: 2s}], gates: [{name: queue, prometheus: {server: %s, query: sum(greeter_queue_length)%s}, max: '10'}]}", server, access))
}

// gates rolls revisions out that a measure of a Prometheus decides about.
func (f *fleet) gates(port int) {
	f.Helper()
	f.queued(port, 0)
	f.Apply(f.gated("v1", "main"))
	f.until("complete: the first revision has no gate", complete(3))
	f.Apply(f.gated("v2", "main"))
	f.until("complete, since the measure is good", complete(3))
	stable := f.workload("web").Status.Stable

	f.queued(port, 25)
	f.Apply(f.gated("v3", "main"))
	w := f.until("rolled back by the measure", updated("RolledBack", 3, 3))
	if len(w.Status.Failed) != 1 || w.Status.Stable != stable {
		f.Errorf("stable is %s and was %s, failed %+v", w.Status.Stable, stable, w.Status.Failed)
	}
	if got := f.answering("web"); got["v2"] != 3 {
		f.Errorf("after the measure was bad: %v", got)
	}
	f.says("gate queue measures 25, and its max is 10", "why", "workload/web", "-n", environment)
	f.end("web")
}

// limits declares a file on every host, that goes on when the queue of another program is short enough: at first on half of them.
const limits = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: limits, namespace: %s}
spec:
  rollout:
    maxUnavailable: 100%%
    waves: [{nodes: 50%%, pause: 2s}]
    gates: [{name: queue, prometheus: {server: main, query: sum(greeter_queue_length)%s}, max: "10"}]
    onFailure: %s
  resources:
  - {name: limits, file: {path: /etc/limits, content: "%s"}}
`

// hostGates rolls configs out over hosts that a measure of a Prometheus decides about.
func (f *fleet) hostGates(port int) {
	f.Helper()
	have := func() map[string]int {
		all := map[string]int{}
		for _, h := range f.hosts {
			all[h.Read("/etc/limits")]++
		}
		return all
	}
	// Without content, people have it tried again.
	is := func(what, content, onFailure, phase string, want map[string]int) (s v1alpha1.RolloutStatus) {
		f.Helper()
		if content != "" {
			f.Apply(fmt.Sprintf(limits, environment, access, onFailure, content))
		}
		host.Eventually(f.T, rig.InTime, what, func() (string, bool) {
			var c v1alpha1.NodeConfig
			f.Get(&c, "nodeconfig/limits", "-n", environment)
			s = v1alpha1.RolloutStatus{}
			if c.Status.Rollout != nil && c.Status.ObservedGeneration == c.Generation {
				s = *c.Status.Rollout
			}
			if content == "" && s.Phase == "Halted" { // once more, where the Prometheus had not looked again yet
				f.Tako("rollout", "pause", "nodeconfig/limits", "-n", environment)
				f.Tako("rollout", "resume", "nodeconfig/limits", "-n", environment)
			}
			return fmt.Sprintf("%+v; hosts have %v", s, have()), s.Phase == phase && maps.Equal(have(), want)
		})
		return s
	}
	f.queued(port, 0)
	first := is("the first is complete", "one", "Halt", "Complete", map[string]int{"one": 2})

	f.queued(port, 25)
	s := is("halted by the measure, on half of the hosts", "two", "Halt", "Halted", map[string]int{"one": 1, "two": 1})
	if s.Failure == nil || s.Failure.Revision != s.Target || s.Failure.Goal != "" || s.Proven != first.Proven {
		f.Errorf("halted is %+v", s)
	}
	f.says("gate queue measures 25, and its max is 10", "why", "nodeconfig/limits", "-n", environment)
	f.says("TK0750", "why", "nodeconfig/limits", "-n", environment)
	f.says("tako rollout undo nodeconfig/limits", "why", "nodeconfig/limits", "-n", environment)
	f.queued(port, 0)
	second := is("complete, when people have it tried again and the measure is good", "", "", "Complete", map[string]int{"two": 2})

	f.queued(port, 25)
	s = is("rolled back by the measure", "three", "RollBack", "RolledBack", map[string]int{"two": 2})
	if s.Failure == nil || s.Failure.Goal != second.Proven || s.Proven != second.Proven || s.Done != 2 {
		f.Errorf("rolled back is %+v", s)
	}
	f.says("Rolled back", "rollout", "status", "nodeconfig/limits", "-n", environment)
	f.says("failed TK0750", "rollout", "history", "nodeconfig/limits", "-n", environment)
	f.says("RolledBack", "events", "-n", environment)
	f.Tako("delete", "nodeconfig/limits", "-n", environment)
}
