package systemd

import (
	"context"
	"os"
	"slices"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	bus "tako.dev/tako/internal/systemd"
)

const (
	unitPrefix = "tako-"
	unitSuffix = ".service"
	// guardPrefix begins the names of units that are of no attempt.
	guardPrefix = "tako_guard-"
)

// unitOf is the name of an attempt's unit.
func unitOf(id run.ID) string { return unitPrefix + id.String() + unitSuffix }

// guardOf is the name of the unit that guards it.
func guardOf(id run.ID) string { return guardPrefix + id.String() + unitSuffix }

// attemptOf is the attempt that a unit is of.
func attemptOf(unit string) (run.ID, bool) {
	if len(unit) < len(unitPrefix) || unit[:len(unitPrefix)] != unitPrefix {
		return run.ID{}, false
	}
	return idOf(unit[len(unitPrefix):], unitSuffix)
}

// lookRounds is how often an attempt is looked at that has begun and is nowhere: what was there at the first look has left its end before the
// second.
const lookRounds = 2

// look is what there is of an attempt; false: nothing. Of one that cannot say it any more it settles what became of it.
func (r *Runtime) look(ctx context.Context, id run.ID) (run.Status, bool, error) {
	if err := id.Valid(); err != nil {
		return run.Status{}, false, err
	}
	for round := 1; ; round++ {
		units, err := r.bus.Loaded(ctx, unitOf(id))
		if err != nil {
			return run.Status{}, false, err
		}
		var unit *bus.LoadedUnit
		if len(units) > 0 {
			unit = &units[0]
		}
		s, v, err := r.weigh(ctx, id, unit)
		if err != nil || v == absent {
			return run.Status{}, false, err
		}
		if v == stands {
			return s, true, nil
		}
		if v == vanished && round < lookRounds {
			continue
		}
		if err := r.settle(ctx, id, s, v); err != nil {
			return run.Status{}, false, err
		}
	}
}

// weigh reads the files of an attempt whose unit was looked at before, and judges.
func (r *Runtime) weigh(ctx context.Context, id run.ID, unit *bus.LoadedUnit) (run.Status, verdict, error) {
	e := evidence{boot: r.boot, unit: unit}
	var b begun
	switch ok, err := r.tree.get(id, begunFile, &b); {
	case reason.Is(err, reason.StateCorrupt): // not to be told from others, but begun it has
		e.begun = &begun{Boot: r.boot}
	case err != nil:
		return run.Status{}, absent, err
	case ok:
		e.begun = &b
	}
	var end ended
	switch ok, err := r.tree.get(id, endedFile, &end); {
	case reason.Is(err, reason.StateCorrupt):
		e.ended = &ended{Boot: r.boot, Ending: run.Ending{Cause: run.Lost, Words: "what it came to cannot be read any more"}}
	case err != nil:
		return run.Status{}, absent, err
	case ok:
		e.ended = &end
	}
	s, v := judge(id, &e)
	if v == stands && s.Phase == run.Ended && unit != nil && unit.ActiveState == "failed" {
		// It need not keep what is on disk. It is no error where somebody was faster.
		if err := r.bus.ResetFailed(ctx, unit.Name); err != nil && !reason.Is(err, reason.UnitNotFound) {
			return s, v, err
		}
	}
	return s, v, nil
}

// settle writes down how an attempt has ended whose unit has not.
func (r *Runtime) settle(ctx context.Context, id run.ID, s run.Status, v verdict) error {
	r.gone.Lock()
	defer r.gone.Unlock()
	e := ended{Boot: s.Boot, Started: s.Started, Ending: run.Ending{Cause: run.Lost, At: now()}}
	switch v {
	case restarts:
		e.Ending.Words = "the host was restarted"
	case vanished:
		e.Ending.Words = "its unit was taken out of systemd"
	case unsaid:
		exit, err := r.bus.Exit(ctx, unitOf(id))
		if err != nil {
			return err
		}
		e.Ending = endingOf(&exit, s.Phase == run.Running, r.tree.has(id, killFile), e.Ending.At)
	}
	if _, err := r.tree.put(id, endedFile, e, true); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "note what became of " + id.String(), Cause: err}
	}
	return r.tree.clear(id)
}

// endingOf is how an attempt ended, from what its unit knows; began says that it got as far as its program. killed says that it was asked for.
func endingOf(x *bus.Exit, began, killed bool, at run.Moment) run.Ending {
	const (
		exited = 1 // CLD_EXITED
		signal = 2 // CLD_KILLED
		dumped = 3 // CLD_DUMPED
	)
	const noted = "what should have noted its end could not"
	switch {
	case !began:
		return run.Ending{Cause: run.NotExecuted, At: at, Words: "systemd could not prepare it: " + describe(x.Result, int(x.Status))}
	case x.Code == exited:
		return run.Ending{Cause: run.Exited, Code: int(x.Status), At: at, Words: noted}
	case (x.Code == signal || x.Code == dumped) && x.Result == "oom-kill" && !killed:
		return run.Ending{Cause: run.OutOfMemory, At: at, Words: "its limit of memory was reached"}
	case x.Code == signal || x.Code == dumped:
		return run.Ending{Cause: run.Signaled, Signal: run.Signal(x.Status), At: at, Words: noted}
	}
	return run.Ending{Cause: run.Lost, At: at, Words: "its unit has failed: " + x.Result}
}

// List is every attempt that there is.
func (r *Runtime) List(ctx context.Context) ([]run.Status, error) {
	units, err := r.bus.Loaded(ctx, unitPrefix+"*.*.*"+unitSuffix)
	if err != nil {
		return nil, err
	}
	found := map[run.ID]*bus.LoadedUnit{}
	for i := range units {
		if id, ok := attemptOf(units[i].Name); ok {
			found[id] = &units[i]
		}
	}
	entries, err := os.ReadDir(r.tree.statuses())
	if err != nil {
		return nil, disk.Fault("list", r.tree.statuses(), err)
	}
	for _, e := range entries {
		for _, kind := range []string{begunFile, endedFile} {
			if id, ok := idOf(e.Name(), kind); ok && found[id] == nil {
				found[id] = nil
			}
		}
	}
	var all []run.Status
	for id, unit := range found {
		if ctx.Err() != nil {
			return nil, reason.Ended("list what runs", ctx.Err())
		}
		s, v, err := r.weigh(ctx, id, unit)
		if err == nil && v != stands {
			var there bool
			if s, there, err = r.look(ctx, id); err == nil && !there {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b run.Status) int { return a.ID.Compare(b.ID) })
	return all, nil
}
