package workload

import (
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// The second revision is on its way when a third is declared: it counts as old, goes first because it is not ready, and nobody waits for it.
func TestWorkloadCase01_Rollover(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 10, rolling("3", "0"))
	w.declare(2, mute)
	w.until("the second is at 30 %", func(*Decision) bool { return w.having(2) == 3 })
	w.declare(3, good)
	w.act() // the revision is made
	d := w.act()
	c.Equal(len(d.Stop), 3, "stopped at once")
	for _, s := range d.Stop {
		c.Equal(w.templates[w.copy(s.UID).Revision], 2, "template of what is stopped")
	}
	w.until("the third is everywhere", complete)
	c.Equal([]int{w.having(10), w.having(2), w.ready(3)}, []int{0, 0, 10}, "instances of the three")
}

func TestWorkloadCase02_BackWhileRolling(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("1", "0"))
	w.declare(2, mute)
	w.until("the second has begun", func(*Decision) bool { return w.having(2) == 1 })
	w.declare(10, good)
	w.act()
	c.Equal(len(w.view.Revisions), 2, "revisions")
	c.Equal(w.view.Revisions[0].Number, 3, "the number of the first, which is the newest again")
	d := w.until("it is back", complete)
	c.Equal([]int{w.having(10), w.having(2)}, []int{4, 0}, "instances of the two")
	c.Equal(d.Status.Stable.Of, w.view.Revisions[0].Name, "what is stable")
}

func TestWorkloadCase03_NumbersAreNumbers(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 1, rolling("1", "0"))
	for template := 11; template <= 20; template++ {
		w.declare(template, good)
		w.until("it is there", func(d *Decision) bool { return complete(d) && w.ready(template) == 1 })
	}
	newest := 0
	for _, r := range w.view.Revisions {
		if w.templates[r.Name] == 20 {
			newest = r.Number
		}
	}
	c.Equal(newest, 11, "number of the newest")
	w.view.Spec.RevisionHistoryLimit = new(int32)
	*w.view.Spec.RevisionHistoryLimit = 2
	d := w.act()
	c.Equal(len(d.Forget), 8, "forgotten")
	for _, name := range d.Forget {
		c.Check(w.templates[name] < 18, "%s is forgotten, and is one of the newest", name)
	}
	w.declare(19, good) // 10 is newer than 9
	w.until("it is back", func(d *Decision) bool { return complete(d) && w.ready(19) == 1 })
}

// Scaling in the middle of a rollout: each side gets its part, the larger one what is left over by rounding.
func TestWorkloadCase04_ProportionalScaling(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 10, rolling("3", "2"))
	w.declare(2, mute)
	w.until("eight and five", func(*Decision) bool { return w.having(10) == 8 && w.having(2) == 5 })
	w.scale(15)
	w.act()
	c.Check(w.having(10) == 11 || w.having(10) == 12, "%d of the old one, which had eight of thirteen", w.having(10))
	c.Equal(w.having(10)+w.having(2), 18, "in all, with surge")
	w.during(30*time.Second, func(*Decision) {
		c.Check(w.having(10)+w.having(2) <= 18, "%d and %d", w.having(10), w.having(2))
		c.Check(w.ready(10) >= 8, "%d of the old one are ready", w.ready(10))
	})
}

func TestWorkloadCase05_ScaleWithTemplate(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("1", "0"))
	w.declare(2, good)
	w.view.Wanted = 8
	w.act()
	w.until("all have it", func(d *Decision) bool {
		c.Check(w.having(10)+w.having(2) <= 9, "%d and %d instances", w.having(10), w.having(2))
		c.Check(w.ready(10)+w.ready(2) >= 4, "%d and %d are ready", w.ready(10), w.ready(2))
		return complete(d)
	})
	c.Equal([]int{w.having(10), w.ready(2)}, []int{0, 8}, "instances of the two")
}

