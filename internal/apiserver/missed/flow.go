package missed

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// told is a watch of etcd for the cache, between whose events it can be held. It has one goroutine, which ends with the watch.
type told struct {
	from watch.Interface
	flow chan struct{}
	out  chan watch.Event
	stop chan struct{}
	once sync.Once
}

// opened is the watch of etcd for the cache.
func (c *Cache) opened(from watch.Interface) watch.Interface {
	w := &told{from: from, flow: c.flow, out: make(chan watch.Event), stop: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open = w; c.broken {
		w.Stop()
	}
	go w.run()
	return w
}

// ResultChan returns the events.
func (w *told) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch: no event comes after it.
func (w *told) Stop() {
	w.once.Do(func() { close(w.stop) })
}

func (w *told) run() {
	defer close(w.out)
	defer w.from.Stop()
	for {
		select {
		case e, open := <-w.from.ResultChan():
			if !open || !w.tell(e) {
				return
			}
		case <-w.stop:
			return
		}
	}
}

// tell hands an event to the cache; false when the watch has ended, which may be while nothing flows.
func (w *told) tell(e watch.Event) bool {
	select {
	case w.flow <- struct{}{}:
	case <-w.stop:
		return false
	}
	defer func() { <-w.flow }()
	select {
	case <-w.stop:
		return false
	default:
	}
	select {
	case w.out <- e:
		return true
	case <-w.stop:
		return false
	}
}

// expired is what a watch is told that would go on from before something was missed.
func expired() watch.Event {
	return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("a change was missed before, so that everything is to be listed again").ErrStatus}
}

// refused is a watch that says so at once. The library gives an event too, and no error: clients take an error for something that passes.
func refused() watch.Interface {
	only := make(chan watch.Event, 1)
	only <- expired()
	close(only)
	return watch.NewProxyWatcher(only)
}

// served is a watch that somebody has, and that ends when it is known that he may have missed something. It has one goroutine, which ends with the
// watch or the context of the request.
type served struct {
	version uint64 // from which it goes on; 0 where it began with what there was
	from    watch.Interface
	out     chan watch.Event
	expired chan struct{} // closed by raise
	stop    chan struct{}
	once    sync.Once
}

// serve hands on a watch that was begun when nobody could go on from before a floor.
func (c *Cache) serve(ctx context.Context, from watch.Interface, version, floor uint64) watch.Interface {
	s := &served{version: version, from: from, out: make(chan watch.Event), expired: make(chan struct{}), stop: make(chan struct{})}
	c.mu.Lock()
	if c.floor > floor && version < c.floor {
		close(s.expired)
	} else {
		c.served[s] = true
	}
	c.mu.Unlock()
	go func() {
		defer close(s.out)
		s.run(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.served, s)
	}()
	return s
}

// ResultChan returns the events.
func (s *served) ResultChan() <-chan watch.Event { return s.out }

// Stop ends the watch.
func (s *served) Stop() {
	s.once.Do(func() { close(s.stop) })
}

func (s *served) run(ctx context.Context) {
	defer s.from.Stop()
	for more := true; more; {
		select {
		case e, open := <-s.from.ResultChan():
			more = open && s.send(ctx, e)
		case <-s.expired:
			more = false
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-s.expired: // the cache may have ended the watch for the same reason
		s.from.Stop()
		select {
		case s.out <- expired():
		case <-s.stop:
		case <-ctx.Done():
		}
	default:
	}
}

func (s *served) send(ctx context.Context, e watch.Event) bool {
	select {
	case s.out <- e:
		return true
	case <-s.expired:
	case <-s.stop:
	case <-ctx.Done():
	}
	return false
}
