package systemd

import (
	"context"
	"errors"

	"tako.dev/tako/internal/reason"
)

// UnitFileState returns what the disk says about starting a unit at boot: enabled, enabled-runtime, disabled, static,
// masked, masked-runtime, generated, alias, linked, indirect, transient, bad; "" if there is no unit file.
func (b *Bus) UnitFileState(ctx context.Context, unit string) (string, error) {
	doing := "look at the unit file of " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return "", err
	}
	state, err := s.unitFileState(ctx, unit)
	if err != nil {
		return "", callError(doing, err)
	}
	return state, nil
}

// unitFileState asks the manager, which reads the disk; the unit's own property is what it was at the last daemon-reload.
func (s *session) unitFileState(ctx context.Context, unit string) (state string, err error) {
	err = s.manager(ctx, "GetUnitFileState", unit).Store(&state)
	switch errorName(err) {
	case "org.freedesktop.DBus.Error.FileNotFound", "org.freedesktop.systemd1.NoSuchUnit":
		return "", nil
	}
	return state, err
}

// fileChange is what EnableUnitFiles and DisableUnitFiles say they did.
type fileChange struct{ Kind, Path, Target string }

// Enable makes a unit start at boot, and has systemd read the changed links. Links of another unit under the same name are
// replaced. Errors: UnitNotInstalled for a unit whose file says nothing about being enabled, UnitNotFound, UnitMasked,
// UnitEnableRefused, UnitReloadFailed, PermissionDenied, BusDisconnected, NoSystemd.
func (b *Bus) Enable(ctx context.Context, unit string) error {
	doing := "enable unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	var installable bool
	var changes []fileChange
	const runtime, force = false, true
	if err := s.manager(ctx, "EnableUnitFiles", []string{unit}, runtime, force).Store(&installable, &changes); err != nil {
		return enableError(doing, err)
	}
	if !installable {
		return &reason.Error{
			Code: reason.UnitNotInstalled, Doing: doing, Cause: errors.New("its unit file has no [Install] section"),
			Hint: "leave `enabled` out: something else starts this unit",
		}
	}
	return b.reloadAfter(ctx, changes)
}

// Disable makes a unit not start at boot, and has systemd read the changed links; a unit that is not enabled is left
// alone. Errors as Enable.
func (b *Bus) Disable(ctx context.Context, unit string) error {
	doing := "disable unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	var changes []fileChange
	const runtime = false
	if err := s.manager(ctx, "DisableUnitFiles", []string{unit}, runtime).Store(&changes); err != nil {
		return enableError(doing, err)
	}
	return b.reloadAfter(ctx, changes)
}

func (b *Bus) reloadAfter(ctx context.Context, changes []fileChange) error {
	if len(changes) == 0 {
		return nil
	}
	return b.Reload(ctx)
}

// enableError keeps the codes that say more than UnitEnableRefused.
func enableError(doing string, err error) error {
	e := callError(doing, err)
	if e.Code == reason.UnitJobFailed {
		e.Code = reason.UnitEnableRefused
	}
	return e
}
