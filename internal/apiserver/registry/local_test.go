package registry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
)

// eventTime bounds the wait for an event, which comes in a moment.
const eventTime = time.Minute

// gate refuses objects of one name.
type gate struct{ closed string }

func (gate) Handles(o admission.Operation) bool { return o == admission.Create }

func (g gate) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetName() == g.closed && a.GetUserInfo().GetName() == itself.Name {
		return admission.NewForbidden(a, errors.New("the gate is closed"))
	}
	return nil
}

func TestLocal(t *testing.T) {
	l := NewLocal(openRegistry(t), gate{closed: "closed"})
	ctx, key := t.Context(), types.NamespacedName{Namespace: "default", Name: "bench-1"}
	made := benchConfig(1)
	made.Namespace = key.Namespace
	made.Status.Revision = "forged"
	if err := l.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	if err := l.Create(ctx, withName(benchConfig(1), key.Namespace, key.Name)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create again: %v", err)
	}
	if err := l.Create(ctx, withName(benchConfig(1), key.Namespace, "closed")); !apierrors.IsForbidden(err) {
		t.Errorf("create what admission refuses: %v", err)
	}
	invalid := withName(benchConfig(1), key.Namespace, "invalid")
	invalid.Spec.Resources[0].File.Path = "relative"
	if err := l.Create(ctx, invalid); !apierrors.IsInvalid(err) {
		t.Errorf("create what is invalid: %v", err)
	}
	first, second := &v1alpha1.NodeConfig{}, &v1alpha1.NodeConfig{}
	for _, into := range []*v1alpha1.NodeConfig{first, second} {
		if err := l.Get(ctx, key, into); err != nil {
			t.Fatal(err)
		}
	}
	if first.Generation != 1 || first.UID == "" || first.Status.Revision != "" {
		t.Errorf("created %+v with status %+v", first.ObjectMeta, first.Status)
	}
	first.Status.Revision, first.Spec.Resources[0].File.Content = "one", "not by a writer of status"
	if err := l.UpdateStatus(ctx, first); err != nil {
		t.Fatal(err)
	}
	second.Status.Revision = "two"
	if err := l.UpdateStatus(ctx, second); !apierrors.IsConflict(err) {
		t.Errorf("status of an old version: %v", err)
	}
	if err := l.Get(ctx, key, second); err != nil || second.Status.Revision != "one" || second.Spec.Resources[0].File.Content != benchConfig(1).Spec.Resources[0].File.Content {
		t.Errorf("%v: read %+v", err, second)
	}
	if err := l.Get(ctx, types.NamespacedName{Namespace: "default", Name: "nobody"}, second); !apierrors.IsNotFound(err) {
		t.Errorf("read what is not there: %v", err)
	}
	cluster := &v1alpha1.ClusterNodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: benchConfig(2).Spec}
	if err := l.Create(ctx, cluster); err != nil {
		t.Errorf("create what is in no namespace: %v", err)
	}
	if err := l.Get(ctx, types.NamespacedName{Name: "all"}, &v1alpha1.ClusterNodeConfig{}); err != nil {
		t.Errorf("read what is in no namespace: %v", err)
	}
	if err := l.Get(ctx, key, &metav1.Status{}); err == nil {
		t.Error("something was read of a kind that is not stored")
	}
}

func withName(c *v1alpha1.NodeConfig, namespace, name string) *v1alpha1.NodeConfig {
	c.Namespace, c.Name = namespace, name
	return c
}

