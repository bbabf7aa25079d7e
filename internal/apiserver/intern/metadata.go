package intern

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// places is how many maps, and how many lists, are at hand to be shared. What has many objects has them one after the other: what comes seldom need not be
// found again.
const places = 256

// Metadata has objects share their labels, annotations and owners. Only what nobody changes may share them. The zero value is ready.
type Metadata struct {
	mu     sync.Mutex // guards what follows
	seeded bool
	seed   maphash.Seed
	maps   [places]map[string]string
	owners [places][]metav1.OwnerReference
}

// Share puts equal parts that are shared in the place of those of an object. One without fields of metadata stays as it is.
func (s *Metadata) Share(o runtime.Object) {
	accessor, is := o.(metav1.ObjectMetaAccessor)
	if !is {
		return
	}
	m, is := accessor.GetObjectMeta().(*metav1.ObjectMeta)
	if !is || m == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.seeded {
		s.seeded, s.seed = true, maphash.MakeSeed()
	}
	m.Labels, m.Annotations = s.ofMap(m.Labels), s.ofMap(m.Annotations)
	m.OwnerReferences = s.ofOwners(m.OwnerReferences)
}

func (s *Metadata) ofMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	var at uint64 // whatever the order
	for k, v := range m {
		if len(k) > longest || len(v) > longest {
			return m
		}
		at += maphash.Comparable(s.seed, [2]string{k, v})
	}
	place := &s.maps[at%places]
	if !maps.Equal(*place, m) {
		*place = m
	}
	return *place
}

func (s *Metadata) ofOwners(list []metav1.OwnerReference) []metav1.OwnerReference {
	if len(list) == 0 {
		return list
	}
	place := &s.owners[maphash.Comparable(s.seed, list[0].UID)%places]
	if !slices.EqualFunc(*place, list, same) {
		*place = slices.Clip(list)
	}
	return *place
}

func same(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion && ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// Below is a storage that a cache is filled from: what it tells the cache shares its metadata. The cache changes nothing of that, and gives
// others copies, if only of the fields: what is below them is never changed.
func Below(store storage.Interface) storage.Interface { return &below{Interface: store} }

type below struct {
	storage.Interface
	metadata Metadata
}

// GetList reads a list.
func (b *below) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := b.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		b.metadata.Share(o)
		return nil
	})
}

// Watch begins a watch.
func (b *below) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Bookmark && e.Type != watch.Error {
			o := e.Object
			if timed, is := o.(storage.WatchEventWithRecordTime); is { // until it is in the cache
				o = timed.Unwrap()
			}
			b.metadata.Share(o)
		}
		return e, true
	}), nil
}
