package resume

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"pgregory.net/rapid"

	"tako.dev/tako/internal/apiserver/etcd/etcdtest"
)

// waitMax bounds the wait for an event, which takes milliseconds.
const waitMax = time.Minute

var things = schema.GroupResource{Group: "example.org", Resource: "things"}

// noCompactor leaves the history alone.
type noCompactor struct{ etcd3.Compactor }

func (noCompactor) CompactRevision() int64 { return 0 }

// life is the storage of one life of a server: what it holds in memory ends with it.
type life struct {
	Storage
	store *counted
	end   func()
}

// counted counts the watches that etcd serves.
type counted struct {
	storage.Interface
	open atomic.Int32
}

func (c *counted) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := c.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &countedWatch{Interface: w, of: c}, nil
}

type countedWatch struct {
	watch.Interface
	of   *counted
	once sync.Once
}

func (w *countedWatch) Stop() {
	w.once.Do(func() { w.of.open.Add(-1) })
	w.Interface.Stop()
}

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func begin(t failer, db *kubernetes.Client, prefix string) *life {
	t.Helper()
	codec, versioner := unstructured.UnstructuredJSONScheme, storage.APIObjectVersioner{}
	create, list := func() runtime.Object { return &unstructured.Unstructured{} }, func() runtime.Object { return &unstructured.UnstructuredList{} }
	attrs := func(o runtime.Object) (labels.Set, fields.Set, error) {
		return o.(*unstructured.Unstructured).GetLabels(), nil, nil
	}
	config := storagebackend.NewDefaultConfig(prefix, codec)
	raw, err := etcd3.New(db, noCompactor{}, codec, create, list, prefix, "/things", things, identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig,
		etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: raw, Versioner: versioner, GroupResource: things, EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: "/things",
		KeyFunc: func(o runtime.Object) (string, error) { return keyOf(o.(*unstructured.Unstructured).GetName()), nil },
		NewFunc: create, NewListFunc: list, GetAttrsFunc: attrs, Codec: codec, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	delegator, store := cacher.NewCacheDelegator(c, raw), &counted{Interface: raw}
	l := &life{Storage: New(delegator, store), store: store, end: sync.OnceFunc(func() {
		delegator.Stop()
		c.Stop()
		raw.Close()
	})}
	late := time.Now().Add(waitMax)
	for delegator.ReadinessCheck() != nil {
		if time.Now().After(late) {
			t.Fatal("the cache is not ready")
		}
	}
	return l
}

func keyOf(name string) string { return "/things/" + name }

// wrote is an event as its writer knows it.
type wrote struct {
	kind    watch.EventType
	name    string
	even    bool // what the selector of the tests selects
	version uint64
}

// write makes, changes or removes a thing.
func (l *life) write(ctx context.Context, t failer, kind watch.EventType, name string, even bool) wrote {
	t.Helper()
	o, out := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	o.SetAPIVersion("example.org/v1")
	o.SetKind("Thing")
	o.SetName(name)
	o.SetLabels(map[string]string{"even": strconv.FormatBool(even)})
	var err error
	switch kind {
	case watch.Added:
		err = l.Create(ctx, keyOf(name), o, out, 0)
	case watch.Modified:
		err = l.GuaranteedUpdate(ctx, keyOf(name), out, false, nil, storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return o, nil }), nil)
	default:
		err = l.Delete(ctx, keyOf(name), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		even = out.GetLabels()["even"] == "true"
	}
	if err != nil {
		t.Fatal(err)
	}
	return wrote{kind, name, even, versionOf(t, out)}
}

