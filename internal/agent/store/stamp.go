package store

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// stampNow returns the present moment of this boot. It fails only where /proc is not mounted.
func stampNow() (host.Stamp, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	boot, err := os.ReadFile(path)
	if err != nil {
		return host.Stamp{}, &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + path, Cause: err, Hint: "mount /proc"}
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return host.Stamp{}, &reason.Error{Code: reason.SystemCallFailed, Doing: "read the monotonic clock", Cause: err}
	}
	return host.Stamp{Boot: strings.TrimSpace(string(boot)), USec: uint64(ts.Nano()) / 1000}, nil
}
