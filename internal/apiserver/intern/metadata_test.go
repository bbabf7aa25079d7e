package intern

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"tako.dev/tako/api/v1alpha1"
)

// owned is an instance with metadata of its own.
func owned(workload string, uid types.UID) *v1alpha1.Instance {
	yes, also := true, true
	return &v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"workload": workload, "tier": "front"}, Annotations: map[string]string{"note": workload},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Workload", Name: workload, UID: uid, Controller: &yes, BlockOwnerDeletion: &also}},
	}}
}

// shares reports whether two objects have their labels, annotations and owners at the same place.
func shares(a, b *v1alpha1.Instance) (labels, annotations, owners bool) {
	at := func(v any) uintptr { return reflect.ValueOf(v).Pointer() }
	return at(a.Labels) == at(b.Labels), at(a.Annotations) == at(b.Annotations), at(a.OwnerReferences) == at(b.OwnerReferences)
}

// TestMetadata: objects share what is equal, and nothing else.
func TestMetadata(t *testing.T) {
	var s Metadata
	first, second, other, anew := owned("web", "1"), owned("web", "1"), owned("api", "2"), owned("web", "3")
	for _, o := range []*v1alpha1.Instance{first, second, other, anew} {
		before := o.DeepCopy()
		s.Share(o)
		if !reflect.DeepEqual(o, before) {
			t.Fatalf("%+v, was %+v", o, before)
		}
	}
	if labels, annotations, owners := shares(first, second); !labels || !annotations || !owners {
		t.Error("two of one workload share", labels, annotations, owners)
	}
	if labels, annotations, owners := shares(first, other); labels || annotations || owners {
		t.Error("two workloads share", labels, annotations, owners)
	}
	if labels, annotations, owners := shares(first, anew); !labels || !annotations || owners {
		t.Error("two workloads of one name share", labels, annotations, owners)
	}
	if cap(first.OwnerReferences) != 1 {
		t.Error("who appends to the list of owners would write into that of others")
	}
}

// TestMetadataOwners: owners that differ in anything are not the same.
func TestMetadataOwners(t *testing.T) {
	no := false
	for name, change := range map[string]func(*metav1.OwnerReference){
		"kind":       func(r *metav1.OwnerReference) { r.Kind = "Job" },
		"version":    func(r *metav1.OwnerReference) { r.APIVersion = "v2" },
		"name":       func(r *metav1.OwnerReference) { r.Name = "api" },
		"controller": func(r *metav1.OwnerReference) { r.Controller = &no },
		"blocks":     func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = nil },
	} {
		var s Metadata
		a, b := owned("web", "1"), owned("web", "1")
		change(&b.OwnerReferences[0])
		s.Share(a)
		s.Share(b)
		if _, _, owners := shares(a, b); owners {
			t.Error(name)
		}
	}
}

// TestMetadataKept: what is long, or has no such fields, is not kept.
func TestMetadataKept(t *testing.T) {
	var s Metadata
	a, b := owned("web", "1"), owned("web", "1")
	for _, o := range []*v1alpha1.Instance{a, b} {
		o.Annotations["applied"] = strings.Repeat("x", longest+1)
		s.Share(o)
	}
	if _, annotations, _ := shares(a, b); annotations {
		t.Error("a long text is kept")
	}
	s.Share(&unstructured.Unstructured{Object: map[string]any{}})
	s.Share(&metav1.Status{})
	bare := &v1alpha1.Instance{}
	if s.Share(bare); !reflect.DeepEqual(bare, &v1alpha1.Instance{}) {
		t.Errorf("%+v", bare)
	}
}

// source is a storage that has a list, and tells what a test wants.
type source struct {
	storage.Interface
	list    []v1alpha1.Instance
	changes *watch.FakeWatcher
	err     error
}

func (s *source) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	list.(*v1alpha1.InstanceList).Items = s.list
	return s.err
}

func (s *source) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return s.changes, s.err
}

// timed is an object as etcd's watch tells a cache of it.
type timed struct{ runtime.Object }

func (o timed) GetObjectMeta() metav1.Object { return o.Object.(metav1.Object) }
func (o timed) Unwrap() runtime.Object       { return o.Object }
func (timed) RecordTime() time.Time          { return time.Time{} }

// TestBelow: what a cache lists, and what it is told later, shares its metadata; bookmarks and errors come as they are.
func TestBelow(t *testing.T) {
	from := &source{list: []v1alpha1.Instance{*owned("web", "1"), *owned("web", "1")}, changes: watch.NewFakeWithChanSize(4, false)}
	store := Below(from)
	list := &v1alpha1.InstanceList{}
	if err := store.GetList(t.Context(), "/", storage.ListOptions{}, list); err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(t.Context(), "/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	told, later, failed := owned("web", "1"), timed{owned("web", "1")}, &metav1.Status{}
	from.changes.Modify(told)
	from.changes.Modify(later)
	from.changes.Action(watch.Bookmark, owned("web", "1"))
	from.changes.Error(failed)
	if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object != told {
		t.Errorf("%+v", e)
	}
	if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object != later {
		t.Errorf("%+v", e)
	}
	for _, o := range []*v1alpha1.Instance{&list.Items[1], told, later.Object.(*v1alpha1.Instance)} {
		if labels, annotations, owners := shares(&list.Items[0], o); !labels || !annotations || !owners {
			t.Error(labels, annotations, owners)
		}
	}
	if e := <-w.ResultChan(); e.Type != watch.Bookmark || reflect.ValueOf(e.Object.(*v1alpha1.Instance).Labels).Pointer() == reflect.ValueOf(told.Labels).Pointer() {
		t.Errorf("%+v", e)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error || e.Object != failed {
		t.Errorf("%+v", e)
	}
}

// TestBelowFails: an error of the storage is the error.
func TestBelowFails(t *testing.T) {
	store := Below(&source{err: context.Canceled})
	if err := store.GetList(t.Context(), "/", storage.ListOptions{}, &v1alpha1.InstanceList{}); err != context.Canceled {
		t.Error(err)
	}
	if w, err := store.Watch(t.Context(), "/", storage.ListOptions{}); w != nil || err != context.Canceled {
		t.Error(w, err)
	}
}
