// Package budget bounds how many calls of a kind are answered at once, and how many of them one caller may have.
package budget

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// Budget is a number of places, and a bounded number of calls that wait for one.
type Budget struct {
	places  chan struct{} // has something for each place that is taken
	queue   chan struct{} // the same for each call that waits
	waiting prometheus.Gauge

	mu      sync.Mutex     // guards callers
	callers map[string]int // how many calls of each have a place or wait for one, by name
}

// queuePlaces is how many calls wait for each place.
const queuePlaces = 16

// New makes a budget of so many places. The gauge tells how many calls wait for one.
func New(places int, waiting prometheus.Gauge) *Budget {
	return &Budget{places: make(chan struct{}, places), queue: make(chan struct{}, places*queuePlaces), waiting: waiting, callers: map[string]int{}}
}

// Taken is how many places are taken.
func (b *Budget) Taken() int { return len(b.places) }

// Enter takes a place for a call of a caller, of which at most calls may have one or wait for one, or waits for one for at most so long. The error
// is TransferBusy, or the context's.
func (b *Budget) Enter(ctx context.Context, caller string, calls int, most time.Duration) (leave func(), err error) {
	if !b.count(caller, calls) {
		return nil, b.busy(most, fmt.Errorf("%d calls of this host are open", calls))
	}
	if err := b.take(ctx, most); err != nil {
		b.uncount(caller)
		return nil, err
	}
	return func() {
		<-b.places
		b.uncount(caller)
	}, nil
}

// count counts a call of a caller; false when there are enough.
func (b *Budget) count(caller string, calls int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.callers[caller] >= calls {
		return false
	}
	b.callers[caller]++
	return true
}

func (b *Budget) uncount(caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.callers[caller]--; b.callers[caller] == 0 {
		delete(b.callers, caller)
	}
}

// take takes a place.
func (b *Budget) take(ctx context.Context, most time.Duration) error {
	select {
	case b.places <- struct{}{}:
		return nil
	default:
	}
	full := fmt.Errorf("%d are on their way, and %d wait", cap(b.places), len(b.queue))
	select {
	case b.queue <- struct{}{}:
	default:
		return b.busy(most, full)
	}
	defer func() { <-b.queue }()
	b.waiting.Inc()
	defer b.waiting.Dec()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case b.places <- struct{}{}:
		return nil
	case <-timer.C:
		return b.busy(most, full)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busy says when to come again: later than the wait that was in vain, and not all at once.
func (b *Budget) busy(most time.Duration, why error) error {
	return &reason.Error{Code: reason.TransferBusy, Doing: "bring a state to a host", Cause: why, After: most + rand.N(4*most)}
}
