package fleet

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/present"
)

// TestPageOfWorkloads: the page counts workloads where there are any, and says which need attention; a count that comes or changes is news.
func TestPageOfWorkloads(t *testing.T) {
	declared := func(name, condition string, observed int64) v1alpha1.Workload {
		w := v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
		w.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, ObservedGeneration: observed}}
		return w
	}
	f := &Fleet{}
	before := f.Status(nil)
	if text := before.Text(now, present.Style{}); strings.Contains(text, "Workloads") {
		t.Errorf("there are none:\n%s", text)
	}
	f.Workloads = []v1alpha1.Workload{declared("a", v1alpha1.ConditionReady, 2), declared("b", v1alpha1.ConditionReady, 1), declared("c", v1alpha1.ConditionStalled, 2), {}}
	s := f.Status(func(w *v1alpha1.Workload) []Finding {
		if w.Name != "c" {
			return []Finding{{Weight: Note, Subject: "workload/" + w.Name, What: "Paused"}}
		}
		return []Finding{{Weight: Broken, Subject: "workload/c", What: "Halted", Text: "it does not go on"}}
	})
	text := s.Text(now, present.Style{})
	if !strings.Contains(text, "Workloads  4 · 1 ready · 2 on the way · 1 stalled\n") || !strings.Contains(text, "Halted") || strings.Contains(text, "Paused") || s.Healthy() {
		t.Errorf("the page:\n%s", text)
	}
	if news := s.Changes(before, now, present.Style{}); !strings.Contains(news, "Workloads  4") || !strings.Contains(news, "Halted") || strings.Contains(news, "Nodes") {
		t.Errorf("the news:\n%s", news)
	}
}
