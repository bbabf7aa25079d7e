package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// budgets are the places of calls that send content. Whoever needs all of a layer has places of its own, so that large first transfers do
// not keep small changes waiting.
type budgets struct{ snapshots, deltas *budget }

// budget is a number of places, and a bounded number of calls that wait for one.
type budget struct {
	places  chan struct{} // has something for each place that is taken
	queue   chan struct{} // the same for each call that waits
	waiting prometheus.Gauge
}

// queuePlaces is how many calls wait for each place.
const queuePlaces = 16

func newBudget(name string, places int, m *metrics) *budget {
	return &budget{places: make(chan struct{}, places), queue: make(chan struct{}, places*queuePlaces), waiting: m.waiting.WithLabelValues(name)}
}

// enter takes a place, or waits for one for at most so long. The error is TransferBusy.
func (b *budget) enter(ctx context.Context, most time.Duration) (leave func(), err error) {
	leave = func() { <-b.places }
	select {
	case b.places <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case b.queue <- struct{}{}:
	default:
		return nil, b.busy(most)
	}
	defer func() { <-b.queue }()
	b.waiting.Inc()
	defer b.waiting.Dec()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case b.places <- struct{}{}:
		return leave, nil
	case <-timer.C:
		return nil, b.busy(most)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// busy says when to come again: later than the wait that was in vain, and not all at once.
func (b *budget) busy(most time.Duration) error {
	return &reason.Error{
		Code: reason.TransferBusy, Doing: "bring a state to a host", Cause: fmt.Errorf("%d are on their way, and %d wait", cap(b.places), len(b.queue)),
		After: most + rand.N(4*most),
	}
}
