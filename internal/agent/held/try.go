package held

import (
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Uptime is which run of the kernel this is, and for how long it has been running, sleep included.
func Uptime() (boot string, since time.Duration, err error) {
	if boot, err = systemd.BootID(); err != nil {
		return "", 0, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the time since the host was started", Cause: err}
	}
	return boot, time.Duration(ts.Nano()), nil
}

// Rest is what is left of a try at a time of Uptime.
func (t *Try) Rest(boot string, since time.Duration) time.Duration {
	if t.Boot != boot {
		return time.Duration(t.Left)
	}
	return time.Duration(t.Until) - since
}
