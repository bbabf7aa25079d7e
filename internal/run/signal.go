package run

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Signal is a signal of the kernel.
type Signal int

// String is the signal's name, such as SIGTERM.
func (s Signal) String() string {
	if name := unix.SignalName(syscall.Signal(s)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// ParseSignal reads the name of a signal.
func ParseSignal(name string) (Signal, error) {
	if n := unix.SignalNum(name); n != 0 {
		return Signal(n), nil
	}
	return 0, &reason.Error{Code: reason.TaskRefused, Doing: fmt.Sprintf("read the signal %q", reason.Clip([]byte(name))), Cause: errors.New("there is none of that name")}
}
