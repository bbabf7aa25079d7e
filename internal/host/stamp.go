package host

// Stamp is a moment on this host that survives changes of the wall clock: microseconds of CLOCK_MONOTONIC within one boot.
// systemd stamps unit starts with the same clock. It has the form of systemd.Stamp, so that one converts to the other.
type Stamp struct {
	Boot string `json:"boot"` // /proc/sys/kernel/random/boot_id
	USec uint64 `json:"usec"`
}
