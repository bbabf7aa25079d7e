package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// fleet is nodes that do as they are told, by a clock.
type fleet struct {
	*testing.T
	v       View
	now     time.Time
	broken  map[Target]bool // that do not work
	measure func() pace.Reading
	d       Decision
}

func newFleet(t *testing.T, n int, spec declare.Rollout) *fleet {
	return &fleet{T: t, v: view(nodes(n, r1), spec), now: later, broken: map[Target]bool{}}
}

// step decides, and lets the nodes take up what they get.
func (f *fleet) step() {
	f.Helper()
	if f.measure != nil {
		f.v.Gates = map[string]pace.Reading{"errors": f.measure()}
	}
	f.d = Decide(f.v, f.now)
	f.v.Was = f.d.Status
	for i := range f.v.Nodes {
		n := &f.v.Nodes[i]
		for _, m := range f.d.Moves {
			if m.Node == n.Name {
				n.Assigned, n.Since = m.Target, f.now
			}
		}
		n.Report = Report{Of: n.Assigned, Verdict: Converged}
		if f.broken[n.Assigned] {
			n.Report = Report{Of: n.Assigned, Verdict: Failed, Message: "it does not start"}
		}
	}
}

// pass lets time pass, a second at a time.
func (f *fleet) pass(d time.Duration) {
	f.Helper()
	for end := f.now.Add(d); f.now.Before(end); f.now = f.now.Add(time.Second) {
		f.step()
	}
}

// have counts the nodes that are to have something.
func (f *fleet) have(t Target) (n int) {
	for i := range f.v.Nodes {
		if f.v.Nodes[i].Assigned == t {
			n++
		}
	}
	return n
}

func (f *fleet) is(phase Phase, updated int, words string) {
	f.Helper()
	if s := f.d.Status; s.Phase != phase || f.have(r2) != updated || !strings.Contains(s.Why, words) {
		f.Errorf("it is %s: %s; %d nodes are to have %s, want %s, %d and %q", s.Phase, s.Why, f.have(r2), r2.Revision, phase, updated, words)
	}
}

