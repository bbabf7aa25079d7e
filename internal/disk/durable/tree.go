package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Tree is a directory that is being filled under a temporary name, where nobody but the agent's user can look. What it is filled with is
// written relative to its descriptor. It is for one goroutine.
type Tree struct {
	path   string
	dir    *disk.Dir // that holds it
	handle *os.File  // the same, for the fsync
	name   string
	temp   string
	file   *os.File // the tree
	inode  Inode
}

// Inode tells one thing of a host from all others, also from those that get its number when it is gone.
type Inode struct {
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	Born int64  `json:"born,omitempty"` // nanoseconds since 1970; 0 where the file system does not say
}

// InodeOf is the inode that somebody has looked at.
func InodeOf(s disk.Signature) Inode { return Inode{s.Dev, s.Ino, s.Born} }

// BeginTree makes an empty directory beside a path. The caller calls Close. Errors: as of Mkdir.
func BeginTree(ctx context.Context, r *disk.Root, p string) (*Tree, error) {
	const op = "make directory"
	if err := disk.ValidPath(p); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, stopped(op, p, err)
	}
	d, name, err := r.Parent(p)
	if err != nil {
		return nil, err
	}
	t := &Tree{path: p, dir: d, name: name}
	if t.handle, err = openToChange(d); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.temp, err = tryTemporary(name, func(temp string) error { return unix.Mkdirat(d.FD(), temp, newDirPrivate) })
	if err != nil {
		return nil, errors.Join(d.Fault(op, name, err), t.Close())
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tree) open() error {
	const op = "make directory"
	fd, err := disk.OpenAt(t.dir.FD(), t.temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return t.dir.Fault(op, t.name, err)
	}
	t.file = os.NewFile(uintptr(fd), t.temp)
	if !justMade(fd, unix.S_IFDIR) {
		return disk.Stale(op, t.path)
	}
	st, err := disk.StatAt(fd, "")
	t.inode = InodeOf(st.Signature)
	return t.dir.Fault(op, t.name, err)
}

// Close gives the descriptors back. It removes nothing.
func (t *Tree) Close() error {
	var errs []error
	for _, f := range []*os.File{t.file, t.handle} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(append(errs, t.dir.Close())...)
}

// FD is the directory, open for reading.
func (t *Tree) FD() int { return int(t.file.Fd()) }

// Temp is its temporary name, and Inode what has it.
func (t *Tree) Temp() string { return t.temp }

// Inode is the directory itself.
func (t *Tree) Inode() Inode { return t.inode }

// TreeSpec says what a directory shall be that takes its place.
type TreeSpec struct {
	Mode     int            // permissions
	UID, GID int            // or Keep
	Expect   disk.Signature // what the caller has seen there, the zero Signature for nothing. Anything else is ConcurrentEdit
}

// Settle makes everything in the tree durable, and puts it in its place, in one step: at each moment there is the whole old thing or the
// whole new one. What was there then has the temporary name. Where the file system cannot exchange two names, nothing has changed and the
// error is SystemCallFailed.
func (t *Tree) Settle(spec TreeSpec) (disk.Signature, error) {
	const op = "replace directory"
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, t.dir, t.name, unix.Fchown(t.FD(), spec.UID, spec.GID)); err != nil {
			return disk.Signature{}, err
		}
	}
	err := unix.Fchmod(t.FD(), uint32(spec.Mode)&disk.PermMask)
	if err == nil {
		// One call for all that is in it, instead of one for each file.
		err = disk.Retry(func() error { return unix.Syncfs(t.FD()) })
	}
	if err != nil {
		return disk.Signature{}, t.dir.Fault(op, t.name, err)
	}
	if _, err := expected(t.dir, op, t.name, &spec.Expect); err != nil {
		return disk.Signature{}, err
	}
	if err := t.swap(spec.Expect); err != nil {
		return disk.Signature{}, err
	}
	st, err := disk.StatAt(t.FD(), "")
	if err == nil {
		err = disk.Fsync(int(t.handle.Fd()))
	}
	return st.Signature, disk.Fault("make directory durable", t.path, err)
}

// swap gives the tree its name, and makes sure that it was the tree that had the other one, and what is expected that has it now.
func (t *Tree) swap(was disk.Signature) error {
	const op = "replace directory"
	flags := uint(unix.RENAME_EXCHANGE)
	if !was.Exists() {
		flags = unix.RENAME_NOREPLACE
	}
	err := unix.Renameat2(t.dir.FD(), t.temp, t.dir.FD(), t.name, flags)
	if err == unix.EINVAL || err == unix.ENOSYS {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: op + " " + disk.Shown(t.path), Cause: fmt.Errorf("exchange two directories: %w", err),
			Hint: "its file system cannot do that; ext4, xfs, btrfs and tmpfs can"}
	}
	if err != nil {
		return t.dir.Fault(op, t.name, err)
	}
	now, err := t.dir.Stat(t.name)
	if err == nil && InodeOf(now.Signature) == t.inode {
		return nil
	}
	// Somebody who may write here has put something else under the temporary name.
	if was.Exists() {
		err = errors.Join(err, unix.Renameat2(t.dir.FD(), t.temp, t.dir.FD(), t.name, unix.RENAME_EXCHANGE))
	}
	return errors.Join(disk.Stale(op, t.path), err)
}

