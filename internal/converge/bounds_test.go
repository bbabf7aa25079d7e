package converge

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// fight lets somebody change a back so many times, each of which is repaired.
func (r *rig) fight(times int) {
	r.t.Helper()
	for range times {
		r.touch("a")
		r.end("check a", differs)
		r.end("apply a", changed)
		r.is("a", "repaired: drift")
	}
}

func TestContendedHoldsOffLongerAndLonger(t *testing.T) {
	o := Options{ContendedAfter: 3, ContendedWithin: time.Minute, HoldOffMin: time.Minute, HoldOffMax: 3 * time.Minute}
	r := newRig(t, draw(t, 1, "a"), o, Resume{})
	r.end("check a", inSync)
	r.fight(3)
	r.touch("a")
	r.end("check a", differs)
	for _, hold := range []time.Duration{1, 2, 3, 3} {
		r.is("a", "contended")
		r.touch("a") // the fight is not fed
		r.expect()
		if d := r.wait(); d != hold*time.Minute {
			t.Errorf("held off %v, want %v", d, hold*time.Minute)
		}
		r.end("check a", differs)
		r.end("apply a", changed) // one repair
		r.is("a", "repaired: drift")
		r.touch("a")
		r.end("check a", differs)
	}
	r.is("a", "contended")
	r.wait()
	r.end("check a", inSync) // the other one has given up
	r.is("a", "kept")
	r.pass(4 * time.Minute)
	r.fight(3)
	if b := r.left().Budgets; len(b) != 0 {
		t.Errorf("durable after calm: %v", b)
	}
}

func TestRepairsFarApartAreNoFight(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{ContendedAfter: 2, ContendedWithin: time.Minute}, Resume{})
	r.end("check a", inSync)
	for range 10 {
		r.fight(1)
		r.pass(45 * time.Second)
	}
}

func TestContendedSurvivesARestart(t *testing.T) {
	o := Options{ContendedAfter: 2}
	r := newRig(t, draw(t, 1, "a"), o, Resume{})
	r.end("check a", inSync)
	r.fight(2)
	r.touch("a")
	r.end("check a", differs)
	again := newRig(t, draw(t, 1, "a"), o, r.left("a"))
	again.end("check a", differs) // a look, which the fight does not notice
	again.is("a", "contended")
	again.touch("a")
	again.expect()
	again.wait()
	again.end("check a", differs)
	again.end("apply a", changed)
	again.touch("a")
	again.end("check a", differs)
	again.is("a", "contended")
	if d := again.wait(); d != 2*time.Minute {
		t.Errorf("held off %v, want 2m", d)
	}
}

func TestRateLimitIsPerLaneAndForRepairsOnly(t *testing.T) {
	o := Options{Lanes: []Lane{{Name: "slow", Parallel: 9, Batch: 1, Burst: 1, Every: time.Minute}, wide}}
	r := newRig(t, draw(t, 1, "a@slow b@slow c"), o, Resume{})
	for _, v := range []string{"a", "b", "c"} { // what the declaration asks for is not limited
		r.end("check "+v, differs)
		r.end("apply "+v, changed)
	}
	r.touch("a", "b", "c")
	r.end("check c", differs)
	r.end("check a", differs)
	r.end("check b", differs)
	r.expect("apply a", "apply c")
	r.is("b", "deferred: rate")
	r.end("apply a", changed)
	r.end("apply c", changed)
	r.touch("b") // no event gets round it
	r.end("check b", differs)
	r.expect()
	r.wait()
	r.end("check b", differs)
	r.end("apply b", changed)
	r.is("b", "repaired: drift")
	if passed := r.now.Sub(r.reports[0].Since); passed < time.Minute {
		t.Errorf("second repair after %v", passed)
	}
}

// Whoever waits for a token comes when there is one for it: a crowd must not look again with every token.
func TestRateLimitedCrowdStandsInLine(t *testing.T) {
	const crowd = 50
	var names []string
	for i := range crowd {
		names = append(names, fmt.Sprint("v", i))
	}
	o := Options{Lanes: []Lane{{Parallel: crowd, Batch: 1, Burst: 1, Every: time.Second}}}
	r := newRig(t, draw(t, 1, strings.Join(names, " ")), o, Resume{})
	r.settle()
	r.touch(names...)
	ops := 0
	for began := r.now; r.wake > 0 || len(r.flying) > 0; ops++ {
		if r.now.Sub(began) > 2*crowd*time.Second {
			t.Fatalf("not done after %v", r.now.Sub(began))
		}
		if len(r.flying) == 0 {
			r.wait()
			continue
		}
		if op := r.flying[0]; op.Verb == Check {
			r.endOp(0, differs)
		} else {
			r.endOp(0, changed)
		}
	}
	if ops > 6*crowd {
		t.Errorf("%d operations and waits for %d repairs", ops, crowd)
	}
	for _, n := range names {
		r.is(n, "repaired: drift")
	}
}

func TestParallelAndBatch(t *testing.T) {
	o := Options{Lanes: []Lane{{Name: "x", Parallel: 2, Batch: 2}, wide}}
	r := newRig(t, draw(t, 1, "a@x b@x c@x d@x e@x f"), o, Resume{})
	r.expect("check a b", "check c d", "check f")
	r.end("check c d", differs, inSync)
	r.expect("check a b", "apply c", "check f")
	r.end("apply c", changed)
	r.expect("check a b", "check e", "check f")
}

