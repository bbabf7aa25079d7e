package converge

import (
	"strings"
	"testing"
	"time"
)

func TestSwapWhileAnApplyIsInFlight(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.swap(draw(t, 1, "b"))
	r.owes("a!b")
	r.end("check b", inSync)
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.end("refresh b", changed)
	r.owes()
	r.rests()
}

func TestSwapKeepsAnApplyThatIsStillWanted(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a>b"), Options{}, Resume{})
	r.end("check a", differs)
	r.swap(draw(t, 1, "b a", "a>b"))
	r.end("apply a", changed)
	r.is("a", "repaired: change")
	r.expect("check b")
}

func TestSwapVoidsWhatIsNotWantedAnyMore(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b"), Options{}, Resume{})
	r.end("check a", differs)
	r.expect("apply a", "check b")
	r.swap(draw(t, 2, "a b"))
	r.expect("apply a", "check b") // at most one for a key
	r.end("apply a", changed)
	r.expect("check a", "check b")
	r.is("a", "unknown")
	r.end("check b", inSync)
	r.is("b", "unknown")
	r.expect("check a", "check b")
}

func TestSwapOfAVertexThatLeavesAndComesBack(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b"), Options{}, Resume{})
	r.end("check a", differs)
	r.swap(draw(t, 1, "b"))
	r.swap(draw(t, 1, "a b"))
	r.expect("apply a", "check b")
	r.end("apply a", changed)
	r.expect("check a", "check b")
}

func TestSwapKeepsWhatIsTheSame(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c d e", "d>e"), Options{}, Resume{})
	r.end("check a", inSync)
	r.end("check b", full)
	r.end("check c", differs)
	r.end("apply c", denied)
	r.end("check d", full)
	r.is("e", "blocked by d")
	due, since := r.wake, r.e.Status(r.id("a")).Since
	r.now = r.now.Add(time.Millisecond)
	r.swap(draw(t, 1, "d e c b a n", "d>e"))
	r.expect("check n")
	r.is("a", "kept")
	r.is("b", "failed: error")
	r.is("c", "failed: denied")
	r.is("e", "blocked by d")
	if r.wake != due-time.Millisecond || !r.e.Status(r.id("a")).Since.Equal(since) {
		t.Errorf("wakes after %v, want %v", r.wake, due-time.Millisecond)
	}
	r.end("check n", inSync)

	r.swap(draw(t, 2, "b"))
	r.expect("check b")
	if b := r.left().Budgets; len(b) != 0 {
		t.Errorf("durable: %v, and nobody has it", b)
	}
}

func TestSwapWithAnUnknownLaneChangesNothing(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	if _, err := r.e.Swap(r.now, draw(t, 1, "a@none")); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("error %v", err)
	}
	r.end("check a", inSync)
	r.is("a", "kept")
}

func TestLookAtWhatWaitsSurvivesASwap(t *testing.T) {
	one := Lane{Parallel: 1, Batch: 1}
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{Lanes: []Lane{one}, BackOffMin: time.Minute}, Resume{})
	r.end("check a", differs)
	r.end("apply a", full)
	r.expect("check b")
	r.touch("a") // waits for the only worker
	r.swap(draw(t, 1, "b a", "b!a"))
	r.settle()
	r.is("a", "kept")
}
