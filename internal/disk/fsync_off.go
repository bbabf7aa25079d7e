//go:build nofsync

package disk

// syncFD does nothing: this build is for benchmarks that want the cost of everything but the device.
func syncFD(int) error { return nil }
