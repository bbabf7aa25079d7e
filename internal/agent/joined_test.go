package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/agent/usage"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

func mkdirState(s *site) error { return os.Mkdir(s.opts.StateDir, 0o700) }

func (s *site) reads(name string) string {
	b, _ := os.ReadFile(s.path("etc/" + name)) // what is not there has no text
	return string(b)
}

// TestJoinedHostFollowsItsServer: what is assigned is enforced and told, drift is repaired, and a new state moves what has changed.
func TestJoinedHostFollowsItsServer(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a", "b")...), c.config("NodeConfig/base", 1, fileOf("c")))
	r := c.settles(m, wire.Applied)
	s.holds("a", "text of a")
	s.holds("c", "text of c")
	if r.Enforced != m || r.Counts.Repaired+r.Counts.Kept != 3 || len(r.Configs) != 2 || !r.Configs[0].Converged || !r.Configs[0].Settled || r.Session.Start != 1 ||
		r.Host == nil || r.Host.Version == "" {
		t.Errorf("report %+v", r)
	}
	s.edit("a", "theirs")
	s.until("a is repaired", func(r *Report) bool { return resource(r, "file/a").Detail == reason.Drift })
	s.holds("a", "text of a")

	s.files.fail("apply /b", &reason.Error{Code: reason.DiskFull, Doing: "write /b"})
	m = c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"), textOf("b", "new")), c.config("NodeConfig/base", 1, fileOf("c")))
	r = c.settles(m, wire.Partial)
	if r.Counts.Failed != 1 || len(r.Problems) != 1 || r.Problems[0].Title != "file/b" || r.Problems[0].Code != reason.DiskFull || r.Configs[0].Converged ||
		!r.Configs[0].Settled || r.Configs[0].Code != reason.DiskFull || !r.Configs[1].Converged {
		t.Errorf("report of a failure %+v", r)
	}
	s.files.fail("apply /b", nil)
	c.settles(m, wire.Applied)
	s.holds("b", "new")
	local := s.until("it says so", func(r *Report) bool { return r.Cluster != nil && r.Cluster.Verdict == "Applied" })
	if local.Cluster.Version != m.Version || local.Cluster.Newest != m.Version || !local.Cluster.Connected || local.Node != "web-1" {
		t.Errorf("status %+v", local.Cluster)
	}
}

// TestOfflineStart: the last good state is enforced from the disk while no server answers, and what has not moved is not fetched.
func TestOfflineStart(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a", "b")...))
	c.settles(m, wire.Applied)
	stop()
	c.gone(true)
	s.edit("a", "theirs")
	stop = s.watch()
	s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled })
	s.holds("a", "text of a")
	if r := s.until("it knows that it is alone", func(r *Report) bool { return true }); r.Cluster.Version != m.Version {
		t.Errorf("status %+v", r.Cluster)
	}
	stop()
	before := c.fetched
	c.gone(false)
	s.watch()
	c.until("it is there again", func(r *wire.Report) bool { return r.Session.Start == 3 && r.Verdict.Type == wire.Applied })
	if c.fetched != before {
		t.Errorf("%d calls for what was there", c.fetched-before)
	}
}

// TestLostDisk: what is enforced survives the loss of what was fetched, and is fetched again.
func TestLostDisk(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a", "b")...))
	c.settles(m, wire.Applied)
	stop()
	must(t, os.RemoveAll(s.path("state/layers")))
	must(t, os.RemoveAll(s.path("state/active")))
	s.edit("b", "theirs")
	s.watch()
	c.until("it is there again", func(r *wire.Report) bool { return r.Session.Start == 2 && r.Verdict.Type == wire.Applied })
	s.holds("b", "text of b")
}

// TestRejected: a state that contradicts itself leaves the one before, is told, and is not handed over again after a restart.
func TestRejected(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	bad := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "one")), c.config("NodeConfig/other", 5, textOf("a", "two")))
	r := c.settles(bad, wire.Rejected)
	if r.Verdict.Code != reason.PriorityConflict || r.Enforced != good {
		t.Errorf("verdict %+v, enforced %+v", r.Verdict, r.Enforced)
	}
	s.holds("a", "text of a")
	stop()
	before := c.fetched
	s.watch()
	c.until("it says so again", func(r *wire.Report) bool { return r.Session.Start == 2 && r.Verdict.Type == wire.Rejected })
	if local := s.until("it is told", func(r *Report) bool { return len(r.Refused) == 1 }); local.Refused[0].Code != reason.PriorityConflict || local.Converged {
		t.Errorf("status %+v", local)
	}
	if c.fetched != before {
		t.Error("a state that was rejected was fetched again")
	}
	next := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "three")))
	c.settles(next, wire.Applied)
	s.holds("a", "three")
}

