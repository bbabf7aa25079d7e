package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/godbus/dbus/v5"

	"tako.dev/tako/internal/reason"
)

func TestJobFailure(t *testing.T) {
	const begin = 1000
	failed := func(result string, status int32) UnitState {
		return UnitState{Name: "x.service", ActiveState: "failed", InactiveExit: 2000, Result: result, ExecMainStatus: status}
	}
	over := failed("exit-code", 1)
	over.InactiveExit = 500
	reload := UnitState{Name: "x.service", ActiveState: "active", InactiveExit: 500, Result: "success"}
	tests := []struct {
		result string
		state  UnitState
		code   reason.Code
		cause  string
	}{
		{"failed", failed("exit-code", 203), reason.UnitJobFailed, "exit status 203"},
		{"failed", failed("signal", 9), reason.UnitJobFailed, "killed by signal 9"},
		{"failed", failed("core-dump", 11), reason.UnitJobFailed, "killed by signal 11"},
		{"failed", failed("timeout", 0), reason.UnitJobTimeout, "the unit did not get ready in time"},
		{"failed", failed("oom-kill", 0), reason.UnitJobFailed, "unit result oom-kill"},
		{"failed", failed("", 0), reason.UnitJobFailed, "job result failed"},
		{"failed", failed("start-limit-hit", 0), reason.UnitStartLimit, "it was started too often in a short time"},
		{"failed", over, reason.UnitStartLimit, "it was started too often in a short time"},
		{"failed", reload, reason.UnitJobFailed, "job result failed"},
		{"timeout", failed("success", 0), reason.UnitJobTimeout, "systemd gave up waiting"},
		{"canceled", failed("success", 0), reason.UnitJobFailed, "another job replaced it"},
		{"dependency", failed("success", 0), reason.UnitJobFailed, "a unit that it requires did not start"},
		{"assert", failed("success", 0), reason.UnitJobFailed, "job result assert"},
		{jobLost, reload, reason.UnitJobFailed, "systemd restarted meanwhile; the unit is active ()"},
	}
	for _, tt := range tests {
		e := jobFailure("start unit x.service", tt.result, tt.state, begin)
		if e.Code != tt.code || e.Cause == nil || e.Cause.Error() != tt.cause || e.Hint == "" {
			t.Errorf("%s, %+v: got %v %v", tt.result, tt.state, e.Code, e.Cause)
		}
	}
	for result, want := range map[string]bool{"done": true, "skipped": true, "failed": false, jobLost: false, "": false} {
		if jobDone(result) != want {
			t.Errorf("result %q is done: %v", result, !want)
		}
	}
}

func TestCallError(t *testing.T) {
	inside := &reason.Error{Code: reason.NoSystemd}
	tests := []struct {
		err  error
		want reason.Code
	}{
		{dbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}, reason.UnitNotFound},
		{dbus.Error{Name: "org.freedesktop.systemd1.UnitMasked"}, reason.UnitMasked},
		{dbus.Error{Name: "org.freedesktop.DBus.Error.AccessDenied"}, reason.PermissionDenied},
		{dbus.Error{Name: "org.freedesktop.DBus.Error.ServiceUnknown"}, reason.BusDisconnected},
		{dbus.Error{Name: "org.freedesktop.DBus.Error.TimedOut"}, reason.OperationTimeout},
		{dbus.Error{Name: "org.freedesktop.systemd1.TransactionIsDestructive"}, reason.UnitJobFailed},
		{context.DeadlineExceeded, reason.OperationTimeout},
		{dbus.ErrClosed, reason.BusDisconnected},
		{io.EOF, reason.BusDisconnected},
		{fmt.Errorf("wrapped: %w", inside), reason.NoSystemd},
	}
	for _, tt := range tests {
		if got := callError("do it", tt.err); got.Code != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got.Code, tt.want)
		}
	}
	if name := errorName(errors.New("x")); name != "" {
		t.Errorf("name %q", name)
	}
}

func TestUnitStateOf(t *testing.T) {
	got := unitStateOf(map[string]dbus.Variant{
		"Id": dbus.MakeVariant("a.service"), "ActiveState": dbus.MakeVariant("active"), "NeedDaemonReload": dbus.MakeVariant(true),
		"InvocationID": dbus.MakeVariant([]byte{0xab, 0x01}), "InactiveExitTimestampMonotonic": dbus.MakeVariant(uint64(5)),
		"SubState": dbus.MakeVariant(true), "Unknown": dbus.MakeVariant("x"),
	})
	want := UnitState{Name: "a.service", ActiveState: "active", NeedDaemonReload: true, InvocationID: "ab01", InactiveExit: 5}
	if got != want {
		t.Errorf("got %+v", got)
	}
}

func TestReloadNeeded(t *testing.T) {
	found, missing, stale := UnitState{LoadState: "loaded"}, UnitState{LoadState: "not-found"}, UnitState{NeedDaemonReload: true}
	tests := []struct {
		state         UnitState
		atReload, now []int64
		want          bool
	}{
		{found, nil, []int64{1}, false},
		{found, []int64{1}, []int64{2}, false},
		{stale, []int64{1}, []int64{1}, true},
		{missing, nil, []int64{1}, true},
		{missing, []int64{1}, []int64{1}, false},
		{missing, []int64{1}, []int64{2}, true},
		{missing, []int64{1}, []int64{0}, true},
	}
	for _, tt := range tests {
		if got := reloadNeeded(tt.state, tt.atReload, tt.now); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}
