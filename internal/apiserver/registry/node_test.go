package registry

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

// TestTaintedSince: a taint that instances leave has the time at which it came, as long as it stays.
func TestTaintedSince(t *testing.T) {
	first := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	second := metav1.NewTime(first.Add(time.Hour))
	n := &v1alpha1.Node{}
	taints := func(now metav1.Time, all ...declare.Taint) []v1alpha1.NodeTaint {
		n.Spec.Taints = all
		n.Status.Taints = taintedSince(n, now)
		return n.Status.Taints
	}
	broken := declare.Taint{Key: "disk", Value: "broken", Effect: declare.TaintNoExecute}
	slow := declare.Taint{Key: "disk", Value: "slow", Effect: declare.TaintNoExecute}
	full := declare.Taint{Key: "full", Effect: declare.TaintNoSchedule}
	for i, step := range []struct{ got, want []v1alpha1.NodeTaint }{
		{taints(first, broken, full), []v1alpha1.NodeTaint{{Key: "disk", Value: "broken", Since: first}}},
		{taints(second, broken), []v1alpha1.NodeTaint{{Key: "disk", Value: "broken", Since: first}}},
		{taints(second, slow), []v1alpha1.NodeTaint{{Key: "disk", Value: "slow", Since: second}}},
		{taints(second), nil},
	} {
		if !reflect.DeepEqual(step.got, step.want) {
			t.Errorf("step %d: %+v, want %+v", i, step.got, step.want)
		}
	}
}