// TestTransferCase43_EmptyByMistake: a signed state that takes everything away waits for consent to that much, over a restart too, and the host keeps what
// it has.
func TestTransferCase43_EmptyByMistake(t *testing.T) {
	k := casetest.Start(t)
	s, c := joinedSite(t)
	stop := s.watch()
	names := namesOf("f", 12)
	var resources []declare.Resource
	for _, n := range names {
		r := fileOf(n)
		r.OnRemove = declare.OnRemoveDelete
		resources = append(resources, r)
	}
	first := c.assign(nil, c.config("NodeConfig/web", 5, resources...))
	c.settles(first, wire.Applied)
	empty := c.config("NodeConfig/web", 5)
	m := c.assign(nil, empty)
	r := c.settles(m, wire.Withheld)
	k.Equal(r.Verdict.Code, reason.DeletionsWithheld, "the reason")
	k.Equal(r.Enforced, first, "what is enforced")
	stop()
	s.watch()
	c.until("it waits still", func(r *wire.Report) bool { return r.Session.Start == 2 && r.Verdict.Type == wire.Withheld })
	m = c.assign(func(h *catalog.Head) { h.Consent = 99 }, empty)
	r = c.settles(m, wire.Withheld)
	k.Equal(r.Enforced, first, "what is enforced with consent to less")
	for _, n := range names {
		k.Equal(s.reads(n), "text of "+n, "what is in "+n)
	}
	m = c.assign(func(h *catalog.Head) { h.Consent = 100 }, empty)
	c.settles(m, wire.Applied)
	s.until("all of it is gone", func(*Report) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return s.reads(n) != "" })
	})
}

// TestPoison: a state that the agent has died of three times is given up for the one before.
func TestPoison(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	poison := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "poison")))
	c.settles(poison, wire.Applied)
	stop()
	// As three deaths on the way to it would have left it.
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	life.Settled, life.Trial = false, held.Trial{Epoch: poison.Epoch, Version: poison.Version, Root: poison.Root, Deaths: 2, Open: true}
	must(t, h.SetLife(life))
	must(t, h.Close())
	before := c.fetched
	s.watch()
	r := c.until("it is quarantined", func(r *wire.Report) bool { return r.Verdict.Type == wire.Quarantined })
	if r.Verdict.Version != poison.Version || r.Enforced != good || r.Verdict.Code != reason.StateQuarantined {
		t.Errorf("%+v", r)
	}
	s.until("the one before is enforced", func(r *Report) bool { return r.Settled && resource(r, "file/a").Outcome.Converged() })
	s.holds("a", "text of a")
	if c.fetched != before {
		t.Error("something was fetched for a state that is quarantined")
	}
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "cure"))), wire.Applied)
	s.holds("a", "cure")
}

// TestPoisonBeforeItIsEnforced: a state whose mere reading kills the agent is given up too.
func TestPoisonBeforeItIsEnforced(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	stop()
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	poison := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "poison")))
	must(t, h.SetComing(held.Trial{Epoch: poison.Epoch, Version: poison.Version, Root: poison.Root, Deaths: 2, Open: true}))
	must(t, h.Close())
	stop = s.watch()
	if r := c.settles(poison, wire.Quarantined); r.Enforced != good {
		t.Errorf("%+v", r)
	}
	s.holds("a", "text of a")
	stop()
	before := c.fetched
	s.watch()
	c.until("it is still", func(r *wire.Report) bool { return r.Session.Start == 3 && r.Verdict.Type == wire.Quarantined })
	if c.fetched != before {
		t.Error("it was fetched again")
	}
}

