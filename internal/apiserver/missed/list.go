package missed

import (
	"cmp"
	"context"
	"maps"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// pageMin and pageMax are how many keys are read at once. etcd counts what is left with each page, so that many small pages of many keys take it
	// the square of the time; and it has the values of a page in its memory though it does not send them, so that few are read where there are few. A
	// key has up to some hundred bytes: the largest page is a few megabytes.
	pageMin, pageMax = 500, 10_000
	// pagesMax is about how many pages there are before they grow.
	pagesMax = 100
	// pagePause is the shortest time between two pages, so that what people and hosts wait for is not held up. It is as long as a page took.
	pagePause = 10 * time.Millisecond
	// pageTimeMax bounds one page, so that all have the longer, the more there are.
	pageTimeMax = 15 * time.Second
)

// pageOf is how many keys of so many are read at once.
func pageOf(count int64) int64 { return min(max(count/pagesMax, pageMin), pageMax) }

// Versions are those of all objects of the kind as they were in etcd at a revision, by namespace and name, or name.
func (c *Cache) Versions(ctx context.Context, at uint64) (map[string]uint64, error) {
	versions := map[string]uint64{}
	_, err := c.stored(ctx, at, func(name string, version uint64) { versions[name] = version })
	return versions, err
}

// stored reads keys and their revisions; at 0 is now. It returns the revision at which it read.
func (c *Cache) stored(ctx context.Context, at uint64, each func(name string, version uint64)) (uint64, error) {
	prefix, page := c.kind.Root+c.kind.Prefix+"/", int64(pageMin)
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page)}
		if at > 0 {
			options = append(options, clientv3.WithRev(int64(at)))
		}
		began := time.Now()
		got, err := c.page(ctx, from, options)
		if err != nil {
			return 0, err
		}
		at = cmp.Or(at, uint64(got.Header.Revision))
		for _, kv := range got.Kvs {
			each(string(kv.Key[len(prefix):]), uint64(kv.ModRevision))
		}
		if !got.More {
			return at, nil
		}
		page = max(page, pageOf(got.Count))
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
		if err := rest(ctx, max(pagePause, time.Since(began))); err != nil {
			return 0, err
		}
	}
}

func (c *Cache) page(ctx context.Context, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeMax)
	defer cancel()
	return c.kind.KV.Get(ctx, from, options...)
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
	ctx, cancel := context.WithTimeout(ctx, compareMax)
	defer cancel()
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
	differ, absent, err := c.differing(ctx)
	if err != nil || len(absent) == 0 {
		return differ, err
	}
	// What the cache has not may have been deleted since. It has not if it is there as it was.
	_, err = c.stored(ctx, 0, func(name string, version uint64) {
		if absent[name] == version {
			delete(absent, name)
			differ[name] = true
		}
	})
	return differ, err
}

// differing are the names of what the cache has and was not told of, and the versions of what it has not. All the rest is forgotten here: of
// a million objects there is more of it than what is returned.
func (c *Cache) differing(ctx context.Context) (differ map[string]bool, absent map[string]uint64, err error) {
	stored := map[string]uint64{}
	at, err := c.stored(ctx, 0, func(name string, version uint64) { stored[name] = version })
	if err != nil {
		return nil, nil, err
	}
	seen, err := c.seen(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	differ, absent = Differing(stored, seen, at), map[string]uint64{}
	for name := range differ {
		if seen[name] == 0 {
			absent[name] = stored[name]
		}
	}
	maps.DeleteFunc(differ, func(name string, _ bool) bool { return absent[name] > 0 })
	return differ, absent, nil
}
