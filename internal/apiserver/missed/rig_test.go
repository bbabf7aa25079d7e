package missed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"

	"tako.dev/tako/internal/apiserver/resume"
)

const (
	// waitMax bounds the wait for what takes milliseconds.
	waitMax = time.Minute
	root    = "/tako"
	prefix  = "/example.org/things"
)

var things = schema.GroupResource{Group: "example.org", Resource: "things"}

func name(n int) string { return fmt.Sprintf("thing-%d", n) }

// noCompactor leaves the history alone.
type noCompactor struct{ etcd3.Compactor }

func (noCompactor) CompactRevision() int64 { return 0 }

// store is a storage whose watches do not tell everything.
type store struct {
	storage.Interface
	watches atomic.Int32

	mu      sync.Mutex
	losing  bool
	lost    int
	stalled map[*atomic.Bool]bool // all that are open, by what has them tell nothing
}

func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	s.watches.Add(1)
	silent := &atomic.Bool{}
	s.mu.Lock()
	s.stalled[silent] = true
	s.mu.Unlock()
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.losing && e.Type != watch.Bookmark {
			s.lost++
			return e, false
		}
		return e, !silent.Load()
	}), nil
}

// stall has the watches that are open tell nothing any more.
func (s *store) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.stalled {
		w.Store(true)
	}
}

// kv is a way to etcd that may have no room.
type kv struct {
	clientv3.KV
	full atomic.Bool
}

func (k *kv) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if k.full.Load() {
		return nil, errors.New("etcdserver: mvcc: database space exceeded")
	}
	return k.KV.Put(ctx, key, value, opts...)
}

// server is what a server has of a kind.
type server struct {
	storage.Interface
	raw    *store
	kv     *kv
	db     *kubernetes.Client
	missed *Cache
	meters meters
}

// follow has it hear other servers.
func (s *server) follow(t *testing.T) {
	caches := &Caches{}
	caches.Add(s.missed)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		caches.follow(ctx, Options{Etcd: s.db.Client, Root: root, Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
}

func begin(t *testing.T, db *kubernetes.Client) *server {
	t.Helper()
	codec, versioner := unstructured.UnstructuredJSONScheme, storage.APIObjectVersioner{}
	create, list := func() runtime.Object { return &unstructured.Unstructured{} }, func() runtime.Object { return &unstructured.UnstructuredList{} }
	keyFunc := func(o runtime.Object) (string, error) { return keyOf(o.(*unstructured.Unstructured).GetName()), nil }
	config := storagebackend.NewDefaultConfig(root, codec)
	raw, err := etcd3.New(db, noCompactor{}, codec, create, list, root, prefix, things, identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig,
		etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{raw: &store{Interface: raw, stalled: map[*atomic.Bool]bool{}}, kv: &kv{KV: db.KV}, meters: newMeters()}
	s.missed = New(Kind{Resource: things, KV: s.kv, Root: root, Prefix: prefix, KeyOf: keyFunc, NewList: list})
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: s.missed.Below(s.raw), Versioner: versioner, GroupResource: things, EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: prefix,
		KeyFunc: keyFunc, NewFunc: create, NewListFunc: list, Codec: codec, Clock: clock.RealClock{},
		GetAttrsFunc: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	delegator := cacher.NewCacheDelegator(c, raw)
	s.Interface, s.db = s.missed.Over(resume.New(delegator, raw)), db
	t.Cleanup(func() {
		delegator.Stop()
		c.Stop()
		raw.Close()
	})
	becomes(t, "the cache is ready", func() (string, bool) {
		err := delegator.ReadinessCheck()
		return fmt.Sprint(err), err == nil
	})
	return s
}

// becomes waits for a state.
func becomes(t *testing.T, what string, is func() (string, bool)) {
	t.Helper()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for late := time.Now().Add(waitMax); ; <-ticks.C {
		state, reached := is()
		if reached {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: %s after %s", what, state, waitMax)
		}
	}
}

// within is a channel that ends when it takes too long.
func within(t *testing.T, from <-chan watch.Event) <-chan watch.Event {
	to := make(chan watch.Event)
	late := time.After(waitMax)
	go func() {
		defer close(to)
		for {
			select {
			case e, open := <-from:
				if !open {
					return
				}
				select {
				case to <- e:
				case <-t.Context().Done():
					return
				}
				if e.Type == watch.Error {
					return
				}
			case <-late:
				return
			case <-t.Context().Done():
				return
			}
		}
	}()
	return to
}

func keyOf(name string) string { return prefix + "/" + name }

// put makes or changes a thing, and returns its version.
func (s *server) put(t *testing.T, name string) uint64 {
	t.Helper()
	out := &unstructured.Unstructured{}
	err := s.GuaranteedUpdate(t.Context(), keyOf(name), out, true, nil, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		u := o.(*unstructured.Unstructured)
		n, _ := strconv.Atoi(u.GetLabels()["n"])
		u.SetAPIVersion("example.org/v1")
		u.SetKind("Thing")
		u.SetName(name)
		u.SetLabels(map[string]string{"n": strconv.Itoa(n + 1)})
		return u, nil
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return versionOf(t, out)
}

// lose has the cache not told of what do writes.
func (s *server) lose(t *testing.T, do func()) {
	t.Helper()
	s.raw.mu.Lock()
	s.raw.losing = true
	s.raw.mu.Unlock()
	do()
	becomes(t, "a change is lost", func() (string, bool) {
		s.raw.mu.Lock()
		defer s.raw.mu.Unlock()
		return "not yet", s.raw.lost > 0
	})
	s.raw.mu.Lock()
	defer s.raw.mu.Unlock()
	s.raw.losing = false
}

// has waits until the cache has a thing in a version or a later one, and returns which.
func (s *server) has(t *testing.T, name string, version uint64) (seen uint64) {
	t.Helper()
	becomes(t, fmt.Sprintf("%s in version %d", name, version), func() (string, bool) {
		o := &unstructured.Unstructured{}
		err := s.Get(t.Context(), keyOf(name), storage.GetOptions{ResourceVersion: "0"}, o)
		if err != nil {
			return err.Error(), false
		}
		seen = versionOf(t, o)
		return strconv.FormatUint(seen, 10), seen >= version
	})
	return seen
}

// watch goes on from a version.
func (s *server) watch(t *testing.T, from uint64) (w watch.Interface) {
	t.Helper()
	becomes(t, "a watch is served", func() (string, bool) { // not while the cache is filled
		var err error
		w, err = s.Watch(t.Context(), prefix, storage.ListOptions{ResourceVersion: strconv.FormatUint(from, 10), Predicate: storage.Everything, Recursive: true})
		return fmt.Sprint(err), err == nil
	})
	t.Cleanup(w.Stop)
	return w
}

func (s *server) compare(t *testing.T) error {
	t.Helper()
	return s.missed.compare(t.Context(), slog.New(slog.DiscardHandler), s.meters)
}

func versionOf(t *testing.T, o runtime.Object) uint64 {
	t.Helper()
	v, err := storage.APIObjectVersioner{}.ObjectResourceVersion(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