// TestTryEndsWhileNobodyRuns: what was tried is not enforced again by a start after its time.
func TestTryEndsWhileNobodyRuns(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	m := c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 600, Fallback: good.Root} }, c.config("NodeConfig/web", 5, textOf("a", "tried")))
	c.settles(m, wire.Applied)
	stop()
	c.gone(true)
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	life.Try.Until, life.Try.Left = 1, 1
	must(t, h.SetLife(life))
	must(t, h.Close())
	s.edit("a", "theirs")
	s.files.done()
	s.watch()
	s.until("it has fallen back", func(r *Report) bool {
		return r.Settled && r.Cluster.Version == good.Version && r.Cluster.Verdict == "Rejected"
	})
	s.until("the one before is enforced", func(*Report) bool { return s.reads("a") == "text of a" })
	if calls := s.files.done(); !slices.Equal(calls, []string{"apply /a"}) {
		t.Errorf("did %v", calls)
	}
}

// TestDeathRightAfterTheSwap: who has died before it noted what it enforces goes on with that.
func TestDeathRightAfterTheSwap(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	one := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(one, wire.Applied)
	two := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "two")))
	c.settles(two, wire.Applied)
	stop()
	c.gone(true)
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	life.Enforced, life.Before = one, catalog.Mark{}
	must(t, h.SetLife(life))
	must(t, h.Close())
	s.edit("a", "theirs")
	s.watch()
	s.until("it goes on", func(r *Report) bool { return r.Cluster.Version == two.Version && s.reads("a") == "two" })
}

// TestDeathWhileItFallsBack: what was given up is not taken up again because it is still the active state.
func TestDeathWhileItFallsBack(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	m := c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 600, Fallback: good.Root} }, c.config("NodeConfig/web", 5, textOf("a", "tried")))
	c.settles(m, wire.Applied)
	stop()
	c.gone(true)
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	must(t, h.Remember(giveUp(&life)))
	must(t, h.SetLife(life))
	must(t, h.Close())
	s.watch()
	s.until("it has fallen back", func(r *Report) bool { return r.Cluster.Version == good.Version && s.reads("a") == "text of a" })
}

// TestPoisonWithNothingBefore: then nothing is enforced, and nobody is told otherwise.
func TestPoisonWithNothingBefore(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	poison := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "poison")))
	c.settles(poison, wire.Applied)
	stop()
	for _, before := range []catalog.Mark{{}, {Epoch: 1, Version: 1, Root: catalog.KeyOf("lost")}} {
		h, err := held.Open(s.opts.StateDir, time.Now())
		must(t, err)
		life := h.Life()
		life.Enforced, life.Before, life.Settled = poison, before, false
		life.Trial = held.Trial{Epoch: poison.Epoch, Version: poison.Version, Root: poison.Root, Deaths: 2, Open: true}
		must(t, h.SetLife(life))
		must(t, h.Close())
		s.edit("a", "theirs")
		stop = s.watch()
		starts := life.Starts + 1
		r := c.until("it is quarantined", func(r *wire.Report) bool { return r.Session.Start == starts && r.Verdict.Type == wire.Quarantined })
		if r.Enforced != (catalog.Mark{}) || r.Counts != (wire.Counts{}) {
			t.Errorf("%+v", r)
		}
		s.holds("a", "theirs")
		stop()
	}
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "cure"))), wire.Applied)
	s.holds("a", "cure")
}

// TestHoldEndsAfterARestart: the end of a hold is waited for by whoever runs then.
func TestHoldEndsAfterARestart(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	config := c.config("NodeConfig/web", 5, fileOf("a"))
	m := c.assign(nil, config, c.own(catalog.Own{Holds: []catalog.Hold{{Reason: "looking", Owner: "ann", Until: time.Now().Add(20 * time.Second).Unix()}}}))
	c.until("it is held", func(r *wire.Report) bool { return r.Enforced == m && r.Counts.Held == 1 })
	stop()
	c.gone(true)
	s.watch()
	s.until("it is held still", func(r *Report) bool { return resource(r, "file/a").Detail == reason.Held })
	s.holds("a", "")
	s.until("the hold has ended", func(*Report) bool { return s.reads("a") == "text of a" })
}