func versionOf(t failer, o runtime.Object) uint64 {
	t.Helper()
	v, err := storage.APIObjectVersioner{}.ObjectResourceVersion(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// client reads what a watch tells as soon as it does.
type client struct {
	watch.Interface
	events chan watch.Event
}

// eventsMax is more than any test has events.
const eventsMax = 1000

func (l *life) follow(ctx context.Context, t failer, version uint64, selector labels.Selector) client {
	t.Helper()
	c := client{l.watchFrom(ctx, t, version, selector), make(chan watch.Event, eventsMax)}
	go func() {
		defer close(c.events)
		for e := range c.ResultChan() {
			c.events <- e
		}
	}()
	return c
}

func nameOf(t failer, o runtime.Object) string {
	t.Helper()
	m, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	return m.GetName()
}

func (l *life) watchFrom(ctx context.Context, t failer, version uint64, selector labels.Selector) watch.Interface {
	t.Helper()
	w, err := l.Watch(ctx, "/things", storage.ListOptions{
		ResourceVersion: strconv.FormatUint(version, 10), Recursive: true,
		Predicate: storage.SelectionPredicate{Label: selector, Field: fields.Everything(), GetAttrs: func(o runtime.Object) (labels.Set, fields.Set, error) {
			return o.(*unstructured.Unstructured).GetLabels(), nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// next is the next event of a watch.
func next(t failer, c client) watch.Event {
	t.Helper()
	late := time.NewTimer(waitMax)
	defer late.Stop()
	select {
	case e, open := <-c.events:
		if !open {
			t.Fatal("the watch has ended")
		}
		return e
	case <-late.C:
		t.Fatalf("no event after %v", waitMax)
	}
	return watch.Event{}
}

// selected is the naive model of a selector: what a watcher sees who sees even things only.
func selected(all []wrote) []wrote {
	var seen []wrote
	is := map[string]bool{}
	for _, w := range all {
		was := is[w.name]
		is[w.name] = w.even && w.kind != watch.Deleted
		switch {
		case is[w.name] && !was:
			w.kind = watch.Added
		case !is[w.name] && was:
			w.kind = watch.Deleted
		case !is[w.name]:
			continue
		}
		seen = append(seen, w)
	}
	return seen
}

// TestNoGapNoDuplicate: whatever happened in one life of the server, and while and after a watch is taken up in the next, the watch
// tells each change since its version once, in order.
func TestNoGapNoDuplicate(t *testing.T) {
	db := etcdtest.Connect(t)
	var runs atomic.Int32
	rapid.Check(t, func(t *rapid.T) {
		prefix := fmt.Sprintf("/run%d", runs.Add(1))
		var all []wrote
		there, label := map[string]bool{}, map[string]bool{}
		l := begin(t, db, prefix)
		defer func() { l.end() }()
		write := func() {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
			kind := watch.Added
			if there[name] {
				kind = rapid.SampledFrom([]watch.EventType{watch.Modified, watch.Deleted}).Draw(t, "kind")
			}
			// Without a label that differs an update would write nothing.
			even := rapid.Bool().Draw(t, "even")
			if kind == watch.Modified {
				even = !label[name]
			}
			label[name] = even
			all = append(all, l.write(context.Background(), t, kind, name, even))
			there[name] = kind != watch.Deleted
		}
		repeat := func(label string, most int) {
			for range rapid.IntRange(0, most).Draw(t, label) {
				write()
			}
		}
		write()
		repeat("before", 12)
		from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
		l.end()
		l = begin(t, db, prefix)
		repeat("in the second life", 5)
		selector, want := labels.Everything(), func(all []wrote) []wrote { return all }
		if rapid.Bool().Draw(t, "select") {
			selector, want = labels.SelectorFromSet(labels.Set{"even": "true"}), selected
		}
		w := l.follow(context.Background(), t, all[from].version, selector)
		defer w.Stop()
		repeat("meanwhile", 5)
		if rapid.Bool().Draw(t, "wait for the cache") {
			l.awaitNoWatchOfEtcd(t)
		}
		repeat("after", 5)
		all = append(all, l.write(context.Background(), t, watch.Added, "end", true)) // so that the end is known
		for _, e := range want(all) {
			if e.version <= all[from].version {
				continue
			}
			got := next(t, w)
			if got.Type == watch.Error {
				t.Fatalf("want %+v, got an error: %v", e, got.Object)
			}
			if name := nameOf(t, got.Object); got.Type != e.kind || name != e.name || versionOf(t, got.Object) != e.version {
				t.Fatalf("want %+v, got %s %s at %d", e, got.Type, name, versionOf(t, got.Object))
			}
		}
	})
}

// awaitNoWatchOfEtcd waits until the cache serves all watches.
func (l *life) awaitNoWatchOfEtcd(t failer) {
	t.Helper()
	late, tick := time.NewTimer(waitMax), time.NewTicker(time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for l.store.open.Load() > 0 {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%d watches are of etcd after %v", l.store.open.Load(), waitMax)
		}
	}
}

// TestUnderWrites: many watches are taken up at once while much is written.
func TestUnderWrites(t *testing.T) {
	db := etcdtest.Connect(t)
	l := begin(t, db, "/tako")
	const before, meanwhile, watches = 50, 300, 100
	var all []wrote
	for i := range before {
		all = append(all, l.write(t.Context(), t, watch.Added, "a"+strconv.Itoa(i), true))
	}
	l.end()
	l = begin(t, db, "/tako")
	defer l.end()
	var taken []client
	for i := range watches {
		taken = append(taken, l.follow(t.Context(), t, all[i%before].version, labels.Everything()))
		for range meanwhile / watches {
			all = append(all, l.write(t.Context(), t, watch.Added, "b"+strconv.Itoa(len(all)), true))
		}
	}
	for i, w := range taken {
		for _, e := range all[i%before+1:] {
			if got := next(t, w); versionOf(t, got.Object) != e.version {
				t.Fatalf("watch %d: want %+v, got %s %s at %d", i, e, got.Type, nameOf(t, got.Object), versionOf(t, got.Object))
			}
		}
		w.Stop()
	}
	l.awaitNoWatchOfEtcd(t)
}

// TestForgotten: what etcd has forgotten is too long ago, as ever.
func TestForgotten(t *testing.T) {
	db := etcdtest.Connect(t)
	l := begin(t, db, "/tako")
	first := l.write(t.Context(), t, watch.Added, "a", true)
	last := l.write(t.Context(), t, watch.Deleted, "a", true)
	l.end()
	if _, err := db.Compact(t.Context(), int64(last.version)); err != nil {
		t.Fatal(err)
	}
	l = begin(t, db, "/tako")
	defer l.end()
	w := l.follow(t.Context(), t, first.version-1, labels.Everything())
	defer w.Stop()
	if e := next(t, w); !expired(e) {
		t.Errorf("%+v", e)
	}
	if _, open := <-w.events; open {
		t.Error("the watch goes on")
	}
}

// TestStop: a watch that is stopped, or whose request ends, while it is taken up leaves nothing behind.
func TestStop(t *testing.T) {
	db := etcdtest.Connect(t)
	l := begin(t, db, "/tako")
	first := l.write(t.Context(), t, watch.Added, "a", true)
	l.write(t.Context(), t, watch.Modified, "a", false)
	l.end()
	l = begin(t, db, "/tako")
	defer l.end()
	for range 20 {
		l.watchFrom(t.Context(), t, first.version, labels.Everything()).Stop() // nobody has read
		ctx, cancel := context.WithCancel(t.Context())
		w := l.watchFrom(ctx, t, first.version, labels.Everything())
		cancel()
		for range w.ResultChan() {
			continue // it ends
		}
		w.Stop()
	}
	l.awaitNoWatchOfEtcd(t)
}
