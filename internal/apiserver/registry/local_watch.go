package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListerWatcher lists and watches all objects of a kind within the server; nil when the kind is not stored here. What it
// returns shares its parts with others: it may be replaced field by field, and nothing deeper changed. Of metadata there is what
// machines decide by: no annotations, and who manages which field neither.
func (l *Local) ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher {
	for _, k := range l.registry.kinds {
		if k.GVK == kind {
			s := source{store: l.registry.stores[k.Resource()], kind: kind, metadataOnly: metadataOnly}
			return &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
		}
	}
	return nil
}

// Versions are those of all objects of a kind as they were in etcd at a revision, by name, or namespace and name. No cache is asked.
func (l *Local) Versions(ctx context.Context, kind schema.GroupVersionKind, at uint64) (map[string]uint64, error) {
	for _, k := range l.registry.kinds {
		if k.GVK != kind {
			continue
		}
		if stored, is := l.registry.stores[k.Resource()].Storage.Storage.(changes); is {
			return stored.watched.Versions(ctx, at)
		}
	}
	return nil, fmt.Errorf("objects of kind %s are not stored here", kind.Kind)
}

// source is where the objects of one kind come from.
type source struct {
	store        *Store
	kind         schema.GroupVersionKind
	metadataOnly bool
}

func (s source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	of, err := internal(options)
	if err != nil {
		return nil, err
	}
	list, err := s.store.List(as(ctx, metav1.NamespaceAll), of)
	if err != nil || !s.metadataOnly {
		return list, err
	}
	described, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	all := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
		ResourceVersion: described.GetResourceVersion(), Continue: described.GetContinue(), RemainingItemCount: described.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		all.Items = append(all.Items, *s.metadata(o))
		return nil
	})
	return all, err
}

func (s source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	of, err := internal(options)
	if err != nil {
		return nil, err
	}
	w, err := s.store.Watch(as(ctx, metav1.NamespaceAll), of)
	if err != nil {
		return nil, err
	}
	return s.store.unwrapped.Follow(w, s.shape), nil
}

// shape is the object of an event as the watcher gets it.
func (s source) shape(e watch.Event) runtime.Object {
	if e.Type == watch.Error || !s.metadataOnly {
		return e.Object
	}
	m := s.metadata(e.Object)
	if e.Type == watch.Bookmark {
		m.Annotations = metadata(e.Object).GetAnnotations() // which say what the bookmark is for
	}
	return m
}

func (s source) metadata(o runtime.Object) *metav1.PartialObjectMetadata {
	version, kind := s.kind.ToAPIVersionAndKind()
	m := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: *metadata(o).(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta),
	}
	m.Annotations, m.ManagedFields = nil, nil
	return m
}

func internal(options metav1.ListOptions) (*internalversion.ListOptions, error) {
	of := &internalversion.ListOptions{}
	return of, internalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&options, of, nil)
}
