package converge

import (
	"testing"
	"time"
)

func TestWantedOnlyWhileItHasFailed(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b after", "a/b", "b>after"), Options{}, Resume{})
	r.expect("check a")
	r.end("check a", inSync)
	r.is("b", "notApplicable")
	r.end("check after", inSync) // it goes on: nothing is wanted of what it requires
	r.touch("b")
	r.rests()

	r.touch("a")
	r.end("check a", full)
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: change")
	r.end("check after", inSync)

	r.wait()
	r.end("check a", inSync)
	r.is("b", "notApplicable")
	r.touch("b")
	r.rests()
}

func TestBlockedIsNotFailed(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a>b", "b/c"), Options{}, Resume{})
	r.end("check a", full)
	r.is("b", "blocked by a")
	r.is("c", "notApplicable")
}

func TestOneOfSeveralFailuresIsEnough(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a/c", "b/c"), Options{}, Resume{})
	r.end("check a", denied)
	r.end("check b", denied)
	r.end("check c", inSync)
	r.touch("a")
	r.end("check a", inSync)
	r.is("c", "kept")
	r.touch("b")
	r.end("check b", inSync)
	r.is("c", "notApplicable")
	r.rests()
}

// What heals while the rescue is under way is let end, and nothing follows from it.
func TestHealedMeanwhile(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a/b"), Options{}, Resume{})
	r.end("check a", full)
	r.end("check b", differs)
	r.expect("apply b")
	r.wait()
	r.end("check a", inSync)
	r.expect("apply b")
	r.end("apply b", changed)
	r.is("b", "notApplicable")
	r.rests()
}

// A service that nobody wants now keeps what it owes: when it is wanted, it may still run with what was there before.
func TestOwedUntilWanted(t *testing.T) {
	r := newRig(t, draw(t, 1, "a conf b", "a/b", "conf!b"), Options{}, Resume{})
	r.end("check a", inSync)
	r.end("check conf", differs)
	r.end("apply conf", changed)
	r.is("b", "notApplicable")
	r.owes("conf!b")
	r.rests()

	again := newRig(t, r.e.Graph(), Options{}, r.left("a", "conf"))
	again.end("check conf", inSync)
	again.end("check a", full)
	again.end("check b", inSync)
	again.end("refresh b", done)
	again.is("b", "kept")
}

func TestRescueBacksOffAndIsForgiven(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a/b"), Options{BackOffMin: time.Second, BackOffMax: time.Hour}, Resume{})
	r.end("check a", denied)
	for range 3 {
		r.end("check b", full)
		r.wait()
	}
	r.end("check b", full)
	if n := r.e.Status(r.id("b")).Attempts; n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
	r.touch("a")
	r.end("check a", inSync)
	r.is("b", "notApplicable")
	if left := r.left().Budgets; len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	r.rests()
}

func TestSwapKeepsWhoIsNotWanted(t *testing.T) {
	g := draw(t, 1, "a b", "a/b")
	r := newRig(t, g, Options{}, Resume{})
	r.settle()
	told := len(r.reports)
	r.swap(draw(t, 1, "a b c", "a/b"))
	r.settle()
	r.is("b", "notApplicable")
	for _, report := range r.reports[told:] {
		if report.ID == r.id("b") {
			t.Errorf("told again: %+v", report)
		}
	}
	r.swap(draw(t, 1, "a b", "a>b")) // in every case now
	r.expect("check b")
}
