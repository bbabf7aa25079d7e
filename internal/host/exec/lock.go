package exec

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

const (
	// lockName is the file that all locks are in: each command has a byte of its own, far beyond the file's end.
	lockName = "lock"
	// busyWait is when to try again while a run of an agent that was killed has not ended; nothing tells when it has, and it takes
	// endGrace and little more.
	busyWait = 2 * time.Second
)

// alone takes the lock of a command, which its warden holds as long as anything of it runs: an agent that was killed and started again
// at once does not run a command beside its own last run. Whoever gets the file closes it.
func (t *Type) alone(ctx context.Context, r *resource) (*os.File, error) {
	if _, err := os.Lstat(t.records); errors.Is(err, fs.ErrNotExist) {
		spec := durable.MkdirSpec{Path: t.records, Mode: 0o700, UID: durable.Keep, GID: durable.Keep}
		if _, err := durable.Mkdir(ctx, t.root, spec); err != nil && !isThere(t.records) {
			return nil, err
		}
	}
	path := filepath.Join(t.records, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, disk.Fault("lock", path, err)
	}
	// A lock of the open file, fcntl(2), and not of the process: it goes with the file to the warden.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: r.lock(), Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, &reason.Error{Code: reason.CommandBusy, Doing: r.doing(), Cause: errors.New("its last run has not ended yet"), After: busyWait}
		}
		return nil, disk.Fault("lock", path, err)
	}
	return f, nil
}

// lock is the byte that stands for the command: 62 bits of the name of its record. Two commands with the same would only wait for one
// another.
func (r *resource) lock() int64 {
	const digits, spare = 16, 2
	n, err := strconv.ParseUint(filepath.Base(r.record)[:digits], 16, 64)
	if err != nil {
		panic("name of a record: " + err.Error()) // nameOf writes nothing else
	}
	return int64(n >> spare)
}