// Scaling down in the middle, with what is remembered of it lost or stale.
func TestWorkloadCase06_StaleBookkeeping(t *testing.T) {
	c := casetest.Start(t)
	for _, remembered := range []int{0, 5, 10, 99} {
		w := running(t, 10, rolling("0", "2"))
		w.declare(2, good)
		w.until("it has begun", func(*Decision) bool { return w.having(2) == 2 })
		w.scale(5)
		w.view.Was.Wanted = remembered
		w.until("it ends", complete)
		c.Equal([]int{w.having(10), w.ready(2)}, []int{0, 5}, "instances of the two")
	}
}

func TestWorkloadCase07_UnhealthyOld(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("0", "1"))
	sick := map[string]bool{}
	for _, x := range w.copies[:2] {
		x.ReadySince, sick[x.UID] = time.Time{}, true
		w.qualities[10] = mute
	}
	w.declare(2, good)
	w.act()
	d := w.act()
	c.Equal(len(d.Stop), 1, "stopped first")
	c.Check(sick[d.Stop[0].UID], "what works is stopped before what does not")
	w.until("all have it", complete)
	c.Equal(w.ready(2), 4, "ready")
}

// Eight must be available, five of thirteen are new and are not: the node of an old one is lost, and no other old one is taken.
func TestWorkloadCase08_NodeDiesUnderAnOldOne(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 10, rolling("3", "2"))
	w.declare(2, mute)
	w.until("eight and five", func(*Decision) bool { return w.having(10) == 8 && w.having(2) == 5 })
	w.first(10).ReadySince = time.Time{}
	w.qualities[10] = mute
	w.during(time.Minute, func(d *Decision) { c.Equal(len(d.Stop), 0, "stopped, 13-8-5") })
}

func TestWorkloadCase09_Rounding(t *testing.T) {
	c := casetest.Start(t)
	for _, n := range []struct {
		rollout                    declared.Rollout
		wanted, surge, unavailable int
	}{{rolling("25%", "25%"), 1, 1, 0}, {rolling("", ""), 1, 1, 0}, {rolling("", ""), 10, 3, 2}, {rolling("0", "25%"), 1, 0, 1}, {rolling("0", "0"), 5, 0, 1}, {rolling("50%", "0"), 0, 0, 0}} {
		got := termsOf(&declared.Spec{Rollout: n.rollout}, n.wanted)
		c.Equal([]int{got.surge, min(got.unavailable, n.wanted)}, []int{n.surge, n.unavailable}, "surge and unavailable")
	}
}

func TestWorkloadCase10_PausedPastTheDeadline(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, slow)
	w.qualities[2] = mute
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	w.view.Spec.Rollout.Pause = true
	w.during(time.Hour, func(d *Decision) { c.Equal(d.Status.Phase, pace.Paused, "phase") })
	w.view.Spec.Rollout.Pause = false
	w.during(9*time.Minute, func(d *Decision) { c.Equal(d.Status.Phase, pace.Rolling, "phase") })
	w.qualities[2] = good
	w.until("it goes on", complete)
}

func TestWorkloadCase11_PromotionAfterTheDeadline(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, canary(declared.CanaryStep{Replicas: "1", Promotion: declared.ManualPromotion}))
	w.declare(2, good)
	d := w.until("it waits", func(d *Decision) bool { return d.Status.Phase == pace.Waiting })
	w.during(time.Hour, func(d *Decision) { c.Equal(d.Status.Phase, pace.Waiting, "phase") })
	w.view.Approval = Approval{Revision: "another"}
	w.during(time.Minute, func(d *Decision) { c.Equal(w.having(2), 1, "of the canary after an approval of another") })
	w.view.Approval = Approval{Revision: d.Status.Rollout.Goal}
	d = w.until("it goes on", complete)
	c.Equal(w.ready(2), 4, "ready")
	c.Equal(len(d.Status.Failed), 0, "failed revisions")
}

func TestWorkloadCase12_NoCanaries(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, canary(declared.CanaryStep{Replicas: "0"}, declared.CanaryStep{Replicas: "50%"}))
	w.declare(2, good)
	w.until("all have it", complete)
	c.Equal(w.ready(2), 4, "ready")
}

