package supply

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// nobody is a client.Credential that is not asked: no call is made here.
type nobody struct{}

func (nobody) Certificate() (*tls.Certificate, error) { return nil, errors.New("nobody calls") }
func (nobody) Trust() *trust.Chain                    { return nil }

// world is what a Supply works with.
type world struct {
	mu      sync.Mutex // guards what follows
	takes   int
	err     error // what comes of a fetch
	servers []string
	changed chan struct{}
	named   bool
}

func (w *world) take(ctx context.Context, _ content.Digest, _ content.Source) error {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes++
	return w.err
}

func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takes
}

// run has a Supply run in a bubble.
func run(t *testing.T, test func(w *world, s *Supply)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{servers: []string{"a"}, changed: make(chan struct{}), named: true}
		s, err := New(Options{
			Objects: w.take, Bundles: w.take, Identity: nobody{}, Log: slog.New(slog.DiscardHandler),
			Others: func() ([]string, <-chan struct{}) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.servers, w.changed
			},
			Named: func(context.Context, content.Digest) (bool, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.named, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.Run(ctx) })
		test(w, s)
		cancel()
		all.Wait()
	})
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestManyAsk(t *testing.T) {
	run(t, func(w *world, s *Supply) {
		for range 1000 {
			if err := s.Ask(Object, content.DigestOf(nil)); !reason.Is(err, reason.ObjectComing) {
				t.Fatal(err)
			}
			pass(time.Millisecond / 2)
		}
		pass(time.Minute)
		if n := w.count(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// TestBundleComesLate: one that nobody has is asked for with pauses of at most a minute; when there is another server, at once; and when nothing
// names it, no more.
func TestBundleComesLate(t *testing.T) {
	run(t, func(w *world, s *Supply) {
		w.change(func() { w.err = absent(Bundle) })
		_ = s.Ask(Bundle, content.DigestOf(nil))
		pass(time.Hour)
		was := w.count()
		if was < 60 || was > 150 {
			t.Errorf("%d calls in an hour", was)
		}
		for w.count() == was {
			pass(time.Second)
		}
		was = w.count()
		w.change(func() {
			w.servers = []string{"a", "b"}
			close(w.changed)
			w.changed = make(chan struct{})
		})
		pass(1100 * time.Millisecond)
		if n := w.count(); n < was+1 {
			t.Error("another server is not asked")
		}
		w.change(func() { w.named = false })
		pass(2 * time.Minute)
		was = w.count()
		pass(time.Hour)
		if n := w.count(); n != was {
			t.Errorf("%d calls for what nothing names", n-was)
		}
	})
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{}); !reason.Is(err, reason.InternalFault) {
		t.Error(err)
	}
}
