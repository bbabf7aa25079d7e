package enroll

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

const (
	// From one address this many attempts may fail at once, and one more after each pause: a person who mistypes does not notice it,
	// and whoever tries tokens gets nowhere, for which the 160 bits of one would be enough. As many certificates of one key are given
	// again: an answer that was lost is asked for once more, and not in a loop.
	failuresAtOnce = 10
	failurePause   = 6 * time.Second
	// failuresMax is how many addresses, and keys, are remembered: those that have not failed for longest are forgotten.
	failuresMax = 4096
	// addressBits is how much of an IPv6 address is one client's: a site has 64 bits for itself (RFC 4291, section 2.5.4).
	addressBits = 64
)

// failures counts what there should be few of: attempts to join that have failed, by site, and certificates that were given again, by key.
type failures[K comparable] struct {
	mu      sync.Mutex // guards all below
	of      map[K]*list.Element
	recency *list.List // of *failing[K], the one that has failed last first
}

// failing is somebody of whom something was counted. Each moves his end one pause on; how far that is ahead of the clock is how many.
type failing[K comparable] struct {
	who K
	end time.Time
}

func newFailures[K comparable]() *failures[K] {
	return &failures[K]{of: map[K]*list.Element{}, recency: list.New()}
}

// wait is how long somebody has to wait until he may try again; 0 is not at all.
func (f *failures[K]) wait(who K, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, is := f.of[who]
	if !is {
		return 0
	}
	return max(0, e.Value.(*failing[K]).end.Sub(now)-(failuresAtOnce-1)*failurePause)
}

// note counts one more.
func (f *failures[K]) note(who K, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, is := f.of[who]
	if !is {
		if f.recency.Len() >= failuresMax {
			oldest := f.recency.Back()
			delete(f.of, f.recency.Remove(oldest).(*failing[K]).who)
		}
		e = f.recency.PushFront(&failing[K]{who: who, end: now})
		f.of[who] = e
	}
	f.recency.MoveToFront(e)
	of := e.Value.(*failing[K])
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
