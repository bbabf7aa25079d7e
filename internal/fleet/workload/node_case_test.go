package workload

import (
	"fmt"
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// A node that comes and goes costs few replacements, however it is timed, and none that undo each other.
func TestWorkloadCase46_FlappingNode(t *testing.T) {
	c := casetest.Start(t)
	for _, period := range []time.Duration{30 * time.Second, 59 * time.Second, 61 * time.Second, 2 * time.Minute, 3 * time.Minute} {
		w := running(t, 3, rolling("1", "0"))
		flapping := w.machine(w.first(10).Node)
		there := w.having(10)
		replaced, until := 0, w.now
		w.during(3*time.Hour, func(d *Decision) {
			replaced += len(d.Abandon)
			if w.now.Sub(until) >= period {
				until = w.now
				if flapping.linked {
					w.cut(flapping.name)
				} else {
					w.link(flapping, false)
				}
			}
			c.Check(w.having(10) <= there+1, "%d instances", w.having(10))
		})
		on := 3 // instances that can have been there
		c.Check(replaced <= on*(lossesMax+1), "period %s: %d replacements in three hours", period, replaced)
		if period < time.Minute {
			c.Equal(replaced, 0, "replacements where it was never away for long enough")
		}
	}
}

// back is a stage on which the node of an instance was lost, the instance was replaced, and the node is back.
func back(t *testing.T, policy declared.Reconnect, meanwhile func(*world)) (w *world, original, other *copyOf) {
	w = running(t, 2, rolling("1", "0"))
	w.view.Spec.OnUnreachable.Reconnect = policy
	original = w.first(10)
	for _, x := range w.copies {
		if x != original && x.Node == original.Node {
			x.Node = "n4"
		}
	}
	if original.Node == "n4" {
		original.Node = "n3"
	}
	w.cut(original.Node)
	w.until("it is replaced", func(*Decision) bool { return original.Abandoned && w.ready(10) == 2 })
	for _, x := range w.copies {
		if x.Replaces == original.UID {
			other = x
		}
	}
	if meanwhile != nil {
		meanwhile(w)
	}
	w.link(w.machine(original.Node), false)
	return w, original, other
}

func TestWorkloadCase47_OneCopyStays(t *testing.T) {
	c := casetest.Start(t)
	for policy, stays := range map[declared.Reconnect]bool{"": true, declared.KeepOriginal: true, declared.KeepReplacement: false, declared.KeepLongestReady: true} {
		w, original, other := back(t, policy, nil)
		d := w.act()
		loser := original
		if stays {
			loser = other
		}
		c.Equal(d.Stop, []Stop{{Mark{loser.Name, loser.UID}, reason.CopySuperseded}}, string(policy)+": stopped")
		c.Check(w.slotTaken(loser), "%s: the slot of the loser is free while it runs", policy)
		c.Equal(len(d.Create), 0, "created")
		d = w.during(time.Minute, func(d *Decision) { c.Equal(len(d.Create), 0, "created") })
		c.Equal([]int{d.Status.Counts.Available, d.Status.Counts.Abandoned, len(w.copies)}, []int{2, 0, 2}, string(policy)+": available, abandoned, stored")
	}
	// The newer revision stays, whatever the policy says.
	w, original, _ := back(t, declared.KeepOriginal, func(w *world) {
		w.declare(2, good)
		w.until("all have the new one", func(d *Decision) bool { return complete(d) && w.ready(2) == 2 })
	})
	w.during(time.Minute, func(d *Decision) { c.Check(!original.Phase.Ended() || original.Abandoned, "the old one counts again") })
	c.Equal([]int{w.ready(2), w.having(10)}, []int{2, 0}, "new, old")
}

// The copies have different revisions: the goal's stays, then the newer one, whatever the policy says.
func TestNewerCopyStays(t *testing.T) {
	for _, n := range []struct {
		original, other, goal string
		policy                declared.Reconnect
		stays                 bool
	}{
		{"r1", "r2", "r2", declared.KeepOriginal, false},
		{"r2", "r1", "r2", declared.KeepReplacement, true},
		{"r2", "r1", "r1", declared.KeepOriginal, false}, // rolled back meanwhile
		{"r1", "r2", "r1", declared.KeepReplacement, true},
		{"r1", "r2", "r3", declared.KeepOriginal, false},
		{"r2", "r1", "r3", declared.KeepReplacement, true},
		{"r10", "r9", "r11", declared.KeepReplacement, true},
		{"r1", "r1", "r3", declared.KeepReplacement, false},
		{"r1", "r1", "r3", declared.KeepOriginal, true},
	} {
		v := View{Name: "web", UID: "w1", Wanted: 1, Hash: "h", Nodes: map[string]Node{"n": {Presence: node.Here}}}
		v.Spec.OnUnreachable = &declared.OnUnreachable{Reconnect: n.policy}
		v.Spec.Rollout = rolling("1", "0")
		for i := range 11 {
			name := fmt.Sprint("r", i+1)
			v.Revisions = append(v.Revisions, Revision{Name: name, Number: i + 1, Hash: "h", Same: name == n.goal})
		}
		one := Instance{Name: "web-0", UID: "original", Owner: "w1", Revision: n.original, Node: "n", Phase: Running, ReadySince: start.Add(time.Minute), Abandoned: true, Losses: 1}
		other := Instance{Name: "web-1", UID: "other", Owner: "w1", Slot: 1, Revision: n.other, Node: "n", Phase: Running, ReadySince: start, Replaces: "original"}
		v.Instances = []Instance{one, other}
		d := Decide(v, start.Add(time.Hour))
		if stays := len(d.Reclaim) == 1; stays != n.stays || len(d.Stop) != 1 || (d.Stop[0].UID == "other") != stays {
			t.Errorf("%+v: it stays: %v; %+v", n, stays, d.Stop)
		}
	}
}

func (w *world) slotTaken(x *copyOf) bool {
	v := w.snapshot()
	v.Wanted += 5
	for _, n := range Decide(v, w.now).Create {
		if n.Slot == x.Slot {
			return false
		}
	}
	return true
}

func TestWorkloadCase48_SurvivorIsUpdated(t *testing.T) {
	c := casetest.Start(t)
	w, original, other := back(t, declared.KeepOriginal, nil)
	w.until("the other is gone", func(*Decision) bool { return other.Phase.Ended() })
	w.declare(2, good)
	w.until("all have it", complete)
	c.Equal([]int{w.having(10), w.ready(2)}, []int{0, 2}, "old, new")
	c.Check(original.Phase.Ended(), "the original is %s", original.Phase)
}

func TestWorkloadCase49_NoLiveSlotTwice(t *testing.T) {
	c := casetest.Start(t)
	w, original, other := back(t, declared.KeepOriginal, func(w *world) { w.scale(4) })
	w.scale(6)
	slots := map[int]string{}
	w.during(2*time.Minute, func(*Decision) {
		clear(slots)
		for _, x := range w.copies {
			c.Check(slots[x.Slot] == "", "%s and %s have slot %d", slots[x.Slot], x.UID, x.Slot)
			slots[x.Slot] = x.UID
		}
	})
	c.Equal(w.ready(10), 6, "ready")
	c.Check(original.Slot != other.Slot, "the two had one slot")
}

func TestWorkloadCase51_Brake(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 10, rolling("1", "0"))
	for _, m := range w.machines[:4] {
		w.cut(m.name)
	}
	w.view.Brake = "4 of 5 nodes are gone"
	stored := len(w.copies)
	d := w.during(time.Hour, func(d *Decision) { c.Check(!d.acts(), "it does something: %+v", d) })
	c.Equal(len(w.copies), stored, "instances")
	w.view.Brake = ""
	d = w.until("they are replaced", func(*Decision) bool { return w.ready(10) == 10 })
	c.Check(d.Status.Counts.Abandoned > 0, "%+v", d.Status.Counts)
}

