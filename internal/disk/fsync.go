//go:build !nofsync

package disk

import "golang.org/x/sys/unix"

// Fsync makes an open file or directory durable. The error is the system's own.
func Fsync(fd int) error { return Retry(func() error { return unix.Fsync(fd) }) }
