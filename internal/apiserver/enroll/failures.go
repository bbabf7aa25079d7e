package enroll

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

const (
	// From one address this many attempts may fail at once, and one more after each pause: a person who mistypes does not notice it,
	// and whoever tries tokens gets nowhere, for which the 160 bits of one would be enough.
	failuresAtOnce = 10
	failurePause   = 6 * time.Second
	// failuresMax is how many addresses are remembered: those that have not failed for longest are forgotten.
	failuresMax = 4096
	// addressBits is how much of an IPv6 address is one client's: a site has 64 bits for itself (RFC 4291, section 2.5.4).
	addressBits = 64
)

// failures counts attempts to join that have failed, by address.
type failures struct {
	mu      sync.Mutex // guards all below
	of      map[netip.Addr]*list.Element
	recency *list.List // of *failing, the one that has failed last first
}

// failing is an address from which attempts have failed. Each moves its end one pause on; how far that is ahead of the clock is how many.
type failing struct {
	from netip.Addr
	end  time.Time
}

func newFailures() *failures {
	return &failures{of: map[netip.Addr]*list.Element{}, recency: list.New()}
}

// wait is how long an address has to wait until it may try again; 0 is not at all.
func (f *failures) wait(from netip.Addr, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, is := f.of[site(from)]
	if !is {
		return 0
	}
	return max(0, e.Value.(*failing).end.Sub(now)-(failuresAtOnce-1)*failurePause)
}

// note notes that an attempt has failed.
func (f *failures) note(from netip.Addr, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from = site(from)
	e, is := f.of[from]
	if !is {
		if f.recency.Len() >= failuresMax {
			oldest := f.recency.Back()
			delete(f.of, f.recency.Remove(oldest).(*failing).from)
		}
		e = f.recency.PushFront(&failing{from: from, end: now})
		f.of[from] = e
	}
	f.recency.MoveToFront(e)
	of := e.Value.(*failing)
	if of.end.Before(now) {
		of.end = now
	}
	of.end = of.end.Add(failurePause)
}

// site is what is taken for one client.
func site(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(addressBits)
	if err != nil {
		return a
	}
	return p.Addr()
}