func TestWorkloadCase13_OnceUnhealthyCanary(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, canary(declared.CanaryStep{Replicas: "1", Pause: "1m"}))
	w.declare(2, good)
	w.until("the canary sings", func(*Decision) bool { return w.ready(2) == 1 })
	w.first(2).ReadySince = time.Time{}
	d := w.act()
	c.Check(d.Status.Rollout.Held.IsZero(), "the pause goes on while the canary is not ready")
	again := w.until("it is ready again", func(*Decision) bool { return w.ready(2) == 1 })
	c.Check(again.Status.Rollout.Held.Equal(w.now), "the pause does not begin anew")
	w.until("all have it", complete)
}

func TestWorkloadCase14_CanaryLost(t *testing.T) {
	c := casetest.Start(t)
	for _, how := range []string{"drained", "lost"} {
		w := running(t, 4, canary(declared.CanaryStep{Replicas: "1", Pause: "10m"}))
		w.declare(2, good)
		w.until("the canary sings", func(*Decision) bool { return w.ready(2) == 1 })
		at := w.machine(w.first(2).Node)
		stable := w.having(10)
		if how == "drained" {
			w.drain(at)
		} else {
			w.cut(at.name)
		}
		w.until("there is another canary", func(*Decision) bool {
			return w.ready(2) == 1 && w.machine(w.first(2).Node) != at && w.having(10) == stable
		})
		w.undrain(at)
		w.link(at, false)
		d := w.until("all have it", complete)
		c.Equal([]int{w.having(10), w.ready(2), d.Status.Rollout.Failures}, []int{0, 4, 0}, how+": old, new, failures")
	}
}

func TestWorkloadCase15_NoGrowthWithoutBound(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, canary(declared.CanaryStep{Replicas: "2", Pause: "10m"}))
	w.declare(2, good)
	w.until("the canaries sing", func(*Decision) bool { return w.ready(2) == 2 })
	w.cut(w.first(2).Node)
	w.during(30*time.Minute, func(d *Decision) {
		c.Check(d.Status.Counts.Live+d.Status.Counts.Terminating <= 5, "%+v", d.Status.Counts)
		c.Check(len(w.copies) <= 5+d.Status.Counts.Abandoned, "%d are stored, of which %d are abandoned", len(w.copies), d.Status.Counts.Abandoned)
	})
}

func TestWorkloadCase16_StableIsReplacedByStable(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, canary(declared.CanaryStep{Replicas: "1", Promotion: declared.ManualPromotion}))
	w.declare(2, good)
	w.until("it waits", func(d *Decision) bool { return d.Status.Phase == pace.Waiting && w.having(10) == 3 })
	w.first(10).Phase = Failed
	d := w.act()
	c.Equal(len(d.Create), 1, "created")
	c.Equal(w.templates[d.Create[0].Revision], 10, "template of what is created")
	w.during(time.Minute, func(*Decision) { c.Equal(w.having(2), 1, "canaries") })
}

// The way back is tried once: what fails there stays for people.
func TestWorkloadCase17_NoRevertLoop(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, dead)
	w.until("it goes back", func(d *Decision) bool { return d.Status.Phase == pace.RollingBack || d.Status.Phase == pace.RolledBack })
	w.qualities[10] = dead
	w.first(10).ReadySince = time.Time{}
	d := w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
	c.Equal(len(d.Status.Failed), 2, "failed revisions: the new one and the way back")
	budget := len(w.view.Revisions)
	w.during(time.Hour, func(d *Decision) {
		c.Equal(d.Status.Phase, pace.Halted, "phase")
		c.Equal(d.Make == nil && d.Renumber == nil && len(w.view.Revisions) == budget, true, "no revision is made")
		c.Equal(w.having(2), 0, "of the failed one")
	})
}

func TestWorkloadCase18_NothingToGoBackTo(t *testing.T) {
	c := casetest.Start(t)
	w := stage(t, 3, rolling("1", "0"))
	w.qualities[10] = dead
	d := w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
	c.Equal(d.Status.Rollout.Halt.Code, reason.RolloutFailed, "code")
	c.Equal(w.having(10), 3, "instances, for people to look at")
	w = running(t, 3, rolling("1", "0"))
	w.declare(2, good)
	w.until("the second has begun", func(*Decision) bool { return w.having(2) > 0 })
	w.declare(10, dead) // what is declared is what is stable, and it works no more
	w.copies[0].Failure = &Failure{Code: reason.RolloutFailed, Since: w.now}
	d = w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
	c.Equal(d.Status.Rollout.Goal, d.Status.Stable.Of, "goal")
}

