package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/lookup"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// The shortest TTL is hours, and a test must not take so long: so what is signed is old.

// expiring is a file that a host has for so long.
func expiring(name, ttl string, how declare.OnRemove) declare.Resource {
	r := fileOf(name)
	r.TTL, r.OnRemove = ttl, how
	return r
}

// issued has a head say that it was issued so long ago.
func issued(ago time.Duration) func(*catalog.Head) {
	return func(h *catalog.Head) { h.Issued = time.Now().Add(-ago).Unix() }
}

// signsAgain signs the newest head again, as servers do each hour.
func (c *centre) signsAgain(ago time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	_, h, err := catalog.DecodeHead(c.head)
	must(c.t, err)
	issued(ago)(&h)
	signed, err := h.Sign(c.heads)
	must(c.t, err)
	c.head, err = signed.Encode()
	must(c.t, err)
	close(c.news)
	c.news = make(chan struct{})
}

// soon is how long before its time a resource with a TTL of 2h begins in a test: longer than it takes to converge it.
const soon = 2*time.Hour - 10*time.Second

// TestExpires: what the servers were not heard for too long for goes by its onRemove, and without consent; what is below it takes its place; the rest
// stays. When they are heard it comes back, without another version.
func TestExpires(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	web := []declare.Resource{expiring("b", "2h", ""), expiring("c", "2h", declare.OnRemoveDelete), expiring("e", "3h", declare.OnRemoveDelete)}
	var gone []string
	for _, name := range namesOf("f", 12) {
		web, gone = append(web, expiring(name, "2h", declare.OnRemoveDelete)), append(gone, name)
	}
	m := c.assign(issued(soon), c.config("NodeConfig/web", 5, web...), c.config("NodeConfig/base", 1, textOf("c", "from below"), fileOf("d")))
	c.settles(m, wire.Applied)
	for _, name := range []string{"b", "c", "d", "e", gone[0]} {
		s.holds(name, "text of "+name)
	}
	if r := s.until("nothing has expired", func(r *Report) bool { return r.Converged }); r.Cluster.Expired != nil {
		t.Errorf("told %+v", r.Cluster.Expired)
	}
	r := s.until("it has expired", func(r *Report) bool { return r.Cluster.Expired != nil && r.Converged && r.Settled })
	if e := r.Cluster.Expired; e.Count != 14 || e.TTL != "2h0m0s" || e.Config != "NodeConfig/web" || e.Heard.Unix() != m.Issued || e.Since.Sub(e.Heard) != 2*time.Hour {
		t.Errorf("told %+v", e)
	}
	if r.Cluster.Verdict != "Applied" || r.Cluster.Version != m.Version || len(r.Refused) > 0 {
		t.Errorf("%+v, refused %+v", r.Cluster, r.Refused)
	}
	for _, name := range gone {
		s.holds(name, "")
	}
	s.holds("c", "from below")
	s.holds("d", "text of d")
	s.holds("e", "text of e")
	s.edit("b", "theirs") // nobody looks after it any more
	s.edit("d", "theirs")
	s.until("what has no ttl is looked after", func(*Report) bool { return s.reads("d") == "text of d" })
	s.holds("b", "theirs")
	if _, _, err := local.WhyOf(t.Context(), s.opts.StateDir, "file/b"); !reason.Is(err, reason.ResourceExpired) || !strings.Contains(err.Error(), "ttl of 2h") {
		t.Errorf("why: %v", err)
	}
	h, err := local.HistoryOf(s.opts.StateDir, store.Asked{Subject: "b", Limit: 1})
	if err != nil || len(h) != 1 || h[0].Code != reason.ResourceExpired.String() {
		t.Errorf("history: %+v, %v", h, err)
	}

	c.signsAgain(0)
	s.until("it is back", func(r *Report) bool {
		return r.Cluster.Expired == nil && r.Converged && r.Settled && r.Counts[reason.Kept]+r.Counts[reason.Repaired] == 16
	})
	for _, name := range append(gone, "b", "c", "d", "e") {
		s.holds(name, "text of "+name)
	}
	if report := c.until("it is told", func(r *wire.Report) bool { return r.Verdict.Type == wire.Applied }); report.Enforced.Version != m.Version {
		t.Errorf("enforced %+v", report.Enforced)
	}
}

// TestExpiredOverRestarts: what has expired while nobody ran is not brought back by the start, nor what had before; and neither by one that has lost the
// layers.
func TestExpiredOverRestarts(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	web := c.config("NodeConfig/web", 5, expiring("a", "2h", declare.OnRemoveDelete), expiring("b", "2h", ""), fileOf("d"))
	m := c.assign(issued(soon), web, c.config("NodeConfig/base", 1, textOf("b", "from below")))
	c.settles(m, wire.Applied)
	stop()
	c.gone(true)
	for over := time.Unix(m.Issued, 0).Add(2 * time.Hour); time.Now().Before(over); {
		<-time.After(time.Until(over))
	}
	s.edit("d", "theirs")
	s.files.done()
	look := func(what string, first bool) {
		t.Helper()
		stop := s.watch()
		r := s.until(what, func(r *Report) bool { return r.Converged && r.Settled && r.Cluster.Expired != nil })
		if r.Cluster.Expired.Count != 2 {
			t.Errorf("%s: told %+v", what, r.Cluster.Expired)
		}
		stop()
		s.holds("a", "")
		s.holds("b", "from below")
		calls := s.files.done()
		if slices.Contains(calls, "apply /a") || slices.Contains(calls, "remove /a") != first || slices.Contains(calls, "apply /b") != first {
			t.Errorf("%s: did %v", what, calls)
		}
	}
	look("it has expired while nobody ran", true)
	look("it is expired still", false)

	must(t, os.RemoveAll(s.path("state/layers")))
	stop = s.watch()
	s.until("it goes on without the layers", func(r *Report) bool { return r.Converged && r.Settled })
	s.holds("a", "")
	s.holds("b", "from below")
	c.gone(false)
	c.signsAgain(0)
	s.until("it is back", func(r *Report) bool {
		return r.Converged && r.Settled && s.reads("a") == "text of a" && s.reads("b") == "text of b"
	})
	stop()
}

