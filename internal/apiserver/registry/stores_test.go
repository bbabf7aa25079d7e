package registry

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/events"
)

// qa is the context of a request in a namespace.
func qa(t *testing.T) context.Context { return request.WithNamespace(t.Context(), "qa") }

// TestStores opens the storage of all kinds once for all that follows.
func TestStores(t *testing.T) {
	objects := openRegistry(t)
	t.Run("events", func(t *testing.T) { testEvents(t, objects) })
	t.Run("tokens", func(t *testing.T) { testTokens(t, objects) })
	t.Run("live", func(t *testing.T) { testLive(t, objects) })
	t.Run("answers", func(t *testing.T) { testAnswers(t, objects) })
	t.Run("derived", func(t *testing.T) { testDerived(t, objects) })
	t.Run("instances", func(t *testing.T) { testInstances(t, objects) })
	t.Run("local writes", func(t *testing.T) { testLocalWrites(t, objects) })
	t.Run("namespaces", func(t *testing.T) { testNamespaces(t, objects) })
	t.Run("strings", func(t *testing.T) { testStrings(t, objects) })
}

// testStrings: what objects say alike is in memory once, but not what is stored encrypted, which would be there when the object has gone.
func testStrings(t *testing.T, objects *Registry) {
	label := func(kind string, o func(metav1.ObjectMeta) runtime.Object, name string) string {
		s := objects.Store(core.Resource(kind))
		made, err := s.Create(qa(t), o(metav1.ObjectMeta{Name: name, Labels: map[string]string{"said": "by-both"}}), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(qa(t), name, &metav1.GetOptions{ResourceVersion: made.(metav1.Object).GetResourceVersion()}) // from the watch cache
		if err != nil {
			t.Fatal(err)
		}
		return got.(metav1.Object).GetLabels()["said"]
	}
	alike := func(kind string, o func(metav1.ObjectMeta) runtime.Object) bool {
		a, b := label(kind, o, "strings-a"), label(kind, o, "strings-b")
		if a != "by-both" || b != a {
			t.Fatalf("%s: %q and %q", kind, a, b)
		}
		return unsafe.StringData(a) == unsafe.StringData(b)
	}
	if !alike("configmaps", func(m metav1.ObjectMeta) runtime.Object { return &core.ConfigMap{ObjectMeta: m} }) {
		t.Error("ConfigMaps share nothing")
	}
	if alike("secrets", func(m metav1.ObjectMeta) runtime.Object { return &core.Secret{ObjectMeta: m} }) {
		t.Error("Secrets share strings")
	}
	of := &metainternal.ListOptions{ResourceVersion: "0", LabelSelector: labels.SelectorFromSet(labels.Set{"said": "by-both"})}
	list, err := objects.Store(core.Resource("configmaps")).List(qa(t), of) // as the watch cache has them
	if err != nil {
		t.Fatal(err)
	}
	items := list.(*core.ConfigMapList).Items
	if len(items) != 2 || reflect.ValueOf(items[0].Labels).Pointer() != reflect.ValueOf(items[1].Labels).Pointer() {
		t.Errorf("ConfigMaps share no labels: %+v", items)
	}
}

// eventsOf are the Events of a registry, under bounds of their own.
func eventsOf(t *testing.T, objects *Registry, options events.Options) eventStore {
	t.Helper()
	bounds, err := events.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return eventStore{Store: objects.Store(core.Resource("events")), bounds: bounds}
}

func happening(name, about, reason string) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Reason: reason, Message: "of " + name,
		InvolvedObject: core.ObjectReference{Kind: "Node", Name: about, Namespace: "qa"},
	}
}

