package systemd

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"

	"tako.dev/tako/internal/reason"
)

// errorName returns the D-Bus name of an error that the other side sent, "" for any other error.
func errorName(err error) string {
	var e dbus.Error
	if errors.As(err, &e) {
		return e.Name
	}
	return ""
}

// callError gives the error of a call its code. Whatever systemd itself refuses and nothing more is known about is
// UnitJobFailed, for callers to replace by what they were about.
func callError(doing string, err error) *reason.Error {
	var coded *reason.Error
	if errors.As(err, &coded) {
		return coded
	}
	e := &reason.Error{Code: reason.BusDisconnected, Doing: doing, Cause: err}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Code = reason.OperationTimeout
		return e
	}
	name := errorName(err)
	if name == "" {
		return e // the connection broke, or never was
	}
	e.Code = codeOf(name)
	switch e.Code {
	case reason.UnitMasked:
		e.Hint = "`systemctl unmask` allows it to start again"
	case reason.PermissionDenied:
		e.Hint = "run as root"
	}
	return e
}

// codeOf maps the D-Bus name of an error. The names are those of systemd's bus-common-errors.h and of the D-Bus
// specification.
func codeOf(name string) reason.Code {
	switch name {
	case "org.freedesktop.systemd1.NoSuchUnit",
		"org.freedesktop.DBus.Error.FileNotFound",
		"org.freedesktop.DBus.Error.UnknownObject",
		"org.freedesktop.DBus.Error.InvalidArgs":
		return reason.UnitNotFound
	case "org.freedesktop.systemd1.UnitMasked":
		return reason.UnitMasked
	case "org.freedesktop.DBus.Error.AccessDenied",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return reason.PermissionDenied
	case "org.freedesktop.DBus.Error.ServiceUnknown",
		"org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.NoReply",
		"org.freedesktop.DBus.Error.Disconnected":
		return reason.BusDisconnected
	case "org.freedesktop.DBus.Error.Timeout", "org.freedesktop.DBus.Error.TimedOut":
		return reason.OperationTimeout
	}
	return reason.UnitJobFailed
}
