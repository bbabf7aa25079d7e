package unwrap

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// wrapping is one as the watch cache makes them: each who asks for the object gets a copy.
type wrapping struct {
	*core.ConfigMap
	copies atomic.Int32
}

func (w *wrapping) GetObject() runtime.Object {
	w.copies.Add(1)
	return w.DeepCopy()
}

func (*wrapping) CacheEncode(runtime.Identifier, func(runtime.Object, io.Writer) error, io.Writer) error {
	return nil
}

var _ runtime.CacheableObject = (*wrapping)(nil)

func wrapped(name string) *wrapping {
	o := &core.ConfigMap{Data: map[string]string{"key": "value"}}
	o.Name = name
	return &wrapping{ConfigMap: o}
}

func same(e watch.Event) runtime.Object { return e.Object }

// follow begins so many watches of one source.
func follow(t *testing.T, u *Once, n int) (sources []*watch.FakeWatcher, watches []watch.Interface) {
	t.Helper()
	for range n {
		source := watch.NewFake()
		w := u.Follow(source, same)
		t.Cleanup(w.Stop)
		sources, watches = append(sources, source), append(watches, w)
	}
	return sources, watches
}

// TestFollow: those who follow share one copy of what is in a wrapping, each with fields of his own; nothing is kept when all have it.
func TestFollow(t *testing.T) {
	var u Once
	sources, watches := follow(t, &u, 3)
	w := wrapped("one")
	var got []*core.ConfigMap
	for i, source := range sources {
		go source.Add(w)
		o := (<-watches[i].ResultChan()).Object.(*core.ConfigMap)
		o.Name, o.Data["key"] = "mine", o.Data["key"]+"!"
		got = append(got, o)
	}
	if copies := w.copies.Load(); copies != 1 {
		t.Errorf("it was copied %d times", copies)
	}
	if w.Name != "one" || w.Data["key"] != "value" {
		t.Errorf("what the cache has was changed: %+v", w.ConfigMap)
	}
	if got[0] == got[1] || got[2].Data["key"] != "value!!!" {
		t.Errorf("each has %p, %p, %p with %v", got[0], got[1], got[2], got[2].Data)
	}
	if len(u.kept) != 0 {
		t.Errorf("%d are kept", len(u.kept))
	}
}

// TestBehind: who is far behind gets a copy of his own, and what nobody comes for is bounded, and let go with the last who follows.
func TestBehind(t *testing.T) {
	var u Once
	sources, watches := follow(t, &u, 2)
	first := wrapped("first")
	for i := range keptMax + 1 {
		w := first
		if i > 0 {
			w = wrapped("later")
		}
		go sources[0].Modify(w)
		<-watches[0].ResultChan()
	}
	if len(u.kept) != keptMax {
		t.Errorf("%d are kept", len(u.kept))
	}
	go sources[1].Modify(first)
	if e := <-watches[1].ResultChan(); e.Object.(*core.ConfigMap).Name != "first" || first.copies.Load() != 2 {
		t.Errorf("%+v, copied %d times", e, first.copies.Load())
	}
	for _, w := range watches {
		w.Stop()
		w.Stop()
	}
	if u.followers != 0 || len(u.kept) != 0 || u.ring != [keptMax]runtime.CacheableObject{} {
		t.Errorf("%d follow, %d are kept", u.followers, len(u.kept))
	}
}

// TestPlain: what comes without a wrapping is shared with the cache, and an error is what it is.
func TestPlain(t *testing.T) {
	var u Once
	sources, watches := follow(t, &u, 1)
	o := wrapped("plain").ConfigMap
	go sources[0].Delete(o)
	if e := <-watches[0].ResultChan(); e.Type != watch.Deleted || e.Object == runtime.Object(o) || e.Object.(*core.ConfigMap).Name != "plain" {
		t.Errorf("%+v", e)
	}
	go sources[0].Error(o)
	if e := <-watches[0].ResultChan(); e.Object != runtime.Object(o) {
		t.Errorf("%+v", e)
	}
}

// TestTogether: many at once share it.
func TestTogether(t *testing.T) {
	const followers = 8
	var u Once
	u.followers = followers
	var all sync.WaitGroup
	defer all.Wait()
	objects := make([]*wrapping, 2*keptMax)
	for i := range objects {
		objects[i] = wrapped("one")
	}
	for range followers {
		all.Go(func() {
			for _, o := range objects {
				if u.take(o).(*core.ConfigMap).Name != "one" {
					t.Error("another one")
				}
			}
		})
	}
}
