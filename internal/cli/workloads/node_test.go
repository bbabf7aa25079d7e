package workloads

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/fleet"
)

// TestOnNode: of the instances of a node those are told that are to leave, with what their workloads say, and those that do not work.
func TestOnNode(t *testing.T) {
	all := web().Instances
	leave := &v1alpha1.InstanceLeave{Code: "TK0754", Since: ago(time.Minute)}
	all[0].Status.Leave, all[1].Status.Leave = leave, leave
	all[2].Spec.Stop, all[2].Status.Leave = &v1alpha1.InstanceStop{Code: "TK0754", Since: metav1.NewTime(now)}, leave
	leaving := map[types.NamespacedName]v1alpha1.WorkloadCulprit{{Namespace: "prod", Name: "web-0"}: {Instance: "web-0", Code: "TK0760", Message: "none is on its way"}}
	var got []string
	for _, x := range onNode("n1", all, leaving) {
		got = append(got, line(&x))
	}
	want := []string{"1 Leaving TK0760: held by workload/web: none is on its way > tako why workload/web -n prod", "1 Leaving TK0754: within the disruption budget > tako why workload/web -n prod", "1 Terminating TK0754: asked to end >"}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !says(got[i], want[i]) {
			t.Errorf("says %q, want %q", got, want)
			break
		}
	}
	for range 20 {
		all = append(all, all[0])
	}
	list := onNode("n1", all, leaving)
	if last := list[len(list)-1]; len(list) != unwellMax+1 || last.What != "More" || !strings.Contains(last.Text, "13 more") || last.Weight != fleet.Waiting {
		t.Errorf("%d findings, the last is %+v", len(list), last)
	}
}
