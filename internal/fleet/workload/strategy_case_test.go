package workload

import (
	"encoding/json"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// One of three: a share of few is not nothing, and what was counted is in the status, so a leader that dies forgets nothing and counts
// nothing twice.
func TestWorkloadCase24_FailuresAtSmallNumbers(t *testing.T) {
	c := casetest.Start(t)
	for _, n := range []struct {
		most   declare.IntOrPercent
		wanted int
		enough int
	}{{"34%", 3, 2}, {"33%", 3, 1}, {"10%", 3, 1}, {"", 3, 1}, {"0", 3, 1}, {"2", 3, 2}} {
		rollout := declared.Rollout{Strategy: declared.BlueGreen, MaxFailures: n.most, OnFailure: declare.Halt}
		w := running(t, n.wanted, rollout)
		w.declare(2, mute)
		w.until("they have started", func(*Decision) bool { return w.having(2) == n.wanted && w.first(2).Phase == Running })
		failed := 0
		for _, x := range w.copies {
			if w.templates[x.Revision] != 2 {
				continue
			}
			if failed == n.enough {
				break
			}
			c.Check(w.view.Was.Rollout.Halt == nil, "%s of %d: it halts after %d", n.most, n.wanted, failed)
			x.Failure = &Failure{Code: reason.RolloutFailed, Since: w.now}
			failed++
			w.lead() // a new leader
			for _, m := range w.machines {
				m.heard = true
			}
			w.view.Quiet = w.now
			stored, err := json.Marshal(w.view.Was)
			c.NoError(err, "store the status")
			var back Status
			c.NoError(json.Unmarshal(stored, &back), "read the status")
			w.view.Was = back
			w.act()
			w.act()
			c.Equal(w.view.Was.Rollout.Failures, failed, "failures that are counted")
		}
		c.Equal(w.view.Was.Phase, pace.Halted, string(n.most)+": phase")
	}
}

// What is the fault of a node says nothing about the revision, and is made up for elsewhere.
func TestFailureOfNode(t *testing.T) {
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, good)
	refused := 0
	w.until("all have it", func(d *Decision) bool {
		for _, x := range w.copies {
			if w.templates[x.Revision] == 2 && x.Phase == Placed && refused < 5 {
				x.Phase, x.Failure = Failed, &Failure{Code: reason.RolloutFailed, OfNode: true}
				refused++
			}
		}
		if d.Status.Rollout.Failures > 0 || len(d.Status.Failed) > 0 {
			t.Errorf("it counts: %+v", d.Status.Rollout)
		}
		return complete(d) && w.ready(2) == 3
	})
	if refused != 5 {
		t.Errorf("%d were refused", refused)
	}
}

func TestWorkloadCase25_FailureAfterTheLastStep(t *testing.T) {
	c := casetest.Start(t)
	rollout := rolling("1", "0")
	rollout.Monitor = "5m"
	w := running(t, 3, rollout)
	w.declare(2, good)
	w.until("all have it", func(d *Decision) bool { return d.Status.Phase == pace.Monitoring && w.ready(2) == 3 })
	w.during(4*time.Minute, func(d *Decision) { c.Equal(d.Status.Phase, pace.Monitoring, "phase") })
	w.first(2).Failure = &Failure{Code: reason.RolloutFailed, Message: "GET /healthz: 500", Since: w.now}
	d := w.until("it is back", func(d *Decision) bool { return d.Status.Phase == pace.RolledBack })
	c.Equal(w.ready(10), 3, "of the stable one")
	c.Equal(d.Status.Stable.Of, d.Status.Rollout.Goal, "what is stable")
	w.declare(3, good)
	w.until("the next is there", complete)
	w.first(3).Failure = &Failure{Code: reason.RolloutFailed, Since: w.now}
	w.during(time.Minute, func(d *Decision) { c.Equal(d.Status.Phase, pace.Complete, "phase after the window") })
}

func TestWorkloadCase26_ChangedAndBack(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 3, rolling("1", "0"))
	was := w.view.Was
	w.declare(2, good)
	w.declare(10, good)
	d := w.act()
	c.Check(!d.acts(), "it does something: %+v", d)
	c.Equal(d.Status.ObservedGeneration, w.view.Generation, "generation")
	c.Equal(d.Status.Rollout, was.Rollout, "rollout")
}

