package auth

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// settleMax is far more than it takes to hear of a change.
const settleMax = time.Minute

// shelf is the storage of one kind: objects in memory.
type shelf struct {
	empty, list func() runtime.Object

	mu      sync.Mutex // guards all below
	objects []runtime.Object
	watches []*watch.RaceFreeFakeWatcher
}

func newShelf[T, L any, PT interface {
	*T
	runtime.Object
}, PL interface {
	*L
	runtime.Object
}](objects ...PT) *shelf {
	s := &shelf{empty: func() runtime.Object { return PT(new(T)) }, list: func() runtime.Object { return PL(new(L)) }}
	for _, o := range objects {
		s.objects = append(s.objects, o)
	}
	return s
}

// New makes an empty object.
func (s *shelf) New() runtime.Object { return s.empty() }

// List lists all.
func (s *shelf) List(context.Context, *metainternal.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list()
	if err := meta.SetList(list, s.objects); err != nil {
		return nil, err
	}
	list.(metav1.ListInterface).SetResourceVersion("1")
	return list, nil
}

// Watch tells what is taken away. Lists by watches it leaves to List.
func (s *shelf) Watch(_ context.Context, options *metainternal.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(s.empty().GetObjectKind().GroupVersionKind().GroupKind(), "", nil)
	}
	w := watch.NewRaceFreeFake()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, w)
	return w, nil
}

// isWatched says whether somebody watches.
func (s *shelf) isWatched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches) > 0
}

// remove takes an object away.
func (s *shelf) remove(o runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Delete(o)
	}
}

// TestMain hears nothing of the library. Its logger is set before anything of it runs.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// run runs something until the test ends.
func run(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// eventually waits for something that follows by itself.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.NewTimer(settleMax)
	defer late.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not within %v: %s", settleMax, what)
		}
	}
}
