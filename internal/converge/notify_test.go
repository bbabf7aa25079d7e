package converge

import (
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestNotificationIsDurableBeforeTheApply(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.owes()
	r.end("check a", differs)
	r.expect("apply a")
	r.owes("a!b")
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.expect("refresh b")
	r.owes("a!b")
	if got := r.e.Owed(r.id("b")); len(got) != 1 || got[0] != "a" || !r.e.Owes(r.id("b")) {
		t.Errorf("b owes %v", got)
	}
	r.end("refresh b", changed)
	r.owes()
	r.is("b", "repaired: change")
	r.expect()
}

func TestNothingChangedTakesTheNotificationBack(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", done)
	r.owes()
	r.is("a", "kept")
	r.end("check b", inSync)
	r.expect()
}

func TestFailedApplyThatChangedSomethingNotifies(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", Result{Err: full.Err, Changed: true})
	r.end("check b", inSync)
	r.expect("refresh b")
}

func TestTheTargetIsBroughtInOrderBeforeItIsRefreshed(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", differs)
	r.end("apply b", changed)
	r.end("refresh b", done)
	r.owes()
	r.is("b", "repaired: change")
}

func TestFailedRefreshIsOwedOverRestarts(t *testing.T) {
	g := draw(t, 1, "a b", "a!b")
	r := newRig(t, g, Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	for range 3 {
		r.end("refresh b", full)
		r.is("b", "failed: error")
		r.owes("a!b")
		r.touch("b") // a look does not act
		r.end("check b", inSync)
		r.expect()
		r.is("b", "failed: error")

		from := r.left("a", "b")
		r = newRig(t, g, Options{}, from)
		r.records = append(r.records, Record{Kind: NotificationAdded, Source: "a", Target: "b", Seq: from.Pending[0].Seq})
		r.end("check a", inSync)
		r.wait()
		r.end("check b", inSync)
		r.expect("refresh b")
	}
	r.end("refresh b", changed)
	r.owes()
	r.is("b", "repaired: change")
	r.rests()
}

func TestAnAnnouncedApplyCountsAfterACrash(t *testing.T) {
	g := draw(t, 1, "a b", "a!b")
	r := newRig(t, g, Options{}, Resume{})
	r.end("check a", differs)
	r = newRig(t, g, Options{}, r.left())
	r.end("check a", inSync) // the apply had come through
	r.end("check b", inSync)
	r.expect("refresh b")
}

func TestChangeDuringARefreshGivesASecond(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a!c", "b!c"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("check b", inSync)
	r.end("apply a", changed)
	r.end("check c", inSync)
	r.expect("refresh c")
	r.touch("b")
	r.end("check b", differs)
	r.end("apply b", changed)
	r.owes("a!c", "b!c")
	r.expect("refresh c")
	r.end("refresh c", changed)
	r.owes("b!c")
	r.end("check c", inSync)
	r.end("refresh c", changed)
	r.owes()
	r.rests()
}

// A change that turns out while a refresh is in flight is not covered by it, whenever it was announced.
func TestARefreshCoversWhatWasKnownWhenItStarted(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a!c", "b!c"), Options{}, Resume{})
	r.end("check a", differs) // announced first, and slow
	r.swap(draw(t, 1, "a b c", "b!c"))
	r.end("check b", inSync)
	r.end("check b", differs)
	r.end("apply b", changed)
	r.end("check c", inSync)
	r.expect("apply a", "refresh c")
	r.end("apply a", changed)
	r.end("refresh c", changed)
	r.owes("a!c")
	r.end("check c", inSync)
	r.end("refresh c", changed)
	r.owes()
}

func TestRefreshNeedsWhatIsRequired(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c", "a!c", "b>c"), Options{}, Resume{Converged: map[Key]Digest{"c": {1}}})
	r.end("check a", differs)
	r.end("check b", full)
	r.end("apply a", changed)
	r.end("check c", inSync)
	r.is("c", "blocked by b")
	r.owes("a!c")
	r.wait()
	r.end("check b", inSync)
	r.end("check c", inSync)
	r.expect("refresh c")
}

// TestOwedDoesNotGrow: a target that cannot be refreshed owes a source that keeps changing one refresh, not one for each change.
func TestOwedDoesNotGrow(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{ContendedAfter: 100}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	for range 5 {
		r.end("refresh b", full)
		r.step(Touched{IDs: []ID{r.id("a")}})
		r.end("check a", differs)
		r.end("apply a", changed)
		r.end("check b", inSync)
		r.wait()
		r.end("check b", inSync)
		r.owes("a!b")
		if got := r.e.Owed(r.id("b")); len(got) != 1 {
			t.Errorf("b owes %v", got)
		}
	}
	r.end("refresh b", changed)
	r.owes()
}

// TestChangeDuringARefreshIsOwed: the refresh in flight has not seen it, and what that covers is cleared apart from it.
func TestChangeDuringARefreshIsOwed(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{ContendedAfter: 100}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	for range 3 {
		r.step(Touched{IDs: []ID{r.id("a")}})
		r.end("check a", differs)
		r.end("apply a", changed)
	}
	r.owes("a!b", "a!b")
	r.end("refresh b", changed)
	r.owes("a!b")
	r.end("check b", inSync)
	r.end("refresh b", changed)
	r.owes()
}

func TestTargetThatIsGoneOwesNothing(t *testing.T) {
	for name, g := range map[string]*Graph{"gone": draw(t, 1, "a"), "nothing wanted": draw(t, 1, "a -b", "a!b")} {
		r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
		r.end("check a", differs)
		before := r.left()
		r.end("apply a", changed)
		r.swap(g)
		r.owes()

		r = newRig(t, g, Options{}, before)
		if n := len(r.records); n != 1 || r.records[0].Kind != NotificationCleared {
			t.Errorf("%s: after a restart %+v", name, r.records)
		}
	}
}

func TestWithoutAResultAnApplyCountsAsAChange(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	op := r.flying[0]
	r.flying = nil
	r.step(Done{Token: op.Token})
	r.owes("a!b")
	if st := r.e.Status(0); st.Err == nil || st.Err.Code != reason.InternalFault {
		t.Errorf("a: %v", st.Err)
	}
}

func TestTwoNotifyEdgesAreOneNotification(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.owes("a!b")
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.end("refresh b", changed)
	r.owes()
}

func TestRefreshInFlightOverASwapCounts(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b", "a!b"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.end("check b", inSync)
	r.expect("refresh b")
	r.swap(draw(t, 2, "a b"))
	r.end("refresh b", changed)
	r.owes()
	r.settle()
	r.is("b", "kept")
}