func TestWorkloadCase27_HashCollision(t *testing.T) {
	c := casetest.Start(t)
	w := stage(t, 2, rolling("1", "0"))
	w.view.Was.Collisions = 0
	w.until("it runs", complete)
	w.declare(14, good) // its hash is that of 10
	d := w.act()
	c.Check(d.Make == nil && d.Status.Collisions == 1 && d.WakeAt.Equal(w.now), "%+v", d)
	d = w.act()
	c.Check(d.Make != nil && d.Make.Name != w.view.Revisions[0].Name, "it makes %+v", d.Make)
	d = w.until("all have it", complete)
	c.Equal([]int{w.having(10), w.ready(14), d.Status.Collisions}, []int{0, 2, 1}, "old, new, collisions")
}

func TestWorkloadCase28_DeletedAndMadeAnew(t *testing.T) {
	c := casetest.Start(t)
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, mute)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	old := map[string]bool{}
	slots := map[int]bool{}
	for _, x := range w.copies {
		old[x.UID], slots[x.Slot] = true, true
	}
	w.view.UID, w.view.Was, w.view.Revisions, w.view.Generation = "w2", Status{Collisions: 1}, nil, 1
	w.declare(3, good)
	for range 20 {
		d := w.act()
		for _, s := range d.Stop {
			c.Check(!old[s.UID], "%s is stopped, and is another's", s.UID)
		}
		for _, m := range d.Drop {
			c.Check(!old[m.UID], "%s is dropped, and is another's", m.UID)
		}
		for _, n := range d.Create {
			c.Check(!slots[n.Slot], "slot %d is another's still", n.Slot)
		}
	}
	c.Equal(w.view.Was.Counts.Live, 3, "of its own")
	// The old one stops all of its own, and nothing else.
	v := w.snapshot()
	v.UID, v.Deleting, v.Was = "w1", true, Status{}
	d := Decide(v, w.now)
	c.Equal(len(d.Stop), len(old), "stopped by the one that was deleted")
	c.Equal(len(d.Create), 0, "created by the one that was deleted")
}

func TestWorkloadCase29_MinReady(t *testing.T) {
	c := casetest.Start(t)
	rollout := rolling("1", "0")
	rollout.MinReady = "10s"
	w := running(t, 1, rollout)
	w.declare(2, good)
	w.until("the new one is ready", func(*Decision) bool { return w.ready(2) == 1 })
	since := w.first(2).ReadySince
	w.now = since.Add(9 * time.Second)
	d := w.act()
	c.Equal([]int{len(d.Stop), d.Status.Counts.Available}, []int{0, 1}, "after 9 s")
	c.Check(d.WakeAt.Equal(since.Add(10*time.Second)), "it wakes up at %s", d.WakeAt)
	x := w.first(2)
	x.Instance, _ = Observe(x.Instance, Report{UID: x.UID, Attempt: x.Attempt, Phase: Running}, w.now)
	w.now = w.now.Add(time.Second)
	x.Instance, _ = Observe(x.Instance, Report{UID: x.UID, Attempt: x.Attempt, Phase: Running, Ready: true}, w.now)
	w.now = w.now.Add(9 * time.Second)
	d = w.act()
	c.Equal(len(d.Stop), 0, "stopped 9 s after the flap")
	w.now = w.now.Add(time.Second)
	d = w.act()
	c.Equal(len(d.Stop), 1, "stopped 10 s after it")
}

// What is ready, not ready and ready again has not come further: the deadline comes as if it had stayed away.
func TestWorkloadCase30_FlapIsNoProgress(t *testing.T) {
	c := casetest.Start(t)
	rollout := rolling("1", "0")
	rollout.MinReady = "10s"
	w := running(t, 3, rollout)
	w.declare(2, mute)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	wanted, further, was, flaps := w.view.Was.Wanted, w.now, 0, 0
	d := w.until("it has failed", func(d *Decision) bool {
		x := w.copies[0]
		for _, x = range w.copies {
			if w.templates[x.Revision] == 2 {
				break // one of them, always the same
			}
		}
		switch {
		case x.Phase != Running:
		case x.ReadySince.IsZero():
			x.ReadySince = w.now
		case w.now.Sub(x.ReadySince) >= 15*time.Second:
			x.ReadySince = time.Time{}
			flaps++
		}
		if now := w.having(10)*-10 + d.Status.Rollout.Best.Available; now > was || was == 0 {
			was, further = now, w.now
		}
		return len(d.Status.Failed) > 0
	})
	c.Check(flaps > 20, "it has been available and not %d times", flaps)
	c.Check(w.now.Sub(further) < 11*time.Minute, "it took %s from when something went on last", w.now.Sub(further))
	c.Equal(d.Status.Failed[0].Code, reason.RolloutStuck, "code")
	c.Equal(d.Status.Wanted, wanted, "replicas")
}