// TestTwoDeathsAreNoPoison: they may be chance, and are forgotten when the state was reached.
func TestTwoDeathsAreNoPoison(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(m, wire.Applied)
	stop()
	change := func(do func(*held.Life)) held.Life {
		h, err := held.Open(s.opts.StateDir, time.Now())
		must(t, err)
		defer func() { must(t, h.Close()) }()
		life := h.Life()
		do(&life)
		must(t, h.SetLife(life))
		return life
	}
	change(func(l *held.Life) {
		l.Settled, l.Trial = false, held.Trial{Epoch: m.Epoch, Version: m.Version, Root: m.Root, Deaths: 1, Open: true}
	})
	s.edit("a", "theirs")
	stop = s.watch()
	c.until("it goes on", func(r *wire.Report) bool { return r.Session.Start == 2 && r.Verdict.Type == wire.Applied })
	s.holds("a", "text of a")
	stop()
	if l := change(func(*held.Life) {}); !l.Settled || l.Trial.Deaths != 0 || l.Trial.Open || l.Starts != 2 {
		t.Errorf("afterwards: %+v", l)
	}
}

// TestTimeLeftOfATry counts by the clock of one run of the kernel, and goes on where it was in another.
func TestTimeLeftOfATry(t *testing.T) {
	try := &held.Try{Boot: "one", Until: int64(50 * time.Second), Left: int64(30 * time.Second)}
	for _, c := range []struct {
		boot        string
		since, want time.Duration
	}{{"one", 20 * time.Second, 30 * time.Second}, {"one", 49 * time.Second, time.Second}, {"one", time.Minute, -10 * time.Second},
		{"two", time.Second, 30 * time.Second}, {"two", time.Hour, 30 * time.Second}} {
		if got := try.Rest(c.boot, c.since); got != c.want {
			t.Errorf("boot %s, %v after it: %v is left, want %v", c.boot, c.since, got, c.want)
		}
	}
}

// TestTry: a state that is tried falls back by itself, over a restart and without a server, unless it is confirmed.
func TestTry(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	tried := c.config("NodeConfig/web", 5, textOf("a", "tried"))
	for _, confirm := range []bool{true, false} {
		m := c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 600, Fallback: good.Root} }, tried)
		c.settles(m, wire.Applied)
		s.holds("a", "tried")
		if !confirm {
			break
		}
		m = c.assign(nil, tried)
		c.until("it is confirmed", func(r *wire.Report) bool { return r.Enforced == m })
		if r := s.until("it says so", func(r *Report) bool { return r.Cluster.Version == m.Version }); !r.Cluster.TryUntil.IsZero() {
			t.Errorf("it is tried still: %+v", r.Cluster)
		}
		good = c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
		c.settles(good, wire.Applied)
	}
	stop()
	c.gone(true)
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	_, since, err := systemd.Uptime()
	must(t, err)
	life.Try.Until = int64(since + time.Second) // as if most of the time was over
	must(t, h.SetLife(life))
	must(t, h.Close())
	stop = s.watch()
	s.until("it falls back", func(r *Report) bool { return r.Cluster.Verdict == "Rejected" && r.Settled })
	s.holds("a", "text of a")
	stop()
	c.gone(false)
	s.watch()
	r := c.until("it is told", func(r *wire.Report) bool { return r.Session.Start == 3 })
	if r.Verdict.Type != wire.Rejected || r.Verdict.Code != reason.TryNotConfirmed || r.Enforced != good {
		t.Errorf("%+v", r)
	}
	m := c.assign(nil, tried)
	c.settles(m, wire.Applied)
	s.holds("a", "tried")
}

// TestFallBackThatCannotBeNoted: it is tried again now and then, and not all the time.
func TestFallBackThatCannotBeNoted(t *testing.T) {
	s, c := joinedSite(t)
	var troubles atomic.Int32
	s.opts.OnLine = func(l Line) {
		if l.Trouble != nil {
			troubles.Add(1)
		}
	}
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	c.settles(c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 10, Fallback: good.Root} }, c.config("NodeConfig/web", 5, textOf("a", "tried"))), wire.Applied)
	heads := filepath.Join(s.opts.StateDir, "heads")
	must(t, os.Rename(heads, heads+".aside"))
	must(t, os.MkdirAll(filepath.Join(heads, "in", "the", "way"), 0o700))
	// Half of its time cannot be noted, and then that it is over.
	s.until("its time is over", func(*Report) bool { return troubles.Load() > 1 })
	before := troubles.Load()
	<-time.After(time.Second)
	if n := troubles.Load() - before; n > 1 {
		t.Errorf("it was tried %d times in a second", n)
	}
	must(t, os.RemoveAll(heads))
	must(t, os.Rename(heads+".aside", heads))
	s.until("it has fallen back", func(r *Report) bool { return r.Cluster.Version == good.Version && s.reads("a") == "text of a" })
	stop()
}

