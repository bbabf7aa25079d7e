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
	atOnce int // so many have a turn
	most   int // so many wait for one, until no more are accepted

	mu      sync.Mutex // guards all below
	running []*turn    // that have come, the longest one first
	waiting []*turn    // the last one is the next

	fewer chan struct{} // holds one: fewer wait
}

func newTurns() *turns {
	processors := runtime.GOMAXPROCS(0)
	return &turns{atOnce: turnsOfOne * processors, most: waitingOfOne * processors, fewer: make(chan struct{}, 1)}
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
	began time.Time // zero: it has not come
	ended bool
}

func (t *turns) next() *turn { return &turn{of: t, comes: make(chan struct{})} }

// take waits for the turn. Where it does not come in time the error is the context's.
func (t *turn) take(ctx context.Context) error {
	t.of.mu.Lock()
	t.of.waiting = append(t.of.waiting, t)
	t.of.mu.Unlock()
	for {
		// Whoever waits ends the turns that have lasted long enough: where nobody waits, they keep nobody waiting.
		timer := time.NewTimer(t.of.pass(time.Now()))
		select {
		case <-t.comes:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// pass ends the turns that have lasted long enough, begins those that may come now, and says how long until there can be another.
func (t *turns) pass(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.running) > 0 && now.Sub(t.running[0].began) >= turnMax {
		t.running[0].ended = true
		t.running = slices.Delete(t.running, 0, 1)
	}
	t.passLocked(now)
	if len(t.running) == 0 {
		return turnMax
	}
	return turnMax - now.Sub(t.running[0].began)
}

func (t *turns) passLocked(now time.Time) {
	for len(t.running) < t.atOnce && len(t.waiting) > 0 {
		last := len(t.waiting) - 1
		one := t.waiting[last]
		t.waiting[last] = nil
		t.waiting = t.waiting[:last]
		t.running = append(t.running, one)
		one.began = now
		close(one.comes)
		t.fewerLocked()
	}
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
	same := func(other *turn) bool { return other == t }
	if t.began.IsZero() {
		all.waiting = slices.DeleteFunc(all.waiting, same)
		all.fewerLocked()
		return
	}
	all.running = slices.DeleteFunc(all.running, same)
	all.passLocked(time.Now())
}
