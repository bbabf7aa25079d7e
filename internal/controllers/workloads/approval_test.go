package workloads

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

// TestApprovalIsAwaited: a step that is looked at goes on by itself; only when its pause is over and nobody has approved it has the rollout stalled.
func TestApprovalIsAwaited(t *testing.T) {
	for promotion, want := range map[declared.Promotion]bool{declared.AutomaticPromotion: false, declared.ManualPromotion: true} {
		r := newRig(t)
		r.join("n0", "n1")
		spec := web(3)
		spec.Rollout = declared.Rollout{Strategy: declared.Canary, Steps: []declared.CanaryStep{{Replicas: "1", Pause: "10m", Promotion: promotion}}}
		r.declare("web", spec)
		r.is("web", "Complete")
		r.declare("web", version(spec, "2"))
		stalled := func() bool {
			return meta.IsStatusConditionTrue(r.workload("web").Status.Conditions, v1alpha1.ConditionStalled)
		}
		r.pass(5 * time.Minute)
		if o := r.workload("web"); o.Status.Phase != "Waiting" || stalled() {
			t.Errorf("%s: while its pause lasts it is %s, stalled %v", promotion, o.Status.Phase, stalled())
		}
		r.pass(10 * time.Minute)
		if stalled() != want {
			t.Errorf("%s: when its pause is over it is %s, stalled %v", promotion, r.workload("web").Status.Phase, stalled())
		}
	}
}
