// Package missed finds what etcd's watches have not told, and puts it right. Such a loss makes no noise: the watch cache goes on and takes itself for
// fresh, and whatever follows from a change (a revision, a layer, an Assignment) does not, until somebody writes the object again.
//
//	etcd:  keys and revisions of all objects of a kind, at one revision    -+
//	the cache, once it says that it is as far:  keys and versions          -+-> what the cache has not, or has in an older version, it was not told of
//
// Then the cache reads everything of that kind again, and so does everybody who watches it: who has missed what is not known, so a watch that
// goes on from a version before that is refused, as if that were too long ago, and its client lists anew. That is dear, and correct for all
// alike: the server's own controllers, its index of nodes, and clients of the API.
//
// Keys alone are read, a page at a time with pauses, one kind after the other. Every server does it, because each has caches, and answers from
// them, whether it leads or not.
package missed

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// mark is the key that is written so that there is a revision after which everybody has read anew. It is below nothing that is listed.
	mark = "/tako-missed"
	// markMax bounds that write.
	markMax = 10 * time.Second
	// retryAfter is how many seconds a watch waits that comes while the cache is about to read anew.
	retryAfter = 1
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

// Cache is a watch cache that can be told to read everything again. Use New, Below and Over.
type Cache struct {
	kind   Kind
	cached storage.Interface

	mu     sync.Mutex      // guards what follows
	open   watch.Interface // of etcd, for the cache; nil before there is one
	broken bool            // the cache has missed something, and has to read anew
	floor  uint64          // watches do not go on from a version before
}

// New makes one.
func New(kind Kind) *Cache { return &Cache{kind: kind} }

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

// Watch is how the cache follows etcd. An error that says that it comes too late has it read everything.
func (b below) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if err := b.of.renew(ctx); err != nil {
		return nil, err
	}
	w, err := b.Interface.Watch(ctx, key, opts)
	if err == nil {
		b.of.opened(w)
	}
	return w, err
}

type over struct {
	storage.Interface
	of *Cache
}

// Watch lets nobody go on from before something was missed.
func (o over) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	version, err := o.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err == nil && version > 0 {
		err = o.of.admit(version)
	}
	if err != nil {
		return nil, err
	}
	return o.Interface.Watch(ctx, key, opts)
}

func (c *Cache) admit(version uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.broken:
		return apierrors.NewTooManyRequests("everything is about to be read again", retryAfter)
	case version < c.floor:
		return apierrors.NewResourceExpired("a change was missed before, so that everything is to be listed again")
	}
	return nil
}

// reread has the cache, and everybody who watches, read everything again.
func (c *Cache) reread() {
	c.mu.Lock()
	c.broken = true
	open := c.open
	c.mu.Unlock()
	if open != nil {
		open.Stop()
	}
}

func (c *Cache) opened(w watch.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open = w; c.broken {
		w.Stop()
	}
}

// renew is called when the cache has taken in all that it was told. Where it is broken there is a new revision from here on, later than all that
// anybody was told: who has that version has read after it.
func (c *Cache) renew(ctx context.Context) error {
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if !broken {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, markMax)
	defer cancel()
	written, err := c.kind.KV.Put(ctx, mark, c.kind.Resource.String())
	if err != nil {
		return err // the cache comes again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor, c.broken, c.open = uint64(written.Header.Revision), false, nil
	return apierrors.NewResourceExpired("a change was missed, everything is read again")
}

// Versions are those of all objects of the kind as they were in etcd at a revision, by namespace and name, or name.
func (c *Cache) Versions(ctx context.Context, at uint64) (map[string]uint64, error) {
	versions, _, err := c.stored(ctx, at)
	return versions, err
}

const (
	// page is how many keys are read at once: some milliseconds of etcd's.
	page = 500
	// pagePause is between two pages, so that what people and hosts wait for is not held up.
	pagePause = 10 * time.Millisecond
)

// stored reads keys and their revisions; at 0 is now.
func (c *Cache) stored(ctx context.Context, at uint64) (map[string]uint64, uint64, error) {
	prefix, versions := c.kind.Root+c.kind.Prefix+"/", map[string]uint64{}
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page)}
		if at > 0 {
			options = append(options, clientv3.WithRev(int64(at)))
		}
		got, err := c.kind.KV.Get(ctx, from, options...)
		if err != nil {
			return nil, 0, err
		}
		at = cmp.Or(at, uint64(got.Header.Revision))
		for _, kv := range got.Kvs {
			versions[string(kv.Key[len(prefix):])] = uint64(kv.ModRevision)
		}
		if !got.More {
			return versions, at, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
		if err := rest(ctx, pagePause); err != nil {
			return nil, 0, err
		}
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seen is what the cache has, once it says that it is as far as a revision.
func (c *Cache) seen(ctx context.Context, at uint64) (map[string]uint64, error) {
	list := c.kind.NewList()
	err := c.cached.GetList(ctx, c.kind.Prefix, storage.ListOptions{
		ResourceVersion: strconv.FormatUint(at, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Predicate: storage.Everything, Recursive: true,
	}, list)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]uint64, meta.LenList(list))
	return versions, meta.EachListItem(list, func(o runtime.Object) error {
		key, err := c.kind.KeyOf(o)
		if err != nil {
			return err
		}
		versions[key[len(c.kind.Prefix)+1:]], err = c.cached.Versioner().ObjectResourceVersion(o)
		return err
	})
}

// Differing are the names of what is seen in an older version than was stored at a revision, not at all, or still. What is seen in a newer
// one came later.
func Differing(stored, seen map[string]uint64, at uint64) map[string]bool {
	differ := map[string]bool{}
	for name, version := range stored {
		if seen[name] < version {
			differ[name] = true
		}
	}
	for name, version := range seen {
		if _, there := stored[name]; !there && version <= at {
			differ[name] = true
		}
	}
	return differ
}

// lost are the names of what the cache was not told of. It is as far as what was read, so nothing of that can be on its way.
func (c *Cache) lost(ctx context.Context) (map[string]bool, error) {
	stored, at, err := c.stored(ctx, 0)
	if err != nil {
		return nil, err
	}
	seen, err := c.seen(ctx, at)
	if err != nil {
		return nil, err
	}
	differ, absent := Differing(stored, seen, at), false
	for name := range differ {
		absent = absent || seen[name] == 0
	}
	if !absent {
		return differ, nil
	}
	// What the cache has not may have been deleted since. It has not if it is there as it was.
	again, _, err := c.stored(ctx, 0)
	for name := range differ {
		if seen[name] == 0 && again[name] != stored[name] {
			delete(differ, name)
		}
	}
	return differ, err
}
