package bucket

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	r, now := Rate{Burst: 3, Second: 2}, time.Unix(1000, 0)
	var b Bucket
	taken := func(n int) (got int) {
		for range n {
			if b.Take(r, now) {
				got++
			}
		}
		return got
	}
	if got := taken(10); got != 3 {
		t.Errorf("%d at once", got)
	}
	if wait := b.Wait(r); wait != 500*time.Millisecond {
		t.Errorf("the next one is there after %s", wait)
	}
	now = now.Add(time.Second)
	if got := taken(10); got != 2 {
		t.Errorf("%d after a second", got)
	}
	now = now.Add(-time.Hour) // a clock that was set back gives nothing, and takes nothing for long
	if got := taken(10); got != 0 {
		t.Errorf("%d after the clock was set back", got)
	}
	now = now.Add(time.Hour)
	if got := taken(10); got != 3 {
		t.Errorf("%d after an hour", got)
	}
}

// TestSources: they are bounded, and one address does not use up another's.
func TestSources(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewSources(Rate{Burst: 2, Second: 1})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, want := range []bool{true, true, false, false} {
		if got := s.Take(a, now); got != want {
			t.Errorf("take %d of one address: %t", i, got)
		}
	}
	if !s.Take(b, now) {
		t.Error("another address has none")
	}
	s.Give(a)
	if !s.Take(a, now) || s.Take(a, now) {
		t.Error("what was given back is not there, or there is more")
	}
	// An IPv6 host has a whole network of addresses; an IPv4 one may come as IPv6.
	if SourceOf(netip.MustParseAddr("2001:db8::1")) != SourceOf(netip.MustParseAddr("2001:db8::2")) || SourceOf(a) != SourceOf(netip.MustParseAddr("::ffff:192.0.2.1")) {
		t.Error("one host has several sources")
	}
	for i := range 3 * sourcesMax {
		s.Take(netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)), now)
	}
	if n := len(s.buckets); n > sourcesMax+1 {
		t.Errorf("%d addresses are remembered", n)
	}
	if s.forget(now.Add(time.Minute)); len(s.buckets) > 0 {
		t.Errorf("%d addresses are remembered a minute later", len(s.buckets))
	}
}