func TestWorkloadCase19_NoDeadlineNoPlacements(t *testing.T) {
	c := casetest.Start(t)
	rollout := rolling("1", "0")
	rollout.ProgressDeadline = "0s"
	w := running(t, 2, rollout)
	w.declare(2, mute)
	w.during(3*time.Hour/4, func(d *Decision) {
		c.Check(d.Status.Phase == pace.Rolling || d.Make != nil || complete(d), "phase %s", d.Status.Phase)
		c.Check(d.WakeAt.IsZero() || d.WakeAt.After(w.now) || d.Make != nil, "it wakes up at %s, at %s", d.WakeAt, w.now)
	})
	w = stage(t, 0, rolling("1", "0"))
	w.during(30*time.Minute, func(d *Decision) {
		c.Check(d.WakeAt.IsZero(), "nothing is wanted, and it wakes up at %s", d.WakeAt)
		c.Equal(len(d.Create)+len(d.Status.Failed), 0, "created or failed")
	})
	c.Equal(w.view.Was.Phase, pace.Empty, "phase")
	w.scale(2)
	w.until("it runs", complete)
}

func TestWorkloadCase20_SameTargetTwice(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, mute)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	was, copies := w.view.Was, len(w.copies)
	w.declare(2, mute)
	d := w.act()
	c.Check(!d.acts(), "it is done again: %+v", d)
	c.Equal(d.Status.Rollout, was.Rollout, "the rollout")
	c.Equal(len(w.copies), copies, "instances")
	c.Equal(d.Status.ObservedGeneration, w.view.Generation, "generation")
}

// New ones find no room: no more is lost than may be unavailable. Old ones cannot be stopped: no new ones come.
func TestWorkloadCase21_NoCapacityIsLost(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("0", "1"))
	for _, m := range w.machines {
		m.room = 0
	}
	w.declare(2, good)
	w.during(5*time.Minute, func(*Decision) { c.Check(w.ready(10) >= 3, "%d are ready", w.ready(10)) })
	w = running(t, 4, rolling("1", "3"))
	w.declare(2, good)
	w.act()
	for range 100 {
		w.tick(5 * time.Second)
		w.act() // no agent does anything
		c.Check(w.having(2) <= 1, "%d new ones while %d old ones run", w.having(2), len(w.copies)-w.having(2))
	}
}

func TestWorkloadCase22_NoRoomForSurge(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 4, rolling("1", "0"))
	for _, m := range w.machines {
		m.room = 0
	}
	w.declare(2, good)
	d := w.during(5*time.Minute, func(d *Decision) {
		c.Equal(len(d.Stop), 0, "stopped for want of room")
		c.Equal(w.ready(10), 4, "ready")
	})
	c.Equal(len(d.Status.Culprits), 1, "who holds it up")
	c.Equal(d.Status.Culprits[0].Why, "pending", "why")
}

// TestPauseWithdrawsWhatIsPending: what has no room yet when people pause the rollout does not begin when there is some; what is known to work takes its
// place. When it goes on it is made again.
func TestPauseWithdrawsWhatIsPending(t *testing.T) {
	w := running(t, 3, rolling("1", "0"))
	for _, m := range w.machines {
		m.room = 0
	}
	w.declare(2, good)
	w.until("one is pending", func(*Decision) bool { return w.having(2) == 1 })
	w.view.Spec.Rollout.Pause = true
	w.view.Generation++
	w.during(time.Minute, func(*Decision) {})
	for _, m := range w.machines {
		m.room = 100
	}
	w.during(10*time.Minute, func(d *Decision) {
		if w.having(2) > 0 {
			w.fatal(d, "it is paused, and %d are of what is new", w.having(2))
		}
	})
	w.view.Spec.Rollout.Pause = false
	w.view.Generation++
	w.until("it goes on", func(d *Decision) bool { return complete(d) && w.ready(2) == 3 })
}