func TestEventsGoFirst(t *testing.T) {
	r := newRig(t, draw(t, 1, "a b c"), Options{Lanes: []Lane{{Parallel: 1, Batch: 1}}}, Resume{})
	r.settle()
	r.step(Examine{IDs: []ID{r.id("a"), r.id("b")}})
	r.touch("c")
	first := r.flying[0].name
	r.endOp(0, inSync)
	if r.flying[0].name != "check c" {
		t.Errorf("after %s comes %s, want check c", first, r.flying[0].name)
	}
}

func TestGather(t *testing.T) {
	for _, gather := range []bool{true, false} {
		r := newRig(t, draw(t, 1, "a b c"), Options{Lanes: []Lane{{Parallel: 3, Batch: 3, Gather: gather}}}, Resume{})
		r.settle()
		for _, v := range []string{"a", "b", "c"} {
			r.touch(v)
		}
		r.end("check a", differs)
		r.end("check b", inSync)
		r.end("check c", differs)
		if gather {
			r.expect("apply a c")
		} else {
			r.expect("apply a", "apply c")
		}
	}
}

func TestClockJumps(t *testing.T) {
	const years = 5 * 365 * 24 * time.Hour
	for _, jump := range []time.Duration{years, -years} {
		r := newRig(t, draw(t, 1, "a b"), Options{}, Resume{})
		r.end("check a", inSync)
		for range 12 {
			r.end("check b", full)
			r.wait()
		}
		r.end("check b", full)
		due := r.wake
		r.pass(jump)
		if jump > 0 { // what waits is due once
			r.expect("check b")
			r.end("check b", full)
		} else if r.wake != due {
			t.Errorf("wakes after %v, want %v as before", r.wake, due)
		}
		r.expect()
		if d := r.wait(); d > 5*time.Minute {
			t.Errorf("after a jump by %v waits %v", jump, d)
		}
		r.expect("check b")
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, o := range map[string]Options{
		"lane twice":     {Lanes: []Lane{wide, wide}},
		"no parallel":    {Lanes: []Lane{{Batch: 1}}},
		"no batch":       {Lanes: []Lane{{Parallel: 1}}},
		"no rate":        {Lanes: []Lane{{Parallel: 1, Batch: 1, Burst: 1}}},
		"back-off":       {Lanes: []Lane{wide}, BackOffMin: 2, BackOffMax: 1},
		"hold-off":       {Lanes: []Lane{wide}, HoldOffMin: 2, HoldOffMax: 1},
		"contended":      {Lanes: []Lane{wide}, ContendedAfter: -1},
		"vertex's lane":  {Lanes: []Lane{{Name: "other", Parallel: 1, Batch: 1}}},
		"negative burst": {Lanes: []Lane{{Parallel: 1, Batch: 1, Burst: -1}}},
	} {
		if _, err := New(draw(t, 1, "a"), o, nil, Resume{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOwnEventsOfWhatFailsForGoodAreNoLoop(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", differs)
	r.end("apply a", denied)
	for range 20 {
		r.pass(time.Millisecond)
		r.touch("a")
		r.end("check a", differs)
		r.expect()
	}
	if r.wait() < 400*time.Millisecond {
		t.Error("tried again before half of the shortest back-off")
	}
	r.end("check a", differs)
	r.expect("apply a")
}

func TestLockThatIsFreeAtOnceIsNoLoop(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{})
	r.end("check a", locked(1))
	if r.wake < time.Second {
		t.Errorf("tried again after %v", r.wake)
	}
}

func TestLineForTokensIsLeft(t *testing.T) {
	lane := wide
	lane.Burst, lane.Every = 1, time.Minute
	r := newRig(t, draw(t, 1, "a b c"), Options{Lanes: []Lane{lane}}, Resume{Converged: map[Key]Digest{"a": {1}, "b": {1}, "c": {1}}})
	for _, name := range []string{"a", "b", "c"} {
		r.end("check "+name, differs)
	}
	r.end("apply a", changed)
	r.touch("b")
	r.end("check b", inSync) // somebody else has cured it
	r.swap(draw(t, 1, "a c"))
	if got := r.e.laneOrder[0].waiting; got != 1 {
		t.Errorf("%d wait in line, want c alone", got)
	}
	r.swap(draw(t, 1, "a"))
	if got := r.e.laneOrder[0].waiting; got != 0 {
		t.Errorf("%d wait in line, want nobody", got)
	}
}

func TestCalmWithoutEventsEndsAFight(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{ContendedAfter: 1, HoldOffMin: time.Hour}, Resume{Converged: map[Key]Digest{"a": {1}}})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.touch("a")
	r.end("check a", differs)
	r.is("a", "contended")
	r.wait()
	r.end("check a", differs)
	r.end("apply a", changed)
	r.now = r.now.Add(30 * 24 * time.Hour)
	r.touch("a")
	r.end("check a", differs)
	r.expect("apply a")
}

func TestFightOfYears(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{}, Resume{Converged: map[Key]Digest{"a": {1}},
		Budgets: map[Key]Budget{"a": {Digest: Digest{1}, Holds: math.MaxInt16}}})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.touch("a")
	r.end("check a", differs)
	if r.wake != time.Hour {
		t.Errorf("held off for %v", r.wake)
	}
}

func TestPersonMayLookAtAFight(t *testing.T) {
	r := newRig(t, draw(t, 1, "a"), Options{ContendedAfter: 1}, Resume{Converged: map[Key]Digest{"a": {1}}})
	r.end("check a", differs)
	r.end("apply a", changed)
	r.touch("a")
	r.end("check a", differs)
	r.touch("a")
	r.expect()
	r.step(Examine{})
	r.end("check a", differs)
	r.expect()
	r.is("a", "contended")
	r.step(Examine{})
	r.end("check a", inSync)
	r.is("a", "kept")
}