// SetAside gives a directory a temporary name, durably, if it is still the one that the caller has seen, and returns that name: from then
// on it is gone, and can be removed at leisure.
func SetAside(ctx context.Context, r *disk.Root, p, temp string, seen disk.Signature) error {
	const op = "remove directory"
	return change(ctx, r, op, p, func(d *disk.Dir, name string) error {
		if _, err := expected(d, op, name, &seen); err != nil {
			return err
		}
		return d.Fault(op, name, unix.Renameat2(d.FD(), name, d.FD(), temp, unix.RENAME_NOREPLACE))
	})
}

// removeSteps bounds the work of one RemoveTree, so that one who goes on filling a directory does not keep us for ever.
const removeSteps = 10 << 20

// RemoveTree removes what is at a path with everything below it, if it is one of the things that the caller means, and follows no symlink.
// What is not there is removed already; what is none of them is left alone. It does not go into mounted file systems: one in there is
// MountPointFile. It need not be durable: what comes back after a crash is removed once more.
func RemoveTree(ctx context.Context, r *disk.Root, p string, only ...Inode) error {
	const op = "remove directory"
	d, name, err := r.Parent(p)
	if err != nil {
		return ignoreMissing(err)
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || !st.Exists() || !isOneOf(st, only) {
		return err
	}
	if st.Type() != unix.S_IFDIR {
		return d.Fault(op, name, ignoreGone(unix.Unlinkat(d.FD(), name, 0)))
	}
	fd, err := disk.OpenAt(d.FD(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return d.Fault(op, name, ignoreGone(err))
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err = disk.StatAt(fd, ""); err != nil || !isOneOf(st, only) {
		return d.Fault(op, name, err)
	}
	x := emptying{path: p, top: fd, steps: removeSteps}
	if err := x.flatten(ctx, f, true); err != nil {
		return disk.Fault(op, p, err)
	}
	return d.Fault(op, name, ignoreGone(unix.Unlinkat(d.FD(), name, unix.AT_REMOVEDIR)))
}

func isOneOf(st disk.Stat, inodes []Inode) bool {
	for _, i := range inodes {
		if InodeOf(st.Signature) == i {
			return true
		}
	}
	return false
}

func ignoreGone(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// emptying is one directory on its way to be empty. However deep what is in it goes, two directories are open at a time: those below are
// moved up first.
type emptying struct {
	path  string
	top   int
	steps int
}

// listMax is how many names are read at once.
const listMax = 1024

// flatten removes what is in the top, or moves what is in another directory up to it.
func (x *emptying) flatten(ctx context.Context, f *os.File, top bool) error {
	for {
		names, err := f.Readdirnames(listMax)
		for _, name := range names {
			if err := x.one(ctx, int(f.Fd()), name, top); err != nil {
				return err
			}
		}
		if len(names) > 0 {
			// What has come up stands where this has been already, perhaps.
			if _, err := f.Seek(0, 0); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
}

func (x *emptying) one(ctx context.Context, dir int, name string, top bool) error {
	if err := ctx.Err(); err != nil {
		return stopped("remove directory", x.path, err)
	}
	if x.steps--; x.steps < 0 {
		return &reason.Error{Code: reason.DirectoryNotEmpty, Doing: "remove directory " + disk.Shown(x.path), Cause: errors.New("somebody goes on filling it")}
	}
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM { // EPERM is what POSIX says of a directory
		return ignoreGone(err)
	}
	if !top {
		_, err := tryTemporary("", func(temp string) error { return unix.Renameat2(dir, name, x.top, temp, unix.RENAME_NOREPLACE) })
		return ignoreGone(err)
	}
	return x.directory(ctx, dir, name)
}

// directory removes a directory of the top.
func (x *emptying) directory(ctx context.Context, dir int, name string) error {
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != unix.ENOTEMPTY && err != unix.EEXIST {
		return ignoreGone(err)
	}
	fd, err := disk.OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == unix.EACCES && unix.Fchmodat(dir, name, newDirPrivate, 0) == nil { // without root rights
		fd, err = disk.OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return ignoreGone(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := disk.StatAt(fd, "")
	if err != nil {
		return err
	}
	if st.MountRoot {
		return unix.EBUSY
	}
	if os.Geteuid() != 0 {
		if err := unix.Fchmod(fd, newDirPrivate); err != nil {
			return err
		}
	}
	if err := x.flatten(ctx, f, false); err != nil {
		return err
	}
	return ignoreGone(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
}
