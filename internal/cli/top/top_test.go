package top

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/present"
)

var now = time.Date(2026, 3, 4, 15, 0, 0, 0, time.UTC)

// instance is one that requests 500m and 100Mi, and uses what is said; cpu "" is not measured.
func instance(namespace, name, node, cpu, memory string, ago time.Duration) v1alpha1.Instance {
	workload, _, _ := strings.Cut(name, "-")
	in := v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.InstanceSpec{Workload: workload, Node: node}}
	in.Status.Phase = v1alpha1.InstanceRunning
	in.Status.Requests = map[v1alpha1.CapacityName]resource.Quantity{v1alpha1.CapacityCPU: resource.MustParse("500m"), v1alpha1.CapacityMemory: resource.MustParse("100Mi")}
	if memory != "" {
		in.Status.Usage = &v1alpha1.InstanceUsage{At: metav1.NewTime(now.Add(-ago)), Memory: resource.MustParse(memory)}
	}
	if cpu != "" {
		q := resource.MustParse(cpu)
		in.Status.Usage.CPU = &q
	}
	return in
}

func some() ([]v1alpha1.Instance, []v1alpha1.Node) {
	over := instance("prod", "web-9", "n1", "9", "1Gi", 0)
	over.Status.Phase = v1alpha1.InstanceFailed
	n1, n2, n3 := v1alpha1.Node{}, v1alpha1.Node{}, v1alpha1.Node{}
	n1.Name, n2.Name, n3.Name = "n1", "n2", "n3"
	offers := v1alpha1.NodeOffers{Allocatable: map[v1alpha1.CapacityName]resource.Quantity{v1alpha1.CapacityCPU: resource.MustParse("4"), v1alpha1.CapacityMemory: resource.MustParse("8Gi")}}
	n1.Status.Offers, n2.Status.Offers = &offers, &offers
	return []v1alpha1.Instance{
		instance("prod", "web-0", "n1", "250m", "50Mi", 4*time.Second), instance("prod", "web-1", "n2", "500m", "20Mi", 20*time.Second), instance("prod", "web-2", "n2", "", "", 0),
		instance("prod", "db-0", "n1", "10m", "300Mi", time.Second), instance("qa", "web-0", "n1", "", "70Mi", 0), over,
	}, []v1alpha1.Node{n1, n2, n3}
}

// TestTables: what is shown of instances, by workload and by node; what is not measured is in no percentage.
func TestTables(t *testing.T) {
	instances, nodes := some()
	for what, want := range map[string]string{
		ofInstances: `
NAMESPACE  INSTANCE  NODE  CPU   CPU%  CPU-REQUESTS  MEMORY  MEMORY%  MEMORY-REQUESTS  SEEN
prod       web-1     n2    500m  100%  500m          20Mi    20%      100Mi            20s
prod       web-0     n1    250m  50%   500m          50Mi    50%      100Mi            4s
prod       db-0      n1    10m   2%    500m          300Mi   300%     100Mi            1s
prod       web-2     n2    -     -     500m          -       -        100Mi            -
qa         web-0     n1    -     -     500m          -       -        100Mi            -
`, ofWorkloads: `
NAMESPACE  WORKLOAD  MEASURED  CPU   CPU%  CPU-REQUESTS  MEMORY  MEMORY%  MEMORY-REQUESTS  SEEN
prod       web       2/3       750m  75%   1500m         70Mi    35%      300Mi            20s
prod       db        1/1       10m   2%    500m          300Mi   300%     100Mi            1s
qa         web       0/1       -     -     500m          -       -        100Mi            -
`, ofNodes: `
NODE  MEASURED  CPU   CPU%  CPU-REQUESTS  CPU-OFFERED  MEMORY  MEMORY%  MEMORY-REQUESTS  MEMORY-OFFERED  SEEN
n2    1/2       500m  100%  1000m         4000m        20Mi    20%      200Mi            8192Mi          20s
n1    2/3       260m  26%   1500m         4000m        350Mi   175%     300Mi            8192Mi          4s
n3    0/0       -     -     0m            -            -       -        0Mi              -               -
`,
	} {
		with := nodes
		if what != ofNodes {
			with = nil
		}
		rows := rowsOf(what, instances, with)
		sortRows(rows, "cpu")
		var b strings.Builder
		if err := write(&b, what, rows, true, now, present.Style{}); err != nil {
			t.Fatal(err)
		}
		if b.String() != strings.TrimPrefix(want, "\n") {
			t.Errorf("%s are\n%s", what, b.String())
		}
	}
}

// TestSort: by what is used, and by name where that is the same.
func TestSort(t *testing.T) {
	instances, _ := some()
	for by, want := range map[string]string{"cpu": "web-1 web-0 db-0 web-2 web-0", "memory": "db-0 web-0 web-1 web-2 web-0", "name": "db-0 web-0 web-1 web-2 web-0"} {
		rows := rowsOf(ofInstances, instances, nil)
		sortRows(rows, by)
		var names []string
		for i := range rows {
			names = append(names, rows[i].Name)
		}
		if is := strings.Join(names, " "); is != want {
			t.Errorf("by %s they are %s, want %s", by, is, want)
		}
	}
}
