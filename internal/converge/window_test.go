package converge

import (
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// hours is a window that is open from one hour of the day up to another, of the clock that it is asked about.
type hours struct{ from, to int }

func (h *hours) Open(now time.Time) (bool, time.Time) {
	opens := time.Date(now.Year(), now.Month(), now.Day(), h.from, 0, 0, 0, now.Location())
	switch {
	case now.Hour() >= h.from && now.Hour() < h.to:
		return true, time.Time{}
	case now.Hour() >= h.to:
		opens = opens.AddDate(0, 0, 1)
	}
	return false, opens
}

// over is a window that never opens again.
type over struct{}

func (over) Open(time.Time) (bool, time.Time) { return false, time.Time{} }

// windowed gives vertices a window.
func windowed(g *Graph, w Window, frozen bool, names ...string) *Graph {
	for _, name := range names {
		v := &g.Vertices[g.ID(Key(name))]
		v.Window, v.Frozen = w, frozen
	}
	return g
}

// asksOnly says whether the operation in flight may only find out.
func (r *rig) asksOnly(want bool) {
	r.t.Helper()
	if len(r.flying) != 1 || r.flying[0].Shut[0] != want {
		r.t.Fatalf("in flight %+v, want one with shut %v", r.flying, want)
	}
}

func (r *rig) opensIn(want time.Duration) {
	r.t.Helper()
	out := r.e.Step(r.now, Tick{})
	r.take(out)
	got := time.Duration(0)
	if !out.Opens.IsZero() {
		got = out.Opens.Sub(r.now)
	}
	if got != want {
		r.t.Errorf("a window opens in %v, want %v", got, want)
	}
}

var (
	notYet  = Result{Owed: true}
	night   = func() Window { return &hours{2, 4} } // the rig begins at midnight
	changes = []string{"conf service", "conf!service"}
)

// changedConf is a rig in which the service owes a restart and is outside of its window.
func changedConf(t *testing.T) *rig {
	r := newRig(t, windowed(draw(t, 1, changes[0], changes[1]), night(), false, "service"), Options{}, Resume{})
	r.end("check conf", differs)
	r.end("apply conf", changed)
	r.end("check service", inSync)
	r.asksOnly(true)
	r.end("refresh service", notYet)
	r.is("service", "deferred: window")
	r.owes("conf!service")
	r.rests()
	return r
}

func TestRestartWaitsForItsWindow(t *testing.T) {
	r := changedConf(t)
	r.opensIn(2 * time.Hour)
	if st := r.e.Status(r.id("service")); st.Err.Code != reason.WindowShut || st.Err.After != 2*time.Hour || st.Attempts != 0 || !st.RetryAt.Equal(r.now.Add(2*time.Hour)) {
		t.Errorf("%+v", st)
	}
	r.pass(2*time.Hour - time.Second)
	r.rests()
	r.pass(time.Second)
	r.end("check service", inSync)
	r.asksOnly(false)
	r.end("refresh service", changed)
	r.is("service", "repaired: change")
	r.owes()
	r.opensIn(0)
	r.rests()
}

// Drift is repaired outside of a window of restarts, and a restart by somebody else is one.
func TestOutsideOfAWindowOfRestarts(t *testing.T) {
	r := changedConf(t)
	r.touch("service")
	r.end("check service", differs)
	r.end("apply service", changed)
	r.asksOnly(true)
	r.end("refresh service", notYet)
	r.is("service", "deferred: window")
	r.touch("service")
	r.end("check service", inSync)
	r.end("refresh service", done) // somebody has restarted it
	r.owes()
	r.is("service", "kept")
	r.opensIn(0)
}

func TestFrozen(t *testing.T) {
	r := newRig(t, windowed(draw(t, 1, "a b", "a>b"), night(), true, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.is("a", "deferred: window")
	r.is("b", "blocked by a")
	for range 3 { // events are looked at, nothing is done, and nothing grows
		r.touch("a")
		r.end("check a", differs)
	}
	if n := len(r.e.doorOrder[0].waiting); n != 1 {
		t.Errorf("%d wait", n)
	}
	r.opensIn(2 * time.Hour)
	r.pass(3 * time.Hour)
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.rests()
}

func TestWindowShutsBeforeItsTurn(t *testing.T) {
	o := Options{Lanes: []Lane{{Parallel: 1, Batch: 1, Gather: true}}}
	r := newRig(t, windowed(draw(t, 1, "a b"), &hours{0, 2}, true, "a", "b"), o, Resume{})
	r.end("check a", differs)
	r.end("check b", differs)
	r.now = r.now.Add(3 * time.Hour)
	r.end("apply a", changed)
	r.end("check b", differs)
	r.is("b", "deferred: window")
	r.opensIn(21 * time.Hour)
}

// However clocks are set, a window is what they show.
func TestAgentCase34_WindowsFollowTheClock(t *testing.T) {
	c := casetest.Start(t)
	r := changedConf(t)
	opens := func() time.Duration {
		r.step(Tick{})
		at := r.e.Status(r.id("service")).RetryAt
		return at.Sub(r.now)
	}
	r.now = r.now.AddDate(5, 0, 0)
	c.Equal(opens(), 2*time.Hour, "the clock was set forward by years: how long until it opens")
	r.rests()
	r.now = r.now.AddDate(-9, 0, 0).Add(time.Hour)
	c.Equal(opens(), time.Hour, "the clock was set back by years: how long until it opens")
	r.rests()
	r.owes("conf!service")
	r.now = r.now.In(time.FixedZone("east", int(time.Hour/time.Second))) // the host has moved
	r.step(Tick{})
	r.end("check service", inSync)
	c.Check(len(r.flying) == 1 && r.flying[0].Verb == Refresh && !r.flying[0].Shut[0], "in the host's new zone it is open: %+v", r.flying)
}

// shown is a window that notes what it is asked about, and is shut.
type shown struct{ asked []time.Time }

func (s *shown) Open(now time.Time) (bool, time.Time) {
	s.asked = append(s.asked, now)
	return false, now.Add(time.Hour)
}

// A time of the running process also counts what has passed, and that goes before what clocks show when two are compared: a clock that was
// set back would not be noticed, and an answer kept for as long as it was set back.
func TestWindowIsAskedOfWhatClocksShow(t *testing.T) {
	w := &shown{}
	r := newRig(t, windowed(draw(t, 1, "a"), w, true, "a"), Options{}, Resume{})
	r.now = time.Now()
	r.end("check a", differs)
	r.is("a", "deferred: window")
	d := r.e.doorOrder[0]
	for _, at := range append(w.asked, d.asked) {
		if at != at.Round(0) { // which is how package time takes the other count off
			t.Errorf("asked about %v", at)
		}
	}
}

// What a person has let go goes on, also when another declaration comes before its turn.
func TestReleaseOverASwap(t *testing.T) {
	r := changedConf(t)
	g := func() *Graph { return windowed(draw(t, 1, "new "+changes[0], changes[1]), night(), false, "service") }
	r.step(Release{IDs: []ID{r.id("service")}})
	r.swap(g())
	r.end("check service", inSync)
	r.end("check new", inSync)
	r.end("check service", inSync)
	r.asksOnly(false)
	r.end("refresh service", changed)
	r.owes()
	r.rests()
}

func TestRelease(t *testing.T) {
	r := changedConf(t)
	r.step(Release{IDs: []ID{r.id("conf")}})
	r.rests()
	r.step(Release{})
	r.end("check service", inSync)
	r.asksOnly(false)
	r.end("refresh service", changed)
	r.rests()

	r.touch("conf") // windows count again
	r.end("check conf", differs)
	r.end("apply conf", changed)
	r.end("check service", inSync)
	r.asksOnly(true)
	r.end("refresh service", notYet)
	r.step(Release{IDs: []ID{r.id("service")}})
	r.end("check service", inSync)
	r.asksOnly(false)
}

func TestWindowOverAStart(t *testing.T) {
	left := changedConf(t).left("conf", "service")
	r := newRig(t, windowed(draw(t, 1, changes[0], changes[1]), night(), false, "service"), Options{}, left)
	r.end("check conf", inSync)
	r.end("check service", inSync)
	r.asksOnly(true)
	r.end("refresh service", notYet)
	r.swap(draw(t, 1, changes[0], changes[1])) // the declaration has no windows any more
	r.end("check service", inSync)
	r.asksOnly(false)
}

func TestWindowThatNeverOpensAgain(t *testing.T) {
	r := newRig(t, windowed(draw(t, 1, "a"), over{}, true, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.opensIn(0)
	if st := r.e.Status(r.id("a")); st.Err.After != 0 || !st.RetryAt.IsZero() {
		t.Errorf("%+v", st)
	}
	r.rests()
}

// A hold's end is an event, however long it would still have lasted.
func TestUnheld(t *testing.T) {
	held := Result{Err: &reason.Error{Code: reason.ResourceHeld, Doing: "try", After: 48 * time.Hour}}
	r := newRig(t, draw(t, 1, changes[0], changes[1]), Options{}, Resume{})
	r.end("check conf", differs)
	r.end("apply conf", changed)
	r.end("check service", inSync)
	r.end("refresh service", held)
	r.is("service", "deferred: hold")
	r.step(Unheld{IDs: []ID{r.id("conf"), r.id("service")}})
	r.end("check service", inSync)
	r.end("refresh service", changed)
	r.rests()
}
