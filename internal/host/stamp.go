package host

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Stamp is a moment on this host that survives changes of the wall clock: microseconds of CLOCK_MONOTONIC within one boot.
// systemd stamps unit starts with the same clock.
type Stamp struct {
	Boot string `json:"boot"` // /proc/sys/kernel/random/boot_id
	USec uint64 `json:"usec"`
}

// Now returns the present stamp.
func Now() (Stamp, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Stamp{}, fmt.Errorf("read boot id: %w", err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return Stamp{}, fmt.Errorf("read monotonic clock: %w", err)
	}
	return Stamp{Boot: string(bytes.TrimSpace(boot)), USec: uint64(ts.Nano()) / 1000}, nil
}