// The servers were away for hours. On return nobody is given up who can speak; who has been gone before them still is, and once.
func TestWorkloadCase52_OutageOfTheServers(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("1", "0"))
	w.now = w.now.Add(6 * time.Hour)
	w.lead()
	for _, after := range []time.Duration{0, 30 * time.Second, 89 * time.Second} {
		w.tick(after - w.now.Sub(w.view.Quiet.Add(-90*time.Second)))
		d := w.act()
		c.Check(!d.acts(), "%s after it began to lead: %+v", after, d)
		c.Equal(d.Status.Phase, pace.Complete, "phase")
	}
	for _, m := range w.machines {
		w.link(m, false)
	}
	w.during(10*time.Minute, func(d *Decision) { c.Check(!d.acts(), "it does something: %+v", d) })
	// Who spoke and fell silent again in that time is given up no sooner.
	w.cut(w.copies[0].Node)
	w.view.Quiet = w.now.Add(90 * time.Second)
	w.during(85*time.Second, func(d *Decision) { c.Equal(len(d.Abandon), 0, "given up before all had the time to speak") })
	w.until("it is given up", func(d *Decision) bool { return len(d.Abandon) > 0 })
}

func TestWorkloadCase53_LeaderChangesWhileTimersRun(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 2, rolling("1", "0"))
	w.view.Spec.OnUnreachable.After = "5m"
	lost := w.machine(w.first(10).Node)
	on := 0
	for _, x := range w.copies {
		if x.Node == lost.name {
			on++
		}
	}
	w.cut(lost.name)
	w.during(4*time.Minute, func(d *Decision) { c.Check(!d.acts(), "it is given up early: %+v", d) })
	given := 0
	for range 2 { // one leader after the other, before the time is over and after
		w.lead()
		w.during(90*time.Second, func(d *Decision) { given += len(d.Abandon) })
	}
	w.during(10*time.Minute, func(d *Decision) { given += len(d.Abandon) })
	c.Equal(given, on, "given up")
	c.Equal(w.ready(10), 2, "ready")
}

