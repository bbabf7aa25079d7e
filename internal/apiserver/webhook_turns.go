package apiserver

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// readingMax is how many calls are read at once. What is kept of each is bounded, and one that comes in at once is read in a
	// millisecond; package sources has a bound of its own above this one.
	readingMax = 12
	// readingOfOneMax is how many of these may be from one address: who sends slowly holds up nobody else.
	readingOfOneMax = 8
	// waitingMax is how many calls wait for that: a forge calls for each Source of a repository at once.
	waitingMax = 512
	// waitingOfOneMax is how many of these may be from one address.
	waitingOfOneMax = 256
	// turnMax is how long one waits: forges give up after ten seconds, and reading takes some of them.
	turnMax = 5 * time.Second
)

// turns bounds the calls that are read at once, as a whole and of each address.
type turns struct {
	reading chan struct{}

	mu    sync.Mutex // guards all below
	calls int
	of    map[netip.Prefix]*callers
}

// callers are the calls from one address.
type callers struct {
	calls   int // those that wait or are read
	reading chan struct{}
}

func newTurns() *turns {
	return &turns{reading: make(chan struct{}, readingMax), of: map[netip.Prefix]*callers{}}
}

// take waits until a call from an address may be read. Without ok there are too many, and there is nothing to be done.
func (t *turns) take(ctx context.Context, from netip.Prefix) (done func(), ok bool) {
	c := t.enter(from)
	if c == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, turnMax)
	defer cancel()
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		t.leave(from, c)
		return nil, false
	}
	select {
	case t.reading <- struct{}{}:
	case <-ctx.Done():
		<-c.reading
		t.leave(from, c)
		return nil, false
	}
	return func() {
		<-t.reading
		<-c.reading
		t.leave(from, c)
	}, true
}

// enter counts a call; nil where there are too many.
func (t *turns) enter(from netip.Prefix) *callers {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.of[from]
	if t.calls == waitingMax || c != nil && c.calls == waitingOfOneMax {
		return nil
	}
	if c == nil {
		c = &callers{reading: make(chan struct{}, readingOfOneMax)}
		t.of[from] = c
	}
	t.calls++
	c.calls++
	return c
}

// leave forgets an address from which nothing is there any more.
func (t *turns) leave(from netip.Prefix, c *callers) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls--
	if c.calls--; c.calls == 0 {
		delete(t.of, from)
	}
}

// addressMax is how much of an IPv6 address says who calls: the rest is anybody's own choice.
const addressMax = 64

// callerOf is the address from which somebody calls; the zero value where it is not known.
func callerOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	prefix, err := ip.Prefix(min(ip.BitLen(), addressMax))
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
