package systemd

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"

	"tako.dev/tako/internal/reason"
)

// reloads lets many that need a daemon-reload share one.
type reloads struct {
	asked atomic.Uint64 // number of the latest call of Reload

	gate   chan struct{} // capacity 1: who holds its token may reload, and owns the fields below
	served uint64        // calls of Reload up to this one were made before the latest reload began
	dirs   []int64       // unitDirTimes before the latest reload of ours began; nil before the first
}

func newReloads() reloads { return reloads{gate: make(chan struct{}, 1)} }

// Reload has systemd read all unit files anew (daemon-reload) and waits for it, at most Options.JobTimeout. A reload that
// began after the call satisfies it, whoever made it. Errors: UnitReloadFailed, OperationTimeout, PermissionDenied,
// BusDisconnected, NoSystemd.
func (b *Bus) Reload(ctx context.Context) error {
	ticket := b.reloads.asked.Add(1)
	_, err := b.reloadIf(ctx, func(context.Context) (bool, error) { return b.reloads.served < ticket, nil })
	return err
}

// reloadIf reloads if needed says so. Needed is asked while no reload of ours is under way and none can begin.
func (b *Bus) reloadIf(ctx context.Context, needed func(context.Context) (bool, error)) (reloaded bool, err error) {
	const doing = "reload systemd"
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	select {
	case b.reloads.gate <- struct{}{}:
		defer func() { <-b.reloads.gate }()
	case <-ctx.Done():
		return false, callError(doing, ctx.Err())
	}
	if ok, err := needed(ctx); err != nil || !ok {
		return false, err
	}
	s, err := b.session(ctx, doing)
	if err != nil {
		return false, err
	}
	// Both before the reload: what comes during it may have been missed by it.
	upTo, dirs := b.reloads.asked.Load(), unitDirTimes(b.opts.UnitDirs)
	if err := s.manager(ctx, "Reload").Err; err != nil {
		e := callError(doing, err)
		if e.Code == reason.UnitJobFailed {
			e.Code = reason.UnitReloadFailed
		}
		return false, e
	}
	b.reloads.served, b.reloads.dirs = upTo, dirs
	return true, nil
}

// reloadRoundsMax is how often EnsureLoaded reloads for one caller: once for what it was called for, once more for a file
// that changed meanwhile.
const reloadRoundsMax = 2

// EnsureLoaded makes systemd know the unit as its files are now, with a daemon-reload if that is needed, and returns the
// state after it. It comes before every action on a unit. However many units ask at once, there is one reload. A unit that
// does not exist is no error, as with Unit, and costs a reload only if unit files have appeared since the last one.
// Errors: those of Unit and Reload; UnitReloadFailed also where the unit's files keep changing.
func (b *Bus) EnsureLoaded(ctx context.Context, unit string) (UnitState, error) {
	state, err := b.Unit(ctx, unit)
	for range reloadRoundsMax {
		if err != nil || !state.NeedDaemonReload && !state.NotFound() {
			return state, err
		}
		reloaded, reloadErr := b.reloadIf(ctx, func(ctx context.Context) (bool, error) {
			state, err = b.Unit(ctx, unit)
			return reloadNeeded(state, b.reloads.dirs, unitDirTimes(b.opts.UnitDirs)), err
		})
		if reloadErr != nil || !reloaded {
			return state, reloadErr
		}
		state, err = b.Unit(ctx, unit)
	}
	if err != nil {
		return state, err
	}
	if state.NeedDaemonReload {
		return state, &reason.Error{
			Code: reason.UnitReloadFailed, Doing: "load unit " + unit,
			Cause: errors.New("its files changed again after each daemon-reload"),
		}
	}
	return state, nil
}

// reloadNeeded decides whether systemd must read unit files before the unit can be acted on. Systemd itself tells about a
// file that changed. About a unit that it does not know it may be wrong if files have appeared since it looked: then the
// modification time of a unit directory has moved from what it was before the latest reload (nil: no reload of ours yet).
func reloadNeeded(state UnitState, atReload, now []int64) bool {
	return state.NeedDaemonReload || state.NotFound() && (atReload == nil || !slices.Equal(atReload, now))
}

// unitDirTimes returns the modification times of directories in nanoseconds, 0 for one that is not there.
func unitDirTimes(dirs []string) []int64 {
	times := make([]int64, len(dirs))
	for i, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil {
			times[i] = fi.ModTime().UnixNano()
		}
	}
	return times
}