// TestExpiredWithLostLayers: what expires when the layers are lost goes all the same.
func TestExpiredWithLostLayers(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	c.settles(c.assign(issued(soon), c.config("NodeConfig/web", 5, expiring("a", "2h", declare.OnRemoveDelete), fileOf("d"))), wire.Applied)
	stop()
	c.gone(true)
	must(t, os.RemoveAll(s.path("state/layers")))
	s.watch()
	s.until("it has expired", func(r *Report) bool { return r.Cluster.Expired != nil && r.Converged && r.Settled })
	s.holds("a", "")
	s.holds("d", "text of d")
}

// TestExpiredAndRefused: servers that are heard with something that the host refuses are alive: what has expired of what it enforces comes back.
func TestExpiredAndRefused(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	web := c.config("NodeConfig/web", 5, expiring("a", "2h", declare.OnRemoveDelete), fileOf("d"))
	good := c.assign(issued(2*time.Hour), web)
	c.settles(good, wire.Applied)
	s.until("it was over from the start", func(r *Report) bool { return r.Converged && r.Settled && r.Cluster.Expired != nil })
	s.holds("a", "")
	s.holds("d", "text of d")
	bad := c.assign(nil, web, c.config("NodeConfig/other", 5, textOf("d", "other")))
	if r := c.settles(bad, wire.Rejected); r.Enforced != good {
		t.Errorf("%+v", r)
	}
	s.until("it is back", func(r *Report) bool { return r.Settled && r.Cluster.Expired == nil && s.reads("a") == "text of a" })
}

// TestExpiredIsNotBroughtBackOnTheWay: a host that hears of a newer state does not bring back what has expired of the one before, which that state may
// not have any more.
func TestExpiredIsNotBroughtBackOnTheWay(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(issued(2*time.Hour+time.Minute), c.config("NodeConfig/web", 5, expiring("a", "2h", declare.OnRemoveDelete), fileOf("d"))), wire.Applied)
	s.holds("a", "")
	s.files.done()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("d"), fileOf("e"))), wire.Applied)
	s.holds("a", "")
	if calls := s.files.done(); slices.Contains(calls, "apply /a") {
		t.Errorf("did %v", calls)
	}
}

// TestExpiredData: data of which the TTL is over is not found, also where nobody runs, and that is told with its reason; below it other data is.
func TestExpiredData(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	high, low := dataOf(3, "high"), dataOf(1, "low")
	high[0].TTL, high[1].TTL = "2h", "2h"
	m := c.assign(issued(soon), c.config("NodeConfig/web", 5, high...), c.config("NodeConfig/base", 1, low...))
	c.settles(m, wire.Applied)
	in := lookup.In{StateDir: s.opts.StateDir}
	if got := s.looked("k/000"); got != "NodeConfig/web high" {
		t.Errorf("before its time it is %q", got)
	}
	if keys, err := in.List("", "", 10); err != nil || len(keys) != 3 {
		t.Errorf("keys %v, %v", keys, err)
	}
	for over := time.Unix(m.Issued, 0).Add(2 * time.Hour); time.Now().Before(over); {
		<-time.After(time.Until(over))
	}
	check := func(what string) {
		t.Helper()
		for key, want := range map[string]string{"k/000": "NodeConfig/base low", "k/001": reason.ResourceExpired.String(), "k/002": "NodeConfig/web high"} {
			if got := s.looked(key); got != want {
				t.Errorf("%s %s is %q, want %q", what, key, got, want)
			}
		}
		if keys, err := in.List("", "", 10); err != nil || !slices.Equal(keys, []string{"k/000", "k/002"}) {
			t.Errorf("%s keys %v, %v", what, keys, err)
		}
	}
	check("while the agent runs")
	if _, err := in.Get("k/001"); err == nil || !strings.Contains(err.Error(), "its ttl of 2h0m0s is over") || reason.Of(err).Hint == "" {
		t.Errorf("it is told %v", err)
	}
	stop()
	check("when it does not")
	s.watch()
	c.signsAgain(0)
	s.until("it is back", func(*Report) bool { return s.looked("k/001") == "NodeConfig/web high" })
}

// TestTTLAlone: a host that stands alone has no servers to hear.
func TestTTLAlone(t *testing.T) {
	s := newSite(t)
	s.declare("a|ttl: 2h|onRemove: delete", "b")
	must(t, s.converge())
	must(t, s.converge())
	s.holds("a", "text of a")
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	if err != nil || !r.Converged || r.Cluster != nil {
		t.Errorf("%+v, %v", r, err)
	}
}