// TestLocalWatch: list and watch give everything once, whole or as metadata, and what a watcher does with it stays with him.
func TestLocalWatch(t *testing.T) {
	l := NewLocal(openRegistry(t), gate{})
	for i := range 3 {
		c := withName(benchConfig(int64(i)), "default", benchConfig(int64(i)).Name)
		c.Annotations = map[string]string{"long": "text"}
		if err := l.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	kind := v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNodeConfig)
	if l.ListerWatcher(schema.GroupVersionKind{Group: "other", Version: "v1", Kind: "Kind"}, true) != nil {
		t.Error("a kind that is not stored can be watched")
	}
	for _, metadataOnly := range []bool{false, true, false} {
		lw := l.ListerWatcher(kind, metadataOnly)
		list, err := allOf(t, lw, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names, version := namesOf(t, list)
		if !slices.Equal(names, []string{"bench-0", "bench-1", "bench-2"}) {
			t.Errorf("listed %v", names)
		}
		w, err := watchOf(t, lw, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		also, err := watchOf(t, lw, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer also.Stop()
		changed := &v1alpha1.NodeConfig{}
		if err := l.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "bench-1"}, changed); err != nil {
			t.Fatal(err)
		}
		changed.Status.ObservedGeneration++
		if err := l.UpdateStatus(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		for _, from := range []watch.Interface{w, also} {
			e := next(t, from)
			wantShape(t, e.Object, metadataOnly)
			if e.Type != watch.Modified || metadata(e.Object).GetName() != "bench-1" {
				t.Errorf("told %s %s", e.Type, metadata(e.Object).GetName())
			}
			deface(e.Object)
		}
	}
	got := &v1alpha1.NodeConfig{}
	list, err := allOf(t, l.ListerWatcher(kind, false), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := namesOf(t, list); !slices.Equal(names, []string{"bench-0", "bench-1", "bench-2"}) {
		t.Errorf("after a watcher has changed his objects there are %v", names)
	}
	if err := l.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "bench-1"}, got); err != nil || len(got.Spec.Resources) != 1 {
		t.Errorf("%v: read %+v", err, got)
	}
	// What is read of the cache is the reader's, too: whatever he does with it.
	for range 2 {
		if err := l.Cached(t.Context(), types.NamespacedName{Namespace: "default", Name: "bench-1"}, got); err != nil || got.Annotations["long"] != "text" || got.Spec.Resources[0].File == nil {
			t.Fatalf("%v: read of the cache %+v", err, got)
		}
		got.Annotations["long"], got.Spec.Resources[0].File = "other", nil
	}
	if err := l.Cached(t.Context(), types.NamespacedName{Namespace: "default", Name: "nobody"}, got); !apierrors.IsNotFound(err) {
		t.Errorf("read what the cache has not: %v", err)
	}
}

// TestLocalInitialEvents: a watcher that asks for what there is gets it, and a mark that says that this was all.
func TestLocalInitialEvents(t *testing.T) {
	l := NewLocal(openRegistry(t), gate{})
	if err := l.Create(t.Context(), withName(benchConfig(1), "default", "bench-1")); err != nil {
		t.Fatal(err)
	}
	lw := l.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNodeConfig), true)
	// What the library's informer makes of it, which asks again until the storage is ready.
	informer := cache.NewSharedIndexInformer(lw, &metav1.PartialObjectMetadata{}, 0, nil)
	ctx, cancel := context.WithTimeout(t.Context(), eventTime)
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer is never complete")
	}
	if keys := informer.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/bench-1"}) {
		t.Errorf("the informer has %v", keys)
	}
	yes := true
	w, err := watchOf(t, lw, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := next(t, w); e.Type != watch.Added || metadata(e.Object).GetName() != "bench-1" {
		t.Errorf("told %s %+v", e.Type, e.Object)
	}
	if e := next(t, w); e.Type != watch.Bookmark || metadata(e.Object).GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("told %s %+v", e.Type, e.Object)
	}
}

func allOf(t *testing.T, lw cache.ListerWatcher, options metav1.ListOptions) (runtime.Object, error) {
	t.Helper()
	return cache.ToListerWatcherWithContext(lw).ListWithContext(t.Context(), options)
}

func watchOf(t *testing.T, lw cache.ListerWatcher, options metav1.ListOptions) (watch.Interface, error) {
	t.Helper()
	return cache.ToListerWatcherWithContext(lw).WatchWithContext(t.Context(), options)
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(eventTime):
		t.Fatal("no event comes")
	}
	panic("not reached")
}

func namesOf(t *testing.T, list runtime.Object) (names []string, version string) {
	t.Helper()
	switch l := list.(type) {
	case *v1alpha1.NodeConfigList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
		return names, l.ResourceVersion
	case *metav1.PartialObjectMetadataList:
		for _, o := range l.Items {
			wantShape(t, &o, true)
			names = append(names, o.Name)
		}
		return names, l.ResourceVersion
	}
	t.Fatalf("listed a %T", list)
	return nil, ""
}

// wantShape checks that an object is of the type that was asked for, and how much of it there is.
func wantShape(t *testing.T, o runtime.Object, metadataOnly bool) {
	t.Helper()
	switch o := o.(type) {
	case *v1alpha1.NodeConfig:
		if metadataOnly || len(o.Spec.Resources) != 1 || o.Annotations["long"] != "text" {
			t.Errorf("told %+v, metadata only: %v", o, metadataOnly)
		}
	case *metav1.PartialObjectMetadata:
		if !metadataOnly || o.Kind != v1alpha1.KindNodeConfig || o.UID == "" || o.Annotations != nil {
			t.Errorf("told %+v, metadata only: %v", o, metadataOnly)
		}
	default:
		t.Errorf("told a %T", o)
	}
}

// deface changes all that a watcher may.
func deface(o runtime.Object) {
	m := metadata(o)
	m.SetName("defaced")
	m.SetLabels(nil)
	if c, whole := o.(*v1alpha1.NodeConfig); whole {
		c.Spec.Resources = nil
	}
}
