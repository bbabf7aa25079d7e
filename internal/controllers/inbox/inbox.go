// Package inbox collects what a watch says about the objects of one kind, until it is taken: so that a loop that owns its state decides on the
// newest of everything, and nothing waits in a queue; and it paces the rounds of such a loop. It owns no goroutine.
package inbox

import (
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Inbox collects what a watch says about the objects of one kind, until it is taken. It is the store of a reflector. Of an object that
// changes several times only the last state is kept. Use New.
type Inbox[T any] struct {
	shape func(obj any) (key string, value *T) // what is kept of an object
	nudge chan struct{}
	once  sync.Once
	ready chan struct{} // closed when everything that there was is in here

	mu      sync.Mutex // guards what follows
	known   map[string]bool
	pending map[string]*T // nil: it has gone
}

// New makes one. nudge holds something when there is something to take; shape is what is kept of an object, and its key.
func New[T any](nudge chan struct{}, shape func(obj any) (string, *T)) *Inbox[T] {
	return &Inbox[T]{shape: shape, nudge: nudge, ready: make(chan struct{}), known: map[string]bool{}, pending: map[string]*T{}}
}

// Take returns what has changed since the last call, by key; nil is what has gone.
func (b *Inbox[T]) Take() map[string]*T {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		return nil
	}
	taken := b.pending
	b.pending = map[string]*T{}
	return taken
}

// Ready is closed when everything that there was is in here.
func (b *Inbox[T]) Ready() <-chan struct{} { return b.ready }

func (b *Inbox[T]) putLocked(obj any) string {
	key, value := b.shape(obj)
	b.known[key], b.pending[key] = true, value
	return key
}

var _ cache.ReflectorStore = (*Inbox[struct{}])(nil)

// Add takes in a new object.
func (b *Inbox[T]) Add(obj any) error { return b.Update(obj) }

// Update takes in a changed object.
func (b *Inbox[T]) Update(obj any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putLocked(obj)
	Signal(b.nudge)
	return nil
}

// Delete notes that an object has gone.
func (b *Inbox[T]) Delete(obj any) error {
	key, _ := b.shape(obj)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, key)
	b.pending[key] = nil
	Signal(b.nudge)
	return nil
}

// Replace takes in all objects that there are, and notes that the others have gone.
func (b *Inbox[T]) Replace(list []any, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := maps.Clone(b.known)
	for _, obj := range list {
		delete(gone, b.putLocked(obj))
	}
	for key := range gone {
		delete(b.known, key)
		b.pending[key] = nil
	}
	b.once.Do(func() { close(b.ready) })
	Signal(b.nudge)
	return nil
}

// Resync has nothing to do.
func (b *Inbox[T]) Resync() error { return nil }

// Signal has a channel with room for one hold something. It does not wait.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is on its way
	}
}
