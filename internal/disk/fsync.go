//go:build !nofsync

package disk

import "golang.org/x/sys/unix"

// syncFD makes an open file or directory durable.
func syncFD(fd int) error { return retry(func() error { return unix.Fsync(fd) }) }