// TestTryNeedsSomethingToFallBackTo: without it, what is tried is not begun with.
func TestTryNeedsSomethingToFallBackTo(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	m := c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 2, Fallback: catalog.KeyOf("never seen")} }, c.config("NodeConfig/web", 5, fileOf("a")))
	if r := c.settles(m, wire.Rejected); r.Verdict.Code != reason.TryNotConfirmed {
		t.Errorf("%+v", r.Verdict)
	}
	s.holds("a", "")
}

// TestHold: what is held is looked at and left alone, with what it owes, until the hold is lifted or ends.
func TestHold(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	config := c.config("NodeConfig/web", 5, filesOf("a", "b")...)
	hold := func(until time.Duration) catalog.Layer {
		return c.own(catalog.Own{Holds: []catalog.Hold{{Config: "NodeConfig/web", Claim: "path:/a", Reason: "looking into it", Owner: "ann", Until: time.Now().Add(until).Unix()}}})
	}
	c.settles(c.assign(nil, config), wire.Applied)
	m := c.assign(nil, config, hold(time.Hour))
	c.until("it is held", func(r *wire.Report) bool { return r.Enforced == m })
	s.edit("a", "theirs")
	s.edit("b", "theirs")
	r := c.until("it is told", func(r *wire.Report) bool { return r.Counts.Held == 1 })
	s.until("the other one is repaired", func(r *Report) bool { return resource(r, "file/b").Detail == reason.Drift })
	s.holds("a", "theirs")
	s.holds("b", "text of b")
	if p := r.Problems[0]; p.Code != reason.ResourceHeld || !strings.Contains(p.Message, "ann") || !strings.Contains(p.Message, "looking into it") || r.Configs[0].Settled {
		t.Errorf("%+v", r)
	}
	if local := s.until("it is shown", func(r *Report) bool { return len(r.Cluster.Holds) == 1 }); resource(local, "file/a").Detail != reason.Held {
		t.Errorf("%+v", resource(local, "file/a"))
	}
	c.settles(c.assign(nil, config), wire.Applied)
	s.holds("a", "text of a")

	m = c.assign(nil, config, hold(2*time.Second))
	c.until("it is held again", func(r *wire.Report) bool { return r.Enforced == m })
	s.edit("a", "theirs")
	c.until("it ends", func(r *wire.Report) bool {
		return r.Enforced == m && r.Counts.Held == 0 && r.Verdict.Type == wire.Applied && s.reads("a") == "text of a"
	})
}

// TestQuestions: what a person asks is answered, and what is nobody's business is refused.
func TestQuestions(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	c.settles(c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a"))), wire.Applied)
	var h store.Happening
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskHistory, Subject: "/a", Lines: 1})), &h); err != nil || h.Title != "file/a" {
		t.Errorf("history: %+v, %v", h, err)
	}
	var a Answer
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskEvidence, Subject: "/a"})), &a); err != nil || a.Resource.Title != "file/a" || len(a.Differs) > 0 || a.Unlooked != "" {
		t.Errorf("evidence: %+v, %v", a, err)
	}
	var u usage.Usage
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskUsage})), &u); err != nil || u.Resources != 1 || u.RSS == 0 || u.Anonymous == 0 || u.Goroutines == 0 {
		t.Errorf("usage: %+v, %v", u, err)
	}
	if err := json.Unmarshal([]byte(c.ask(wire.Question{What: wire.AskLogs, Lines: 1})), &h); err != nil {
		t.Errorf("the agent's log: %v", err)
	}
	for _, q := range []wire.Question{{What: wire.AskLogs, Subject: "ssh.service"}, {What: "run", Subject: "rm"}} {
		var p wire.Problem
		if err := wire.Decode([]byte(c.ask(q)), &p); err != nil || p.Code != reason.AnswerRefused.String() {
			t.Errorf("%+v: %+v, %v", q, p, err)
		}
	}
}

