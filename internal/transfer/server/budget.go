package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/reason"
)

// budgets are the places of calls that send content. Whoever needs all of a layer has places of its own, so that large first transfers do
// not keep small changes waiting; and so do objects.
type budgets struct{ snapshots, deltas, objects *budget }

// budget is a number of places, and a bounded number of calls that wait for one.
type budget struct {
	places  chan struct{} // has something for each place that is taken
	queue   chan struct{} // the same for each call that waits
	waiting prometheus.Gauge

	mu    sync.Mutex     // guards hosts
	hosts map[string]int // how many calls of each node have a place or wait for one, by name
}

// hostPlaces is how many calls of one node may have a place or wait for one: an agent makes one at a time, and its last one may not have
// been found lost yet. A host that reads slowly, or lies, takes no more of them from the others.
const hostPlaces = 2

// relayPlaces is the same of one relay, which asks once for many hosts, and for several layers at once: half of the places for snapshots.
const relayPlaces = 8

// placesOf is how many places a caller may have.
func placesOf(caller string) int {
	if strings.HasPrefix(caller, relayCaller) {
		return relayPlaces
	}
	return hostPlaces
}

// queuePlaces is how many calls wait for each place.
const queuePlaces = 16

func newBudget(name string, places int, m *metrics) *budget {
	return &budget{places: make(chan struct{}, places), queue: make(chan struct{}, places*queuePlaces), waiting: m.waiting.WithLabelValues(name), hosts: map[string]int{}}
}

// enter takes a place for a node, or waits for one for at most so long. The error is TransferBusy.
func (b *budget) enter(ctx context.Context, node string, most time.Duration) (leave func(), err error) {
	if !b.count(node) {
		return nil, b.busy(most, fmt.Errorf("%d calls of this host are open", placesOf(node)))
	}
	if err := b.take(ctx, most); err != nil {
		b.uncount(node)
		return nil, err
	}
	return func() {
		<-b.places
		b.uncount(node)
	}, nil
}

// count counts a call of a node; false when there are enough.
func (b *budget) count(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[node] >= placesOf(node) {
		return false
	}
	b.hosts[node]++
	return true
}

func (b *budget) uncount(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[node]--; b.hosts[node] == 0 {
		delete(b.hosts, node)
	}
}

// take takes a place.
func (b *budget) take(ctx context.Context, most time.Duration) error {
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
func (b *budget) busy(most time.Duration, why error) error {
	return &reason.Error{Code: reason.TransferBusy, Doing: "bring a state to a host", Cause: why, After: most + rand.N(4*most)}
}
