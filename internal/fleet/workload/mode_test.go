package workload

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

func TestPerNode(t *testing.T) {
	w := stage(t, 0, declared.Rollout{MaxUnavailable: "2"})
	w.view.Spec.Mode = declared.PerNode
	w.until("each node has one", func(d *Decision) bool { return complete(d) && w.ready(10) == 5 })
	w.declare(2, good)
	w.until("each node has the new one", func(d *Decision) bool {
		if w.ready(10)+w.ready(2) < 3 {
			t.Errorf("%d and %d are ready", w.ready(10), w.ready(2))
		}
		return complete(d) && w.ready(2) == 5
	})
	w.machines = append(w.machines, &machine{name: "n5", linked: true, heard: true})
	w.until("who joins gets it", func(*Decision) bool { return w.ready(2) == 6 })
	w.machines[0].cordoned = true
	w.until("who is not eligible loses it", func(*Decision) bool { return w.ready(2) == 5 && len(w.copies) == 5 })
	// A node that is not heard takes up room, gets nothing, and what was to be there waits for it.
	w.cut("n1")
	w.cut("n2")
	w.declare(3, good)
	d := w.during(20*time.Minute, func(d *Decision) {
		if w.having(3) > 0 || len(d.Status.Failed) > 0 || len(d.Abandon) > 0 {
			t.Errorf("%d have the new one while two are gone, maxUnavailable is 2: %+v", w.having(3), d.Status)
		}
	})
	if d.Status.Phase != pace.Waiting || len(d.Status.Culprits) != 2 {
		t.Errorf("it stands like %+v", d.Status)
	}
	w.link(w.machine("n1"), false)
	w.link(w.machine("n2"), false)
	w.until("all have it", func(d *Decision) bool { return complete(d) && w.ready(3) == 5 })
	// Neither do nodes that have never had one fail a rollout.
	for _, name := range []string{"n6", "n7"} {
		w.machines = append(w.machines, &machine{name: name, cut: w.now, gone: w.now})
	}
	w.declare(4, good)
	w.during(time.Hour, func(d *Decision) {
		if len(d.Status.Failed) > 0 || w.ready(3) != 5 {
			t.Errorf("two are gone, maxUnavailable is 2: %+v", d.Status)
		}
	})
}

// One that is lost in the middle of a rollout is made up for with what its place in the order has.
func TestPerNodeCanary(t *testing.T) {
	w := stage(t, 0, declared.Rollout{Strategy: declared.Canary, Steps: []declared.CanaryStep{{Replicas: "2", Promotion: declared.ManualPromotion}}, MaxUnavailable: "1"})
	w.view.Spec.Mode = declared.PerNode
	w.until("each node has one", complete)
	w.declare(2, good)
	w.until("two have it", func(d *Decision) bool { return d.Status.Phase == pace.Waiting && w.ready(2) == 2 })
	w.first(10).Phase, w.first(2).Phase = Failed, Failed
	w.during(time.Minute, func(*Decision) {
		if w.having(2) > 2 {
			t.Errorf("%d have it", w.having(2))
		}
	})
	if w.ready(2) != 2 || w.ready(10) != 3 {
		t.Errorf("%d new and %d old are ready", w.ready(2), w.ready(10))
	}
}

