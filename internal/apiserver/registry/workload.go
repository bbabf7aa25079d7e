package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare/workload"
)

func workloads() *Kind {
	k := of[v1alpha1.Workload, v1alpha1.WorkloadList](v1alpha1.SchemeGroupVersion, v1alpha1.KindWorkload,
		Names{Plural: v1alpha1.ResourceWorkloads, Short: []string{"wl"}, Categories: []string{category}})
	k.Namespaced, k.HasStatus = true, true
	k.Columns = workloadColumns(func(o runtime.Object) *v1alpha1.Workload { return o.(*v1alpha1.Workload) })
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		before, _ := old.(*v1alpha1.Workload)
		return fieldErrors(v1alpha1.ValidateWorkload(obj.(*v1alpha1.Workload), before))
	}
	// What is wrong with a name, package workload says with all else that is wrong.
	k.ValidName = func(string, bool) []string { return nil }
	return k
}

func workloadColumns(workload func(runtime.Object) *v1alpha1.Workload) []Column {
	return []Column{
		{Name: "Mode", Type: "string", Description: "how the number of instances follows", Value: func(o runtime.Object) any { return string(workload(o).Spec.ModeOrDefault()) }},
		{Name: "Ready", Type: "string", Description: "instances that are ready, of those that are wanted", Value: func(o runtime.Object) any {
			s := &workload(o).Status
			return fmt.Sprintf("%d/%d", s.ReadyReplicas, s.Wanted)
		}},
		{Name: "Up-to-date", Type: "integer", Description: "instances that have the revision which they are to have", Value: func(o runtime.Object) any { return workload(o).Status.UpdatedReplicas }},
		{Name: "Available", Type: "integer", Description: "instances that have been ready for long enough", Value: func(o runtime.Object) any { return workload(o).Status.AvailableReplicas }},
		{Name: "Phase", Type: "string", Description: "how it stands", Value: func(o runtime.Object) any { return phaseText(workload(o)) }},
		{Name: "Revision", Type: "string", Wide: true, Description: "name of the revision that instances are to have", Value: func(o runtime.Object) any {
			if r := workload(o).Status.Rollout; r != nil {
				return r.Goal
			}
			return ""
		}},
		{Name: "Completions", Type: "string", Wide: true, Description: "instances of a job that have ended well, of those that must", Value: func(o runtime.Object) any { return completionsText(workload(o)) }},
		{Name: "Message", Type: "string", Wide: true, Description: "why it is not as declared", Value: func(o runtime.Object) any { return workloadMessage(&workload(o).Status) }},
	}
}

// phaseText is how a workload stands, in a word or two: of a job what became of it, where that is known.
func phaseText(w *v1alpha1.Workload) string {
	s := &w.Status
	switch {
	case s.Job != nil && s.Job.Result != "":
		return s.Job.Result
	case w.Spec.Schedule != nil && w.Spec.Schedule.Suspend:
		return "Suspended"
	case w.Spec.Schedule != nil && s.Schedule != nil:
		return fmt.Sprintf("Scheduled, %d active", len(s.Schedule.Active))
	}
	return s.Phase
}

// completionsText is how many instances of a job have ended well, of those that must.
func completionsText(w *v1alpha1.Workload) string {
	if w.Spec.ModeOrDefault() != workload.RunToCompletion || w.Spec.Schedule != nil {
		return ""
	}
	var succeeded int32
	if w.Status.Job != nil {
		succeeded = w.Status.Job.Succeeded
	}
	return fmt.Sprintf("%d/%d", succeeded, w.Spec.Job.CompletionsOrDefault())
}

// workloadMessage says why a workload is not as declared: what its rollout waits for, why instances have no node, or what Ready says.
func workloadMessage(s *v1alpha1.WorkloadStatus) string {
	if s.Message != "" {
		return s.Message
	}
	if s.Pending != nil && s.Pending.Message != "" {
		return s.Pending.Message
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}
