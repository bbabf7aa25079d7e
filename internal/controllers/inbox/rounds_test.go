package inbox

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// burstApart is how far apart rounds begin.
const burstApart = 2 * time.Millisecond

// rounds notes when rounds begin, after a time, and says what they ask for.
type rounds struct {
	start time.Time
	begun []time.Duration
	takes time.Duration                               // one round
	asks  func(now time.Time) (next, pause time.Time) // nil: nothing
}

func (r *rounds) round(_ context.Context, now time.Time) (next, pause time.Time) {
	r.begun = append(r.begun, now.Sub(r.start))
	wait(r.takes)
	if r.asks != nil {
		return r.asks(now)
	}
	return time.Time{}, time.Time{}
}

// run has rounds paced while something happens, and returns when they began.
func (r *rounds) run(happens func(nudge func())) []time.Duration {
	r.start = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	nudges, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		Rounds(ctx, nudges, burstApart, r.round)
	}()
	happens(func() {
		select {
		case nudges <- struct{}{}:
		default:
		}
	})
	cancel()
	<-ended
	return r.begun
}

// wait lets the time of the bubble pass.
func wait(d time.Duration) { <-time.After(d) }

// TestRounds: what comes after a rest is looked at in the same moment, and a burst once in burstApart, to its end.
func TestRounds(t *testing.T) {
	const ms = time.Millisecond
	for what, c := range map[string]struct {
		of      rounds
		happens func(nudge func())
		want    []time.Duration
	}{
		"one after a rest": {happens: func(nudge func()) {
			wait(time.Second)
			nudge()
			wait(time.Second)
		}, want: []time.Duration{0, time.Second}},
		"a burst": {happens: func(nudge func()) {
			wait(100 * ms)
			for range 50 {
				nudge()
				wait(ms / 10)
			}
			wait(time.Second)
		}, want: []time.Duration{0, 100 * ms, 102 * ms, 104 * ms, 106 * ms}},
		"two at once, while one is looked at": {of: rounds{takes: 5 * ms}, happens: func(nudge func()) {
			wait(ms)
			nudge()
			nudge()
			wait(time.Second)
		}, want: []time.Duration{0, 5 * ms}},
		"decisions that take long": {of: rounds{asks: func(now time.Time) (next, pause time.Time) { return time.Time{}, now.Add(90 * ms) }}, happens: func(nudge func()) {
			for range 200 {
				nudge()
				wait(ms)
			}
			wait(time.Second)
		}, want: []time.Duration{0, 90 * ms, 180 * ms, 270 * ms}},
		"by itself": {of: rounds{asks: func(now time.Time) (next, pause time.Time) { return now.Add(400 * ms), time.Time{} }}, happens: func(func()) { wait(time.Second) },
			want: []time.Duration{0, 400 * ms, 800 * ms}},
		"at once by itself": {of: rounds{asks: func(now time.Time) (next, pause time.Time) { return now, time.Time{} }}, happens: func(func()) { wait(5 * ms) },
			want: []time.Duration{0, 2 * ms, 4 * ms}},
	} {
		synctest.Test(t, func(t *testing.T) {
			if begun := c.of.run(c.happens); !slices.Equal(begun, c.want) {
				t.Errorf("%s: rounds at %v, want %v", what, begun, c.want)
			}
		})
	}
}
