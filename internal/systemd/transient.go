package systemd

import (
	"context"

	"github.com/godbus/dbus/v5"
)

// Property is a setting of a unit, by its name on the bus. Everybody on the host can read it.
type Property struct {
	Name  string
	Value any // of the type that the bus has for it; Command and Bind are for those that are structures there
}

// Command is a program that a unit runs, as a value of properties such as ExecStart, which are lists of them. (Those that end in Ex, such as
// ExecStopPostEx, are written to the unit's file by that name, and not understood when systemd reads it anew.)
type Command struct {
	Path   string
	Args   []string // with the name of the program first; what follows a $ is a variable
	Ignore bool     // its failure is none of the unit
}

// Bind shows a file or directory at another path, as a value of BindPaths and BindReadOnlyPaths, which are lists of them.
type Bind struct {
	Source, Path string
	Optional     bool   // the source may be missing
	Flags        uint64 // MS_REC takes along what is mounted below
}

// StartTransient has systemd make a unit and start it, and does not wait until it has started. made is false where there is a unit of that
// name: then nothing is done. Errors: UnitJobFailed for what systemd does not take, PermissionDenied, OperationTimeout, after which the unit
// may or may not be there, BusDisconnected, NoSystemd.
func (b *Bus) StartTransient(ctx context.Context, unit string, settings []Property) (made bool, err error) {
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type auxiliary struct {
		Name     string
		Settings []property
	}
	list := make([]property, len(settings))
	for i, s := range settings {
		list[i] = property{s.Name, dbus.MakeVariant(s.Value)}
	}
	err = b.call(ctx, "start unit "+unit, func(ctx context.Context, s *session) error {
		return s.manager(ctx, "StartTransientUnit", unit, "fail", list, []auxiliary{}).Err
	})
	if errorName(err) == "org.freedesktop.systemd1.UnitExists" {
		return false, nil
	}
	return err == nil, err
}

// call makes one call, in the time that one has.
func (b *Bus) call(ctx context.Context, doing string, do func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	if err := do(ctx, s); err != nil {
		return callError(doing, err)
	}
	return nil
}

// LoadedUnit is a unit that systemd has in memory.
type LoadedUnit struct {
	Name        string
	ActiveState string // see UnitState
	SubState    string
	Job         bool // something is to be done with it
}

// Loaded are the units that systemd has in memory whose names match one of some patterns (fnmatch(3)). Unlike Unit it loads none. Errors:
// OperationTimeout, BusDisconnected, NoSystemd.
func (b *Bus) Loaded(ctx context.Context, patterns ...string) ([]LoadedUnit, error) {
	var list []struct {
		Name, Description, LoadState, ActiveState, SubState, Following string
		Path                                                           dbus.ObjectPath
		Job                                                            uint32
		JobType                                                        string
		JobPath                                                        dbus.ObjectPath
	}
	err := b.call(ctx, "list units", func(ctx context.Context, s *session) error {
		return s.manager(ctx, "ListUnitsByPatterns", []string{}, patterns).Store(&list)
	})
	var units []LoadedUnit
	for _, u := range list {
		if u.LoadState != "not-found" { // what runs may have a setting that is no longer understood
			units = append(units, LoadedUnit{Name: u.Name, ActiveState: u.ActiveState, SubState: u.SubState, Job: u.Job != 0})
		}
	}
	return units, err
}

// Signal sends a signal to the main process of a unit, or to all its processes. A unit that has none is no error. Errors: UnitNotFound,
// OperationTimeout, BusDisconnected, NoSystemd.
func (b *Bus) Signal(ctx context.Context, unit string, all bool, signal int) error {
	whom := "main"
	if all {
		whom = "all"
	}
	err := b.call(ctx, "send a signal to unit "+unit, func(ctx context.Context, s *session) error {
		return s.manager(ctx, "KillUnit", unit, whom, int32(signal)).Err
	})
	if errorName(err) == "org.freedesktop.systemd1.NoSuchProcess" {
		return nil
	}
	return err
}

// Exit is how the main process of a service ended last.
type Exit struct {
	PID    uint32 // 0 where there was none
	Code   int32  // CLD_EXITED, CLD_KILLED or CLD_DUMPED of waitid(2)
	Status int32  // the exit status, or the signal
	Began  uint64 // CLOCK_MONOTONIC in microseconds
	Ended  uint64 // likewise
	Result string // what systemd makes of it: success, exit-code, signal, oom-kill, timeout, ...
}

// Exit looks at how the main process of a service ended. Errors: UnitNotFound, OperationTimeout, BusDisconnected, NoSystemd.
func (b *Bus) Exit(ctx context.Context, unit string) (e Exit, err error) {
	err = b.properties(ctx, unit, map[string]any{
		"ExecMainPID": &e.PID, "ExecMainCode": &e.Code, "ExecMainStatus": &e.Status, "Result": &e.Result,
		"ExecMainStartTimestampMonotonic": &e.Began, "ExecMainExitTimestampMonotonic": &e.Ended,
	})
	return e, err
}

// properties reads properties of a service. One that this systemd does not have stays as it is.
func (b *Bus) properties(ctx context.Context, unit string, into map[string]any) error {
	kind := interfaceOfKind(unit)
	return b.call(ctx, "look at unit "+unit, func(ctx context.Context, s *session) error {
		object := s.conn.Object(busName, unitPath(unit))
		for name, to := range into {
			value, err := getProperty[dbus.Variant](ctx, object, kind, name)
			if err != nil {
				return err
			}
			if value.Value() != nil {
				if err := value.Store(to); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ControlGroup is the name of the cgroup of a service; empty where it has none. Errors: OperationTimeout, BusDisconnected, NoSystemd.
func (b *Bus) ControlGroup(ctx context.Context, unit string) (name string, err error) {
	err = b.properties(ctx, unit, map[string]any{"ControlGroup": &name})
	return name, err
}
