package v1alpha1

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// PlannedMax is how many workloads a Plan is about at most: an answer takes seconds where each has some thousand instances.
const PlannedMax = 200

// ValidatePlan returns every mistake of a Plan. before is the workload of a name as it is; nil: there is none. What is wrong with a workload is said as
// where it is applied, with the path in the Plan.
func ValidatePlan(p *Plan, before func(name string) *Workload) []declare.Fault {
	var v validator
	s := &p.Spec
	switch n := len(s.Workloads) + len(s.Delete); {
	case n == 0:
		v.fault("spec.workloads", reason.MissingField, "nothing is planned", "name what would be applied, or deleted")
	case n > PlannedMax:
		v.fault("spec.workloads", reason.TooManyResources, fmt.Sprintf("%d workloads are planned, and %d can be at once", n, PlannedMax), "plan fewer at a time")
		return v.faults
	}
	named := map[string]string{}
	once := func(path, name string) {
		if first, twice := named[name]; twice {
			v.fault(path, reason.DuplicateName, fmt.Sprintf("workload %q stands in %s too", clip(name), first), "name each once")
			return
		}
		named[name] = path
	}
	for i := range s.Workloads {
		w, at := &s.Workloads[i], fmt.Sprintf("spec.workloads[%d]", i)
		once(at+".name", w.Name)
		o := &Workload{ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: p.Namespace, Annotations: w.Annotations}, Spec: w.Spec}
		for _, f := range ValidateWorkload(o, before(w.Name)) {
			f.Path = at + "." + strings.TrimPrefix(f.Path, "metadata.")
			v.faults = append(v.faults, f)
		}
	}
	for i, name := range s.Delete {
		at := fmt.Sprintf("spec.delete[%d]", i)
		if once(at, name); name == "" {
			v.fault(at, reason.MissingField, "a name is empty", "name the workload that would be deleted")
		}
	}
	return v.faults
}