func TestBlueGreen(t *testing.T) {
	w := running(t, 3, declared.Rollout{Strategy: declared.BlueGreen, Promotion: declared.ManualPromotion, KeepOld: "10m"})
	w.declare(2, good)
	d := w.until("green waits", func(d *Decision) bool { return d.Status.Phase == pace.Waiting })
	if w.ready(10) != 3 || w.ready(2) != 3 || d.Status.Why == "" {
		t.Errorf("%d blue, %d green: %+v", w.ready(10), w.ready(2), d.Status)
	}
	w.view.Approval = Approval{Revision: "web-of-another"}
	w.during(time.Hour, func(d *Decision) {
		if d.acts() {
			t.Errorf("an approval of another revision does %+v", d)
		}
	})
	w.view.Approval = Approval{Revision: d.Status.Rollout.Goal}
	w.during(9*time.Minute, func(d *Decision) {
		if w.ready(10) != 3 {
			t.Errorf("%d blue ones are left", w.ready(10))
		}
	})
	w.first(2).Failure = &Failure{Code: reason.RolloutFailed, Since: w.now}
	if d = w.act(); d.Status.Rollout.Goal != d.Status.Stable.Of || w.ready(10) != 3 || len(d.Create) > 0 {
		t.Errorf("while blue is kept it goes back by %+v", d)
	}
	w.until("blue is alone", func(d *Decision) bool { return d.Status.Phase == pace.RolledBack && w.having(2) == 0 })
	w.declare(3, good)
	d = w.until("the next waits", func(d *Decision) bool { return d.Status.Phase == pace.Waiting })
	w.view.Approval = Approval{Revision: d.Status.Rollout.Goal}
	w.until("it has taken over", func(d *Decision) bool { return complete(d) && w.ready(3) == 3 && w.having(10) == 0 })
}

func TestCanarySteps(t *testing.T) {
	w := running(t, 10, canary(declared.CanaryStep{Replicas: "1", Pause: "5m"}, declared.CanaryStep{Replicas: "25%", Promotion: declared.ManualPromotion}, declared.CanaryStep{Replicas: "5"}))
	w.declare(2, good)
	most := func(n int) func(*Decision) {
		return func(d *Decision) {
			if w.having(2) > n || w.ready(2)+w.ready(10) < 10 {
				t.Errorf("%d have it, at most %d; %d and %d are ready", w.having(2), n, w.ready(2), w.ready(10))
			}
		}
	}
	w.until("the first sings", func(*Decision) bool { return w.ready(2) == 1 })
	w.during(5*time.Minute-10*time.Second, most(1))
	w.until("a quarter, rounded up", func(d *Decision) bool { most(3)(d); return w.ready(2) == 3 && d.Status.Phase == pace.Waiting })
	w.view.Approval = Approval{Revision: w.view.Was.Rollout.Goal, Step: 0} // of the step before
	w.during(time.Hour, most(3))
	w.view.Approval.Step = 1
	w.until("all", func(d *Decision) bool { most(10)(d); return complete(d) && w.ready(2) == 10 })
}

func TestHalt(t *testing.T) {
	rollout := canary(declared.CanaryStep{Replicas: "1", Pause: "5m"})
	rollout.OnFailure = declare.Halt
	w := running(t, 4, rollout)
	w.declare(2, dead)
	d := w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
	if len(d.Status.Culprits) != 1 || d.Status.Culprits[0].Why != "GET /healthz: 500" || d.Status.Rollout.Halt.Code != reason.RolloutFailed {
		t.Errorf("it is told as %+v", d.Status)
	}
	w.first(10).Phase = Failed
	w.during(time.Hour, func(d *Decision) {
		if w.having(2) != 1 || d.Status.Phase != pace.Halted {
			t.Errorf("%d of the failed one, %+v", w.having(2), d.Status)
		}
	})
	if w.ready(10) < 3 {
		t.Errorf("%d of the stable one are ready", w.ready(10))
	}
	w.declare(10, good)
	w.until("people go back", func(d *Decision) bool { return complete(d) && w.ready(10) == 4 })
}

// A drain in the time in which failures still count is none.
func TestDrainWhileMonitored(t *testing.T) {
	w := running(t, 1, declared.Rollout{MaxSurge: "1", MaxUnavailable: "0", ProgressDeadline: "1m"})
	w.view.Spec.Rollout.Monitor = "1h"
	w.declare(2, good)
	w.until("failures count", func(d *Decision) bool { return d.Status.Phase == pace.Monitoring && w.ready(2) == 1 })
	w.during(10*time.Minute, func(*Decision) {})
	w.drain(w.machine(w.first(2).Node))
	w.qualities[2] = mute // who is to stand in does not come
	d := w.during(10*time.Minute, func(*Decision) {})
	if d.Status.Phase != pace.Monitoring || len(d.Status.Leaving) != 1 {
		t.Errorf("%+v", d.Status)
	}
}

