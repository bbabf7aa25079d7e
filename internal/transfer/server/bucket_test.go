package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	r, now := rate{burst: 3, second: 2}, time.Unix(1000, 0)
	var b bucket
	taken := func(n int) (got int) {
		for range n {
			if b.take(r, now) {
				got++
			}
		}
		return got
	}
	if got := taken(10); got != 3 {
		t.Errorf("%d at once", got)
	}
	if wait := b.wait(r); wait != 500*time.Millisecond {
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
	s := newSources(rate{burst: 2, second: 1})
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, want := range []bool{true, true, false, false} {
		if got := s.take(a, now); got != want {
			t.Errorf("take %d of one address: %t", i, got)
		}
	}
	if !s.take(b, now) {
		t.Error("another address has none")
	}
	s.give(a)
	if !s.take(a, now) || s.take(a, now) {
		t.Error("what was given back is not there, or there is more")
	}
	// An IPv6 host has a whole network of addresses; an IPv4 one may come as IPv6.
	if sourceOf(netip.MustParseAddr("2001:db8::1")) != sourceOf(netip.MustParseAddr("2001:db8::2")) || sourceOf(a) != sourceOf(netip.MustParseAddr("::ffff:192.0.2.1")) {
		t.Error("one host has several sources")
	}
	for i := range 3 * sourcesMax {
		s.take(netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)), now)
	}
	if n := len(s.buckets); n > sourcesMax+1 {
		t.Errorf("%d addresses are remembered", n)
	}
	if s.forget(now.Add(time.Minute)); len(s.buckets) > 0 {
		t.Errorf("%d addresses are remembered a minute later", len(s.buckets))
	}
}

// TestAcceptRate: connections that come faster than all of them may are not refused: they wait, until there is no listener any more.
func TestAcceptRate(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Accepts: 1}.withDefaults()
	l := newListener(raw, limits, newAllowances(limits), newMetrics())
	for range 4 {
		c, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	begun := time.Now()
	for range 3 { // two at once, and one a second
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if waited := time.Since(begun); waited < 900*time.Millisecond {
		t.Errorf("the third one came after %s", waited)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		failed <- err
	}()
	_ = l.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that was closed says %v", err)
	}
	if n := len(l.connections()); n != 3 {
		t.Errorf("%d connections are open", n)
	}
}