// TestAloneAndJoinedExclude: a host is kept by files or by a cluster.
func TestAloneAndJoinedExclude(t *testing.T) {
	s, _ := joinedSite(t)
	opts := s.opts
	opts.Joined, opts.Files = false, []string{s.path("site.yaml")}
	if _, err := New(opts); !reason.Is(err, reason.HostJoined) {
		t.Errorf("converged a host that has joined: %v", err)
	}
	if _, _, err := Preview(t.Context(), opts); !reason.Is(err, reason.HostJoined) {
		t.Errorf("previewed on a host that has joined: %v", err)
	}
	if _, err := held.Prepare(s.opts.StateDir); !reason.Is(err, reason.HostJoined) {
		t.Errorf("joined twice: %v", err)
	}
	alone := newSite(t)
	alone.opts.Files, alone.opts.Joined, alone.opts.Watch = nil, true, true
	if _, err := New(alone.opts); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("ran without a cluster: %v", err)
	}
	if joined, err := held.HasJoined(alone.opts.StateDir); joined || err != nil {
		t.Errorf("joined: %v, %v", joined, err)
	}
}

// TestSecret: a secret reaches its file and nothing else: no part of the state directory, no report, no history and no log has it.
func TestSecret(t *testing.T) {
	s, c := joinedSite(t)
	var lines strings.Builder
	var mu sync.Mutex
	s.opts.OnLine = func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&lines, "%+v %+v\n", l, l.Resource.Problem)
	}
	stop := s.watch()
	const value = "correct horse battery staple"
	keys, err := trust.NewKeys(c.id, time.Now())
	must(t, err)
	id, key := keys.Delivery().DataKey("uid-of-secret", "password", []byte(value))
	wrapped, err := trust.SealKey(c.sealing, trust.Envelope{Cluster: c.id, NodeUID: nodeUID, KeyID: id}, key)
	must(t, err)
	items, err := catalog.CompileWith([]declare.Resource{{Name: "s", File: &declare.File{Path: "/s", ContentFrom: &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}}}, fileOf("a")},
		func(*declare.Resource) (catalog.Content, error) {
			return catalog.Content{Sealed: &catalog.Sealed{Key: id, Text: key.SealText(id, []byte(value))}}, nil
		})
	must(t, err)
	config := c.shelve("NodeConfig/web", 5, items)
	m := c.assign(nil, config)
	r := c.settles(m, wire.Partial)
	if r.Problems[0].Code != reason.SecretKeyMissing {
		t.Errorf("without the key: %+v", r.Problems)
	}
	s.holds("a", "text of a")
	own := c.own(catalog.Own{Keys: []catalog.OwnKey{{ID: id, Sealed: wrapped}}})
	c.settles(c.assign(nil, config, own), wire.Applied)
	s.holds("s", value)

	s.files.fail("apply /s", &reason.Error{Code: reason.CheckRejected, Doing: "check /s", Cause: errors.New("line 1: " + value), Evidence: "near " + value, Hint: "not " + value})
	s.edit("s", "theirs")
	c.until("it fails", func(r *wire.Report) bool { return r.Counts.Failed == 1 })
	s.until("it says so", func(r *Report) bool { return resource(r, "file/s").Outcome == reason.Failed })
	said := c.ask(wire.Question{What: wire.AskEvidence, Subject: "/s"}) + c.ask(wire.Question{What: wire.AskHistory}) + c.ask(wire.Question{What: wire.AskLogs})
	if strings.Contains(said, value) || !strings.Contains(said, "near [secret]") {
		t.Errorf("it was told: %s", said)
	}
	report := fmt.Sprintf("%+v", c.until("it reports", func(r *wire.Report) bool { return len(r.Problems) == 1 }))
	s.files.fail("apply /s", nil)
	stop()
	mu.Lock()
	log := lines.String()
	mu.Unlock()
	if strings.Contains(report+log, value) {
		t.Errorf("it is in the report or the log: %s %s", report, log)
	}
	if err := filepath.WalkDir(s.opts.StateDir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if bytes.Contains(b, []byte(value)) {
			t.Errorf("it is in %s", p)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	c.gone(true)
	s.edit("s", "theirs")
	s.watch()
	s.until("it is there from the disk alone", func(*Report) bool { return s.reads("s") == value })
}

// TestHeldResourceOwesItsRestart: what is held is not restarted either, and is when the hold ends.
func TestHeldResourceOwesItsRestart(t *testing.T) {
	s, c := joinedSite(t)
	s.watch()
	of := func(text string) catalog.Layer {
		a := textOf("a", text)
		a.Notify = []string{"b"}
		return c.config("NodeConfig/web", 5, a, declare.Resource{Name: "b", Service: &declare.Service{Unit: "b.service"}})
	}
	c.settles(c.assign(nil, of("one")), wire.Applied)
	s.files.done()
	hold := c.own(catalog.Own{Holds: []catalog.Hold{{Claim: "unit:b.service", Reason: "a debugger is attached", Owner: "ann", Until: time.Now().Add(20 * time.Second).Unix()}}})
	m := c.assign(nil, of("two"), hold)
	r := c.until("the service is held", func(r *wire.Report) bool { return r.Enforced == m && r.Counts.Held == 1 })
	if r.Verdict.Type == wire.Applied {
		t.Errorf("applied, although a restart is owed: %+v", r)
	}
	s.holds("a", "two")
	if calls := s.files.done(); slices.Contains(calls, "refresh /b.service") {
		t.Errorf("restarted while it is held: %v", calls)
	}
	c.settles(m, wire.Applied)
	if calls := s.files.done(); !slices.Contains(calls, "refresh /b.service") {
		t.Errorf("not restarted after the hold: %v", calls)
	}
}

// TestDeathsRightAfterTheSwap: they count like any other, so that what the agent dies of there is left for the state before.
func TestDeathsRightAfterTheSwap(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	one := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(one, wire.Applied)
	two := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "two")))
	c.settles(two, wire.Applied)
	stop()
	c.gone(true)
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	life.Enforced, life.Before = one, catalog.Mark{}
	must(t, h.SetLife(life))
	must(t, h.SetComing(held.Trial{Epoch: two.Epoch, Version: two.Version, Root: two.Root, Deaths: 2, Open: true}))
	must(t, h.Close())
	s.watch()
	s.until("it has gone back", func(r *Report) bool { return r.Cluster.Version == one.Version && s.reads("a") == "text of a" })
}

