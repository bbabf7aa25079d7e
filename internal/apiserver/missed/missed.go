// Package missed finds what etcd's watches have not told, and puts it right. Such a loss makes no noise: the watch cache goes on and takes itself for
// fresh, and whatever follows from a change (a revision, a layer, an Assignment) does not, until somebody writes the object again.
//
//	etcd:  keys and revisions of all objects of a kind, at one revision    -+
//	the cache, once it says that it is as far:  keys and versions          -+-> what the cache has not, or has in an older version, it was not told of
//
// Then the cache reads everything of that kind again, and so does everybody who watches it: who has missed what is not known. A key is written for
// that, /tako/missed/RESOURCE, while the cache takes in nothing: all that it told anybody is from before the revision of that key. A watch that would go on
// from before is told that this is too long ago, as is one that is open, and its client lists anew. That is dear, and correct for all who watch: the
// server's own controllers, its index of nodes, and clients of the API. Where the key cannot be written the cache stays as it is, and the next comparison
// tries again: a cache that is stale in one object is better than none.
//
// Who has missed something at one server may go on at another one, or at the same after it was started again. So each reads that key before it serves a
// watch of the kind, and follows it. What is left is a watch whose connection breaks within the moment that a server takes to hear of the key, after it
// was told of something later: it goes on, and lacks what was missed until its client lists anew for another reason.
//
// A cache that hears nothing any more is never as far as etcd. It reads everything again after some comparisons that find it so.
//
// Keys alone are read, a page at a time with pauses, one kind after the other. Every server does it, because each has caches, and answers from
// them, whether it leads or not.
package missed

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// marks is below what all keys have in common, and before the keys that are written so that there is a revision after which everybody has read
	// anew. No group of a kind has that name, as it has no dot.
	marks = "/missed/"
	// markMax bounds reading and writing one.
	markMax = 5 * time.Second
)

// Kind is the objects that are under one watch cache.
type Kind struct {
	Resource schema.GroupResource
	KV       clientv3.KV
	Root     string // before every key in etcd
	Prefix   string // of the kind, after that
	KeyOf    func(o runtime.Object) (string, error)
	NewList  func() runtime.Object
}

func (k Kind) mark() string { return k.Root + marks + k.Resource.String() }

// Cache is a watch cache that can be told to read everything again. Use New, Below and Over.
type Cache struct {
	kind   Kind
	cached storage.Interface
	behind int           // how many comparisons in a row have found the cache behind etcd
	flow   chan struct{} // full while an event is handed to the cache, or none may be

	mu     sync.Mutex       // guards what follows
	open   watch.Interface  // of etcd, for the cache; nil before there is one
	broken bool             // the cache has missed something, and has to read anew
	read   bool             // the mark was read
	floor  uint64           // watches do not go on from a version before
	served map[*served]bool // that are open
}

// New makes one.
func New(kind Kind) *Cache {
	return &Cache{kind: kind, flow: make(chan struct{}, 1), served: map[*served]bool{}}
}

// Below is the storage that the cache is to be filled from.
func (c *Cache) Below(store storage.Interface) storage.Interface { return below{store, c} }

// Over is the storage to be used in the place of the cache.
func (c *Cache) Over(cached storage.Interface) storage.Interface {
	c.cached = cached
	return over{cached, c}
}

type below struct {
	storage.Interface
	of *Cache
}

// Watch is how the cache follows etcd. An error that says that it comes too late has it read everything, once.
func (b below) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if b.of.renew() && !withState(opts) {
		return nil, apierrors.NewResourceExpired("a change was missed, everything is read again")
	}
	w, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return b.of.opened(w), nil
}

// renew says whether the cache has to read anew, which it then does.
func (c *Cache) renew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	broken := c.broken
	c.broken, c.open = false, nil
	return broken
}

// withState says whether a watch tells what there is before it tells changes.
func withState(o storage.ListOptions) bool { return o.SendInitialEvents != nil && *o.SendInitialEvents }

type over struct {
	storage.Interface
	of *Cache
}

// Watch lets nobody go on from before something was missed.
func (o over) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	version, err := o.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if withState(opts) {
		version = 0
	}
	floor, err := o.of.known(ctx)
	if err != nil {
		return nil, err
	}
	if version > 0 && version < floor {
		return refused(), nil
	}
	w, err := o.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return o.of.serve(ctx, w, version, floor), nil
}

// known is the version that nobody goes on from before. Another server, or this one before it was started again, may have set it.
func (c *Cache) known(ctx context.Context) (uint64, error) {
	c.mu.Lock()
	read, floor := c.read, c.floor
	c.mu.Unlock()
	if read {
		return floor, nil
	}
	ctx, cancel := context.WithTimeout(ctx, markMax)
	defer cancel()
	got, err := c.kind.KV.Get(ctx, c.kind.mark(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	for _, kv := range got.Kvs {
		c.raise(uint64(kv.ModRevision))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = true
	return c.floor, nil
}

// raise has nobody go on from before a version, and ends the watches that did.
func (c *Cache) raise(floor uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if floor <= c.floor {
		return
	}
	c.floor = floor
	for s := range c.served {
		if s.version < floor {
			delete(c.served, s)
			close(s.expired)
		}
	}
}

// hear takes a mark that another server has written. Who lists anew then is to get what is not from before, so that he may go on from there.
func (c *Cache) hear(ctx context.Context, floor uint64) {
	c.mu.Lock()
	known := floor <= c.floor
	c.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markMax)
	defer cancel()
	_, _ = c.seen(ctx, floor) // a cache that is behind refuses until it is not
	c.raise(floor)
}

// mend has the cache, and everybody who watches, read everything again. While the mark is written the cache is told nothing, so that all
// that it told anybody is from before. Where it cannot be written, everything goes on as it was.
func (c *Cache) mend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, markMax)
	defer cancel()
	select {
	case c.flow <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.flow }()
	written, err := c.kind.KV.Put(ctx, c.kind.mark(), "")
	if err != nil {
		return err
	}
	c.raise(uint64(written.Header.Revision))
	c.reread()
	return nil
}

// reread has the cache read everything again.
func (c *Cache) reread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	if c.open != nil {
		c.open.Stop()
	}
}
