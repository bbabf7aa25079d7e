package systemd

import "context"

// Mask keeps a unit from being started by anybody, from now on, and has systemd read that. It does not stop the unit. Errors: UnitEnableRefused
// where its unit file is in the place of the mask, and those of Enable.
func (b *Bus) Mask(ctx context.Context, unit string) error {
	doing := "mask unit " + unit
	return b.changeFiles(ctx, func(ctx context.Context, s *session) ([]fileChange, error) {
		var changes []fileChange
		const runtime, force = false, false
		if err := s.manager(ctx, "MaskUnitFiles", []string{unit}, runtime, force).Store(&changes); err != nil {
			return nil, enableError(doing, err)
		}
		return changes, nil
	})
}

// Unmask takes a mask away, also one that lasts until the next boot, and has systemd read that. A unit that is not masked is left alone.
// Errors: those of Enable.
func (b *Bus) Unmask(ctx context.Context, unit string) error {
	doing := "unmask unit " + unit
	return b.changeFiles(ctx, func(ctx context.Context, s *session) ([]fileChange, error) {
		var all []fileChange
		for _, runtime := range []bool{false, true} {
			var changes []fileChange
			if err := s.manager(ctx, "UnmaskUnitFiles", []string{unit}, runtime).Store(&changes); err != nil {
				return all, enableError(doing, err)
			}
			all = append(all, changes...)
		}
		return all, nil
	})
}

// EnableAll makes units start at boot as Enable does, but does not have systemd read the links: one Reload of the caller's serves for all of
// them and for what else has changed. errs[i] belongs to units[i].
func (b *Bus) EnableAll(ctx context.Context, units []string) (errs []error) {
	return b.forAll(ctx, "enable", units, func(ctx context.Context, s *session, unit string) error {
		const runtime, force = false, true
		return s.manager(ctx, "EnableUnitFiles", []string{unit}, runtime, force).Err
	})
}

// DisableAll makes units not start at boot; see EnableAll.
func (b *Bus) DisableAll(ctx context.Context, units []string) (errs []error) {
	return b.forAll(ctx, "disable", units, func(ctx context.Context, s *session, unit string) error {
		const runtime = false
		return s.manager(ctx, "DisableUnitFiles", []string{unit}, runtime).Err
	})
}

func (b *Bus) forAll(ctx context.Context, verb string, units []string, do func(context.Context, *session, string) error) []error {
	errs := make([]error, len(units))
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	for i, unit := range units {
		doing := verb + " unit " + unit
		s, err := b.session(ctx, doing)
		if err == nil {
			err = do(ctx, s, unit)
		}
		if err != nil {
			errs[i] = enableError(doing, err)
		}
	}
	return errs
}

// changeFiles changes links of unit files, and has systemd read what was changed.
func (b *Bus) changeFiles(ctx context.Context, change func(context.Context, *session) ([]fileChange, error)) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	s, err := b.session(ctx, "change links of unit files")
	if err != nil {
		return err
	}
	changes, err := change(ctx, s)
	if err != nil {
		return err
	}
	return b.reloadAfter(ctx, changes)
}
