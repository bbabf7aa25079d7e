package workload

import (
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// alike is a stage on which template 10 runs, and 11 runs the same.
func alike(t *testing.T, wanted int, rollout declared.Rollout) *world {
	w := stage(t, wanted, rollout)
	w.alike = 2
	w.until("it runs", complete)
	return w
}

// TestInPlace: a change that restarts nothing is everywhere with one decision, whatever the budget, and starts and ends nothing; back too.
func TestInPlace(t *testing.T) {
	for _, mode := range []declared.Mode{declared.Replicated, declared.PerNode} {
		for _, rollout := range []declared.Rollout{rolling("1", "0"), rolling("0", "1"), {Strategy: declared.BlueGreen, KeepOld: "1m"}} {
			w := stage(t, 4, rollout)
			w.alike, w.view.Spec.Mode = 2, mode
			w.view.Spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "0"}
			w.until("it runs", complete)
			all := len(w.copies)
			for _, template := range []int{11, 10} {
				w.declare(template, good)
				w.act() // its revision is made, or numbered
				d := w.act()
				if w.having(template) != all || w.ready(template) != all || len(d.Create)+len(d.Stop) > 0 || len(w.copies) != all {
					t.Errorf("%s %s: %d of %d have it, %d are ready, decided %+v", mode, rollout.Strategy, w.having(template), all, w.ready(template), d)
				}
				w.until("it is complete", complete)
			}
		}
	}
}

// TestInPlaceCanary: the steps hold for it, and a probe that never says yes goes back in place at the first one.
func TestInPlaceCanary(t *testing.T) {
	w := alike(t, 4, canary(declared.CanaryStep{Replicas: "1", Pause: "1m"}))
	w.view.Spec.Rollout.ProgressDeadline = "3m"
	names := map[string]bool{}
	for _, c := range w.copies {
		names[c.UID] = true
	}
	w.declare(11, mute)
	w.during(2*time.Minute, func(*Decision) {
		if w.having(11) > 1 || w.having(10) < 3 {
			t.Errorf("%d have it, %d do not", w.having(11), w.having(10))
		}
	})
	d := w.until("it has gone back", func(d *Decision) bool { return d.Status.Phase == pace.RolledBack && w.ready(10) == 4 })
	for _, c := range w.copies {
		if !names[c.UID] {
			t.Errorf("%s was made anew", c.Name)
		}
	}
	if len(d.Status.Failed) != 1 {
		t.Errorf("failed: %+v", d.Status.Failed)
	}
	w.declare(10, good)
	w.until("the first is declared again", complete)
	w.view.Spec.Rollout.Steps[0].Promotion = declared.ManualPromotion
	w.declare(11, good)
	w.qualities[11] = good
	w.view.Was.Failed = nil
	w.during(10*time.Minute, func(*Decision) {
		if w.having(11) > 1 {
			t.Errorf("%d have it before anybody has approved", w.having(11))
		}
	})
	w.view.Approval = Approval{w.view.Was.Rollout.Goal, 0}
	w.until("it is everywhere", complete)
	for _, c := range w.copies {
		if !names[c.UID] {
			t.Errorf("%s was made anew", c.Name)
		}
	}
}

// TestInPlaceMixed: of two old revisions the one that runs the same is changed as it is, and the other one replaced within the budget; what has failed is
// made anew; while it is paused nothing changes; what is on a node that is away gets it too, and is the one that stays.
func TestInPlaceMixed(t *testing.T) {
	w := alike(t, 4, rolling("1", "0"))
	w.declare(12, good)
	w.until("two have the second", func(*Decision) bool { return w.having(12) == 2 })
	w.declare(11, good)
	w.view.Spec.Rollout.Pause = true
	w.during(time.Minute, func(d *Decision) {
		if len(d.Update) > 0 {
			t.Errorf("paused, and it decides %+v", d.Update)
		}
	})
	w.view.Spec.Rollout.Pause = false
	w.act()
	if w.act(); w.having(11) < 2 {
		t.Errorf("%d have it at once", w.having(11))
	}
	w.until("all have it", complete)

	for i, c := range w.copies {
		c.Node = w.machines[i].name
	}
	sick, lost := w.copies[0], w.copies[1]
	sick.Failure = &Failure{Message: "it crashes", Since: w.now}
	w.cut(lost.Node)
	w.until("it is given up", func(*Decision) bool { return lost.Abandoned })
	w.declare(10, good)
	w.until("all have the first again", func(d *Decision) bool { return complete(d) && w.having(10) == 4 })
	for _, c := range w.copies {
		if c == sick {
			t.Error("what has failed is changed in place")
		}
	}
	if w.templates[lost.Revision] != 10 {
		t.Error("what is away was left out")
	}
	w.link(w.machine(lost.Node), false)
	w.until("one copy of each is left", func(d *Decision) bool {
		return d.Status.Phase == pace.Complete && d.Status.Counts.Abandoned+d.Status.Counts.Terminating == 0 && len(w.copies) == 4
	})
}