func TestWorkloadCase55_EarlierIncarnation(t *testing.T) {
	c := casetest.Start(t)
	in := Instance{Name: "web-0", UID: "i2", Phase: Starting, Attempt: 3}
	for what, r := range map[string]Report{
		"another UID of the name":   {UID: "i1", Attempt: 9, Phase: Running, Ready: true},
		"an attempt before":         {UID: "i2", Attempt: 2, Phase: Running, Ready: true},
		"an earlier phase":          {UID: "i2", Attempt: 3, Phase: Placed},
		"a failure of another life": {UID: "i1", Attempt: 3, Phase: Failed, Failure: &Failure{Code: reason.RolloutFailed}},
	} {
		got, counts := Observe(in, r, start)
		c.Check(!counts, "%s counts", what)
		c.Equal(got, in, what)
	}
	got, counts := Observe(in, Report{UID: "i2", Attempt: 4, Phase: Starting}, start)
	c.Check(counts && got.Attempt == 4 && got.Phase == Starting, "the next attempt: %+v", got)
}

func TestWorkloadCase56_NoResurrection(t *testing.T) {
	c := casetest.Start(t)
	phases := []Phase{Pending, Placed, Starting, Running, Terminating, Failed, Done}
	for _, was := range phases {
		for _, said := range phases {
			for _, attempt := range []int{1, 2} {
				in := Instance{UID: "i", Phase: was, Attempt: 1}
				got, _ := Observe(in, Report{UID: "i", Phase: said, Attempt: attempt, Ready: true}, start)
				forward := got.Phase >= was || attempt == 2 && was < Terminating
				c.Check(forward, "%s and %s of attempt %d is %s", was, said, attempt, got.Phase)
				c.Check(was < Terminating || got.ReadySince.IsZero(), "%s and %s is ready", was, said)
			}
		}
	}
	w := running(t, 3, rolling("1", "0"))
	w.scale(2)
	d := w.act()
	x := w.copy(d.Stop[0].UID)
	x.Instance, _ = Observe(x.Instance, Report{UID: x.UID, Attempt: x.Attempt + 1, Phase: Running, Ready: true}, w.now)
	d = w.act()
	c.Equal([]int{d.Status.Counts.Live, d.Status.Counts.Terminating, d.Status.Counts.Available}, []int{2, 1, 2}, "live, terminating, available")
}