func (s eventStore) record(t *testing.T, e *core.Event, dryRun ...string) (*core.Event, error) {
	t.Helper()
	o, err := s.Create(qa(t), e, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return o.(*core.Event), nil
}

func (s eventStore) stored(t *testing.T) map[string]int32 {
	t.Helper()
	o, err := s.List(qa(t), &metainternal.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int32{}
	for _, e := range o.(*core.EventList).Items {
		counts[e.Name] = e.Count
	}
	return counts
}

func testEvents(t *testing.T, objects *Registry) {
	s := eventsOf(t, objects, events.Options{MergeEvery: time.Nanosecond})
	want := func(what, counts string) {
		t.Helper()
		if got := fmt.Sprint(s.stored(t)); got != "map["+counts+"]" {
			t.Errorf("%s: %s, want %s", what, got, counts)
		}
	}
	step := func(what string, e *core.Event, name string, count int32) {
		t.Helper()
		got, err := s.record(t, e)
		if err != nil || got.Name != name || got.Count != count || got.LastTimestamp.IsZero() {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	step("the first", happening("a", "n1", "Full"), "a", 1)
	step("the same again", happening("b", "n1", "Full"), "a", 2)
	step("of another object", happening("c", "n2", "Full"), "c", 1)
	step("for another reason", happening("d", "n1", "Empty"), "d", 1)
	step("and again", happening("e", "n1", "Full"), "a", 3)
	want("then", "a:3 c:1 d:1")
	if got, err := s.Get(qa(t), "a", &metav1.GetOptions{}); err != nil || got.(*core.Event).Message != "of e" {
		t.Errorf("the words of the last time: %+v, %v", got, err)
	}
	if _, err := s.record(t, happening("f", "n1", "Full"), metav1.DryRunAll); err != nil {
		t.Error(err)
	}
	want("after a dry run", "a:3 c:1 d:1")
	named := happening("", "n3", "Full")
	named.GenerateName = "n3-"
	if got, err := s.record(t, named); err != nil || !strings.HasPrefix(got.Name, "n3-") || len(got.Name) < 6 {
		t.Errorf("a name is made: %+v, %v", got, err)
	}

	// The object that it is counted into has ended meanwhile.
	if _, _, err := s.Store.Delete(qa(t), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	step("after its object is gone", happening("g", "n1", "Full"), "g", 1)

	s = eventsOf(t, objects, events.Options{ObjectsMax: 100, MergeEvery: time.Hour})
	step("in a quiet hour", happening("h", "n9", "Full"), "h", 1)
	step("again within it: that is told, and written later", happening("i", "n9", "Full"), "h", 2)
	if got := s.stored(t)["h"]; got != 1 {
		t.Errorf("it is written at once: %d", got)
	}

	s = eventsOf(t, objects, events.Options{WritesPerSecond: 1, Burst: 2})
	for i := range 2 {
		step("within the budget", happening(fmt.Sprint("k", i), fmt.Sprint("k", i), "Full"), fmt.Sprint("k", i), 1)
	}
	_, err := s.record(t, happening("k3", "k3", "Full"))
	if after, told := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !told || after < 1 {
		t.Errorf("beyond it: %v, again after %d s", err, after)
	}
	_, _, err = s.Update(qa(t), "k1", rest.DefaultUpdatedObjectInfo(happening("k1", "k1", "Full")), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a write of his own beyond it: %v", err)
	}
}

// mint makes the same secret each time.
type mint struct{}

func (mint) Mint(*v1alpha1.Token) (v1alpha1.TokenStatus, error) {
	return v1alpha1.TokenStatus{Token: "the secret", JoinLine: "the line", Hash: "sha256:" + strings.Repeat("0", 64)}, nil
}

func testTokens(t *testing.T, objects *Registry) {
	s := tokenStore{Store: objects.Store(v1alpha1.Resource(v1alpha1.ResourceTokens)), minter: mint{}}
	ctx := request.WithNamespace(t.Context(), "")
	create := func(name string, dryRun ...string) (*v1alpha1.Token, error) {
		o, err := s.Create(ctx, &v1alpha1.Token{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: "ann"}},
			Status: v1alpha1.TokenStatus{Hash: "that of another", Token: "my own", JoinLine: "my own"},
		}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			return nil, err
		}
		return o.(*v1alpha1.Token), nil
	}
	made, err := create("a")
	if err != nil || made.Status.Token != "the secret" || made.Status.JoinLine != "the line" || !strings.HasPrefix(made.Status.Hash, "sha256:0") {
		t.Fatalf("made: %+v, %v", made, err)
	}
	got, err := s.Get(ctx, "a", &metav1.GetOptions{})
	if err != nil || got.(*v1alpha1.Token).Status.Token != "" || got.(*v1alpha1.Token).Status.JoinLine != "" || got.(*v1alpha1.Token).Status.Hash != made.Status.Hash {
		t.Errorf("stored: %+v, %v", got, err)
	}
	if tried, err := create("b", metav1.DryRunAll); err != nil || tried.Status.Token+tried.Status.JoinLine != "" {
		t.Errorf("tried: %+v, %v", tried, err)
	}
	if _, err := create("a"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	update := func(name string, change func(*v1alpha1.Token)) error {
		info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			o := old.DeepCopyObject().(*v1alpha1.Token)
			o.Name = name
			change(o)
			return o, nil
		})
		_, _, err := s.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
		return err
	}
	if err := update("nowhere", func(*v1alpha1.Token) {}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "`tako token create`") {
		t.Errorf("made by an update: %v", err)
	}
	if err := update("a", func(o *v1alpha1.Token) { o.Spec.User.Name = "bob" }); !apierrors.IsInvalid(err) {
		t.Errorf("made another's: %v", err)
	}
	err = update("a", func(o *v1alpha1.Token) { o.Labels, o.Status.Hash = map[string]string{"l": "1"}, "that of another" })
	got, _ = s.Get(ctx, "a", &metav1.GetOptions{})
	if o := got.(*v1alpha1.Token); err != nil || o.Labels["l"] != "1" || o.Status.Hash != made.Status.Hash {
		t.Errorf("labelled: %+v, %v", got, err)
	}
}

func testNamespaces(t *testing.T, objects *Registry) {
	plain := objects.Store(core.Resource("namespaces"))
	s := newNamespaceStore(plain)
	finalize := newSubresource(plain, finalizeStrategy{statusStrategy{plain.UpdateStrategy.(strategy)}})
	ctx := request.WithNamespace(t.Context(), "")
	if _, err := s.Create(ctx, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func() (*core.Namespace, error) {
		o, err := s.Get(ctx, "prod", &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return o.(*core.Namespace), nil
	}
	remove := func(options *metav1.DeleteOptions) (bool, error) {
		_, gone, err := s.Delete(ctx, "prod", rest.ValidateAllObjectFunc, options)
		return gone, err
	}
	other := types.UID("of another")
	if _, err := remove(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("another of the name: %v", err)
	}
	if _, err := remove(&metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("tried: %v", err)
	}
	if ns, err := get(); err != nil || ns.Status.Phase != core.NamespaceActive || ns.Labels[core.LabelMetadataName] != "prod" {
		t.Errorf("before: %+v, %v", ns, err)
	}
	if gone, err := remove(nil); gone || err != nil {
		t.Errorf("begun: %v, %v", gone, err)
	}
	ns, err := get()
	if err != nil || ns.Status.Phase != core.NamespaceTerminating || ns.DeletionTimestamp.IsZero() {
		t.Fatalf("terminating: %+v, %v", ns, err)
	}
	if _, err := remove(nil); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), errStillFull.Error()) {
		t.Errorf("again, while something is in it: %v", err)
	}
	empty := ns.DeepCopy()
	empty.Spec.Finalizers = nil
	if _, _, err := finalize.Update(ctx, "prod", rest.DefaultUpdatedObjectInfo(empty), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("when nothing is in it any more: %v", err)
	}
}
