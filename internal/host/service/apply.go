package service

import (
	"context"
	"errors"
	"slices"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Check looks at each unit. Every depth looks at the same: there is nothing that could be remembered instead.
func (t *Type) Check(ctx context.Context, rs []host.Resource, _ host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, res := range rs {
		plans[i].Resource = res
		plans[i].Changes, plans[i].Err = t.check(ctx, res.(*resource))
	}
	return plans
}

func (t *Type) check(ctx context.Context, r *resource) ([]host.Change, error) {
	s, err := t.bus.Unit(ctx, r.unit)
	if err != nil {
		return nil, err
	}
	if !s.NotFound() {
		return t.unlessReplaced(r, s)
	}
	// A unit file that has just been written is on the disk, and not yet known to systemd.
	file, err := t.bus.UnitFileState(ctx, r.unit)
	if err != nil {
		return nil, err
	}
	if file != "" {
		s.LoadState, s.ActiveState, s.UnitFileState, s.NeedDaemonReload = "loaded", "inactive", file, true
	}
	return r.compare(s)
}

// unlessReplaced compares, but leaves a unit alone that was stopped in good order while the package database is locked:
// that is how a package's scripts stop what they are about to replace or remove, and starting it then would run files that
// are on their way out. One that has crashed is started all the same.
func (t *Type) unlessReplaced(r *resource, s systemd.UnitState) ([]host.Change, error) {
	changes, err := r.compare(s)
	if err != nil || !r.running || s.ActiveState != "inactive" || !has(changes, fieldState) {
		return changes, err
	}
	holder, err := disk.LockHolder(t.packageLock)
	if err != nil || holder == "" {
		return changes, err
	}
	return nil, &reason.Error{Code: reason.UnitBusy, Doing: "start unit " + r.unit, Cause: errors.New(holder + " is changing packages"),
		Holder: holder, After: busyWait}
}

// Apply acts on each unit in turn.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		if err := ctx.Err(); err != nil {
			results[i].Err = reason.Ended("change unit "+p.Resource.(*resource).unit, err)
			continue
		}
		results[i].Changed, results[i].Err = t.apply(ctx, p.Resource.(*resource), p.Changes)
	}
	return results
}

// apply does of what was planned what is still to do.
func (t *Type) apply(ctx context.Context, r *resource, planned []host.Change) (changed bool, err error) {
	s, err := t.bus.EnsureLoaded(ctx, r.unit)
	changed = err == nil && has(planned, fieldReload)
	if err != nil {
		return changed, err
	}
	if r.mask == unmasked && has(planned, fieldMasked) && masked(s) {
		if err := t.bus.Unmask(ctx, r.unit); err != nil {
			return changed, err
		}
		changed = true
		if s, err = t.bus.EnsureLoaded(ctx, r.unit); err != nil {
			return changed, err
		}
	}
	left, err := r.compare(s)
	if err != nil {
		return changed, err
	}
	left = slices.DeleteFunc(left, func(c host.Change) bool { return !has(planned, c.Field) })
	if r.running {
		return t.inTurn(ctx, r, left, changed, t.applyEnabled, t.start)
	}
	return t.inTurn(ctx, r, left, changed, t.stop, t.applyEnabled, t.applyMask)
}

// action does what belongs to one field if it is among what is left to do.
type action func(ctx context.Context, r *resource, left []host.Change) (changed bool, err error)

func (t *Type) inTurn(ctx context.Context, r *resource, left []host.Change, changed bool, actions ...action) (bool, error) {
	for _, act := range actions {
		did, err := act(ctx, r, left)
		changed = changed || did
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (t *Type) applyEnabled(ctx context.Context, r *resource, left []host.Change) (bool, error) {
	if !has(left, fieldEnabled) {
		return false, nil
	}
	act := t.bus.Disable
	if r.enabled == enabled {
		act = t.bus.Enable
	}
	if err := act(ctx, r.unit); err != nil {
		return false, err
	}
	s, err := t.bus.Unit(ctx, r.unit)
	if err != nil {
		return true, err
	}
	change, err := r.compareEnabled(s)
	if err == nil && change != nil {
		err = &reason.Error{Code: reason.UnitEnableRefused, Doing: r.doingEnabled(), Cause: errors.New("it is still " + change.From)}
	}
	return true, err
}

// applyMask masks a unit that has been stopped: once it is masked, systemd does not know any more how it is stopped in good order.
func (t *Type) applyMask(ctx context.Context, r *resource, left []host.Change) (bool, error) {
	if r.mask != maskedForGood || !has(left, fieldMasked) {
		return false, nil
	}
	if err := t.bus.Mask(ctx, r.unit); err != nil {
		return false, err
	}
	s, err := t.bus.Unit(ctx, r.unit)
	switch {
	case err != nil:
		return true, err
	case s.UnitFileState != wordMasked:
		return true, &reason.Error{Code: reason.UnitEnableRefused, Doing: "mask unit " + r.unit, Cause: errors.New("it is still " + s.UnitFileState)}
	case !isDown(s) && !s.NotFound(): // somebody started it in between
		return t.stop(ctx, r, []host.Change{{Field: fieldState}})
	}
	return true, nil
}

// start starts the unit, or waits for the start that is under way.
func (t *Type) start(ctx context.Context, r *resource, left []host.Change) (bool, error) {
	if !has(left, fieldState) {
		return false, nil
	}
	before, err := t.bus.Unit(ctx, r.unit)
	if err != nil {
		return false, err
	}
	if before.ActiveState == "failed" && !r.tried {
		if err := t.bus.ResetFailed(ctx, r.unit); err != nil {
			return false, err
		}
	}
	r.tried = true
	if err := t.bus.Start(ctx, r.unit); err != nil {
		return false, err
	}
	after, err := t.bus.Unit(ctx, r.unit)
	if err == nil && !isUp(after) {
		err = notAsWanted("start unit "+r.unit, r.unit, after)
	}
	joined := isStarting(before) || isUp(after) && after.InvocationID == before.InvocationID
	return !joined, err
}

func (t *Type) stop(ctx context.Context, r *resource, left []host.Change) (bool, error) {
	if !has(left, fieldState) {
		return false, nil
	}
	if err := t.bus.Stop(ctx, r.unit); err != nil {
		return false, err
	}
	s, err := t.bus.Unit(ctx, r.unit)
	if err == nil && !isDown(s) && !s.NotFound() {
		err = notAsWanted("stop unit "+r.unit, r.unit, s)
	}
	return true, err
}

func has(changes []host.Change, field string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Field == field })
}
