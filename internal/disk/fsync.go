//go:build !nofsync

package disk

import "golang.org/x/sys/unix"

// syncFD makes an open file or directory durable.
func syncFD(fd int) error { return retry(func() error { return unix.Fsync(fd) }) }

// startSync begins to write an open file to the device, for an fsync that comes soon. It promises nothing, so where it fails
// only time is lost.
func startSync(fd int) { _ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }
