package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// opening is a window that opens at a time, for an hour.
func opening(at time.Time) string {
	return fmt.Sprintf("windows: [{opens: %q, duration: 1h}]", at.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// TestAgentCase14_RestartWaitsForItsWindow: it is owed over starts of the agent, and done by itself when the window opens.
func TestAgentCase14_RestartWaitsForItsWindow(t *testing.T) {
	c := casetest.Start(t)
	s := newSite(t)
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	s.declare("a|notify: [b.service]", "b.service|"+opening(tomorrow))
	err := s.converge()
	if !reason.Is(err, reason.WindowShut) || reason.Of(err).Entry().Exit != reason.ExitStalled {
		t.Errorf("a run outside of the window ends with %v", err)
	}
	s.holds("b.service", "running") // it was not there, which is no restart
	s.files.done()

	stop := s.watch()
	r := s.until("deferred", func(r *Report) bool { return r.Settled && resource(r, "service/b.service").Detail == reason.Window })
	b := resource(r, "service/b.service")
	c.Check(!r.Converged && b.RetryAt.Equal(tomorrow) && slices.Equal(b.Owes, []string{"file/a"}) && b.Problem.Code == reason.WindowShut, "deferred: %+v", b)
	a, _, err := local.WhyOf(t.Context(), s.opts.StateDir, "b.service")
	if err != nil || !strings.Contains(a.Resource.Problem.Message, "it opens at ") {
		t.Errorf("why: %+v, %v", a, err)
	}
	s.edit("a", "theirs") // drift is repaired at once
	s.until("repaired", func(r *Report) bool { return resource(r, "file/a").Detail == reason.Drift })
	s.holds("a", "text of a")
	stop()

	s.declare("a|notify: [b.service]", "b.service|"+opening(time.Now().Add(3*time.Second)))
	s.watch()
	s.until("in its window", func(r *Report) bool { return r.Converged && r.Settled })
	calls := s.files.done()
	c.Check(slices.Contains(calls, "refresh /b.service") && !slices.Contains(calls, "apply /b.service"), "done in the window: %v", calls)
}

// TestFrozenConfig: with windowFor: changes nothing is changed outside of a window, not even what has drifted, unless a person says now.
func TestFrozenConfig(t *testing.T) {
	s := newSite(t)
	frozen := "windowFor: changes|" + opening(time.Now().Add(24*time.Hour))
	s.declare("a|"+frozen, "b|notify: [c.service]", "c.service|"+frozen)
	s.watch()
	s.until("deferred", func(r *Report) bool { return r.Settled && r.Counts[reason.Deferred] == 2 })
	s.holds("a", "")
	if _, err := local.GoOn(t.Context(), s.opts.StateDir, "nothing"); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("go on with nothing: %v", err)
	}
	if r, err := local.GoOn(t.Context(), s.opts.StateDir, "file/a"); err != nil || resource(r, "service/c.service").Detail != reason.Window {
		t.Errorf("go on: %+v, %v", r, err)
	}
	s.holds("a", "text of a")
	s.holds("c.service", "")
	if r, err := local.GoOn(t.Context(), s.opts.StateDir, ""); err != nil || !r.Converged {
		t.Errorf("go on with all: %+v, %v", r, err)
	}
	s.edit("a", "theirs")
	s.until("deferred again", func(r *Report) bool { return r.Settled && resource(r, "file/a").Detail == reason.Window })
	s.holds("a", "theirs")
}

func TestRunThatDoesNotWait(t *testing.T) {
	s := newSite(t)
	s.declare("a|windowFor: changes|"+opening(time.Now().Add(24*time.Hour)), "b|onRemove: delete|windowFor: changes|"+opening(time.Now().Add(24*time.Hour)))
	planned, _, err := Preview(t.Context(), s.opts)
	if err != nil || len(planned) != 2 || !strings.Contains(planned[0].Waits, "its window opens at") {
		t.Errorf("preview: %+v, %v", planned, err)
	}
	s.opts.Now = true
	must(t, s.converge())
	s.holds("a", "text of a")
	s.opts.Now = false
	s.declare("a") // what is removed waits as it was declared
	if err := s.converge(); !reason.Is(err, reason.WindowShut) && !reason.Is(err, reason.NotConverged) {
		t.Errorf("%v", err)
	}
	s.holds("b", "text of b")
	s.opts.Now = true
	must(t, s.converge())
	s.holds("b", "")
}

// TestWindowInAZoneThatIsNotThere: nothing of it is touched, and that is told.
func TestWindowInAZoneThatIsNotThere(t *testing.T) {
	s := newSite(t)
	s.declare("a|notify: [b.service]", `b.service|windows: [{opens: "02:00 Europe/Nowhere", duration: 1h}]`)
	if err := s.converge(); !reason.Is(err, reason.NotConverged) {
		t.Errorf("%v", err)
	}
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, true)
	must(t, err)
	if b := resource(r, "service/b.service"); b.Outcome != reason.Failed || b.Problem.Code != reason.WindowZone {
		t.Errorf("%+v", b)
	}
	s.holds("a", "text of a")
	s.holds("b.service", "")
}

