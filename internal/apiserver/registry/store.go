package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"tako.dev/tako/internal/apiserver/unwrap"
)

// Store is the storage of one kind.
type Store struct {
	*genericregistry.Store
	kind      *Kind
	unwrapped *unwrap.Once // for those who follow within the server
}

var (
	_ rest.ShortNamesProvider   = (*Store)(nil)
	_ rest.CategoriesProvider   = (*Store)(nil)
	_ rest.StandardStorage      = (*Store)(nil)
	_ rest.SingularNameProvider = (*Store)(nil)
)

// ShortNames are what lazy people type.
func (s *Store) ShortNames() []string { return s.kind.Names.Short }

// Categories are the groups of kinds that this one is in.
func (s *Store) Categories() []string { return s.kind.Names.Categories }

// newStore makes the storage of a kind.
func newStore(k *Kind, typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*Store, error) {
	how := strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: k}
	attrs := k.attrs()
	s := &genericregistry.Store{
		NewFunc: k.New, NewListFunc: k.NewList,
		DefaultQualifiedResource:  k.Resource(),
		SingularQualifiedResource: schema.GroupResource{Group: k.GVK.Group, Resource: k.Names.Singular},
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attrs}
		},
		CreateStrategy: how, UpdateStrategy: how, DeleteStrategy: how, ResetFieldsStrategy: how,
		TableConvertor: tableOf(k),
	}
	if k.TTL > 0 {
		s.TTLFunc = func(_ runtime.Object, existing uint64, update bool) (uint64, error) {
			if update {
				return existing, nil
			}
			return k.TTL, nil
		}
	}
	if err := s.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: attrs}); err != nil {
		return nil, err
	}
	return &Store{Store: s, kind: k, unwrapped: &unwrap.Once{}}, nil
}

// attrs is what selectors see of an object.
func (k *Kind) attrs() storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		m := metadata(obj)
		set := fields.Set{"metadata.name": m.GetName()}
		if k.Namespaced {
			set["metadata.namespace"] = m.GetNamespace()
		}
		if k.Fields != nil {
			for name, value := range k.Fields(obj) {
				set[name] = value
			}
		}
		return labels.Set(m.GetLabels()), set, nil
	}
}

// part of an object that is written alone: its status, or the finalizers of a namespace.
type subresource struct {
	store  *genericregistry.Store
	update rest.UpdateResetFieldsStrategy
}

var (
	_ rest.Patcher             = (*subresource)(nil)
	_ rest.ResetFieldsStrategy = (*subresource)(nil)
	_ rest.TableConvertor      = (*subresource)(nil)
)

func newSubresource(s *Store, how rest.UpdateResetFieldsStrategy) *subresource {
	store := *s.Store
	store.UpdateStrategy, store.ResetFieldsStrategy = how, how
	return &subresource{store: &store, update: how}
}

// New makes an empty object.
func (s *subresource) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the storage is that of the whole object.
func (*subresource) Destroy() {}

// Get returns the whole object.
func (s *subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update writes the part.
func (s *subresource) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, change{obj}, create, update, false, options)
}

// GetResetFields says what a writer of the part does not own.
func (s *subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.update.GetResetFields()
}

// ConvertToTable shows the whole object.
func (s *subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}
