package etcd

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// reserve keeps room on the disk for a database to grow in. The database is a file with holes that it fills when it commits,
// long after it has been told that there is room: an allocation ahead makes that true. Whatever other processes write, what is
// reserved stays, but on a file system that never writes in place.
type reserve struct {
	path string

	mu    sync.Mutex // guards all below
	end   int64      // bytes of the file, from its beginning, that have room on the disk; 0 when nothing is known
	never bool       // the file system cannot allocate ahead
}

// left is how many bytes a database that uses so many can grow by. It does not know before extend was called.
func (r *reserve) left(used int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.never {
		return math.MaxInt64
	}
	return r.end - used
}

// extend reserves room for a database that uses so many bytes. Where there is not enough it leaves things as they are, and left
// tells.
func (r *reserve) extend(used int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.never || r.end-used >= growReservedMin {
		return nil // somebody else was first
	}
	end := used + reserveBytes
	switch err := allocate(r.path, end); {
	case err == nil:
		r.end = end
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		r.never = true
	case !isFull(err):
		return err
	}
	return nil
}

// forget is for when the database is in another file.
func (r *reserve) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = 0
}

// allocate gives the first bytes of a file room on the disk. Neither its size nor its content changes.
func allocate(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written through it
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, bytes)
	}
	if err != nil {
		return fmt.Errorf("fallocate %s: %w", path, err)
	}
	return nil
}

// isFull says whether an error is that there is no room, for everybody or for the server's user.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
