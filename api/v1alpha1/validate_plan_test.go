package v1alpha1

import (
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// TestValidatePlan: what is wrong with a workload is said where it stands, and each is named once.
func TestValidatePlan(t *testing.T) {
	replicas := int32(-1)
	good := workload.Spec{Template: workload.Template{Tasks: []workload.Task{{Name: "a", Command: []string{"/bin/a"}}}}}
	bad := *good.DeepCopy()
	bad.Replicas = &replicas
	for _, c := range []struct {
		what string
		spec PlanSpec
		want []string // CODE PATH
	}{
		{"good", PlanSpec{Workloads: []PlannedWorkload{{Name: "a", Spec: good}}, Delete: []string{"b"}}, nil},
		{"nothing", PlanSpec{}, []string{"TK0413 spec.workloads"}},
		{"a mistake", PlanSpec{Workloads: []PlannedWorkload{{Name: "a", Spec: good}, {Name: "b", Spec: bad}}}, []string{"TK0414 spec.workloads[1].spec.replicas"}},
		{"no name", PlanSpec{Workloads: []PlannedWorkload{{Spec: good}}, Delete: []string{""}}, []string{"TK0413 spec.delete[0]", "TK0413 spec.workloads[0].name", "TK0420 spec.delete[0]"}},
		{"an approval of nothing", PlanSpec{Workloads: []PlannedWorkload{{Name: "a", Spec: good, Annotations: map[string]string{AnnotationApproved: "x"}}}},
			[]string{"TK0414 spec.workloads[0].annotations['tako.dev/approved']"}},
		{"twice", PlanSpec{Workloads: []PlannedWorkload{{Name: "a", Spec: good}, {Name: "a", Spec: good}}, Delete: []string{"a"}}, []string{"TK0420 spec.delete[0]", "TK0420 spec.workloads[1].name"}},
		{"too many", PlanSpec{Delete: slices.Repeat([]string{"a"}, PlannedMax+1)}, []string{reason.TooManyResources.String() + " spec.workloads"}},
	} {
		p := &Plan{Spec: c.spec}
		p.Namespace = "default"
		var got []string
		for _, f := range ValidatePlan(p, func(string) *Workload { return nil }) {
			got = append(got, f.Code.String()+" "+f.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %s, want %s", c.what, strings.Join(got, ", "), strings.Join(c.want, ", "))
		}
	}
}
