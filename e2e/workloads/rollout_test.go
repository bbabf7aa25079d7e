//go:build e2e

package workloads

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
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
