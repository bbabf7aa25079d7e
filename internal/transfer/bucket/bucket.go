// Package bucket says how much may happen, of what others cause: so many at once, and so many more each second. It is told the time.
package bucket

import (
	"net/netip"
	"time"
)

// Rate is how much may happen: so many at once, and so many more each second.
type Rate struct {
	Burst  float64
	Second float64
}

// Bucket holds what is left of a rate. The zero Bucket is full.
type Bucket struct {
	Used float64   // whoever takes by other measures adds to it
	at   time.Time // of the last look
}

// Leak makes room for what the time since the last look allows.
func (b *Bucket) Leak(r Rate, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.Used = max(0, b.Used-passed.Seconds()*r.Second)
	}
	b.at = now
}

// Take takes one, if there is one.
func (b *Bucket) Take(r Rate, now time.Time) bool {
	b.Leak(r, now)
	if b.Used+1 > r.Burst {
		return false
	}
	b.Used++
	return true
}

// Wait is how long until there is one.
func (b *Bucket) Wait(r Rate) time.Duration {
	return time.Duration((b.Used + 1 - r.Burst) / r.Second * float64(time.Second))
}

// sourcesMax bounds what is remembered of addresses: more than come in the time in which a bucket gets full again.
const sourcesMax = 10_000

// To look through all buckets takes a millisecond: when there are too many that is done once a second, otherwise seldom.
const forgetPause, forgetEvery = time.Second, time.Minute

// Sources has a bucket for each address that connections came from lately. The addresses of one IPv6 network of 64 bits are one: a host has
// all of them.
type Sources struct {
	rate    Rate
	buckets map[netip.Prefix]*Bucket
	forgot  time.Time
}

// NewSources remembers no address.
func NewSources(r Rate) *Sources { return &Sources{rate: r, buckets: map[netip.Prefix]*Bucket{}} }

// SourceOf is what counts as one source: an address, or the IPv6 network of 64 bits that it is in.
func SourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the error is for bits that an address does not have; the zero prefix is for what is no address
	return p
}

// Take takes one for an address. When more addresses come than are remembered, all new ones share one bucket.
func (s *Sources) Take(from netip.Addr, now time.Time) bool {
	since := now.Sub(s.forgot)
	if since > forgetEvery || since > forgetPause && len(s.buckets) >= sourcesMax {
		s.forget(now)
	}
	p := SourceOf(from)
	if s.buckets[p] == nil {
		if len(s.buckets) >= sourcesMax {
			p = netip.Prefix{}
		}
		if s.buckets[p] == nil {
			s.buckets[p] = &Bucket{}
		}
	}
	return s.buckets[p].Take(s.rate, now)
}

// Give gives one back.
func (s *Sources) Give(from netip.Addr) {
	if b := s.buckets[SourceOf(from)]; b != nil {
		b.Used = max(0, b.Used-1)
	}
}

// Used is how much of an address's bucket is used.
func (s *Sources) Used(from netip.Addr) float64 {
	if b := s.buckets[SourceOf(from)]; b != nil {
		return b.Used
	}
	return 0
}

// forget drops the buckets that are full again: they are as good as none.
func (s *Sources) forget(now time.Time) {
	s.forgot = now
	for p, b := range s.buckets {
		if b.Leak(s.rate, now); b.Used == 0 {
			delete(s.buckets, p)
		}
	}
}
