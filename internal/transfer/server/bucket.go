package server

import (
	"net/netip"
	"time"
)

// rate is how much may happen: so many at once, and so many more each second.
type rate struct {
	burst  float64
	second float64
}

// bucket holds what is left of a rate. The zero bucket is full.
type bucket struct {
	used float64
	at   time.Time // of the last look
}

func (b *bucket) leak(r rate, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.used = max(0, b.used-passed.Seconds()*r.second)
	}
	b.at = now
}

// take takes one, if there is one.
func (b *bucket) take(r rate, now time.Time) bool {
	b.leak(r, now)
	if b.used+1 > r.burst {
		return false
	}
	b.used++
	return true
}

// wait is how long until there is one.
func (b *bucket) wait(r rate) time.Duration {
	return time.Duration((b.used + 1 - r.burst) / r.second * float64(time.Second))
}

// sourcesMax bounds what is remembered of addresses: more than come in the time in which a bucket gets full again.
const sourcesMax = 10_000

// To look through all buckets takes a millisecond: when there are too many that is done once a second, otherwise seldom.
const forgetPause, forgetEvery = time.Second, time.Minute

// sources has a bucket for each address that connections came from lately. The addresses of one IPv6 network of 64 bits are one: a host has
// all of them.
type sources struct {
	rate    rate
	buckets map[netip.Prefix]*bucket
	forgot  time.Time
}

func newSources(r rate) *sources { return &sources{rate: r, buckets: map[netip.Prefix]*bucket{}} }

func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the error is for bits that an address does not have; the zero prefix is for what is no address
	return p
}

// take takes one for an address. When more addresses come than are remembered, all new ones share one bucket.
func (s *sources) take(from netip.Addr, now time.Time) bool {
	since := now.Sub(s.forgot)
	if since > forgetEvery || since > forgetPause && len(s.buckets) >= sourcesMax {
		s.forget(now)
	}
	p := sourceOf(from)
	if s.buckets[p] == nil {
		if len(s.buckets) >= sourcesMax {
			p = netip.Prefix{}
		}
		if s.buckets[p] == nil {
			s.buckets[p] = &bucket{}
		}
	}
	return s.buckets[p].take(s.rate, now)
}

// give gives one back.
func (s *sources) give(from netip.Addr) {
	if b := s.buckets[sourceOf(from)]; b != nil {
		b.used = max(0, b.used-1)
	}
}

// forget drops the buckets that are full again: they are as good as none.
func (s *sources) forget(now time.Time) {
	s.forgot = now
	for p, b := range s.buckets {
		if b.leak(s.rate, now); b.used == 0 {
			delete(s.buckets, p)
		}
	}
}
