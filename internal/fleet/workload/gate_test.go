package workload

import (
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// gated is a stage on which a first template runs, with a gate: errors are at most 0.05.
func gated(t *testing.T, rollout declared.Rollout) *world {
	most := declare.Quantity("0.05")
	rollout.Gates = []declare.Gate{{Name: "errors", Max: &most}}
	return running(t, 4, rollout)
}

// measure is what the gate measures now.
func (w *world) measure(value float64) {
	w.view.Gates = map[string]pace.Reading{"errors": {At: w.now, Value: value}}
}

func TestGateUngated(t *testing.T) {
	w := gated(t, rolling("1", "0")) // the first revision has come to its end though nobody has measured
	if w.having(10) != 4 {
		t.Fatal("it does not run")
	}
}

func TestGateOpens(t *testing.T) {
	for name, rollout := range map[string]declared.Rollout{
		"canary": canary(declared.CanaryStep{Replicas: "1", Pause: "1m"}), "rolling": rolling("1", "0"), "blue-green": {Strategy: declared.BlueGreen},
	} {
		t.Run(name, func(t *testing.T) {
			w := gated(t, rollout)
			w.measure(0.01) // of what was there before
			w.declare(2, good)
			w.during(10*time.Minute, func(d *Decision) {
				if complete(d) {
					t.Fatal("it has come to its end, and nothing was measured since it is available")
				}
				if name == "canary" && w.having(2) > 1 {
					t.Fatal("the step is over")
				}
			})
			if d := w.act(); !strings.Contains(d.Status.Why, "gate errors is to be measured once more") || d.WakeAt.Sub(w.now) > pace.GateEvery {
				t.Errorf("it says %q, and looks again in %v", d.Status.Why, d.WakeAt.Sub(w.now))
			}
			for range 60 {
				w.measure(0.01)
				if d := w.round(); complete(&d) {
					return
				}
			}
			t.Error("it is not at its end")
		})
	}
}

func TestGateFails(t *testing.T) {
	for name, rollout := range map[string]declared.Rollout{
		"canary": canary(declared.CanaryStep{Replicas: "1", Pause: "5m"}), "rolling": rolling("1", "0"), "blue-green": {Strategy: declared.BlueGreen}, "monitor": {Monitor: "5m"},
	} {
		t.Run(name, func(t *testing.T) {
			w := gated(t, rollout)
			w.declare(2, good)
			w.until("the new revision is available", func(d *Decision) bool {
				return w.ready(2) > 0 && (!d.Status.Rollout.Held.IsZero() || !d.Status.Rollout.Ended.IsZero())
			})
			w.measure(0.2)
			d := w.round()
			failed := d.Status.Failed
			if len(failed) != 1 || failed[0].Code != reason.RolloutFailed || failed[0].Why != "gate errors measures 0.2, and its max is 0.05" {
				t.Fatalf("it has failed as %+v", failed)
			}
			d = w.until("it is rolled back, ungated", func(d *Decision) bool { return d.Status.Phase == pace.RolledBack && w.ready(10) == 4 })
			if w.having(2) != 0 {
				t.Errorf("%d have what has failed", w.having(2))
			}
		})
	}
}

// A measure from before the new revision was available says nothing about it: what is to mend something begins while that is broken.
func TestGateBefore(t *testing.T) {
	w := gated(t, canary(declared.CanaryStep{Replicas: "1", Pause: "1m"}))
	w.measure(0.9)
	w.declare(2, good)
	d := w.until("the canary is available", func(d *Decision) bool { return !d.Status.Rollout.Held.IsZero() })
	if len(d.Status.Failed) > 0 {
		t.Fatalf("it has failed: %+v", d.Status.Failed)
	}
	for range 120 {
		w.measure(0)
		if d = w.round(); complete(&d) {
			return
		}
	}
	t.Errorf("it is not at its end: %s, %s", d.Status.Phase, d.Status.Why)
}

func TestGateMissing(t *testing.T) {
	w := gated(t, canary(declared.CanaryStep{Replicas: "1"}))
	w.declare(2, good)
	w.view.Gates = map[string]pace.Reading{"errors": {Missing: "prometheus default: connection refused"}}
	d := w.during(time.Hour, func(d *Decision) { // far beyond the deadline: it is not the revision that does not get on
		if len(d.Status.Failed) > 0 || w.having(2) > 1 {
			t.Fatalf("it has gone on without a measure: %+v", d.Status)
		}
	})
	if d.Status.Phase != pace.Waiting || d.Status.Why != "step 1 of 1: gate errors is not measured: prometheus default: connection refused" {
		t.Errorf("%s: %s", d.Status.Phase, d.Status.Why)
	}
}
