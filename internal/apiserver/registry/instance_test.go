package registry

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

// placed is an instance as the server makes one.
func placed(slot int32, node string) *v1alpha1.Instance {
	yes := true
	return &v1alpha1.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("web", slot), Namespace: "qa", Labels: map[string]string{v1alpha1.LabelWorkload: "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: declare.APIVersion, Kind: v1alpha1.KindWorkload, Name: "web", UID: "1", Controller: &yes}}},
		Spec: v1alpha1.InstanceSpec{Workload: "web", Revision: "web-a", Slot: slot, Node: node, NodeUID: "u"},
	}
}

// testInstances: only the server writes them, small; what is heard of them is in each answer, and in nothing that is stored.
func testInstances(t *testing.T, objects *Registry) {
	l := NewLocal(objects, gate{})
	heard := &live{instances: func(i *v1alpha1.Instance) {
		i.Status.Phase, i.Status.Ready = v1alpha1.InstanceRunning, true
	}}
	s := instanceStore{derivedStore{objects.Store(v1alpha1.Resource(v1alpha1.ResourceInstances)), errInstance}, heard}
	if _, err := s.Create(qa(t), placed(7, "n1"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "change the Workload") {
		t.Errorf("somebody else makes one: %v", err)
	}
	for slot, node := range []string{"n1", "n2", "n1"} {
		if err := l.Create(t.Context(), placed(int32(slot), node)); err != nil {
			t.Fatal(err)
		}
	}
	shown := func(what string, o runtime.Object, want bool) {
		t.Helper()
		if i, ok := o.(*v1alpha1.Instance); !ok || i.Status.Ready != want || (i.Status.Phase == v1alpha1.InstanceRunning) != want {
			t.Errorf("%s: %T %+v, want it shown: %v", what, o, o, want)
		}
	}
	o, err := s.Get(qa(t), "web-1", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shown("one", o, true)
	w, err := s.Watch(qa(t), &metainternal.ListOptions{ResourceVersion: metadata(o).GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	list, err := s.List(qa(t), &metainternal.ListOptions{FieldSelector: fields.ParseSelectorOrDie("spec.node=n1,spec.workload=web")})
	if err != nil {
		t.Fatal(err)
	}
	items := list.(*v1alpha1.InstanceList).Items
	if len(items) != 2 || items[0].Name != "web-0" || items[1].Name != "web-2" {
		t.Errorf("of n1: %+v", items)
	}
	for i := range items {
		shown("one of a list", &items[i], true)
	}
	kept := &v1alpha1.Instance{}
	if err := l.Get(t.Context(), types.NamespacedName{Namespace: "qa", Name: "web-1"}, kept); err != nil {
		t.Fatal(err)
	}
	shown("what the server's controllers read", kept, false)
	if len(kept.ManagedFields) > 0 {
		t.Errorf("who owns its fields is stored: %+v", kept.ManagedFields)
	}
	kept.Spec.Stop = &v1alpha1.InstanceStop{Code: "TK0757"}
	if err := l.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	kept.Status.Losses = 2
	if err := l.UpdateStatus(t.Context(), kept); err != nil || kept.Status.Losses != 2 || kept.Spec.Stop == nil {
		t.Errorf("its status: %+v, %v", kept, err)
	}
	// web-2 was made after the version that the watch began at.
	if e := next(t, w); e.Type != watch.Added || metadata(e.Object).GetName() != "web-2" {
		t.Errorf("an event: %+v", e)
	}
	e := next(t, w)
	shown("an event", e.Object, true)
	if i := e.Object.(*v1alpha1.Instance); i.Spec.Stop == nil {
		t.Errorf("the event is about %+v", i)
	}
	kept.Spec.Node = "n3"
	if err := l.Update(t.Context(), kept); !apierrors.IsInvalid(err) {
		t.Errorf("moved: %v", err)
	}
	if err := l.Delete(t.Context(), kept, nil); err != nil {
		t.Error(err)
	}
	s.live = &live{}
	if o, err = s.Get(qa(t), "web-0", &metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	shown("where nothing is heard", o, false)
}
