package await

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
)

// Handled is the goal of a Source that it has done what a request asked for: it has looked, and what it found is applied.
func Handled(request string) Goal { return Goal{text: "what is committed", request: request} }

func sourceOf(object *unstructured.Unstructured) (*v1alpha1.Source, error) {
	var s v1alpha1.Source
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &s)
	return &s, err
}

// lookHandled judges a Source that was asked to look. What it says of before is no answer.
func (g Goal) lookHandled(object *unstructured.Unstructured) Verdict {
	s, err := sourceOf(object)
	switch {
	case err != nil:
		return Verdict{Pending, err.Error()}
	case s.Status.HandledRequest != g.request:
		return Verdict{Pending, "it has not looked yet"}
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return Verdict{Pending, "it says nothing about what it has found yet"}
	case c.Status == metav1.ConditionTrue:
		return Verdict{Reached, c.Message}
	case meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReconciling):
		return Verdict{Pending, c.Message}
	}
	return Verdict{Stalled, c.Message}
}

// lookSource judges whether all that is committed is applied, and the hosts are as it declares.
func lookSource(object *unstructured.Unstructured) Verdict {
	s, err := sourceOf(object)
	if err != nil {
		return Verdict{Pending, err.Error()}
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	applied, seen, hosts := s.Status.Applied, s.Status.Seen, s.Status.Hosts
	switch {
	case c == nil || s.Status.ObservedGeneration < s.Generation:
		return Verdict{Pending, fmt.Sprintf("nobody has looked at generation %d yet", s.Generation)}
	case meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled):
		return Verdict{Stalled, c.Message}
	case c.Status != metav1.ConditionTrue:
		return Verdict{Pending, c.Message}
	case applied == nil || seen == nil || applied.ID != seen.ID:
		return Verdict{Pending, "the newest commit is not applied yet"}
	case hosts != nil && hosts.Commit != applied.ID:
		return Verdict{Pending, "its hosts are not counted for the applied commit yet"}
	case hosts != nil && hosts.Converged < hosts.Selected:
		return Verdict{Pending, fmt.Sprintf("%d of %d hosts are as it declares", hosts.Converged, hosts.Selected)}
	}
	return Verdict{Reached, c.Message}
}

// Well judges an object for whoever has applied it: it is well when its condition Ready is True for what it declares. A kind that has no
// such condition is well when it is there, but for ours, which get theirs in a moment, and definitions of kinds.
func Well(o *unstructured.Unstructured) Verdict {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	has := func(kind string) bool {
		return slices.ContainsFunc(conditions, func(c any) bool {
			m, ok := c.(map[string]any)
			return ok && m["type"] == kind
		})
	}
	group, kind := o.GroupVersionKind().Group, o.GetKind()
	ours := group == v1alpha1.GroupName && slices.Contains([]string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig, v1alpha1.KindSource, v1alpha1.KindWorkload}, kind)
	goal := "condition=" + v1alpha1.ConditionReady
	switch {
	case kind == "CustomResourceDefinition":
		goal = "condition=Established"
	case !ours && !has(v1alpha1.ConditionReady) && !has(v1alpha1.ConditionStalled):
		goal = "create"
	}
	g, err := Parse(goal)
	if err != nil {
		return Verdict{State: Stalled, Words: err.Error()} // it is a goal
	}
	return g.Look(o)
}
