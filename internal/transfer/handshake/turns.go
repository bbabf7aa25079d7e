package handshake

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// turnsOfOne is how many handshakes of each processor are computed at once: most of them wait for an answer from the other side of the world.
	turnsOfOne = 16
	// turnMax is how long a turn lasts at most: longer than an honest answer takes, so that who never answers keeps others waiting for no longer.
	turnMax = 250 * time.Millisecond
	// waitingOfOne is how many wait for a turn of each processor until no more are accepted: a fraction of a second's worth. In the kernel they
	// cost nothing, and above what it keeps they have to dial again, by the kernel of their own host.
	waitingOfOne = 4 * turnsOfOne
)

// turns bounds the handshakes that are computed at once. Who came last has the next turn: when a herd comes, those that came first are near the
// end of their patience, and what is computed for them is in vain and keeps the others waiting until they are as near to theirs.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn // the last one is the next
	most    int     // that wait, until no more are accepted

	fewer chan struct{} // holds one: fewer wait
}

func newTurns() *turns {
	processors := runtime.GOMAXPROCS(0)
	return &turns{free: turnsOfOne * processors, most: waitingOfOne * processors, fewer: make(chan struct{}, 1)}
}

// room waits until one more may wait for its turn, or for the end.
func (t *turns) room(end <-chan struct{}) {
	for {
		t.mu.Lock()
		is := len(t.waiting) < t.most
		t.mu.Unlock()
		if is {
			return
		}
		select {
		case <-t.fewer:
		case <-end:
			return
		}
	}
}

func (t *turns) fewerLocked() {
	select {
	case t.fewer <- struct{}{}:
	default: // it is known already
	}
}

// turn is that of one handshake.
type turn struct {
	of    *turns
	comes chan struct{} // closed when it has come

	// of's mu guards what follows.
	over  *time.Timer // nil: it has not come
	ended bool
}

func (t *turns) next() *turn { return &turn{of: t, comes: make(chan struct{})} }

// take waits for the turn. Where it does not come in time the error is the context's.
func (t *turn) take(ctx context.Context) error {
	t.of.mu.Lock()
	if t.of.free > 0 {
		t.of.free--
		t.beginLocked()
	} else {
		t.of.waiting = append(t.of.waiting, t)
	}
	t.of.mu.Unlock()
	select {
	case <-t.comes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turn) beginLocked() {
	t.over = time.AfterFunc(turnMax, t.end)
	close(t.comes)
}

// end gives the turn on, or waits for it no longer. A second time it does nothing.
func (t *turn) end() {
	all := t.of
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if t.over == nil {
		all.waiting = slices.DeleteFunc(all.waiting, func(other *turn) bool { return other == t })
		all.fewerLocked()
		return
	}
	t.over.Stop()
	last := len(all.waiting) - 1
	if last < 0 {
		all.free++
		return
	}
	after := all.waiting[last]
	all.waiting[last] = nil
	all.waiting = all.waiting[:last]
	all.fewerLocked()
	after.beginLocked()
}
