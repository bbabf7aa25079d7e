// Package bell wakes a process that minds an attempt, when something was put where it looks. It is a named pipe, of which a host may have as many as
// it has tasks: of inotify's instances a user has 128 where nobody says otherwise, for everything.
//
// A bell says nothing but that something is there: what is asked is in files, which are there before it rings. Who is rung looks at all of them, and who begins
// to listen looks once before it waits, so nothing is missed whatever ends in between.
package bell

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

const mode = 0o600

// Listen makes a bell at a path, or takes the one that is there. The descriptor is readable when it has rung, until Quiet; it does not block, and no program
// that is executed has it. The errors are those of the kernel.
func Listen(path string) (fd int, err error) {
	if err := unix.Mkfifo(path, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	// To write as well: without a writer the pipe would be at its end, which is readable for ever.
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Quiet takes away that a bell has rung.
func Quiet(fd int) {
	var buffer [512]byte
	for n := 1; n > 0; {
		n, _ = unix.Read(fd, buffer[:]) // EAGAIN when there is nothing more, EINTR is as if it had rung again
	}
}

// Ring wakes who listens at a path. That nobody does, or nobody yet, is no error: who begins to listen looks by itself.
func Ring(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return errors.Join(Strike(fd), unix.Close(fd))
}

// Strike rings a bell by a descriptor of Listen, also when its path is gone: all who have it open hear it.
func Strike(fd int) error {
	if _, err := unix.Write(fd, []byte{1}); err != nil && !errors.Is(err, unix.EAGAIN) { // EAGAIN: it has rung thousands of times
		return &fs.PathError{Op: "ring", Path: "a bell", Err: err}
	}
	return nil
}
