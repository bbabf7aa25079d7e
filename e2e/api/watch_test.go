//go:build e2e

package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"tako.dev/tako/e2e/host"
)

// TestWatchersOverKills kills the server in the middle of writes, again and again. Informers of both kinds, a controller-runtime
// manager and client-go's watcher that resumes tell each change once: whatever was written before the kill and not told yet, and
// what is written right after it.
func TestWatchersOverKills(t *testing.T) {
	s := newServer(t)
	c := s.client(t)
	l := newLoad(t, c) // for its namespace and its way to write; no writers are started
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &watchers{reconciled: newTally(), tallies: map[string]*tally{
		"the informer": inform(ctx, t, c, false), "the informer that streams": inform(ctx, t, c, true),
		"the manager": newTally(), "the watcher that resumes": resume(ctx, t, c),
	}}
	elected, stop := manage(ctx, t, s.config(t), "over-kills", w.tallies["the manager"], w.reconciled)
	t.Cleanup(stop)
	await(t, "the manager leads", elected)

	// Objects that exist before, each written once: so who sees the result only counts the same.
	const perKill = 6
	var b book
	b.make(t, l, perKill*kills)
	b.expect = counts{added: perKill * kills}
	b.await(t, w)
	for i := range kills {
		at := i * perKill
		b.change(t, l, at, at+2)
		b.remove(t, l, at+2, at+3)
		b.make(t, l, 1)
		s.kill(t)
		s.start(t)
		b.change(t, l, at+3, at+5)
		b.remove(t, l, at+5, at+6)
		b.make(t, l, 1)
		b.expect.added += 2
		b.expect.updated += 4
		b.expect.deleted += 2
	}
	b.await(t, w)
}

// resume follows the ConfigMaps of the load's namespace from now on with client-go's watcher that resumes where it was, and that
// ends when the server does not know any more what was since then.
func resume(ctx context.Context, t *testing.T, c kubernetes.Interface) *tally {
	t.Helper()
	objects := c.CoreV1().ConfigMaps(loadNamespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return objects.Watch(ctx, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	out, last := newTally(), map[string]*core.ConfigMap{}
	var all sync.WaitGroup
	all.Go(func() {
		for e := range w.ResultChan() {
			o, is := e.Object.(*core.ConfigMap)
			if !is {
				out.fault(describe(e))
				continue
			}
			if e.Type == watch.Deleted {
				out.remove(o)
				delete(last, o.Name)
				continue
			}
			if (last[o.Name] == nil) != (e.Type == watch.Added) {
				out.fault(string(e.Type) + " of " + o.Name)
			}
			out.set(last[o.Name], o)
			last[o.Name] = o
		}
	})
	t.Cleanup(all.Wait)
	return out
}

// TestWatchFromBeforeAKill: a watch goes on at a version from before the server was killed, as long as etcd has not forgotten what
// was since then.
func TestWatchFromBeforeAKill(t *testing.T) {
	s := newServer(t)
	l := newLoad(t, s.client(t))
	var b book
	b.make(t, l, 3)
	list, err := l.objects.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from := list.ResourceVersion
	b.change(t, l, 0, 1)
	b.remove(t, l, 1, 2)
	s.kill(t)
	s.start(t)
	b.make(t, l, 1)
	for _, test := range []struct {
		name  string
		field string
		want  []string
	}{
		{"all", "", []string{"MODIFIED o0", "DELETED o1", "ADDED o3"}},
		{"one", "metadata.name=o1", []string{"DELETED o1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := l.objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from, FieldSelector: test.field})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for _, want := range test.want {
				if got := describe(event(t, w)); got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
		})
	}
	compact(t, s)
	s.kill(t)
	s.start(t)
	w, err := l.objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := event(t, w); e.Type != watch.Error || e.Object.(*metav1.Status).Code != http.StatusGone {
		t.Errorf("of what is forgotten: %s", describe(e))
	}
}

// event is the next event of a watch.
func event(t *testing.T, w watch.Interface) (e watch.Event) {
	t.Helper()
	host.Eventually(t, settleTime, "there is an event", func() (string, bool) {
		select {
		case got, open := <-w.ResultChan():
			if !open {
				t.Fatal("the watch has ended")
			}
			e = got
			return "", true
		default:
			return "none", false
		}
	})
	return e
}

// describe says what an event tells, in few words.
func describe(e watch.Event) string {
	switch o := e.Object.(type) {
	case *core.ConfigMap:
		return string(e.Type) + " " + o.Name
	case *metav1.Status:
		return string(e.Type) + " " + o.Message
	}
	return string(e.Type)
}
