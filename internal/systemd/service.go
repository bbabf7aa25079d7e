package systemd

import (
	"context"
	"time"
)

// QueueRestart has systemd restart a unit, or only if that is active or on its way to it, and does not wait: for the unit that this very
// process is of. Errors: UnitNotFound, UnitMasked, PermissionDenied, BusDisconnected, NoSystemd.
func (b *Bus) QueueRestart(ctx context.Context, unit string, onlyIfActive bool) error {
	doing, method := "restart unit "+unit, "RestartUnit"
	if onlyIfActive {
		method = "TryRestartUnit"
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	if err := s.manager(ctx, method, unit, "replace").Err; err != nil {
		return callError(doing, err)
	}
	return nil
}

// QueueStop has systemd stop a unit, or not start it where it was about to, and does not wait. Errors: UnitNotFound, PermissionDenied,
// BusDisconnected, NoSystemd.
func (b *Bus) QueueStop(ctx context.Context, unit string) error {
	return b.call(ctx, "stop unit "+unit, func(ctx context.Context, s *session) error {
		return s.manager(ctx, "StopUnit", unit, "replace").Err
	})
}

// MainPID returns the main process of a service, 0 where it has none. Errors: UnitNotFound, BusDisconnected, NoSystemd.
func (b *Bus) MainPID(ctx context.Context, unit string) (int, error) {
	doing := "look at unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return 0, err
	}
	pid, err := getProperty[uint32](ctx, s.conn.Object(busName, unitPath(unit)), interfaceOfKind(unit), "MainPID")
	if err != nil {
		return 0, callError(doing, err)
	}
	return int(pid), nil
}

// Journal returns what a unit has logged last since a moment, ten lines; empty where the journal cannot be read.
func (b *Bus) Journal(ctx context.Context, unit string, since time.Time) string {
	return journalTail(ctx, unit, since)
}
