package missed

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"tako.dev/tako/internal/apiserver/etcd/etcdtest"
)

func TestDiffering(t *testing.T) {
	stored := map[string]uint64{"same": 3, "newer": 9, "missing": 4}
	seen := map[string]uint64{"same": 3, "newer": 5, "gone": 7, "younger": 20}
	if got := slices.Sorted(maps.Keys(Differing(stored, seen, 10))); !slices.Equal(got, []string{"gone", "missing", "newer"}) {
		t.Errorf("differ: %v", got)
	}
}

// TestEvery: what a watch has not told is found within ten minutes.
func TestEvery(t *testing.T) {
	if every < 5*time.Minute || every+every/2+compareMax > 10*time.Minute {
		t.Errorf("compared every %s to %s", every, every+every/2)
	}
}

// TestPages: a million keys are about as many pages as fifty thousand, and few keys are not read all at once.
func TestPages(t *testing.T) {
	for count, want := range map[int64]int64{0: 500, 50_000: 500, 100_000: 1000, 1_000_000: 10_000, 5_000_000: 10_000} {
		if got := pageOf(count); got != want {
			t.Errorf("%d keys: pages of %d, want %d", count, got, want)
		}
	}
}

// TestManyPages: all keys are read, page after page.
func TestManyPages(t *testing.T) {
	db := etcdtest.Connect(t)
	s := begin(t, db)
	for n := range 2*pageMin + 1 {
		s.put(t, name(n))
	}
	versions, err := s.missed.Versions(t.Context(), 0)
	if err != nil || len(versions) != 2*pageMin+1 || versions[name(pageMin)] == 0 {
		t.Errorf("%d versions, %v", len(versions), err)
	}
	if lost, err := s.missed.lost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("lost: %v, %v", lost, err)
	}
}

// expires waits until a watch is told that it comes too late, and ends.
func expires(t *testing.T, w watch.Interface) {
	t.Helper()
	defer w.Stop()
	for e := range within(t, w.ResultChan()) {
		if e.Type != watch.Error {
			continue
		}
		if status := e.Object.(*metav1.Status); status.Reason != metav1.StatusReasonExpired || status.Code != 410 {
			t.Fatalf("the watch is told %v", status)
		}
		if e, more := <-w.ResultChan(); more {
			t.Fatalf("after that comes %v", e)
		}
		return
	}
	t.Fatal("the watch ends, and is not told why")
}

// TestLost: what the cache was not told of is found, and whoever watches lists anew: who had a watch, who goes on from before, at this
// server, at another one, and at one that is started afterwards.
func TestLost(t *testing.T) {
	db := etcdtest.Connect(t)
	a, b := begin(t, db), begin(t, db)
	a.follow(t)
	first := b.put(t, "thing")
	for _, s := range []*server{a, b} {
		s.has(t, "thing", first)
	}
	b.lose(t, func() { b.put(t, "thing") })
	later := b.put(t, "other")
	openA, openB := a.watch(t, first), b.watch(t, later)
	early, err := a.Watch(t.Context(), prefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}) // tells first what there is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(early.Stop)
	if err := b.compare(t); err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(b.meters.lost.WithLabelValues(things.String())); n != 1 {
		t.Errorf("%v lost events", n)
	}
	expires(t, openB)
	expires(t, openA)
	expires(t, early)
	after := begin(t, db)
	for _, s := range []*server{a, b, after} {
		expires(t, s.watch(t, later))
		version := s.has(t, "thing", first+1)
		w := s.watch(t, s.put(t, "next"))
		next := s.put(t, "thing")
		if e := <-within(t, w.ResultChan()); e.Type == watch.Error || versionOf(t, e.Object) != next {
			t.Errorf("from %d on: %v", version, e)
		}
		w.Stop()
	}
	if lost, err := b.missed.lost(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("afterwards it lacks %v, %v", lost, err)
	}
}

// TestNoRoom: where nothing can be written, what the cache has is served on, and the comparison says that it failed; when there is room again
// the next one puts it right.
func TestNoRoom(t *testing.T) {
	s := begin(t, etcdtest.Connect(t))
	first := s.put(t, "thing")
	s.has(t, "thing", first)
	s.lose(t, func() { s.put(t, "thing") })
	open := s.watch(t, first)
	s.kv.full.Store(true)
	if err := s.compare(t); err == nil {
		t.Fatal("the mark is written")
	}
	if n := testutil.CollectAndCount(s.meters.compared); n != 0 {
		t.Errorf("it counts as compared")
	}
	s.has(t, "thing", first)
	next := s.put(t, "next")
	for _, w := range []watch.Interface{open, s.watch(t, first)} {
		if e := <-within(t, w.ResultChan()); e.Type != watch.Added || versionOf(t, e.Object) != next {
			t.Errorf("a watch is told %v", e)
		}
		w.Stop()
	}
	if n := s.raw.watches.Load(); n != 1 {
		t.Errorf("the cache has begun %d watches of etcd", n)
	}
	s.kv.full.Store(false)
	if err := s.compare(t); err != nil {
		t.Fatal(err)
	}
	expires(t, s.watch(t, next))
	s.has(t, "thing", first+1)
}

// TestStalled: a cache that hears nothing any more reads everything again after some comparisons.
func TestStalled(t *testing.T) {
	s := begin(t, etcdtest.Connect(t))
	s.has(t, "thing", s.put(t, "thing"))
	s.raw.stall()
	next := s.put(t, "thing")
	for range behindMax {
		if err := s.compare(t); err == nil || apierrors.IsResourceExpired(err) {
			t.Fatalf("a cache that is behind is compared: %v", err)
		}
	}
	becomes(t, "it is compared", func() (string, bool) {
		err := s.compare(t)
		return fmt.Sprint(err), err == nil
	})
	s.has(t, "thing", next)
}
