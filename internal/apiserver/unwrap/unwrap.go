// Package unwrap takes objects out of the wrapping in which the watch cache hands an event to several who follow. The wrapping keeps what the object
// was encoded to, which followers within the server have no use for, and gives each who asks for the object a copy of his own: of every Node that changes the
// controllers had six copies, some of which they keep.
package unwrap

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"tako.dev/tako/internal/apiserver/intern"
)

// keptMax is how many objects wait for those of their followers who have not come to them yet. Whoever is further behind gets a copy of his own.
const keptMax = 1024

// Shallow is the object of an event as one whose fields, and nothing deeper, may be replaced.
func Shallow(o runtime.Object) runtime.Object {
	if wrapped, ok := o.(runtime.CacheableObject); ok {
		o = wrapped.GetObject()
	}
	return shallow(o)
}

func shallow(o runtime.Object) runtime.Object {
	copied := reflect.New(reflect.TypeOf(o).Elem())
	copied.Elem().Set(reflect.ValueOf(o).Elem())
	return copied.Interface().(runtime.Object)
}

// Once has the followers of one kind share what is in the wrapping: it is copied for the first of them, and let go when the last one has it. The zero
// value is ready.
type Once struct {
	mu        sync.Mutex
	followers int
	metadata  intern.Metadata
	kept      map[runtime.CacheableObject]*kept
	ring      [keptMax]runtime.CacheableObject // of kept, by when they came
	next      int                              // in the ring
}

// kept is an object that some have not come to yet.
type kept struct {
	sync.Once
	object runtime.Object
	left   int // how many
	place  int // in the ring
}

// Follow is a watch whose objects are out of the wrapping: shape makes of an event, with such an object, what the follower gets. The object has fields of its own,
// which shape may replace, and nothing deeper.
func (u *Once) Follow(w watch.Interface, shape func(watch.Event) runtime.Object) watch.Interface {
	u.mu.Lock()
	u.followers++
	u.mu.Unlock()
	return &followed{once: u, Interface: watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Error {
			e.Object = shallow(u.take(e.Object))
		}
		e.Object = shape(e)
		return e, true
	})}
}

// followed is a watch of one who counts as a follower until he stops it.
type followed struct {
	watch.Interface
	once    *Once
	stopped sync.Once
}

// Stop ends it.
func (f *followed) Stop() {
	f.stopped.Do(func() {
		f.once.mu.Lock()
		defer f.once.mu.Unlock()
		if f.once.followers--; f.once.followers == 0 {
			f.once.kept, f.once.ring = nil, [keptMax]runtime.CacheableObject{}
		}
	})
	f.Interface.Stop()
}

// take is what is in a wrapping, for all who follow; what has none is what it is.
func (u *Once) take(o runtime.Object) runtime.Object {
	wrapped, ok := o.(runtime.CacheableObject)
	if !ok {
		return o
	}
	k := u.turn(wrapped)
	k.Do(func() {
		k.object = wrapped.GetObject()
		u.metadata.Share(k.object)
	})
	return k.object
}

// turn is what is kept of a wrapping, for one more of those who come to it.
func (u *Once) turn(wrapped runtime.CacheableObject) *kept {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := u.kept[wrapped]
	if k == nil {
		k = &kept{left: u.followers, place: u.next}
		if oldest := u.ring[u.next]; oldest != nil {
			delete(u.kept, oldest)
		}
		if u.kept == nil {
			u.kept = map[runtime.CacheableObject]*kept{}
		}
		u.kept[wrapped], u.ring[u.next] = k, wrapped
		u.next = (u.next + 1) % keptMax
	}
	if k.left--; k.left <= 0 {
		delete(u.kept, wrapped)
		u.ring[k.place] = nil
	}
	return k
}
