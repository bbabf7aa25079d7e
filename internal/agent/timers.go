package agent

import (
	"context"
	"time"

	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/subscribe"
	"tako.dev/tako/internal/converge"
)

// timers wake the loop when nothing happens.
type timers struct {
	wake     *time.Timer // the engine's
	slow     *time.Timer // for what the kernel does not tell about
	slowly   bool        // slow is set
	quiet    *time.Timer // since the declarations changed
	alarm    *clock.Alarm
	ringsAt  time.Time // when the alarm rings; zero is never
	opens    time.Time // when the next window opens that something waits for
	zone     clock.Zone
	windowed bool // something has windows, so the zone matters
	rest     *clock.Rest
	loaded   bool // what was loaded is not noted yet
}

func newTimers() (timers, error) {
	alarm, err := clock.NewAlarm()
	t := timers{wake: time.NewTimer(time.Hour), slow: time.NewTimer(subscribe.SlowCheck), quiet: time.NewTimer(declarationQuiet), alarm: alarm, rest: clock.NewRest()}
	t.wake.Stop()
	t.slow.Stop()
	t.quiet.Stop()
	return t, err
}

// now is what clocks of the host show.
func (t *timers) now() time.Time {
	if !t.windowed {
		return time.Now()
	}
	return t.zone.Now()
}

// setAlarm has the loop woken when the next window opens, the next hold ends or the next resource expires, whatever clocks are set to meanwhile.
func (l *loop) setAlarm() {
	at := l.opens
	if ends, ok := core.HoldEnds(l.holds(), time.Now()); ok && (at.IsZero() || ends.Before(at)) {
		at = ends
	}
	if len(l.expiry.TTLs) > 0 {
		if next, ok := l.expiry.Next(l.joined.proof()); ok && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	if at.Equal(l.ringsAt) {
		return
	}
	l.ringsAt = at
	if err := l.alarm.Set(at); err != nil {
		l.book.Trouble("wait for a time", err)
	}
}

// rang is called when the alarm has.
func (l *loop) rang(ctx context.Context) {
	l.ringsAt = time.Time{} // also where clocks were set, it is set anew
	l.endHolds(ctx)
	l.layGround(ctx)
	l.outlive(ctx)
	l.step(ctx, converge.Tick{})
	l.setAlarm()
}
