package systemd

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Stamp is a moment on this host that survives being written to disk: within one boot the monotonic clock orders, and any
// moment of this boot is later than every moment of an earlier one. The wall clock takes no part, because it jumps.
type Stamp struct {
	Boot string // the kernel's boot id
	USec uint64 // CLOCK_MONOTONIC in microseconds, the clock of systemd's ...Monotonic properties
}

// Now returns the present moment. It fails only where /proc is not mounted.
func Now() (Stamp, error) {
	boot, err := BootID()
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{Boot: boot, USec: MonotonicNow()}, nil
}

// StartedAfter reports whether the unit is up and its present run began after s. What a unit reads when it starts and was
// in place at s is then in effect. A unit that is down, or still on its way up, has not started.
func StartedAfter(state UnitState, s Stamp) bool {
	if state.ActiveState != "active" && state.ActiveState != "reloading" {
		return false
	}
	if state.InactiveExit == 0 {
		return false
	}
	return state.Boot != s.Boot || state.InactiveExit > s.USec
}

// MonotonicNow returns CLOCK_MONOTONIC in microseconds.
func MonotonicNow() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot fail with a valid clock and pointer
	}
	return uint64(ts.Nano()) / 1000
}

// BootID returns the random id that the kernel drew at boot, as text.
func BootID() (string, error) { return bootID() }

var bootID = sync.OnceValues(func() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + path, Cause: err}
	}
	return strings.TrimSpace(string(b)), nil
})

// Uptime is which run of the kernel this is, and for how long it has been running, sleep included.
func Uptime() (boot string, since time.Duration, err error) {
	if boot, err = BootID(); err != nil {
		return "", 0, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the time since the host was started", Cause: err}
	}
	return boot, time.Duration(ts.Nano()), nil
}
