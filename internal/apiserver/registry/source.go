package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tako.dev/tako/api/v1alpha1"
)

// shortCommit is as many digits of a commit as people look at.
const shortCommit = 8

func sources() *Kind {
	k := of[v1alpha1.Source, v1alpha1.SourceList](v1alpha1.SchemeGroupVersion, v1alpha1.KindSource,
		Names{Plural: v1alpha1.ResourceSources, Short: []string{"src"}, Categories: []string{category}})
	k.Namespaced = true
	k.HasStatus, k.SealedStatus = true, true
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		before, _ := old.(*v1alpha1.Source)
		return fieldErrors(v1alpha1.ValidateSource(obj.(*v1alpha1.Source), before, time.Now()))
	}
	k.Default = func(o runtime.Object) { holdUntilRemoved(o.(*v1alpha1.Source)) }
	source := func(o runtime.Object) *v1alpha1.Source { return o.(*v1alpha1.Source) }
	k.Columns = []Column{
		{Name: "Applied", Type: "string", Description: "commit that is applied whole", Value: func(o runtime.Object) any { return commitText(source(o).Status.Applied) }},
		{Name: "Seen", Type: "string", Description: "newest commit", Value: func(o runtime.Object) any { return commitText(source(o).Status.Seen) }},
		{Name: "Objects", Type: "integer", Description: "objects that the applied commit declares", Value: func(o runtime.Object) any { return source(o).Status.Objects }},
		{Name: "Hosts", Type: "string", Description: "hosts that are as it declares, of those that it is for", Value: func(o runtime.Object) any {
			if h := source(o).Status.Hosts; h != nil {
				return fmt.Sprintf("%d/%d", h.Converged, h.Selected)
			}
			return ""
		}},
		{Name: "Ready", Type: "string", Description: "whether what is committed is applied", Value: func(o runtime.Object) any {
			return conditionStatus(source(o).Status.Conditions, v1alpha1.ConditionReady)
		}},
		{Name: "Changed", Type: "string", Description: "how long the applied commit is applied", Value: func(o runtime.Object) any {
			if a := source(o).Status.Applied; a != nil {
				return since(a.Since)
			}
			return ""
		}},
		{Name: "Message", Type: "string", Wide: true, Description: "why it is not", Value: func(o runtime.Object) any {
			if c := meta.FindStatusCondition(source(o).Status.Conditions, v1alpha1.ConditionReady); c != nil {
				return c.Message
			}
			return ""
		}},
		{Name: "URL", Type: "string", Wide: true, Description: "where the repository is", Value: func(o runtime.Object) any { return source(o).Spec.URL }},
	}
	return k
}

// holdUntilRemoved gives a source whose objects go with it the finalizer that keeps it until they are gone, and takes it from any other one.
// It is on the first version that says so, so that no deletion can come before it.
func holdUntilRemoved(s *v1alpha1.Source) {
	has := slices.Contains(s.Finalizers, v1alpha1.SourceFinalizer)
	switch wanted := s.Spec.OnRemove == v1alpha1.SourceRemovalDelete; {
	case has && !wanted:
		s.Finalizers = slices.DeleteFunc(slices.Clone(s.Finalizers), func(f string) bool { return f == v1alpha1.SourceFinalizer })
	case wanted && !has && s.DeletionTimestamp == nil: // once it is deleted, its loop takes the finalizer away
		s.Finalizers = append(slices.Clone(s.Finalizers), v1alpha1.SourceFinalizer)
	}
}

// commitText is a commit as people name it: the ref, and the first digits.
func commitText(c *v1alpha1.SourceCommit) string {
	if c == nil {
		return ""
	}
	id := c.ID[:min(len(c.ID), shortCommit)]
	if c.Ref == "" {
		return id
	}
	return c.Ref + "@" + id
}
