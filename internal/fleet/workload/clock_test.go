package workload

import (
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
)

// clocks is a workload of one instance, with an exclusive slot, on a node.
func clocks() View {
	return View{
		Name: "web", UID: "w1", Generation: 1, Wanted: 1, Hash: "h", Revisions: []Revision{{Name: "r1", Number: 1, Hash: "h", Same: true}},
		Nodes:     map[string]Node{"n0": {Presence: node.Here}, "n1": {Presence: node.Here}},
		Instances: []Instance{{Name: "web-0", UID: "i0", Owner: "w1", Revision: "r1", Node: "n0", Phase: Running, ReadySince: start}},
		Spec:      declared.Spec{OnUnreachable: &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "1m"}},
	}
}

// A pause that a leader has written whose clock was ahead is no longer under the next one than it is long.
func TestBackoffOfAClockAhead(t *testing.T) {
	v := clocks()
	v.Instances = nil
	v.Was = Status{Backoff: Backoff{Failed: 4, Until: start.Add(time.Hour)}}
	d := Decide(v, start)
	if len(d.Create) != 0 || !d.WakeAt.Equal(start.Add(4*time.Second)) {
		t.Errorf("%+v is created at once, and it wakes at %s", d.Create, d.WakeAt)
	}
	v.Was = d.Status
	if d = Decide(v, d.WakeAt); len(d.Create) != 1 {
		t.Errorf("after its pause of four seconds: %+v", d)
	}
}

// What a leader has written of steps and promotions whose clock was ahead does not hold up the next one for as long.
func TestRolloutOfAClockAhead(t *testing.T) {
	v := clocks()
	v.Spec.Rollout.KeepOld, v.Spec.Rollout.Monitor = "1m", "2m"
	later := start.Add(time.Hour)
	v.Was = Status{Rollout: Rollout{Target: "r1", Goal: "r1", Held: later, Passed: later, Ended: later, Scaled: later, Clock: later}}
	r := Decide(v, start).Status.Rollout
	for name, at := range map[string]time.Time{"held": r.Held, "passed": r.Passed, "ended": r.Ended, "scaled": r.Scaled} {
		if at.After(start) {
			t.Errorf("%s at %s", name, at)
		}
	}
	if r.Clock.After(start.Add(2 * time.Minute)) {
		t.Errorf("nothing has gone on since %s", r.Clock)
	}
}

// The fence of an exclusive instance is counted from when this leader has missed its node: what an earlier one has written may be by a clock that was
// behind, and its agent would not have ended it.
func TestFenceByTheLeadersOwnClock(t *testing.T) {
	v := clocks()
	v.Nodes["n0"] = Node{Presence: node.Gone, Gone: start.Add(-time.Hour), Missed: start}
	for at := start; at.Before(FencedAt(&v.Spec, start)); at = at.Add(10 * time.Second) {
		if d := Decide(v, at); len(d.Drop)+len(d.Create) != 0 {
			t.Fatalf("%s after this leader has missed it: %+v", at.Sub(start), d)
		}
	}
	if d := Decide(v, FencedAt(&v.Spec, start)); len(d.Drop) != 1 || len(d.Create) != 1 {
		t.Errorf("when it has ended for certain: %+v", d)
	}
	v.Spec.OnUnreachable = &declared.OnUnreachable{After: "1m"}
	if d := Decide(v, start); len(d.Abandon) != 1 {
		t.Errorf("one that is not exclusive is replaced, whoever has seen that its node is gone: %+v", d)
	}
}

// A copy that its host could not begin for want of a report is no crash: the next one is made at once, how many there were of them.
func TestLeaseOverHasNoPause(t *testing.T) {
	v := clocks()
	for range 10 {
		v.Instances[0].Phase, v.Instances[0].Failure = Failed, &Failure{Code: reason.LeaseOver, OfNode: true}
		d := Decide(v, start)
		if len(d.Drop) != 1 || len(d.Create) != 1 || d.Status.Backoff != (Backoff{}) {
			t.Fatalf("%+v", d)
		}
		v.Was = d.Status
	}
}
