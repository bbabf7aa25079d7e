package workload

import (
	"strings"
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// What people have declared as waiting is no time in which nothing goes on, also when what is waited with is not ready for a moment.
func TestWaitingIsNotLate(t *testing.T) {
	monitored := rolling("1", "0")
	monitored.Monitor = "1h"
	manual := canary(declared.CanaryStep{Replicas: "1", Promotion: declared.ManualPromotion})
	for what, rollout := range map[string]declared.Rollout{"a pause": canary(declared.CanaryStep{Replicas: "1", Pause: "1h"}), "an approval": manual, "the monitor": monitored} {
		w := running(t, 2, rolling("1", "0"))
		w.view.Spec.Rollout = rollout
		w.declare(2, good)
		w.until("it is looked at", func(d *Decision) bool {
			return w.ready(2) > 0 && (d.Status.Phase == pace.Waiting || d.Status.Phase == pace.Monitoring)
		})
		w.during(40*time.Minute, func(*Decision) {})
		w.qualities[2] = mute
		w.first(2).ReadySince = time.Time{}
		w.during(9*time.Minute, func(d *Decision) {
			if len(d.Status.Failed) > 0 {
				t.Fatalf("%s of an hour: it has failed %+v", what, d.Status.Failed)
			}
		})
		w.until("it is late", func(d *Decision) bool { return len(d.Status.Failed) > 0 })
	}
}

// Where nothing was ever stable, what is lost is made up for with what there is: while it is halted, and before all nodes were heard.
func TestNothingElseThereIs(t *testing.T) {
	w := stage(t, 3, rolling("1", "0"))
	w.view.Quiet = start.Add(time.Hour)
	w.until("all are created before all nodes were heard", func(*Decision) bool { return w.having(10) == 3 })
	w.view.Quiet = w.now
	w.qualities[10] = dead
	w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
	w.first(10).Phase = Failed
	w.until("three are there", func(d *Decision) bool { return d.Status.Phase == pace.Halted && w.having(10) == 3 })
}

// An old one that is wanted away in the middle of a rollout is replaced by that, not by one more.
func TestDrainWhileRolling(t *testing.T) {
	w := running(t, 4, rolling("1", "0"))
	for i, x := range w.copies {
		x.Node = w.machines[i].name
	}
	w.view.Spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "0"}
	w.declare(2, mute)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	w.drain(w.machine(w.first(10).Node))
	w.during(5*time.Minute, func(d *Decision) {
		if d.Status.Counts.Live > 5 || w.ready(10) < 4 || len(d.Status.Leaving) != 1 {
			t.Errorf("%+v", d.Status)
		}
	})
	w.qualities[2] = good
	w.until("all have it", func(d *Decision) bool { return complete(d) && w.ready(2) == 4 })
}

// A declared budget holds for rollouts too, and says so where nothing can move.
func TestDeclaredBudgetHoldsForRollouts(t *testing.T) {
	w := running(t, 4, rolling("1", "3"))
	w.view.Spec.DisruptionBudget = &declared.DisruptionBudget{MinAvailable: "4"}
	w.declare(2, good)
	w.until("all have it", func(d *Decision) bool {
		if w.ready(10)+w.ready(2) < 4 {
			t.Errorf("%d and %d are ready", w.ready(10), w.ready(2))
		}
		return complete(d) && w.ready(2) == 4
	})
	w.view.Spec.Rollout = rolling("0", "3")
	w.declare(3, good)
	d := w.during(5*time.Minute, func(*Decision) {})
	if w.ready(2) != 4 || d.Status.Phase != pace.Waiting || !strings.Contains(d.Status.Why, "disruptionBudget") {
		t.Errorf("%+v", d.Status)
	}
}

// Which copy stays says who is wanted away and who is not ready, too.
func TestCopyThatCanStay(t *testing.T) {
	w, original, _ := back(t, declared.KeepOriginal, nil)
	original.Leave = &Leave{Why: reason.NodeDrained, Since: w.now}
	if d := w.act(); len(d.Stop) != 1 || d.Stop[0].UID != original.UID {
		t.Errorf("who is wanted away stays: %+v", d)
	}
	w, original, _ = back(t, declared.KeepOriginal, nil)
	original.ReadySince = time.Time{}
	if d := w.act(); len(d.Stop) != 1 || d.Stop[0].UID != original.UID {
		t.Errorf("who is not ready stays, and the other is: %+v", d)
	}
	w, original, other := back(t, declared.KeepReplacement, nil)
	other.ReadySince = time.Time{}
	if d := w.act(); len(d.Stop) != 1 || d.Stop[0].UID != other.UID || original.Abandoned {
		t.Errorf("who is not ready stays, and the original is: %+v", d)
	}
}

func TestPerNodeOfNobody(t *testing.T) {
	w := stage(t, 0, declared.Rollout{})
	w.view.Spec.Mode = declared.PerNode
	for _, m := range w.machines {
		w.cut(m.name)
	}
	d := w.during(time.Hour, func(*Decision) {})
	if d.Status.Phase != pace.Waiting || d.Status.Stable.Of != "" {
		t.Errorf("nobody has it, and it is %+v", d.Status)
	}
}

// What had become available of more than are wanted now is no mark that cannot be reached again.
func TestScaleDownInTheMiddle(t *testing.T) {
	w := running(t, 8, rolling("2", "0"))
	w.declare(2, good)
	w.until("most have it", func(*Decision) bool { return w.ready(2) >= 6 })
	w.scale(3)
	if d := w.act(); d.Status.Rollout.Best.Available > 3 {
		t.Errorf("%+v", d.Status.Rollout)
	}
	w.until("all have it", func(d *Decision) bool { return complete(d) && w.ready(2) == 3 })
}
