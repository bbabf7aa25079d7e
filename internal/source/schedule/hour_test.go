package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// outage is a source whose repository is away, as its loop has it: it looks when Decide says so, and each look fails.
type outage struct {
	view  View
	start time.Time
	looks []time.Duration // when they were, since the start
	why   []Trigger
}

func newOutage(interval time.Duration, chance func() float64) (*outage, func(until time.Duration)) {
	o := &outage{start: now, view: View{Now: now, Interval: interval, Generation: 1, Looked: 1, LookedAt: now, Failures: 1, Chance: chance()}}
	return o, func(until time.Duration) {
		for end := now.Add(until); ; {
			d := Decide(o.view)
			switch {
			case d.Look != "":
				o.looks, o.why = append(o.looks, o.view.Now.Sub(o.start)), append(o.why, d.Look)
				o.view.LookedAt, o.view.Chance = o.view.Now, chance()
				o.view.Failures++
			case d.WakeAt.After(end):
				o.view.Now = end
				return
			default:
				o.view.Now = d.WakeAt
			}
		}
	}
}

// TestAnHourAway: a repository that is away for an hour is asked for soon at first, and then once in an interval, give or take a tenth; how
// long it is away changes nothing about that. When it is back, a call of the forge has it looked at in the same moment, and from then on
// it is asked for as ever.
func TestAnHourAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.Int64Range(int64(10*time.Second), int64(time.Hour)).Draw(t, "interval"))
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		o, pass := newOutage(interval, random.Float64)
		pass(time.Hour)
		last, pause := time.Duration(0), retryMin
		for i, at := range o.looks {
			gap, tenth := at-last, pause/spread
			if gap < pause-tenth || gap > pause+tenth || o.why[i] != Retry {
				t.Fatalf("look %d is at %s because of %s, %s after the one before; want %s, give or take a tenth", i, at, o.why[i], gap, pause)
			}
			last, pause = at, min(2*pause, interval)
		}
		if most := int(time.Hour/(interval-interval/spread)) + 11; len(o.looks) > most || len(o.looks) == 0 {
			t.Fatalf("%d looks in an hour with an interval of %s", len(o.looks), interval)
		}

		// It is back, and the forge calls.
		seen := o.view.LookedAt
		o.view.Now = o.view.Now.Add(callPause)
		o.view.CalledAt = o.view.Now
		if d := Decide(o.view); d.Look != Call && d.Look != Retry {
			t.Fatalf("called %s after the last look, it decides %+v", o.view.Now.Sub(seen), d)
		}
		o.view.LookedAt, o.view.Failures, o.view.Chance = o.view.Now, 0, 0.5
		if d := Decide(o.view); d.Look != "" || !d.WakeAt.Equal(o.view.Now.Add(interval-interval/spread+interval/spread)) {
			t.Fatalf("after a good look it decides %+v", d)
		}
	})
}

// TestCalledAllTheTime: a forge that calls all the time while its repository is away has it asked for once a second, and no more.
func TestCalledAllTheTime(t *testing.T) {
	o, pass := newOutage(5*time.Minute, func() float64 { return 0.5 })
	for at := time.Duration(0); at < time.Hour; at += 100 * time.Millisecond {
		pass(at)
		o.view.CalledAt = o.view.Now
	}
	for i := 1; i < len(o.looks); i++ {
		if gap := o.looks[i] - o.looks[i-1]; gap < callPause {
			t.Fatalf("looks %d and %d are %s apart", i-1, i, gap)
		}
	}
	if n := len(o.looks); n > 3600 || n < 3000 {
		t.Errorf("%d looks in an hour", n)
	}
}
