package controllers_test

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner refers to an object as its owner; it blocks the deletion of it.
func owner(o client.Object, apiVersion, kind string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: &yes}
}

// configMap makes a ConfigMap that ConfigMaps own.
func (r *rig) configMap(namespace, name string, owners ...*core.ConfigMap) *core.ConfigMap {
	r.Helper()
	o := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, by := range owners {
		o.OwnerReferences = append(o.OwnerReferences, owner(by, "v1", "ConfigMap"))
	}
	r.must(r.Create(r.Context(), o))
	return o
}

func TestBackgroundDeletionReachesGrandchildren(t *testing.T) {
	r := newRig(t)
	top := r.configMap(r.namespace, "top")
	other := r.configMap(r.namespace, "other")
	child := r.configMap(r.namespace, "child", top)
	grandchild := r.configMap(r.namespace, "grandchild", child)
	shared := r.configMap(r.namespace, "shared", top, other)
	r.must(r.Delete(r.Context(), top, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	r.gone(child)
	r.gone(grandchild)
	r.eventually("shared loses the owner that is gone", func() string {
		var got core.ConfigMap
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(shared), &got))
		if len(got.OwnerReferences) == 1 && got.OwnerReferences[0].UID == other.UID {
			return ""
		}
		return "it has " + got.OwnerReferences[0].Name
	})
	r.stays(shared)
	r.stays(other)
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	r := newRig(t)
	top := r.configMap(r.namespace, "top")
	child := r.configMap(r.namespace, "child", top)
	grandchild := r.configMap(r.namespace, "grandchild", child)
	r.must(r.Patch(r.Context(), grandchild, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/busy"]}}`))))
	r.must(r.Delete(r.Context(), top, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	r.eventually("grandchild is deleted", func() string {
		var got core.ConfigMap
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(grandchild), &got))
		if got.DeletionTimestamp == nil {
			return "it is not"
		}
		return ""
	})
	for _, waits := range []*core.ConfigMap{top, child} {
		var got core.ConfigMap
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(waits), &got))
		if got.DeletionTimestamp == nil {
			t.Errorf("%s does not wait: %+v", waits.Name, got.ObjectMeta)
		}
	}
	r.must(r.Patch(r.Context(), grandchild, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	r.gone(grandchild)
	r.gone(child)
	r.gone(top)
}

func TestOrphansStay(t *testing.T) {
	r := newRig(t)
	top := r.configMap(r.namespace, "top")
	child := r.configMap(r.namespace, "child", top)
	grandchild := r.configMap(r.namespace, "grandchild", child)
	r.must(r.Delete(r.Context(), top, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	r.gone(top)
	r.stays(child)
	r.stays(grandchild)
	var got core.ConfigMap
	r.must(r.Get(r.Context(), client.ObjectKeyFromObject(child), &got))
	if len(got.OwnerReferences) > 0 {
		t.Errorf("child is still owned by %+v", got.OwnerReferences)
	}
}

// A reference to an owner in another namespace is told in an Event, and deletes nothing. An owner that never was does.
func TestOwnerInAnotherNamespace(t *testing.T) {
	r := newRig(t)
	elsewhere := r.newNamespace()
	top := r.configMap(elsewhere, "top")
	child := r.configMap(r.namespace, "child", top)
	ghost := top.DeepCopy()
	ghost.UID = "00000000-0000-0000-0000-000000000000"
	lost := r.configMap(elsewhere, "lost", ghost)
	r.eventually("the mistake is told", func() string {
		var list core.EventList
		r.must(r.List(r.Context(), &list, client.InNamespace(r.namespace)))
		for _, e := range list.Items {
			if e.InvolvedObject.UID == child.UID && e.Reason == "OwnerRefInvalid" && e.Type == core.EventTypeWarning {
				return ""
			}
		}
		return "no event of it"
	})
	r.gone(lost)
	r.stays(child)
	r.stays(top)
}

// Kinds that come later are collected too, and hold up nothing when they go.
func TestKindsOfOthersAreCollected(t *testing.T) {
	r := newRig(t)
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Cluster", "names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	r.must(r.Create(r.Context(), definition))
	made := func(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gadget)
		o.SetName(name)
		o.SetOwnerReferences(owners)
		r.eventually("a gadget can be made", func() string {
			if err := r.Create(r.Context(), o); err != nil {
				return err.Error()
			}
			return ""
		})
		return o
	}
	top := made("top")
	child := made("child", owner(top, "example.com/v1", "Gadget"))
	settings := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "settings", OwnerReferences: []metav1.OwnerReference{owner(top, "example.com/v1", "Gadget")}}}
	r.must(r.Create(r.Context(), settings))
	r.must(r.Delete(r.Context(), top, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	r.gone(child)
	r.gone(settings)
	r.gone(top)
	r.must(r.Delete(r.Context(), definition))
	r.gone(definition)
	after := r.configMap(r.namespace, "after")
	afterChild := r.configMap(r.namespace, "after-child", after)
	r.must(r.Delete(r.Context(), after, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	r.gone(afterChild)
	r.gone(after)
	r.counted("tako_controller_gc_decisions_total")
}