// TestWavesByPercentage: one node, then a tenth, then half of all; each is looked at first.
func TestWavesByPercentage(t *testing.T) {
	f := newFleet(t, 20, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1", Pause: "10m"}, {Nodes: "10%"}, {Nodes: "50%", Pause: "1m"}}})
	f.pass(3 * time.Second)
	f.is(Waiting, 1, "wave 1 works, and is looked at until "+later.Add(10*time.Minute+time.Second).UTC().Format(time.RFC3339))
	if at := f.d.WakeAt; !at.Equal(later.Add(10*time.Minute + time.Second)) {
		t.Errorf("it wakes up at %s", at)
	}
	f.pass(10*time.Minute - 2*time.Second)
	f.is(Waiting, 1, "")
	f.pass(4 * time.Second)
	f.is(Waiting, 10, "wave 3 works")
	f.pass(time.Minute + 4*time.Second)
	f.is(Complete, 20, "")
	if s := f.d.Status; s.Passed != 0 || !s.First.IsZero() || !s.Held.IsZero() || s.Proven != r2 {
		t.Errorf("it is complete, and %+v", s)
	}
}

// TestFirstIsOff: a wave of one node is not that of a node that is switched off.
func TestFirstIsOff(t *testing.T) {
	f := newFleet(t, 5, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1", Pause: "1m"}}})
	f.step()
	first := f.d.Moves[0].Node
	g := newFleet(t, 5, f.v.Spec)
	for i := range g.v.Nodes {
		if g.v.Nodes[i].Name == first {
			g.v.Nodes[i].Presence = Silent
		}
	}
	g.pass(5 * time.Second)
	g.is(Waiting, 1, "wave 1 works")
	g.pass(2 * time.Minute)
	g.is(Waiting, 4, "all but these nodes")
}

func gatedBy(n int, spec declare.Rollout) func(t *testing.T) (*fleet, *float64) {
	return func(t *testing.T) (*fleet, *float64) {
		most, value := declare.Quantity("0.05"), 0.01
		spec.Gates = []declare.Gate{{Name: "errors", Max: &most}}
		f := newFleet(t, n, spec)
		f.measure = func() pace.Reading { return pace.Reading{At: f.now.Truncate(15 * time.Second), Value: value} }
		return f, &value
	}
}

// TestGate: what is out of bounds before anything has come does not count, and what is while it comes ends it: for good, until people change something.
func TestGate(t *testing.T) {
	f, value := gatedBy(10, declare.Rollout{MaxUnavailable: "2"})(t)
	*value = 0.5
	f.step()
	f.is(Rolling, 2, "")
	*value = 0.01
	f.pass(40 * time.Second)
	f.is(Complete, 10, "")

	f, value = gatedBy(10, declare.Rollout{MaxUnavailable: "2"})(t)
	f.pass(2 * time.Second)
	f.is(Waiting, 2, "gate errors is to be measured once more")
	*value = 0.5
	f.pass(time.Minute)
	f.is(Halted, 2, "gate errors measures 0.5, and its max is 0.05")
	*value = 0.01
	f.pass(time.Hour)
	f.is(Halted, 2, "gate errors measures 0.5")
	if !f.d.WakeAt.IsZero() {
		t.Errorf("it has failed, and is looked at again at %s", f.d.WakeAt)
	}
	f.v.Generation++ // people have looked at it
	f.pass(2 * time.Minute)
	f.is(Complete, 10, "")
}

// TestGateBack: all nodes go back where people want that, and what has failed does not come again.
func TestGateBack(t *testing.T) {
	f, value := gatedBy(10, declare.Rollout{MaxUnavailable: "3", OnFailure: declare.RollBack, Waves: []declare.Wave{{Nodes: "50%"}}})(t)
	f.pass(25 * time.Second)
	if n := f.have(r2); n < 3 || n > 5 {
		t.Fatalf("%d have it", n)
	}
	*value = 0.5
	f.pass(16 * time.Second)
	if f.d.Status.Goal != r1 || f.d.Status.Target != r2 {
		t.Fatalf("it is %+v", f.d.Status)
	}
	f.pass(time.Minute)
	f.is(RolledBack, 0, "r2 has failed: gate errors measures 0.5")
	if s := f.d.Status; s.Proven != r1 || s.Counts.Done != 10 {
		t.Errorf("rolled back is %+v", s)
	}
	*value = 0.01
	f.pass(time.Hour)
	f.is(RolledBack, 0, "")
	f.v.Target = Target{"r3", 100, ""}
	f.pass(2 * time.Minute)
	if f.d.Status.Phase != Complete || f.have(f.v.Target) != 10 || f.d.Status.Failed != (Failure{}) {
		t.Errorf("what comes next is %+v", f.d.Status)
	}
}

// TestOutcomeBack: nodes on which it does not work take all back, and a node that joins meanwhile gets what is proven.
func TestOutcomeBack(t *testing.T) {
	f := newFleet(t, 10, declare.Rollout{MaxUnavailable: "2", OnFailure: declare.RollBack})
	f.broken[r2] = true
	f.pass(2 * time.Second)
	f.is(RollingBack, 0, "r2 has failed: nodes that have r2 and are in a bad way: 2; spec.rollout.haltOnFailed is 1: node n")
	if !strings.Contains(f.d.Status.Why, "failed: it does not start") {
		t.Errorf("it says %q", f.d.Status.Why)
	}
	f.v.Nodes = append(f.v.Nodes, Node{Name: "new", Presence: Heard})
	f.pass(10 * time.Second)
	f.is(RolledBack, 0, "")
	if f.have(r1) != 11 {
		t.Errorf("%d of 11 have what is proven", f.have(r1))
	}
	f.v.Nodes = append(f.v.Nodes, Node{Name: "newer", Presence: Heard})
	f.pass(10 * time.Second)
	if f.is(RolledBack, 0, ""); f.have(r1) != 12 {
		t.Errorf("%d of 12 have what is proven", f.have(r1))
	}
}

// TestNoWayBack: of the first of all there is none, and it halts.
func TestNoWayBack(t *testing.T) {
	f, value := gatedBy(4, declare.Rollout{OnFailure: declare.RollBack})(t)
	f.v.Was = Status{}
	for i := range f.v.Nodes {
		f.v.Nodes[i] = Node{Name: f.v.Nodes[i].Name, Presence: Heard}
	}
	*value = 1
	f.pass(time.Minute)
	f.is(Halted, 1, "its max is 0.05; nothing was proven before")

	f, value = gatedBy(4, declare.Rollout{OnFailure: declare.RollBack})(t)
	*value, f.v.Gone = 1, true
	f.pass(time.Minute)
	f.is(Halted, 1, "cannot be had any more")
}

// TestMonitor: it is not over before everything has worked for so long, and fails meanwhile as before.
func TestMonitor(t *testing.T) {
	f := newFleet(t, 3, declare.Rollout{MaxUnavailable: "100%", Monitor: "30m", OnFailure: declare.RollBack})
	f.pass(time.Minute)
	f.is(Monitoring, 3, "all nodes work, and is looked at until ")
	f.pass(28 * time.Minute)
	f.is(Monitoring, 3, "")
	g := *f
	g.v.Nodes = append([]Node(nil), f.v.Nodes...)
	g.broken = map[Target]bool{r2: true}
	g.pass(time.Minute)
	g.is(RolledBack, 0, "it does not start")
	f.pass(2 * time.Minute)
	f.is(Complete, 3, "")
}

// TestUnmeasured: without a number nothing goes on, and nothing has failed.
func TestUnmeasured(t *testing.T) {
	f, _ := gatedBy(10, declare.Rollout{OnFailure: declare.RollBack})(t)
	good := f.measure
	f.measure = func() pace.Reading { return pace.Reading{Missing: "default does not answer"} }
	f.pass(time.Hour)
	f.is(Waiting, 1, "gate errors is not measured: default does not answer")
	if at := f.d.WakeAt; at.IsZero() || at.Sub(f.now) > pace.GateEvery {
		t.Errorf("it is looked at again at %s", at)
	}
	f.v.Spec.Pause = true // what people pause is neither measured nor judged
	f.pass(time.Minute)
	f.is(Paused, 1, "")
	f.v.Spec.Pause, f.measure = false, good
	f.pass(2 * time.Minute)
	f.is(Complete, 10, "")
}

// TestAnotherLeader: what has been passed, and since when, is in the status.
func TestAnotherLeader(t *testing.T) {
	f := newFleet(t, 10, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1", Pause: "10m"}, {Nodes: "2", Pause: "10m"}}})
	f.pass(15 * time.Minute)
	f.is(Waiting, 2, "wave 2 works")
	held := f.d.Status.Held
	f.v.Quiet = f.now.Add(90 * time.Second)
	for i := range f.v.Nodes {
		f.v.Nodes[i].Presence = Unheard
	}
	f.step()
	f.is(Waiting, 2, "not had the time")
	if s := f.d.Status; s.Passed != 1 || !s.Held.Equal(held) {
		t.Errorf("nobody is heard, and %+v", s)
	}
	for i := range f.v.Nodes {
		f.v.Nodes[i].Presence = Heard
	}
	f.pass(100 * time.Second)
	f.is(Waiting, 2, "wave 2 works")
	f.pass(4 * time.Minute) // of the ten, five had passed before
	f.is(Complete, 10, "")
}

// TestPausedOutOfBounds: while people pause, what a gate measures fails nothing, and lets nothing through.
func TestPausedOutOfBounds(t *testing.T) {
	f, value := gatedBy(10, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1", Pause: "1m"}}, Monitor: "1m", OnFailure: declare.RollBack})(t)
	f.pass(20 * time.Second)
	f.v.Spec.Pause, *value = true, 0.5
	f.pass(10 * time.Minute)
	if f.is(Paused, 1, ""); f.d.Status.Passed != 0 {
		t.Errorf("it has passed a wave: %+v", f.d.Status)
	}
	f.v.Spec.Pause, *value = false, 0.01
	f.pass(100 * time.Second)
	f.is(Monitoring, 10, "")
	f.v.Spec.Pause, *value = true, 0.5
	f.pass(10 * time.Minute)
	if f.is(Paused, 10, ""); f.d.Status.Proven != r1 {
		t.Errorf("it is proven: %+v", f.d.Status)
	}
	f.v.Spec.Pause = false
	f.pass(time.Minute)
	f.is(RolledBack, 0, "gate errors measures 0.5")
}

// TestSilenceIsNoFailure: a node that is away for a moment halts it, and nothing goes back because of that.
func TestSilenceIsNoFailure(t *testing.T) {
	f := newFleet(t, 4, declare.Rollout{MaxUnavailable: "100%", Monitor: "10m", OnFailure: declare.RollBack})
	f.pass(time.Minute)
	f.v.Nodes[2].Presence = Silent
	f.pass(time.Minute)
	f.is(Halted, 4, "in a bad way: 1")
	f.v.Nodes[2].Presence = Heard
	f.pass(time.Minute)
	f.is(Monitoring, 4, "")
	f.pass(8 * time.Minute)
	f.is(Complete, 4, "")
}

// TestOtherWaves: what was passed of other waves says nothing.
func TestOtherWaves(t *testing.T) {
	f := newFleet(t, 10, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1"}, {Nodes: "20%"}, {Nodes: "50%", Pause: "1h"}}})
	f.pass(time.Minute)
	f.is(Waiting, 5, "wave 3 works")
	f.v.Spec.Waves = []declare.Wave{{Nodes: "60%", Pause: "1h"}, {Nodes: "70%", Pause: "1h"}}
	f.pass(time.Minute)
	f.is(Waiting, 6, "wave 1 works")
	f.pass(time.Hour)
	f.is(Waiting, 7, "wave 2 works")
}

// TestJoiningWhileMonitored: nodes that join all the time do not keep it from its end.
func TestJoiningWhileMonitored(t *testing.T) {
	f := newFleet(t, 4, declare.Rollout{MaxUnavailable: "100%", Monitor: "30m"})
	for i := range 4 {
		f.pass(10 * time.Minute)
		f.v.Nodes = append(f.v.Nodes, Node{Name: fmt.Sprint("new", i), Presence: Heard})
	}
	f.pass(time.Minute)
	f.is(Complete, 8, "")
}

// TestJoiningACanary: nodes that join a wave get what it has, and its pause goes on.
func TestJoiningACanary(t *testing.T) {
	f := newFleet(t, 4, declare.Rollout{MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "50%", Pause: "30m"}}})
	for i := range 6 {
		f.pass(7 * time.Minute)
		f.v.Nodes = append(f.v.Nodes, Node{Name: fmt.Sprint("new", i)}) // nobody has heard it yet
		f.pass(10 * time.Second)
		f.v.Nodes[len(f.v.Nodes)-1].Presence = Heard
		f.pass(10 * time.Second)
	}
	f.is(Complete, 10, "")
}

// TestCanaryThatCannot: a wave of one node is not that of one where it is kept out; and where the only canary fails, it is over whatever haltOnFailed says.
func TestCanaryThatCannot(t *testing.T) {
	two := 2
	f := newFleet(t, 5, declare.Rollout{MaxUnavailable: "100%", HaltOnFailed: &two, OnFailure: declare.RollBack, Waves: []declare.Wave{{Nodes: "1", Pause: "10m"}}})
	first := Decide(f.v, f.now).Moves[0].Node
	for i := range f.v.Nodes {
		if f.v.Nodes[i].Name == first {
			f.v.Nodes[i].Refused = []Target{r2}
		}
	}
	f.pass(time.Minute)
	f.is(Waiting, 1, "wave 1 works")
	f.broken[r2] = true
	f.pass(time.Minute)
	f.is(RolledBack, 0, "it does not start")
}

// TestPassedIsPassed: a node that joins belongs to a wave that was looked at: it gets it, and nothing is looked at again.
func TestPassedIsPassed(t *testing.T) {
	f := newFleet(t, 10, declare.Rollout{MaxUnavailable: "1", Waves: []declare.Wave{{Nodes: "10%", Pause: "10m"}}})
	f.pass(10*time.Minute + 5*time.Second)
	before := f.have(r2)
	if before < 2 || before == 10 {
		t.Fatalf("%d have it", before)
	}
	for i := range 5 {
		f.v.Nodes = append(f.v.Nodes, Node{Name: fmt.Sprint("new", i), Presence: Heard})
	}
	f.pass(time.Minute)
	f.is(Complete, 15, "")
}