// TestOwnHold: a host alone is held by its own hand, over starts, and until a time or a word.
func TestOwnHold(t *testing.T) {
	s := newSite(t)
	s.declare("a|notify: [b.service]", "b.service", "c")
	must(t, s.converge())
	h := Hold{Claim: "path:/a", Reason: "mine for now", Owner: "ann", Until: time.Now().Add(time.Hour)}
	must(t, local.SetHold(t.Context(), s.opts.StateDir, h)) // nobody runs
	stop := s.watch()
	s.edit("a", "theirs")
	s.edit("c", "theirs")
	r := s.until("held", func(r *Report) bool {
		return resource(r, "file/a").Detail == reason.Held && resource(r, "file/c").Outcome == reason.Repaired
	})
	if a := resource(r, "file/a"); a.Problem.Code != reason.ResourceHeld || !strings.Contains(a.Problem.Message, "ann until ") || len(r.Holds) != 1 || r.Holds[0].Reason != h.Reason {
		t.Errorf("%+v, holds %+v", a, r.Holds)
	}
	s.holds("a", "theirs")
	ended, err := local.EndHolds(t.Context(), s.opts.StateDir, "", h.Claim)
	if err != nil || len(ended) != 1 || ended[0].Owner != "ann" {
		t.Errorf("ended %+v, %v", ended, err)
	}
	s.until("resumed", func(r *Report) bool { return r.Converged && r.Settled && len(r.Holds) == 0 })
	s.holds("a", "text of a")

	h.Claim, h.Config, h.Until = "", "NodeConfig/web", time.Now().Add(4*time.Second)
	must(t, local.SetHold(t.Context(), s.opts.StateDir, h))
	s.edit("a", "theirs")
	s.until("held by config", func(r *Report) bool { return resource(r, "file/a").Detail == reason.Held })
	stop()
	s.watch()
	s.until("over by itself", func(r *Report) bool { return r.Converged && r.Settled })
	s.holds("a", "text of a")
}

func TestHoldsThatAreNone(t *testing.T) {
	s := newSite(t)
	good := Hold{Reason: "r", Owner: "o", Until: time.Now().Add(time.Hour)}
	for name, spoil := range map[string]func(*Hold){
		"no reason": func(h *Hold) { h.Reason = " " }, "no owner": func(h *Hold) { h.Owner = "" }, "over": func(h *Hold) { h.Until = time.Now() },
		"for ever": func(h *Hold) { h.Until = time.Now().AddDate(9, 0, 0) }, "long": func(h *Hold) { h.Reason = strings.Repeat("x", 2000) },
	} {
		h := good
		spoil(&h)
		if err := local.SetHold(t.Context(), s.opts.StateDir, h); !reason.Is(err, reason.HoldInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
