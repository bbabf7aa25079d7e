//go:build nofsync

package disk

// Fsync does nothing: this build is for benchmarks that want the cost of everything but the device.
func Fsync(int) error { return nil }
