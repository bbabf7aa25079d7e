package converge

import (
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func TestOrder(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c d", "a>b", "b!c", "c~d"), Options{}, Resume{})
	r.expect("check a")
	r.end("check a", differs)
	r.expect("apply a")
	r.end("apply a", changed)
	r.is("a", "repaired: change")
	r.expect("check b")
	r.end("check b", inSync)
	r.expect("check c")
	r.end("check c", inSync)
	r.expect("check d")
	if r.e.Quiet() {
		t.Error("quiet while a check is in flight")
	}
	r.end("check d", inSync)
	if !r.e.Quiet() || r.wake != 0 {
		t.Error("not quiet when all is done")
	}
}

func TestBlockedSaysByWhomAndComesBack(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a>c", "b>c"), Options{}, Resume{})
	r.end("check a", full)
	r.end("check b", denied)
	r.is("c", "blocked by a")
	r.wait()
	r.end("check a", inSync)
	r.is("c", "blocked by b")
	r.touch("b")
	r.end("check b", inSync)
	r.expect("check c")
	r.end("check c", inSync)
	r.is("c", "kept")
}

func TestFailedNotifierDoesNotBlock(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", full)
	r.expect("check b")
	r.end("check b", inSync)
	r.is("b", "kept")
}

func TestOrderDoesNotBlock(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a,b"), Options{}, Resume{})
	r.expect("check a")
	r.end("check a", full)
	r.expect("check b")
	r.end("check b", inSync)
	r.is("b", "kept")
}

func TestConvergedIsLookedAtWhileItsRequirementFails(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a>b"), Options{}, Resume{Converged: map[Key]Digest{"b": {1}}})
	r.end("check a", full)
	r.end("check b", differs)
	r.is("b", "blocked by a")
	r.wait()
	r.end("check a", inSync)
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: drift")
}

func TestBackOffGrowsAndGoesOnForEver(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{BackOffMin: time.Second, BackOffMax: 10 * time.Second}, Resume{})
	drawn := map[time.Duration]bool{}
	for _, most := range []time.Duration{1, 2, 4, 8, 10, 10, 10, 10} {
		most *= time.Second
		r.end("check a", differs)
		r.end("apply a", full)
		r.is("a", "failed: error")
		if at := r.e.Status(0).RetryAt; !at.Equal(r.now.Add(r.wake)) {
			t.Errorf("is tried again at %v, and wakes after %v", at, r.wake)
		}
		d := r.wake
		if d < most/2 || d > most {
			t.Errorf("back-off of %v, want %v to %v", d, most/2, most)
		}
		drawn[d] = true
		r.pass(d - 1)
		r.expect()
		r.wait()
	}
	if len(drawn) != 8 {
		t.Errorf("no jitter: %v", drawn)
	}
	r.end("check a", differs)
	r.end("apply a", changed)
	if st := r.e.Status(0); st.Attempts != 0 || !st.RetryAt.IsZero() {
		t.Errorf("after success: %+v", st)
	}
	if b := r.left().Budgets; len(b) != 0 {
		t.Errorf("durable after success: %v", b)
	}
}

func TestBackOffSurvivesARestart(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	for range 4 {
		r.end("check a", full)
		r.wait()
	}
	r.end("check a", full)
	again := newRig(t, draw(t, 1, "a"), Options{}, r.left())
	again.end("check a", full) // looks, and that is no attempt
	again.is("a", "failed: error")
	again.expect()
	if again.wake != r.wake || again.e.Status(0).Attempts != 5 {
		t.Errorf("waits %v after %d attempts, want %v after 5", again.wake, again.e.Status(0).Attempts, r.wake)
	}
	again.touch("a")
	again.end("check a", differs)
	again.expect()
	again.wait()
	again.end("check a", differs)
	again.expect("apply a")

	other := newRig(t, draw(t, 2, "a"), Options{}, r.left())
	other.expect("check a")
	if b := other.records; len(b) != 1 || b[0].Kind != BudgetCleared {
		t.Errorf("another desire: %+v, want its budget cleared", b)
	}
}

