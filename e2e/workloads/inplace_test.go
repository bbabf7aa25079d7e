//go:build e2e

package workloads

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestInPlace: a change that no process would notice restarts none, and one that makes nothing ready any more goes back the same way.
func TestInPlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	const spec = "  replicas: 2\n  rollout: {progressDeadline: 10m, monitor: 3s}\n  disruptionBudget: {maxUnavailable: '0'}"
	first := f.web("v1", spec)
	f.Apply(first)
	f.until("complete", complete(2))
	before := f.answers("web")
	stable := f.workload("web").Status.Stable

	f.Apply(strings.NewReplacer("{app: web}", "{app: web, tier: front}", "period: 100ms", "period: 200ms", "terminationGrace: 20s", "terminationGrace: 15s").Replace(first))
	w := f.until("complete with the new revision", complete(2))
	changed := w.Status.Rollout.Target
	if after := f.answers("web"); !maps.Equal(before, after) || changed == stable || w.Status.Stable != changed {
		t.Errorf("%s: %v\n%s: %v", stable, before, changed, after)
	}
	for _, in := range f.instances("web") {
		if in.Spec.Revision != changed || in.Status.Revision != changed || in.Status.Restarts > 0 {
			t.Errorf("instance: %s", shown(in))
		}
	}
	if out := f.Tako("rollout", "history", "workload/web", "-n", environment); !strings.Contains(out, changed) || !strings.Contains(out, stable) {
		t.Errorf("history:\n%s", out)
	}

	// The web server has no certificate: the new probe never says yes.
	f.Apply(strings.NewReplacer("path: /ready}, period: 100ms", "path: /ready, scheme: https}, period: 100ms, failureThreshold: 1", "progressDeadline: 10m", "progressDeadline: 20s").Replace(first))
	w = f.until("rolled back", func(w *v1alpha1.Workload) bool {
		return w.Status.Phase == "RolledBack" && w.Status.AvailableReplicas == 2
	})
	if w.Status.Rollout.Goal != changed || len(w.Status.Failed) != 1 {
		t.Errorf("rolled back to %s, failed %+v", w.Status.Rollout.Goal, w.Status.Failed)
	}
	if after := f.answers("web"); !maps.Equal(before, after) {
		t.Errorf("before: %v\nafter: %v", before, after)
	}
	for _, name := range slices.Sorted(maps.Keys(f.hosts)) {
		f.hosts[name].Kill()
		f.hosts[name].Start()
	}
	f.until("as it was", func(w *v1alpha1.Workload) bool { return w.Status.AvailableReplicas == 2 })
	if after := f.answers("web"); !maps.Equal(before, after) {
		t.Errorf("before: %v\nafter the agents began again: %v", before, after)
	}
	f.lostInTheMiddle(strings.Replace(first, "terminationGrace: 20s", "terminationGrace: 14s", 1), stable)
	f.Apply(f.web("v2", spec))
	f.until("complete with another process", complete(2))
	for name, a := range f.answers("web") {
		if a.version != "v2" {
			t.Errorf("%s answers %+v", name, a)
		}
	}
	f.end("web")
}

// lostInTheMiddle: what is on a host that is away does not count as updated before the host has said so.
func (f *fleet) lostInTheMiddle(changed string, stable string) {
	f.Helper()
	lost := f.instances("web")[0].Spec.Node
	f.hosts[lost].Kill()
	there := int32(0)
	for _, in := range f.instances("web") {
		if in.Spec.Node != lost {
			there++
		}
	}
	f.Apply(changed)
	w := f.until("updated where it is heard", func(w *v1alpha1.Workload) bool {
		return w.Status.Rollout.Target != stable && w.Status.UpdatedReplicas == there && w.Status.Replicas == 2
	})
	for _, in := range f.instances("web") {
		if away := in.Spec.Node == lost; in.Spec.Revision != w.Status.Rollout.Target || (in.Status.Revision != in.Spec.Revision) != away {
			f.Errorf("instance on %s, while %s is away: %s", in.Spec.Node, lost, shown(in))
		}
	}
	if w.Status.Phase == "Complete" {
		f.Errorf("complete, and %s is away: %+v", lost, w.Status)
	}
	f.hosts[lost].Start()
	f.until("complete when it is back", complete(2))
}
