package server

import (
	"errors"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
	"tako.dev/tako/internal/transfer/server/budget"
)

// budgets are the places of calls that send content. Whoever needs all of a layer has places of its own, so that large first transfers do
// not keep small changes waiting; and so do objects.
type budgets struct{ snapshots, deltas, objects *budget.Budget }

func newBudgets(l Limits, m *metrics) budgets {
	of := func(name string, places int) *budget.Budget {
		return budget.New(places, m.waiting.WithLabelValues(name))
	}
	return budgets{snapshots: of("snapshots", l.Snapshots), deltas: of("deltas", l.Deltas), objects: of("objects", l.Objects)}
}

const (
	// hostPlaces is how many calls of one node may have a place or wait for one: an agent makes one at a time, and its last one may not have
	// been found lost yet. A host that reads slowly, or lies, takes no more of them from the others.
	hostPlaces = 2
	// relayPlaces is the same of one relay, which asks once for many hosts, and for several layers at once: half of the places for snapshots.
	relayPlaces = 8
)

// placesOf is how many places a caller may have.
func placesOf(who Identity) int {
	if who.Relay {
		return relayPlaces
	}
	return hostPlaces
}

// enter takes a place for the caller, or waits for one.
func (s *Server) enter(q *request, b *budget.Budget) (leave func(), err error) {
	return b.Enter(q.Context(), q.who.caller(), placesOf(q.who), s.opts.Times.Turn)
}

// errand is what a node has an allowance for.
type errand uint8

// The errands.
const (
	speaking   errand = iota // calls that are about the host itself
	fetching                 // calls for content
	connecting               // connections that cost its address nothing
	relaying                 // all calls of a relay
	errands
)

// bucketsEvery is how often nodes are forgotten that use nothing: to look through all takes a millisecond.
const bucketsEvery = time.Minute

// connects: an agent that dials again and again, over a bad line, pauses for some seconds each time. A handshake takes about a millisecond
// of one processor: above this they are its address's, of which others are protected from (Limits.SourceAccepts).
func connects() bucket.Rate { return bucket.Rate{Burst: 30, Second: 0.5} }

// burstOf is how many seconds' worth of its calls a node may make at once: that of a host whose configs all change, and which reports
// each.
const burstOf = 10

// allowances bound what one node can have the server do, however many connections it has: whoever holds a valid certificate gets his
// share and no more, so that the others have theirs. There is an entry for each node that called lately.
type allowances struct {
	rates [errands]bucket.Rate

	mu     sync.Mutex // guards all below
	nodes  map[string]*[errands]bucket.Bucket
	forgot time.Time
}

func newAllowances(l Limits) *allowances {
	each := func(n int) bucket.Rate { return bucket.Rate{Burst: burstOf * float64(n), Second: float64(n)} }
	return &allowances{
		nodes: map[string]*[errands]bucket.Bucket{},
		rates: [errands]bucket.Rate{speaking: each(l.NodeCalls), fetching: each(l.NodeFetches), connecting: connects(), relaying: each(l.RelayCalls)},
	}
}

// take takes one; when there is none it says how long to wait until there is.
func (a *allowances) take(node string, e errand, now time.Time) (ok bool, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.forgot) > bucketsEvery {
		a.forgetLocked(now)
	}
	buckets := a.nodes[node]
	if buckets == nil {
		buckets = &[errands]bucket.Bucket{}
		a.nodes[node] = buckets
	}
	b := &buckets[e]
	if b.Take(a.rates[e], now) {
		return true, 0
	}
	return false, b.Wait(a.rates[e])
}

// forgetLocked drops those of which nothing is used: they are as good as none.
func (a *allowances) forgetLocked(now time.Time) {
	a.forgot = now
	for node, buckets := range a.nodes {
		used := 0.0
		for e := range buckets {
			buckets[e].Leak(a.rates[e], now)
			used += buckets[e].Used
		}
		if used == 0 {
			delete(a.nodes, node)
		}
	}
}

const (
	// hastyMax is how many calls above its allowance a host may make over one connection: an agent pauses after each.
	hastyMax = 100
	// strangeMax is how many calls a connection may make that has not shown who it is: to join takes three.
	strangeMax = 16
)

// allow says whether the caller may make one call more. One who goes on all the same loses his connection.
func (s *Server) allow(q *request, e errand, now time.Time) error {
	seen := q.conn.shown.Load()
	if seen == nil || seen.name.Load() == nil {
		if q.conn.strange.Add(1) > strangeMax {
			return &reason.Error{Code: reason.TransferBusy, Doing: "serve a host", Cause: errors.New("this connection has made too many calls"), After: s.opts.Times.Stranger}
		}
		return nil
	}
	node := seen.name.Load().caller()
	if seen.name.Load().Relay {
		e = relaying
	}
	ok, wait := s.allowances.take(node, e, now)
	if ok {
		return nil
	}
	if q.conn.hasty.Add(1) > hastyMax {
		_ = q.conn.Close()
	}
	return &reason.Error{Code: reason.TransferBusy, Doing: "serve node " + node, Cause: errors.New("it calls too often"), After: max(wait, time.Second)}
}