// What is declared while it is paused begins when it goes on.
func TestPauseKeepsTheTarget(t *testing.T) {
	w := running(t, 4, rolling("1", "0"))
	w.declare(2, good)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	w.view.Spec.Rollout.Pause = true
	w.declare(3, good)
	target := w.view.Was.Rollout.Target
	d := w.during(10*time.Minute, func(d *Decision) {
		if d.Make != nil || d.Renumber != nil || d.Status.Rollout.Target != target || w.having(2) != 1 {
			t.Errorf("while it is paused: %+v", d)
		}
	})
	if d.Status.ObservedGeneration != w.view.Generation || d.Status.Phase != pace.Paused {
		t.Errorf("%+v", d.Status)
	}
	w.scale(6) // with what is stable
	w.until("there are six", func(*Decision) bool { return w.ready(10)+w.ready(2) >= 6 && w.having(2) == 1 })
	w.view.Spec.Rollout.Pause = false
	w.until("all have it", func(d *Decision) bool { return complete(d) && w.ready(3) == 6 && w.having(2) == 0 })
}

// A job has as many at once as are wanted, keeps what has ended to be counted, and goes on with the revision that each began with.
func TestJob(t *testing.T) {
	w := stage(t, 3, declared.Rollout{})
	w.view.Spec.Mode = declared.RunToCompletion
	w.until("three run", func(*Decision) bool { return w.ready(10) == 3 })
	w.first(10).Phase = Done
	w.until("another one runs", func(*Decision) bool { return w.ready(10) == 3 && len(w.copies) == 4 })
	w.declare(2, good)
	w.during(time.Minute, func(d *Decision) {
		if len(d.Stop)+len(d.Drop) > 0 {
			t.Errorf("a new template ends what runs: %+v", d)
		}
	})
	w.first(10).Leave = &Leave{Why: reason.NodeDrained, Since: w.now}
	w.until("who has left is replaced by the new one", func(*Decision) bool { return w.ready(2) == 1 && w.ready(10) == 2 })
	w.view.Wanted = 1
	w.until("one is left", func(*Decision) bool { return w.ready(2)+w.ready(10) == 1 })
}

// What is too much for one decision comes with the next, at once.
func TestBounds(t *testing.T) {
	w := stage(t, 2500, rolling("1", "0"))
	w.act()
	for _, want := range []int{1000, 1000, 500, 0} {
		d := w.act()
		if len(d.Create) != want || want == 1000 != d.WakeAt.Equal(w.now) {
			t.Errorf("%d are created, want %d; it wakes up at %s", len(d.Create), want, d.WakeAt)
		}
	}
	for i, c := range w.copies {
		c.Node, c.Phase, c.ReadySince, c.runs = fmt.Sprint("n", i%5), Running, w.now, true
	}
	w.act()
	w.scale(2200)
	for range 3 {
		if d := w.act(); len(d.Stop) != takeMax {
			t.Errorf("%d are stopped, want %d", len(d.Stop), takeMax)
		}
	}
	if d := w.act(); len(d.Stop) != 0 || d.Status.Counts.Live != 2200 {
		t.Errorf("then %d more are stopped: %+v", len(d.Stop), d.Status.Counts)
	}
	names := map[int]bool{}
	for _, c := range w.copies {
		names[c.Slot] = true
	}
	if slots := len(names); slots != len(w.copies) {
		t.Errorf("%d instances have %d slots", len(w.copies), slots)
	}
}

// Whose revision was deleted under it is not rolled back to, and what history keeps is the newest.
func TestHistory(t *testing.T) {
	w := running(t, 1, rolling("1", "0"))
	limit := int32(1)
	w.view.Spec.RevisionHistoryLimit = &limit
	for template := 2; template < 5; template++ {
		w.declare(template, good)
		w.until("it is there", complete)
	}
	w.during(time.Minute, func(*Decision) {})
	var left []int
	for _, r := range w.view.Revisions {
		left = append(left, w.templates[r.Name])
	}
	slices.Sort(left)
	if !slices.Equal(left, []int{3, 4}) {
		t.Errorf("revisions of %v are left", left)
	}
	w.declare(5, dead)
	w.until("it has begun", func(*Decision) bool { return w.having(5) == 1 })
	w.view.Revisions = slices.DeleteFunc(w.view.Revisions, func(r Revision) bool { return w.templates[r.Name] != 5 })
	w.until("it halts", func(d *Decision) bool { return d.Status.Phase == pace.Halted })
}