// An exclusive instance is replaced when it has ended for certain, under the same slot, or when people say that its host is lost.
func TestWorkloadCase57_ExclusiveIdentity(t *testing.T) {
	c := casetest.Start(t)
	for _, how := range []string{"fence", "lost"} {
		w := stage(t, 1, rolling("1", "0"))
		w.view.Spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "2m"}
		w.until("it runs", complete)
		x := w.first(10)
		w.cut(x.Node)
		w.tick(time.Second)
		gone := w.machine(x.Node).gone
		if how == "lost" {
			w.tick(10 * time.Second)
			v := w.snapshot()
			n := v.Nodes[x.Node]
			n.Lost = true
			v.Nodes[x.Node] = n
			d := Decide(v, w.now)
			c.Equal(d.Drop, []Mark{{x.Name, x.UID}}, "dropped")
			c.Equal(d.Create, []Create{{Slot: x.Slot, Revision: x.Revision}}, "created")
			continue
		}
		at := FencedAt(&w.view.Spec, gone)
		c.Check(at.Sub(gone) >= 2*time.Minute+30*time.Second+fenceMargin, "it is fenced after %s", at.Sub(gone))
		for w.now.Before(at.Add(-time.Second)) {
			w.tick(time.Second)
			d := w.act()
			c.Check(!d.acts(), "%s before it has ended for certain: %+v", at.Sub(w.now), d)
		}
		c.Check(!x.runs, "the agent has not ended it by its own clock")
		w.tick(2 * time.Second)
		d := w.act()
		c.Equal(d.Create, []Create{{Slot: x.Slot, Revision: x.Revision}}, "created")
		w.link(w.machine(x.Node), false)
		d = w.during(time.Minute, func(*Decision) {})
		c.Equal([]int{d.Status.Counts.Live, len(w.copies)}, []int{1, 1}, "live, stored")
	}
	// A rollout of it stops the old one before it starts the new one.
	w := stage(t, 1, rolling("1", "0"))
	w.view.Spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable}
	w.until("it runs", complete)
	w.declare(2, good)
	w.until("the new one runs", func(d *Decision) bool {
		running := 0
		for _, x := range w.copies {
			if x.runs {
				running++
			}
		}
		c.Check(running <= 1, "%d run", running)
		return complete(d)
	})
}

func TestWorkloadCase67_Drain(t *testing.T) {
	c := casetest.Start(t)
	// One replica: another one is started first, and the drain is over when the process has ended.
	w := running(t, 1, rolling("1", "0"))
	x := w.first(10)
	at := w.machine(x.Node)
	w.drain(at)
	d := w.act()
	c.Equal([]int{len(d.Create), len(d.Stop), len(d.Status.Leaving)}, []int{1, 0, 1}, "created, stopped, told that it is held up")
	c.Equal(d.Status.Leaving[0].Code, reason.DisruptionHeld, "code")
	w.until("it is asked to stop", func(*Decision) bool {
		c.Check(w.ready(10) >= 1, "nothing is ready")
		return x.Phase == Terminating
	})
	c.Check(!Drained(at.name, w.snapshot().Instances), "it counts as drained while a process runs")
	d = w.until("it is over", func(*Decision) bool { return Drained(at.name, w.snapshot().Instances) })
	c.Check(!x.runs, "it runs")
	// What is not ready goes at once; what is to stand in and is not ready holds the others up; a deadline ends that.
	w = running(t, 4, rolling("1", "0"))
	for _, x := range w.copies {
		x.Node = "n0"
	}
	sick := w.copies[3]
	sick.ReadySince = time.Time{}
	w.drain(w.machine("n0"))
	d = w.act()
	c.Equal(len(d.Stop), 1, "stopped at once")
	c.Equal(d.Stop[0].UID, sick.UID, "who")
	w.qualities[10] = mute
	d = w.during(10*time.Minute, func(d *Decision) { c.Check(w.ready(10) >= 3, "%d are ready", w.ready(10)) })
	c.Equal(len(d.Status.Leaving), 3, "held up")
	for _, x := range w.copies {
		if x.Leave != nil {
			x.Leave.Force = w.now.Add(time.Minute)
		}
	}
	w.until("the deadline is over", func(*Decision) bool { return Drained("n0", w.snapshot().Instances) })
}

// TestDrainCountsTheDelay: what goes on after it was withdrawn is withdrawn that much before the deadline, and not earlier.
func TestDrainCountsTheDelay(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Second} {
		w := running(t, 1, rolling("0", "1"))
		w.view.Spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "0", SurgeFirst: new(bool)}
		w.view.Spec.Template.ShutdownDelay = delay.String()
		deadline := w.now.Add(time.Minute)
		w.copies[0].Leave = &Leave{Why: reason.NodeDrained, Since: w.now, Force: deadline}
		d := w.act()
		if !d.WakeAt.Equal(deadline.Add(-delay)) || len(d.Stop) > 0 {
			t.Errorf("delay %v: it is looked at %v before the deadline, stopped %v", delay, deadline.Sub(d.WakeAt), d.Stop)
		}
		w.tick(time.Minute - delay - time.Second)
		if d = w.act(); len(d.Stop) > 0 {
			t.Errorf("delay %v: stopped %v before the deadline", delay, deadline.Sub(w.now))
		}
		w.tick(time.Second)
		if d = w.act(); len(d.Stop) != 1 {
			t.Errorf("delay %v: not stopped %v before the deadline", delay, deadline.Sub(w.now))
		}
	}
}