func TestNeverRetryWaitsForAnEvent(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", denied)
	r.is("a", "failed: denied")
	if r.wake != 0 || !r.e.Quiet() {
		t.Error("waits for something else than an event")
	}
	r.pass(time.Hour)
	r.expect()
	r.touch("a")
	r.expect("check a")
}

func TestSoonIsTriedAtOnceAFewTimes(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	for range soonMax {
		r.end("check a", raced)
	}
	r.end("check a", raced)
	r.expect()
	if r.wake == 0 {
		t.Error("does not back off")
	}
}

func TestDeferredUntilTheLockIsFree(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", locked(7*time.Second))
	r.is("a", "deferred: lock")
	if d := r.wait(); d != 7*time.Second {
		t.Errorf("waited %v, want 7s", d)
	}
	r.expect("check a")
}

func TestEventDuringBackOffLooksAndDoesNotAct(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", full)
	due := r.wake
	r.touch("a")
	r.end("check a", differs)
	r.expect()
	r.is("a", "failed: error")
	if r.wake != due {
		t.Errorf("wakes after %v, want %v as before", r.wake, due)
	}
	r.touch("a") // somebody has cured it
	r.end("check a", inSync)
	r.is("a", "kept")
	r.touch("a") // and broken it again
	r.end("check a", differs)
	r.expect("apply a")
}

func TestEventAfterACureOfTheCheckActs(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", full)
	r.touch("a")
	r.end("check a", full)
	r.expect()
	if n := r.e.Status(0).Attempts; n != 1 {
		t.Errorf("a look counts as an attempt: %d", n)
	}
	r.touch("a")
	r.end("check a", differs)
	r.expect("apply a")
}

func TestTouchedInFlightIsLookedAtOnceMore(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.touch("a")
	r.touch("a")
	r.end("check a", differs)
	r.touch("a")
	r.end("apply a", changed)
	r.end("check a", inSync)
	r.expect()
	r.touch("a")
	r.touch("a")
	r.end("check a", inSync)
	r.end("check a", inSync)
	r.expect()
}

func TestRecognisedKeepsRepaired(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.touch("a") // our own writing
	r.end("check a", Result{InSync: true, Recognised: true})
	r.is("a", "repaired: change")
	r.touch("a")
	r.end("check a", inSync)
	r.is("a", "kept")
}

func TestNotApplicable(t *testing.T) {
	r := newRig(t, draw(t, 1, "-a b -c", "a>b", "b!c"), Options{}, Resume{})
	r.expect("check b")
	r.end("check b", differs)
	r.end("apply b", changed)
	r.owes()
	r.touch("a", "c")
	r.expect()
	r.is("a", "notApplicable")
}

func TestDeepLookIsNotForgotten(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", inSync)
	r.step(Examine{Depth: Deep})
	for range 2 {
		if d := r.flying[0].Depth; d != Deep {
			t.Fatalf("depth %d", d)
		}
		r.end("check a", full)
		r.wait()
	}
	r.end("check a", inSync)
	r.touch("a")
	if d := r.flying[0].Depth; d != Shallow {
		t.Errorf("depth %d after the deep look was done", d)
	}
}

func TestDoneTwiceAndTooFewResults(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	op := r.flying[0]
	r.step(Done{Token: op.Token})
	if st := r.e.Status(0); st.Outcome != reason.Failed || st.Err.Code != reason.InternalFault {
		t.Errorf("too few results: %v %v", st.Outcome, st.Err)
	}
	r.step(Done{Token: op.Token, Results: []Result{inSync}})
	r.is("a", "failed: error")
}

func TestCureDuringAnAttemptThatFailsForGood(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.touch("a")
	r.end("apply a", denied)
	r.end("check a", inSync)
	r.is("a", "kept")
}

func TestErrorOfALookIsNoAttempt(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", locked(time.Hour))
	r.touch("a")
	r.end("check a", full)
	r.is("a", "failed: error")
	if st := r.e.Status(0); st.Attempts != 0 || r.wake != time.Hour {
		t.Errorf("attempts %d, next in %v; want none, and the hour that the lock asked for", st.Attempts, r.wake)
	}
}

