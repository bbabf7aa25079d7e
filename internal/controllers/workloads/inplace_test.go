package workloads

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

// TestInPlace: what restarts nothing is written into the instances that there are, and nothing is started or ended for it.
func TestInPlace(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(3)
	spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "0"}
	r.declare("web", spec)
	r.is("web", "Complete")
	uids := func() (all []types.UID) {
		for _, in := range r.instances("web") {
			all = append(all, in.UID)
		}
		return all
	}
	before, first := uids(), r.workload("web").Status.Rollout.Target
	changed := spec
	changed.Template = *spec.Template.DeepCopy()
	changed.Template.Labels = map[string]string{"app": "web"}
	changed.Template.TerminationGrace = "1m"
	changed.Template.Restart.Backoff = "2s"
	changed.Template.Tasks[0].Readiness = &declared.Probe{Exec: &declared.ExecProbe{Command: []string{"/bin/true"}}, Period: "3s"}
	for _, c := range []struct {
		spec  declared.Spec
		other bool // than the first revision
	}{{changed, true}, {spec, false}} {
		r.declare("web", c.spec)
		r.settle()
		r.is("web", "Complete")
		o := r.workload("web")
		if after := uids(); !slices.Equal(before, after) || (o.Status.Rollout.Target != first) != c.other || o.Status.UpdatedReplicas != 3 {
			t.Errorf("%v became %v, with %s", before, after, o.Status.Rollout.Target)
		}
		for _, in := range r.instances("web") {
			if in.Spec.Revision != o.Status.Rollout.Target || in.Spec.Stop != nil {
				t.Errorf("%s is %+v", in.Name, in.Spec)
			}
		}
	}
	lost := r.instances("web")[0].Spec.Node
	r.cut(lost)
	r.declare("web", changed)
	r.settle()
	mine := 0
	for _, in := range r.instances("web") {
		shown := in.DeepCopy()
		r.c.Describe(shown)
		if away := in.Spec.Node == lost; in.Spec.Revision == first || (shown.Status.Revision == first) != away {
			t.Errorf("%s on %s is to have %s, and its host has taken in %s", in.Name, in.Spec.Node, in.Spec.Revision, shown.Status.Revision)
		} else if away {
			mine++
		}
	}
	if o := r.workload("web"); o.Status.Phase == "Complete" || o.Status.UpdatedReplicas != int32(3-mine) {
		t.Errorf("%s with %d of 3 while a host is lost that has %d: %s", o.Status.Phase, o.Status.UpdatedReplicas, mine, o.Status.Message)
	}
	r.link(lost)
	if o := r.is("web", "Complete"); o.Status.UpdatedReplicas != 3 || !slices.Equal(before, uids()) {
		t.Errorf("%+v", o.Status)
	}
	r.declare("web", version(spec, "2"))
	r.is("web", "Complete")
	if after := uids(); slices.ContainsFunc(after, func(uid types.UID) bool { return slices.Contains(before, uid) }) {
		t.Errorf("with other arguments %v are still there of %v", after, before)
	}
	r.pass(time.Minute)
	if of := r.w.workloads[types.NamespacedName{Namespace: "prod", Name: "web"}]; len(of.alike) > len(of.revisions) {
		t.Errorf("%d revisions, and something is known of %d", len(of.revisions), len(of.alike))
	}
	if n := len(all[*v1alpha1.Revision](r.store)); n != 3 {
		t.Errorf("%d revisions", n)
	}
}