// Two drains and two leaders: what one takes the other sees, because of two decisions on one status one is refused.
func TestWorkloadCase68_OneBudget(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("1", "0"))
	w.view.Spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "1"}
	for i, x := range w.copies {
		x.Node = w.machines[i].name
	}
	w.drain(w.machines[0])
	one := Decide(w.snapshot(), w.now)
	w.undrain(w.machines[0])
	w.drain(w.machines[1])
	two := Decide(w.snapshot(), w.now)
	c.Check(one.Stop[0].UID != two.Stop[0].UID, "both take the same one")
	c.Equal([]int64{one.Status.Budget, two.Status.Budget}, []int64{w.view.Was.Budget + 1, w.view.Was.Budget + 1}, "both spend one generation of the budget, so one of them is refused")
	w.drain(w.machines[0])
	w.view.Was = one.Status // stored; the rest of the decision is not carried out yet
	again := Decide(w.snapshot(), w.now)
	c.Equal(again.Stop, one.Stop, "stopped by who decides next")
	c.Equal(again.Status.Budget, one.Status.Budget, "generation, as nothing more is taken")
	w.until("both are drained", func(*Decision) bool {
		c.Check(w.ready(10) >= 3, "%d are ready", w.ready(10))
		all := w.snapshot().Instances
		return Drained("n0", all) && Drained("n1", all)
	})
}

// Also from histories: a workload that is deleted stops all its instances, also those that are not heard, and one that is scaled to nothing
// creates nothing, whatever ended ones it has.
func TestStopMeansAll(t *testing.T) {
	w := running(t, 5, rolling("1", "0"))
	w.cut(w.first(10).Node)
	w.until("some are given up", func(d *Decision) bool { return d.Status.Counts.Abandoned > 0 && w.ready(10) == 5 })
	w.view.Deleting = true
	stored := len(w.copies)
	d := w.act()
	if len(d.Stop) != stored || len(d.Create) != 0 || d.Status.Phase != Stopping {
		t.Errorf("of %d instances %d are stopped: %+v", stored, len(d.Stop), d)
	}
	for _, m := range w.machines {
		w.link(m, false)
	}
	w.until("all are gone", func(*Decision) bool { return len(w.copies) == 0 })
	w = running(t, 3, rolling("1", "0"))
	w.scale(0)
	d = w.until("nothing is left", func(d *Decision) bool {
		if len(d.Create) > 0 {
			t.Errorf("it creates %v", d.Create)
		}
		return len(w.copies) == 0
	})
	if d = w.act(); d.Status.Phase != pace.Empty {
		t.Errorf("phase %s", d.Status.Phase)
	}
}

// What is wanted away from a host that is gone cannot be asked, and nothing stands in for it before onUnreachable says so.
func TestDrainOfWhatIsGone(t *testing.T) {
	w := running(t, 1, rolling("1", "0"))
	w.view.Spec.OnUnreachable.Action = declared.KeepUnreachable
	w.cut(w.first(10).Node)
	w.tick(time.Second)
	w.drain(w.machine(w.first(10).Node))
	w.during(time.Hour, func(d *Decision) {
		if d.acts() {
			t.Errorf("it does %+v", d)
		}
	})
}

// What is exclusive has ended on a host whose agent is silent for as long as a fence takes, and another one is made; not before, and not where it was
// heard meanwhile.
func TestSilentIsFenced(t *testing.T) {
	w := stage(t, 1, rolling("0", "1"))
	w.view.Spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "1m"}
	w.until("it runs", complete)
	v := w.snapshot()
	missed := w.now.Add(time.Hour)
	for name, n := range v.Nodes {
		n.Presence, n.Missed = node.Silent, missed
		v.Nodes[name] = n
	}
	fence := FencedAt(&v.Spec, missed)
	if d := Decide(v, fence.Add(-time.Second)); d.acts() || !d.WakeAt.Equal(fence) {
		t.Errorf("before the fence: %+v", d)
	}
	if d := Decide(v, fence); len(d.Drop) != 1 || len(d.Create) != 1 {
		t.Errorf("when the fence is over: %+v", d)
	}
}

// A silent agent is no lost host: nothing is replaced.
func TestSilentIsNotGone(t *testing.T) {
	w := running(t, 2, rolling("1", "0"))
	v := w.snapshot()
	for name, n := range v.Nodes {
		n.Presence = node.Silent
		v.Nodes[name] = n
	}
	if d := Decide(v, w.now.Add(24*time.Hour)); d.acts() || d.Status.Counts.Unreachable != 2 {
		t.Errorf("%+v", d)
	}
}