// TestInPlaceTakenIn: what was told to get another revision has it when its host says so: what is lost in the middle does not count as updated, and the
// rollout is not over before.
func TestInPlaceTakenIn(t *testing.T) {
	for _, mode := range []declared.Mode{declared.Replicated, declared.PerNode} {
		w := alike(t, 4, rolling("1", "0"))
		if mode == declared.PerNode {
			w = stage(t, 0, rolling("0", "1"))
			w.alike, w.view.Spec.Mode = 2, mode
			w.until("it runs", complete)
		}
		all := len(w.copies)
		for i, c := range w.copies {
			c.Node = w.machines[i].name
		}
		w.declare(11, good)
		w.act() // its revision is made
		if d := w.act(); w.having(11) != all || d.Status.Counts.Updated != 0 || d.Status.Phase == pace.Complete {
			t.Errorf("%s: %d have it, %s, and nobody has taken it in: %+v", mode, w.having(11), d.Status.Phase, d.Status.Counts)
		}
		lost := w.copies[1]
		w.cut(lost.Node)
		w.tick(0)
		if d := w.round(); d.Status.Counts.Updated != all-1 || mode == declared.Replicated && complete(&d) {
			t.Errorf("%s: one of %d is lost, %s: %+v", mode, all, d.Status.Phase, d.Status.Counts)
		}
		w.lead() // what an earlier leader has heard is not known any more
		if d := w.act(); d.Status.Counts.Updated > all-1 {
			t.Errorf("%s: one of %d was not heard by this leader: %+v", mode, all, d.Status.Counts)
		}
		w.link(w.machine(lost.Node), false)
		w.until("all have it", func(d *Decision) bool { return complete(d) && d.Status.Counts.Updated == all && w.having(11) == all })
	}
}

// TestInPlaceNotTakenIn: a host that is heard and does not take the revision in holds a step up until the deadline, and is told of; what was rolled back to
// is what it has.
func TestInPlaceNotTakenIn(t *testing.T) {
	w := alike(t, 4, canary(declared.CanaryStep{Replicas: "1"}))
	w.view.Spec.Rollout.ProgressDeadline = "3m"
	for _, m := range w.machines {
		m.stale = true
	}
	w.declare(11, good)
	w.during(2*time.Minute, func(d *Decision) {
		if w.having(11) > 1 || d.Status.Rollout.Step > 0 || w.having(11) == 1 && d.Status.Counts.Updated > 0 {
			t.Errorf("step %d, %d have it: %+v", d.Status.Rollout.Step, w.having(11), d.Status.Counts)
		}
	})
	d := w.act()
	if len(d.Status.Culprits) != 1 || d.Status.Culprits[0].Why != "its host has not taken in "+d.Status.Rollout.Goal+" yet" {
		t.Errorf("culprits %+v", d.Status.Culprits)
	}
	w.until("it has gone back", func(d *Decision) bool {
		return d.Status.Phase == pace.RolledBack && d.Status.Counts.Updated == 4 && w.ready(10) == 4
	})
}

// TestTakenInByOlderAgents: those that do not say count by what they were told, as long as they are heard.
func TestTakenInByOlderAgents(t *testing.T) {
	w := alike(t, 2, rolling("1", "0"))
	for _, c := range w.copies {
		c.Taken, c.has = "", ""
	}
	for _, m := range w.machines {
		m.stale = true
	}
	w.declare(11, good)
	w.until("all have it", func(d *Decision) bool { return complete(d) && d.Status.Counts.Updated == 2 })
}
