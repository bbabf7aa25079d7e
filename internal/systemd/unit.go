package systemd

import (
	"context"
	"encoding/hex"
	"path"

	"github.com/godbus/dbus/v5"
)

// UnitState is what systemd said about a unit at one moment. Words are systemd's own.
type UnitState struct {
	Name             string // its main name; differs from the one asked for when that is an alias
	LoadState        string // loaded, not-found, masked, bad-setting, error
	ActiveState      string // active, reloading, inactive, failed, activating, deactivating
	SubState         string // for example running, exited, dead
	UnitFileState    string // read from disk now, not from systemd's memory; see Bus.UnitFileState
	FragmentPath     string // the unit file, "" if there is none
	NeedDaemonReload bool   // unit files changed after systemd had read them
	InvocationID     string // 32 hex digits, new with every start; "" if it never ran
	ActiveEnter      uint64 // when it became active last, CLOCK_MONOTONIC in microseconds, 0 for never
	InactiveExit     uint64 // when it began to start last, likewise
	CanStart         bool
	CanReload        bool
	ConditionResult  bool   // whether its conditions held when it was started last
	Result           string // why it failed: success, exit-code, signal, timeout, start-limit-hit, ...; "" for kinds without
	ExecMainStatus   int32  // services: exit status or signal of the main process that ended last
	NRestarts        uint32 // services: automatic restarts since it was last started by hand
	Boot             string // the boot that the times belong to
}

// NotFound reports whether there is no such unit.
func (u UnitState) NotFound() bool { return u.LoadState == "not-found" }

// Unit returns a unit's state, reading its file if systemd has not done so yet. A unit that does not exist is no error:
// its LoadState is not-found. If unit is of the units of interest and an alias, its changes are told from then on as well.
// Errors: UnitNotFound for a name that no unit can have, OperationTimeout, PermissionDenied, BusDisconnected, NoSystemd.
func (b *Bus) Unit(ctx context.Context, unit string) (UnitState, error) {
	doing := "look at unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return UnitState{}, err
	}
	state, err := s.unit(ctx, unit)
	if err != nil {
		return UnitState{}, callError(doing, err)
	}
	if !state.NotFound() && b.learnName(unit, state.Name) {
		// Signals carry the main name and were not asked for until now: ask for them, then look again.
		if err := b.syncRules(ctx, s); err != nil {
			return UnitState{}, err
		}
		if state, err = s.unit(ctx, unit); err != nil {
			return UnitState{}, callError(doing, err)
		}
	}
	return state, nil
}

func (b *Bus) learnName(unit, mainName string) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.interest.learn(unit, mainName)
}

func (s *session) unit(ctx context.Context, unit string) (UnitState, error) {
	object := s.conn.Object(busName, unitPath(unit))
	var props map[string]dbus.Variant
	if err := object.CallWithContext(ctx, propertiesInterface+".GetAll", 0, unitInterface).Store(&props); err != nil {
		return UnitState{}, err
	}
	state := unitStateOf(props)
	state.Boot = s.boot
	var err error
	if !state.NotFound() {
		if state.UnitFileState, err = s.unitFileState(ctx, unit); err != nil {
			return UnitState{}, err
		}
	}
	// The kind's own properties are asked for one by one: all of them would make systemd read the unit's cgroup.
	kind := interfaceOfKind(unit)
	if kind == "" || state.NotFound() {
		return state, nil
	}
	if state.Result, err = getProperty[string](ctx, object, kind, "Result"); err != nil || path.Ext(unit) != ".service" {
		return state, err
	}
	if state.ExecMainStatus, err = getProperty[int32](ctx, object, kind, "ExecMainStatus"); err != nil {
		return state, err
	}
	state.NRestarts, err = getProperty[uint32](ctx, object, kind, "NRestarts")
	return state, err
}

// unitStateOf reads the properties of the unit interface. A property that is missing or of another type, as an older
// systemd may have it, is left zero.
func unitStateOf(props map[string]dbus.Variant) UnitState {
	var u UnitState
	var invocation []byte
	for name, to := range map[string]any{
		"Id": &u.Name, "LoadState": &u.LoadState, "ActiveState": &u.ActiveState, "SubState": &u.SubState,
		"FragmentPath": &u.FragmentPath, "NeedDaemonReload": &u.NeedDaemonReload, "InvocationID": &invocation,
		"ActiveEnterTimestampMonotonic": &u.ActiveEnter, "InactiveExitTimestampMonotonic": &u.InactiveExit,
		"CanStart": &u.CanStart, "CanReload": &u.CanReload, "ConditionResult": &u.ConditionResult,
	} {
		if v, ok := props[name]; ok {
			_ = v.Store(to) // on a mismatch the field stays zero
		}
	}
	u.InvocationID = hex.EncodeToString(invocation)
	return u
}

// getProperty returns the zero value for a property that this systemd does not have.
func getProperty[T any](ctx context.Context, object dbus.BusObject, iface, name string) (v T, err error) {
	err = object.CallWithContext(ctx, propertiesInterface+".Get", 0, iface, name).Store(&v)
	switch errorName(err) {
	case "org.freedesktop.DBus.Error.UnknownProperty", "org.freedesktop.DBus.Error.UnknownInterface":
		return v, nil
	}
	return v, err
}

// interfaceOfKind returns the interface that has a Result property for this kind of unit, "" where there is none.
func interfaceOfKind(unit string) string {
	switch path.Ext(unit) {
	case ".service":
		return "org.freedesktop.systemd1.Service"
	case ".socket":
		return "org.freedesktop.systemd1.Socket"
	case ".mount":
		return "org.freedesktop.systemd1.Mount"
	case ".automount":
		return "org.freedesktop.systemd1.Automount"
	case ".swap":
		return "org.freedesktop.systemd1.Swap"
	case ".timer":
		return "org.freedesktop.systemd1.Timer"
	case ".path":
		return "org.freedesktop.systemd1.Path"
	}
	return ""
}