func TestBlockedIsNotCheckedAtEveryRetryOfWhatItRequires(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a>b"), Options{}, Resume{Converged: map[Key]Digest{"b": {1}}})
	r.end("check a", differs)
	r.end("apply a", full)
	r.end("check b", differs)
	r.is("b", "blocked by a")
	r.wait()
	r.end("check a", differs)
	r.end("apply a", full)
	r.expect()
	r.touch("b")
	r.end("check b", inSync)
	r.is("b", "kept")
}

func TestResumedIsLookedAtAndNotActedUpon(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b"), Options{}, Resume{Budgets: map[Key]Budget{
		"a": {Digest: Digest{1}, Attempts: 9, Wait: 5 * time.Minute}, "b": {Digest: Digest{1}, Attempts: 9, Wait: 5 * time.Minute}}})
	r.end("check a", inSync)
	r.is("a", "kept")
	r.end("check b", differs)
	r.expect()
	if r.wake != 5*time.Minute {
		t.Errorf("b is tried again in %v", r.wake)
	}
}

// TestResumedFailureIsStillOne: an agent that has just started knows why what waits for its turn does.
func TestResumedFailureIsStillOne(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", full)
	var spent Record
	for _, record := range r.records {
		if record.Kind == BudgetSpent {
			spent = record
		}
	}
	if spent.Budget.Failure == nil || spent.Budget.Since.IsZero() {
		t.Fatalf("what is kept of a failure is %+v", spent)
	}
	since := r.e.Status(0).Since
	again := newRig(t, draw(t, 1, "a"), Options{}, Resume{Budgets: map[Key]Budget{"a": spent.Budget}})
	again.is("a", "failed: error")
	again.end("check a", differs)
	again.is("a", "failed: error")
	if got := again.e.Status(0); got.Err == nil || got.Err.Code != spent.Budget.Failure.Code || !got.Since.Equal(since) || got.Attempts != 1 {
		t.Errorf("after a restart it is %+v", got)
	}
}

func TestAuditInFlightIsNotTakenForAnEvent(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.step(Examine{Depth: Deep})
	r.end("check a", inSync)
	r.end("check a", differs)
	r.end("apply a", changed)
	if got := r.reports[len(r.reports)-1]; got.Detail != reason.Drift || got.Cause != CauseExamined {
		t.Errorf("%v %v for cause %d", got.Outcome, got.Detail, got.Cause)
	}
}

func TestNotApplicableIsTold(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", inSync)
	before := len(r.reports)
	r.swap(draw(t, 1, "-a"))
	if len(r.reports) != before+1 || r.reports[before].Outcome != reason.NotApplicable || !r.e.Status(0).Since.Equal(r.now) {
		t.Errorf("reports %v, since %v", r.reports[before:], r.e.Status(0).Since)
	}
	r.swap(draw(t, 1, "-a"))
	if len(r.reports) != before+1 {
		t.Error("told twice")
	}
}

// An apply that was planned while everything was in order does not start after what it requires has failed.
func TestPlannedApplyDoesNotStartWithoutWhatItRequires(t *testing.T) {
	gather := Lane{Name: "gather", Parallel: 2, Batch: 2, Gather: true}
	r := newRig(t, draw(t, 1, "a b@gather c@gather", "a>c"), Options{Lanes: []Lane{wide, gather}}, Resume{})
	r.settle()
	r.touch("b")
	r.touch("c")
	r.end("check c", differs)
	r.expect("check b") // which the apply waits for
	r.touch("a")
	r.end("check a", full)
	r.end("check b", inSync)
	r.end("check c", differs)
	r.expect()
	r.is("c", "blocked by a")
}

// TestWhatFollowsTheDeclarationIsNoDrift: a unit whose file is declared anew has to be read again, and nobody has touched it.
// When the file has drifted, so has the unit.
func TestWhatFollowsTheDeclarationIsNoDrift(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a>b"), Options{}, Resume{Converged: map[Key]Digest{"b": {1}}})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.is("a", "repaired: change")
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: change")

	r.touch("a")
	r.end("check a", differs)
	r.end("apply a", changed)
	r.is("a", "repaired: drift")
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: drift")
}

// TestWhatFollowsIsForOneLook: once it has been found in order, what differs later has drifted.
func TestWhatFollowsIsForOneLook(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a>b"), Options{}, Resume{Converged: map[Key]Digest{"b": {1}}})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.touch("b")
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: drift")
}