// TestKept: that the program keeps the host is told once, when a server has taken its watch, and not before.
func TestKept(t *testing.T) {
	s, c := joinedSite(t)
	var told atomic.Int32
	s.opts.OnKept = func() error { told.Add(1); return nil }
	stop := s.watch()
	m := c.assign(nil, c.config("NodeConfig/web", 5, filesOf("a")...))
	c.settles(m, wire.Applied)
	s.until("it is connected", func(r *Report) bool { return r.Cluster != nil && r.Cluster.Connected && told.Load() == 1 })
	s.edit("a", "theirs")
	s.until("a is repaired", func(r *Report) bool { return resource(r, "file/a").Detail == reason.Drift })
	stop()
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}

	c.gone(true)
	told.Store(0)
	s.edit("a", "theirs again")
	stop = s.watch()
	s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled })
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times without a server", n)
	}
	c.gone(false)
	s.until("it is told", func(*Report) bool { return told.Load() == 1 })
	stop()
}

// TestDeathOfAnotherState: who dies three times on the way to a state gives up that one, and not the one that it was still applying.
func TestDeathOfAnotherState(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	first := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(first, wire.Applied)
	good := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "good")))
	c.settles(good, wire.Applied)
	stop()
	// As it is left when what is enforced had not settled, and the agent dies of reading the next state: both were under way.
	poison := c.assign(nil, c.config("NodeConfig/web", 5, textOf("a", "poison")))
	h, err := held.Open(s.opts.StateDir, time.Now())
	must(t, err)
	life := h.Life()
	life.Settled, life.Trial = false, held.Trial{Epoch: good.Epoch, Version: good.Version, Root: good.Root, Deaths: 2, Open: true}
	must(t, h.SetLife(life))
	must(t, h.SetComing(held.Trial{Epoch: poison.Epoch, Version: poison.Version, Root: poison.Root, Deaths: 2, Open: true}))
	must(t, h.Close())
	s.watch()
	if r := c.settles(poison, wire.Quarantined); r.Enforced != good {
		t.Errorf("it enforces version %d, and version %d is good", r.Enforced.Version, good.Version)
	}
	s.holds("a", "good")
}
