package inbox

import (
	"context"
	"time"
)

// Rounds calls round when something nudges, and when round says, until ctx is done: at once after a rest, otherwise apart after it has begun last, and
// in no case before the pause that it asks for. What nudges while it waits is one call.
func Rounds(ctx context.Context, nudge <-chan struct{}, apart time.Duration, round func(ctx context.Context, now time.Time) (next, pause time.Time)) {
	for ctx.Err() == nil {
		select {
		case <-nudge: // this round sees what it was about
		default:
		}
		began := time.Now()
		next, pause := round(ctx, began)
		if soonest := began.Add(apart); pause.Before(soonest) {
			pause = soonest
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer:
		case <-nudge:
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(pause)):
		}
	}
}
