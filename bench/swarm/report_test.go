package swarm

import (
	"net/netip"
	"testing"
	"time"
)

// TestReporter: what the host has done is told at once, and again after a pause; a heartbeat is answered a little later.
func TestReporter(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var r reporter
	if !r.dueAt().IsZero() || r.take(at(0), true) {
		t.Error("it reports for no reason")
	}
	r.lazy(at(0))
	if r.take(at(lazyPause-1), true) || !r.take(at(lazyPause), true) {
		t.Errorf("a lazy report is due at %v", r.due)
	}
	r.changed(at(lazyPause))
	if !r.dueAt().IsZero() || r.take(at(lazyPause), true) {
		t.Error("a second report while one is on its way")
	}
	r.answered(at(lazyPause+1), time.Minute)
	if !r.take(at(lazyPause+1), true) {
		t.Error("what the host has done waits")
	}
	r.answered(at(lazyPause+2), time.Minute)
	r.changed(at(lazyPause + 3))
	if want := at(lazyPause + 2 + reportPause); r.dueAt() != want {
		t.Errorf("the next is due at %v, want %v", r.dueAt(), want)
	}
	if !r.take(at(lazyPause+2+reportPause), true) {
		t.Error("it does not report")
	}
	r.answered(at(lazyPause+2+reportPause), time.Minute)
	r.changed(at(time.Second))
	r.take(at(time.Second), false) // there is no watch
	if !r.dueAt().IsZero() || r.sent {
		t.Error("a report without a watch")
	}
	r.lazy(at(time.Second))
	if want := at(lazyPause + 2 + reportPause + time.Minute); r.dueAt() != want {
		t.Errorf("a lazy one is due at %v, want %v: the server has asked for quiet", r.dueAt(), want)
	}
}

func TestAddress(t *testing.T) {
	of := netip.MustParsePrefix("127.1.0.0/16")
	for i, want := range map[int]string{0: "127.1.0.2", 253: "127.1.0.255", 254: "127.1.1.0", 9_999: "127.1.39.17"} {
		if got := address(of, i); got.String() != want || !of.Contains(got) {
			t.Errorf("host %d has %s, want %s", i, got, want)
		}
	}
	if address(netip.Prefix{}, 1).IsValid() {
		t.Error("an address of no network")
	}
}