// What is stable is kept whatever its age, though nothing runs any more.
func TestStableIsKept(t *testing.T) {
	w := running(t, 2, rolling("1", "0"))
	limit := int32(1)
	w.view.Spec.RevisionHistoryLimit = &limit
	w.scale(0)
	for template := 2; template < 6; template++ {
		w.declare(template, dead)
		w.during(time.Minute, func(*Decision) {})
	}
	w.scale(2)
	w.until("it is back", func(d *Decision) bool { return d.Status.Phase == pace.RolledBack && w.ready(10) == 2 })
}

// Agents that refuse everything at once cost few instances, and what is accepted again runs soon.
func TestRefusedIsNotHot(t *testing.T) {
	w := running(t, 3, rolling("1", "0"))
	refuse := true
	w.during(time.Hour, func(d *Decision) {
		for _, x := range w.copies {
			if refuse && x.Phase == Placed {
				x.Phase, x.Failure = Failed, &Failure{Code: reason.RolloutFailed, OfNode: true}
			}
		}
		if len(w.copies) > 0 && w.now.Sub(start) < 2*time.Minute {
			w.copies[0].Phase = Failed // the first one ends for another reason
		}
	})
	if w.made > 60 { // three at once, some twenty times
		t.Errorf("%d instances in an hour", w.made)
	}
	refuse = false
	w.during(6*time.Minute, func(*Decision) {})
	if w.ready(10) != 3 || w.view.Was.Backoff != (Backoff{}) {
		t.Errorf("%d are ready: %+v", w.ready(10), w.view.Was)
	}
}

// The time in which no server was there is nobody's fault.
func TestDeadlineAfterAnOutage(t *testing.T) {
	w := running(t, 3, rolling("1", "0"))
	w.declare(2, mute)
	w.until("it has begun", func(*Decision) bool { return w.having(2) == 1 })
	w.now = w.now.Add(time.Hour)
	w.lead()
	w.during(11*time.Minute, func(d *Decision) {
		if len(d.Status.Failed) > 0 {
			t.Fatalf("%s after the servers were back: %+v", w.now.Sub(w.view.Quiet), d.Status.Failed)
		}
	})
	w.until("it is late", func(d *Decision) bool { return len(d.Status.Failed) > 0 })
}

func TestFencedAt(t *testing.T) {
	spec := declared.Spec{OnUnreachable: &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "168h"}}
	spec.Template.TerminationGrace = "24h"
	at := FencedAt(&spec, start)
	if agent := start.Add(192 * time.Hour); at.Sub(agent) < fenceMargin+10*time.Minute {
		t.Errorf("an agent whose clock is slow by a thousandth ends it at %s, and it is fenced at %s", agent, at)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, lost := range []bool{false, true} {
		for _, n := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("n=%d/lost=%v", n, lost), func(b *testing.B) {
				now := start.Add(time.Hour)
				v := View{Name: "web", UID: "w1", Generation: 1, Wanted: n, Hash: "h", Revisions: []Revision{{Name: "r1", Number: 1, Hash: "h", Same: true}}, Nodes: map[string]Node{"n0": {Presence: node.Here}, "n1": {Presence: node.Here}}}
				for i := range n {
					v.Instances = append(v.Instances, Instance{Name: fmt.Sprint("web-", i), UID: fmt.Sprint(i), Owner: "w1", Slot: i, Revision: "r1", Node: fmt.Sprint("n", i%2), Phase: Running, ReadySince: start})
				}
				v.Was = Decide(v, now).Status
				if lost {
					v.Nodes["n1"] = Node{Presence: node.Gone, Gone: start}
				}
				for b.Loop() {
					Decide(v, now)
				}
			})
		}
	}
}
