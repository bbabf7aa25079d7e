package service

import (
	"context"
	"time"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Refresh has the unit read what has changed at since: by a start of whoever came first, or a reload where that is declared.
// A reload leaves no trace in systemd, so one by somebody else is not recognised and done again.
func (t *Type) Refresh(ctx context.Context, res host.Resource, since host.Stamp) (host.Refreshed, error) {
	r := res.(*resource)
	if !r.running {
		return host.Refreshed{Note: "declared stopped"}, nil
	}
	doing := "restart unit " + r.unit
	if err := ctx.Err(); err != nil {
		return host.Refreshed{}, reason.Ended(doing, err)
	}
	s, err := t.settled(ctx, r)
	switch {
	case err != nil:
		return host.Refreshed{}, err
	case s.NotFound():
		return host.Refreshed{}, r.missing()
	case systemd.StartedAfter(s, systemd.Stamp(since)):
		return host.Refreshed{Note: startedNote(s)}, nil
	case r.anyState && isDown(s):
		return host.Refreshed{Note: stoppedByOthers}, nil
	}
	act, done := t.bus.Restart, "restarted"
	if r.reload && isUp(s) && s.CanReload {
		act, done, doing = t.bus.ReloadOrRestart, "reloaded", "reload unit "+r.unit
	}
	// Also of a unit that runs: systemd counts our restarts towards its limit of starts, which is meant for units that
	// crash. What bounds ours is the engine's budget.
	if err := t.bus.ResetFailed(ctx, r.unit); err != nil {
		return host.Refreshed{}, err
	}
	r.tried = true
	if err := act(ctx, r.unit); err != nil {
		return host.Refreshed{}, err
	}
	if s, err = t.bus.Unit(ctx, r.unit); err != nil {
		return host.Refreshed{Acted: true}, err
	}
	if !isUp(s) {
		return host.Refreshed{Acted: true}, notAsWanted(doing, r.unit, s)
	}
	return host.Refreshed{Acted: true, Note: done}, nil
}

// Satisfied reports whether somebody has started the unit since, or nothing is to be.
func (t *Type) Satisfied(ctx context.Context, res host.Resource, since host.Stamp) (done bool, note string) {
	r := res.(*resource)
	if !r.running {
		return true, "declared stopped"
	}
	s, err := t.bus.Unit(ctx, r.unit)
	switch {
	case err != nil:
		return false, ""
	case r.anyState && isDown(s):
		return true, stoppedByOthers
	case !systemd.StartedAfter(s, systemd.Stamp(since)):
		return false, ""
	}
	return true, startedNote(s)
}

// stoppedByOthers is why a unit is not restarted whose state is not ours.
const stoppedByOthers = "others have stopped it"

// settled is the unit's state with its files as they are now, after a start that is under way: it may be the one that counts.
func (t *Type) settled(ctx context.Context, r *resource) (systemd.UnitState, error) {
	s, err := t.bus.EnsureLoaded(ctx, r.unit)
	if err != nil || !isStarting(s) {
		return s, err
	}
	if err := t.bus.Start(ctx, r.unit); err != nil && !reason.Is(err, reason.UnitJobFailed) {
		return s, err
	}
	return t.bus.Unit(ctx, r.unit) // also where it failed: then a restart is due
}

// startedNote says when the start happened that made a refresh superfluous. The wall clock is for a person only.
func startedNote(s systemd.UnitState) string {
	if boot, err := systemd.BootID(); err != nil || boot != s.Boot {
		return "was started since"
	}
	ago := time.Duration(systemd.MonotonicNow()-s.InactiveExit) * time.Microsecond
	return "was started at " + time.Now().Add(-ago).Format(time.TimeOnly) + ", after the change"
}
