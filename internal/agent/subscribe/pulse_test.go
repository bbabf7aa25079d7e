package subscribe

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/disk/watch"
)

// TestPulse: each slot is told about as often as it asked for, and after the end of that not at all.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPulse()
		told := map[watch.ID]int{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- p.run(ctx, func(events []watch.Event) {
				for _, e := range events {
					for _, id := range e.IDs {
						told[id]++
					}
				}
			})
		}()
		const often, seldom, nothing, bad = 1, 2, 3, 4
		p.watch("10s", often)
		p.watch("10m", seldom)
		p.watch("10s", nothing)
		p.watch("no time", bad)
		p.unwatch("10s", nothing)
		p.unwatch("10m", nothing) // which it has not
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := told[often]; n < 320 || n > 400 {
			t.Errorf("every ten seconds: %d times in an hour", n)
		}
		if n := told[seldom]; n < 5 || n > 7 {
			t.Errorf("every ten minutes: %d times in an hour", n)
		}
		if n := told[nothing]; n != 0 {
			t.Errorf("what is not watched any more was told %d times", n)
		}
		if n := told[bad]; n > 1 {
			t.Errorf("what is no time: %d times in an hour", n)
		}
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestPulseSpreads: what is asked of one server by many at once is not asked at once for ever.
func TestPulseSpreads(t *testing.T) {
	var times []time.Duration
	for range 100 {
		times = append(times, jittered(time.Minute))
	}
	if slices.Max(times) > 66*time.Second || slices.Min(times) < 54*time.Second || slices.Max(times)-slices.Min(times) < 3*time.Second {
		t.Errorf("between %v and %v", slices.Min(times), slices.Max(times))
	}
}
