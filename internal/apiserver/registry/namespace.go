package registry

import (
	"context"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// namespaceStore deletes a namespace in two steps: it is terminating until what is in it is gone, which the controller of
// namespaces says by taking away the last of spec.finalizers.
//
// Of the generic storage it has all but the deletion of a whole collection, which would pass by those two steps. Kubernetes has
// none of namespaces either.
type namespaceStore struct {
	described
	uncollected
	store *Store
}

// described is what the library asks about a kind.
type described interface {
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.ResetFieldsStrategy
}

// uncollected is a storage whose objects cannot be deleted as a collection.
type uncollected interface {
	rest.Storage
	rest.Lister
	rest.Creater
	rest.Patcher
	rest.Watcher
}

var _ rest.GracefulDeleter = namespaceStore{}

func newNamespaceStore(s *Store) namespaceStore {
	s.ShouldDeleteDuringUpdate = func(ctx context.Context, key string, obj, existing runtime.Object) bool {
		ns := obj.(*core.Namespace)
		return len(ns.Spec.Finalizers) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
	}
	return namespaceStore{described: s, uncollected: s, store: s}
}

// Delete begins to delete a namespace, or removes one that is empty.
func (s namespaceStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, err := s.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*core.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	if options.Preconditions.UID == nil {
		options.Preconditions.UID = &ns.UID // not another one of the same name
	} else if *options.Preconditions.UID != ns.UID {
		return nil, false, apierrors.NewConflict(s.store.kind.Resource(), name, errOther(ns, *options.Preconditions.UID))
	}
	switch {
	case ns.DeletionTimestamp.IsZero():
		return s.terminate(ctx, name, ns, validate, options)
	case len(ns.Spec.Finalizers) > 0:
		return ns, false, apierrors.NewConflict(s.store.kind.Resource(), name, errStillFull)
	}
	return s.store.Delete(ctx, name, validate, options)
}

// terminate marks a namespace as terminating.
func (s namespaceStore) terminate(ctx context.Context, name string, ns *core.Namespace, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := s.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	preconditions := storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
	out := s.store.NewFunc()
	err = s.store.Storage.GuaranteedUpdate(ctx, key, out, false, &preconditions, storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		ns := existing.(*core.Namespace)
		if err := validate(ctx, existing); err != nil {
			return nil, err
		}
		if ns.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
		}
		ns.Status.Phase = core.NamespaceTerminating
		return ns, nil
	}), len(options.DryRun) > 0, nil)
	if err != nil {
		return nil, false, rest.CheckGeneratedNameError(ctx, s.store.CreateStrategy, err, ns)
	}
	return out, false, nil
}

// finalizeStrategy writes the finalizers of a namespace's spec alone.
type finalizeStrategy struct{ statusStrategy }

// PrepareForUpdate keeps everything but the finalizers.
func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	ns, was := obj.(*core.Namespace), old.(*core.Namespace)
	finalizers, version := ns.Spec.Finalizers, ns.ResourceVersion
	was.DeepCopyInto(ns)
	ns.Spec.Finalizers, ns.ResourceVersion = finalizers, version
}

// ValidateUpdate has nothing to refuse.
func (finalizeStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

// GetResetFields says that who writes the finalizers does not own the status.
func (s finalizeStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.kind.reset("status")
}
