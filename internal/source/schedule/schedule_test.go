package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// quiet is a source that has looked a minute ago, with nothing to do for four.
func quiet() View {
	return View{Now: now, Interval: 5 * time.Minute, Generation: 3, Looked: 3, Requested: "a", Handled: "a", LookedAt: now.Add(-time.Minute), Chance: 0.5}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*View)
		want   Decision
	}{
		{"nothing", func(*View) {}, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"the first look", func(v *View) { v.LookedAt = time.Time{} }, Decision{Look: Start}},
		{"it is time", func(v *View) { v.LookedAt = now.Add(-5 * time.Minute) }, Decision{Look: Interval}},
		{"a tenth before", func(v *View) { v.Chance, v.LookedAt = 0, now.Add(-270*time.Second) }, Decision{Look: Interval}},
		{"a tenth after", func(v *View) { v.Chance = 0.999999 }, Decision{WakeAt: now.Add(-time.Minute).Add(5*time.Minute - 30*time.Second + time.Duration(0.999999*float64(time.Minute)))}},
		{"another spec", func(v *View) { v.Generation = 4 }, Decision{Look: Spec}},
		{"a request", func(v *View) { v.Requested = "b" }, Decision{Look: Request}},
		{"a call", func(v *View) { v.CalledAt = now.Add(-time.Second) }, Decision{Look: Call}},
		{"a call before the look", func(v *View) { v.CalledAt = now.Add(-2 * time.Minute) }, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"a call right after a look", func(v *View) { v.LookedAt, v.CalledAt = now.Add(-100*time.Millisecond), now }, Decision{WakeAt: now.Add(900 * time.Millisecond)}},
		{"drift", func(v *View) { v.DriftedAt = now }, Decision{Look: Drift}},
		{"drift again", func(v *View) { v.LookedAt, v.DriftedAt, v.Drifts = now, now.Add(time.Millisecond), 3 }, Decision{WakeAt: now.Add(800 * time.Millisecond)}},
		{"drift for ever", func(v *View) { v.LookedAt, v.DriftedAt, v.Drifts = now, now.Add(time.Millisecond), 1000 }, Decision{WakeAt: now.Add(5 * time.Minute)}},
		{"drift while it fails", func(v *View) { v.DriftedAt, v.Failures, v.LookedAt = now, 1, now.Add(-time.Second) }, Decision{Look: Drift}},
		{"drift that was taken back", func(v *View) { v.DriftedAt, v.RevertedAt, v.Drifts = now.Add(-time.Second), now, 1 }, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"drift again after that", func(v *View) { v.DriftedAt, v.RevertedAt, v.Drifts = now.Add(time.Millisecond), now, 3 }, Decision{WakeAt: now.Add(800 * time.Millisecond)}},
		{"suspended", func(v *View) { v.Generation, v.SuspendedUntil = 4, now.Add(time.Hour) },
			Decision{Obstacle: Suspended, Words: "suspended until 2026-01-02T04:04:05Z", WakeAt: now.Add(time.Hour)}},
		{"suspended until now", func(v *View) { v.SuspendedUntil = now }, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"waits", func(v *View) { v.Generation, v.NotReady = 4, "prod/base" },
			Decision{Obstacle: Waiting, Words: "source prod/base, which it depends on, is not ready"}},
		{"waited", func(v *View) { v.Waited = true }, Decision{Look: Dependency}},
		{"failed once", func(v *View) { v.Failures, v.LookedAt = 1, now }, Decision{WakeAt: now.Add(5 * time.Second)}},
		{"failed", func(v *View) { v.Failures, v.LookedAt = 4, now }, Decision{WakeAt: now.Add(40 * time.Second)}},
		{"failed for long", func(v *View) { v.Failures, v.LookedAt = 1000, now }, Decision{WakeAt: now.Add(5 * time.Minute)}},
		{"failed, and it is time", func(v *View) { v.Failures = 1 }, Decision{Look: Retry}},
		{"failed, and helped", func(v *View) { v.Failures, v.HelpedAt = 9, now.Add(-time.Second) }, Decision{Look: Retry}},
		{"failed, and helped a moment ago", func(v *View) { v.Failures, v.HelpedAt = 9, now }, Decision{WakeAt: now.Add(time.Second)}},
		{"failed, and helped again and again", func(v *View) { v.Failures, v.LookedAt, v.HelpedAt = 9, now.Add(-2*time.Second), now.Add(-time.Second) }, Decision{WakeAt: now.Add(3 * time.Second)}},
		{"failed, and helped before that", func(v *View) { v.Failures, v.LookedAt, v.HelpedAt = 4, now, now.Add(-time.Minute) }, Decision{WakeAt: now.Add(40 * time.Second)}},
		{"helped, and something is left", func(v *View) { v.Left, v.HelpedAt = true, now.Add(-time.Second) }, Decision{Look: Retry}},
		{"something is left", func(v *View) { v.Left = true }, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"helped without need", func(v *View) { v.HelpedAt = now }, Decision{WakeAt: now.Add(4 * time.Minute)}},
		{"failed, and called", func(v *View) { v.Failures, v.LookedAt, v.CalledAt = 9, now.Add(-2*time.Second), now.Add(-time.Second) }, Decision{Look: Call}},
	} {
		v := quiet()
		c.change(&v)
		if got := Decide(v); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestBounded: whatever comes, a source does not look twice within a second for what others can do, and it never sleeps for ever
// without an obstacle.
func TestBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ago := func(label string) time.Time {
			return now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, label)))
		}
		v := View{
			Now: now, Interval: time.Duration(rapid.Int64Range(int64(10*time.Second), int64(24*time.Hour)).Draw(t, "interval")), Generation: 1, Looked: 1,
			LookedAt: ago("looked"), CalledAt: ago("called"), DriftedAt: ago("drifted"), Failures: rapid.IntRange(0, 100).Draw(t, "failures"),
			HelpedAt: ago("helped"),
			Drifts:   rapid.IntRange(0, 100).Draw(t, "drifts"),
			Chance:   rapid.Float64Range(0, 0.999).Draw(t, "chance"),
		}
		d := Decide(v)
		if d.Look == Call && now.Sub(v.LookedAt) < time.Second {
			t.Fatalf("%+v looks again after %s", v, now.Sub(v.LookedAt))
		}
		if d.Look == Drift && now.Sub(v.LookedAt) < min(v.Interval, 100*time.Millisecond<<min(v.Drifts, 20)) {
			t.Fatalf("%+v looks for drift after %s", v, now.Sub(v.LookedAt))
		}
		if d.Look != "" {
			return
		}
		if !d.WakeAt.After(now) || d.WakeAt.After(v.LookedAt.Add(v.Interval+v.Interval/10)) {
			t.Fatalf("%+v wakes at %s", v, d.WakeAt)
		}
		if v.Now = d.WakeAt; Decide(v).Look == "" {
			t.Fatalf("%+v does not look when it wakes", v)
		}
	})
}
