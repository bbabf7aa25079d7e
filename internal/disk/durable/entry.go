package durable

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// MkdirSpec says what a new directory shall be.
type MkdirSpec struct {
	Path     string
	Mode     int // permissions with setuid, setgid and sticky; Keep is newDirMode
	UID, GID int // or Keep: the agent's own, or what a setgid directory hands down
	// Attributes are those it shall have, or shall not have though the directory above hands them down.
	Attributes []Attribute
}

// Mkdir makes one directory; the directory that holds it must be there. It gets owner and mode under a temporary name, so
// that nobody ever sees it with others. Something that is already there is ConcurrentEdit. The result is durable and its
// Signature returned.
func Mkdir(ctx context.Context, r *disk.Root, spec MkdirSpec) (disk.Signature, error) {
	const op = "make directory"
	var sig disk.Signature
	err := change(ctx, r, op, spec.Path, func(d *disk.Dir, name string) error {
		temp, err := tryTemporary(name, func(temp string) error { return unix.Mkdirat(d.FD(), temp, newDirPrivate) })
		if err != nil {
			return d.Fault(op, name, err)
		}
		if sig, err = settleDir(d, temp, name, spec); err != nil {
			unix.Unlinkat(d.FD(), temp, unix.AT_REMOVEDIR)
		}
		return err
	})
	return sig, err
}

const (
	newDirMode    = 0o755 // of a new directory for which none is given
	newDirPrivate = 0o700 // of one that is not in its place yet
)

// settleDir turns a temporary directory into the real one.
func settleDir(d *disk.Dir, temp, name string, spec MkdirSpec) (disk.Signature, error) {
	const op = "make directory"
	fd, err := disk.OpenAt(d.FD(), temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	defer unix.Close(fd)
	if !justMade(fd, unix.S_IFDIR) {
		return disk.Signature{}, disk.Stale(op, d.Join(name))
	}
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchown(fd, spec.UID, spec.GID)); err != nil {
			return disk.Signature{}, err
		}
	}
	if err := setAttributes(d, name, fd, spec.Attributes); err != nil {
		return disk.Signature{}, err
	}
	mode := spec.Mode
	if mode == Keep {
		mode = newDirMode
	}
	err = unix.Fchmod(fd, uint32(mode)&disk.PermMask)
	if err == nil {
		err = disk.Fsync(fd)
	}
	var before disk.Stat
	if err == nil {
		before, err = disk.StatAt(fd, "")
	}
	if err == nil {
		err = renameTemp(d, temp, name, true)
	}
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	return ours(before, fd), nil
}

// justMade reports whether something that was opened by its temporary name can be what was made there. Whose directory it is may have put
// something of somebody else's in its place, to be given that. A symlink, and an empty directory of our own, are worth nothing to anybody.
func justMade(fd int, kind uint32) bool {
	st, err := disk.StatAt(fd, "")
	if err != nil || st.Type() != kind || st.UID != uint32(os.Geteuid()) {
		return false
	}
	if kind != unix.S_IFDIR {
		return true
	}
	entries := make([]byte, 512) // room for the two that are always there, and one more
	n, err := unix.Getdents(fd, entries)
	// What it is made in may hand down setgid, and a default access list may take bits away.
	if err != nil || st.Perm()&^(newDirPrivate|unix.S_ISGID) != 0 {
		return false
	}
	_, others, _ := unix.ParseDirent(entries[:n], 1, nil)
	return others == 0
}

// SymlinkSpec says what a symlink shall be.
type SymlinkSpec struct {
	Path     string
	Target   string
	UID, GID int             // or Keep
	Expect   *disk.Signature // as in WriteSpec
	Force    bool            // replace something else than a symlink; never a directory
}

// Symlink makes or replaces a symlink atomically and durably, and returns its Signature.
func Symlink(ctx context.Context, r *disk.Root, spec SymlinkSpec) (disk.Signature, error) {
	const op = "make symlink"
	var sig disk.Signature
	err := change(ctx, r, op, spec.Path, func(d *disk.Dir, name string) error {
		old, err := expected(d, op, name, spec.Expect)
		if err != nil {
			return err
		}
		if t := old.Type(); t == unix.S_IFDIR || t != 0 && t != unix.S_IFLNK && !spec.Force {
			return &reason.Error{Code: reason.TypeInTheWay, Doing: op + " " + disk.Shown(spec.Path), Hint: "a " + old.Kind() + " is there"}
		}
		temp, err := tryTemporary(name, func(temp string) error { return unix.Symlinkat(spec.Target, d.FD(), temp) })
		if err != nil {
			return d.Fault(op, name, err)
		}
		if sig, err = settleSymlink(d, temp, name, spec, old); err != nil {
			unix.Unlinkat(d.FD(), temp, 0)
		}
		return err
	})
	return sig, err
}

// settleSymlink turns a temporary symlink into the real one.
func settleSymlink(d *disk.Dir, temp, name string, spec SymlinkSpec, old disk.Stat) (disk.Signature, error) {
	const op = "make symlink"
	fd, err := disk.OpenAt(d.FD(), temp, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	defer unix.Close(fd)
	if !justMade(fd, unix.S_IFLNK) {
		return disk.Signature{}, disk.Stale(op, d.Join(name))
	}
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchownat(fd, "", spec.UID, spec.GID, unix.AT_EMPTY_PATH)); err != nil {
			return disk.Signature{}, err
		}
	}
	before, err := disk.StatAt(fd, "")
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	if _, err := expected(d, op, name, &old.Signature); err != nil {
		return disk.Signature{}, err
	}
	if err := renameTemp(d, temp, name, !old.Exists()); err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	return ours(before, fd), nil
}

// AttributeSpec says what owner, group, mode and attributes of something that exists shall be; its content stays.
type AttributeSpec struct {
	Path       string
	Mode       int             // or Keep; a symlink has none
	UID, GID   int             // or Keep
	Attributes []Attribute     // not of a symlink
	Expect     *disk.Signature // as in WriteSpec
}

// SetAttributes changes owner, group, mode and attributes of one inode, never of what a symlink leads to, and returns the new
// Signature. Owner comes first because its change takes setuid away. The result is durable for files and directories that
// the agent may read.
func SetAttributes(ctx context.Context, r *disk.Root, spec AttributeSpec) (disk.Signature, error) {
	const op = "set owner and mode of"
	if err := ctx.Err(); err != nil {
		return disk.Signature{}, stopped(op, spec.Path, err)
	}
	d, name, err := r.Parent(spec.Path)
	if err != nil {
		return disk.Signature{}, err
	}
	defer d.Close()
	fd, err := disk.OpenAt(d.FD(), name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	defer unix.Close(fd)
	now, err := disk.StatAt(fd, "")
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	if spec.Expect != nil && now.Signature != *spec.Expect {
		return disk.Signature{}, disk.Stale(op, spec.Path)
	}
	if err := applyAttributes(d, name, fd, now, spec); err != nil {
		return disk.Signature{}, err
	}
	after, err := disk.StatAt(fd, "")
	if err != nil {
		return disk.Signature{}, d.Fault(op, name, err)
	}
	return after.Signature, nil
}

func applyAttributes(d *disk.Dir, name string, fd int, now disk.Stat, spec AttributeSpec) error {
	const op = "set owner and mode of"
	// The readable descriptor for the fsync is opened before the mode may forbid it. Only files and directories have one:
	// opening a device or FIFO does things.
	handle := -1
	if t := now.Type(); t == unix.S_IFREG || t == unix.S_IFDIR {
		if h, err := disk.OpenAt(unix.AT_FDCWD, disk.ProcPath(fd), unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			handle = h
			defer unix.Close(h)
		}
	}
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchownat(fd, "", spec.UID, spec.GID, unix.AT_EMPTY_PATH)); err != nil {
			return err
		}
	}
	if err := setAttributes(d, name, fd, spec.Attributes); err != nil {
		return err
	}
	if spec.Mode != Keep {
		if now.Type() == unix.S_IFLNK {
			return &reason.Error{Code: reason.TypeInTheWay, Doing: op + " " + disk.Shown(spec.Path), Hint: "a symlink has no mode"}
		}
		if err := unix.Chmod(disk.ProcPath(fd), uint32(spec.Mode)&disk.PermMask); err != nil {
			return d.Fault(op, name, err)
		}
	}
	if handle < 0 {
		return nil
	}
	return d.Fault(op, name, disk.Fsync(handle))
}

// RemoveSpec says what is to be removed.
type RemoveSpec struct {
	Path     string
	Expect   *disk.Signature // as in WriteSpec
	OnBackup Backup          // as in WriteSpec
}

// Remove removes one entry; see RemoveMany.
func Remove(ctx context.Context, r *disk.Root, spec RemoveSpec) error {
	return RemoveMany(ctx, r, []RemoveSpec{spec})[0]
}

// RemoveMany removes files, symlinks and empty directories in the order given, durably; errs[i] belongs to specs[i]. What
// is not there is removed already. A directory with entries is DirectoryNotEmpty. Neighbours in specs that share a
// directory share its fsync.
func RemoveMany(ctx context.Context, r *disk.Root, specs []RemoveSpec) (errs []error) {
	errs = make([]error, len(specs))
	for i := 0; i < len(specs); {
		if errs[i] = disk.ValidPath(specs[i].Path); errs[i] != nil {
			i++
			continue
		}
		dir, _ := disk.Split(specs[i].Path)
		end := i + 1
		for end < len(specs) && disk.ValidPath(specs[end].Path) == nil {
			if d, _ := disk.Split(specs[end].Path); d != dir {
				break
			}
			end++
		}
		removeFrom(ctx, r, dir, specs[i:end], errs[i:end])
		i = end
	}
	return errs
}

// removeFrom removes entries of one directory.
func removeFrom(ctx context.Context, r *disk.Root, dir string, specs []RemoveSpec, errs []error) {
	err := changeIn(ctx, r, "remove", dir, func(d *disk.Dir) error {
		for i := range specs {
			if err := ctx.Err(); err != nil {
				errs[i] = stopped("remove", specs[i].Path, err)
				continue
			}
			_, name := disk.Split(specs[i].Path)
			errs[i] = remove(d, name, specs[i])
		}
		return nil
	})
	if err = ignoreMissing(err); err == nil {
		return
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
}

// remove removes one entry.
func remove(d *disk.Dir, name string, spec RemoveSpec) error {
	const op = "remove"
	if name == "" {
		return &reason.Error{Code: reason.InvalidValue, Doing: op + " /"}
	}
	old, err := expected(d, op, name, spec.Expect)
	if err != nil || !old.Exists() {
		return err
	}
	if spec.OnBackup != nil && old.Type() == unix.S_IFREG {
		if err := keepOld(d, op, name, old, spec.OnBackup); err != nil {
			return err
		}
	}
	flags := 0
	if old.Type() == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(d.FD(), name, flags)
	if err == unix.ENOENT {
		return nil
	}
	return d.Fault(op, name, err)
}

// keepOld hands a file to its owner's store and makes sure that it is still what it was before that.
func keepOld(d *disk.Dir, op, name string, old disk.Stat, store Backup) error {
	f, st, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st.Signature != old.Signature {
		return disk.Stale(op, d.Join(name))
	}
	if err := store(f, st); err != nil {
		return err
	}
	_, err = expected(d, op, name, &old.Signature)
	return err
}

// change changes one entry at a path, and makes that durable.
func change(ctx context.Context, r *disk.Root, op, p string, do func(d *disk.Dir, name string) error) error {
	if err := disk.ValidPath(p); err != nil {
		return err
	}
	dir, name := disk.Split(p)
	if name == "" {
		return &reason.Error{Code: reason.InvalidValue, Doing: op + " /"}
	}
	return changeIn(ctx, r, op, dir, func(d *disk.Dir) error { return do(d, name) })
}

// changeIn opens a directory, changes entries of it, and makes that durable.
func changeIn(ctx context.Context, r *disk.Root, op, dir string, do func(*disk.Dir) error) error {
	if err := ctx.Err(); err != nil {
		return stopped(op, dir, err)
	}
	d, err := r.Dir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	handle, err := openToChange(d)
	if err != nil {
		return err
	}
	defer handle.Close()
	if err := do(d); err != nil {
		return err
	}
	return disk.Fault("make directory durable", dir, disk.Fsync(int(handle.Fd())))
}

// openToChange opens the directory for the fsync that follows a change of its entries: what makes that impossible must show
// before anything has changed. In an append-only directory a temporary could be made, but neither renamed nor removed.
func openToChange(d *disk.Dir) (*os.File, error) {
	f, err := d.Reopen()
	if err == nil && disk.Fixed(d.FD(), "") {
		f.Close()
		err = unix.EPERM
	}
	if err != nil {
		return nil, d.Fault("change directory", "", err)
	}
	return f, nil
}

// expected looks at an entry and compares it with what somebody believes is there; nil believes nothing.
func expected(d *disk.Dir, op, name string, want *disk.Signature) (disk.Stat, error) {
	st, err := d.Stat(name)
	if err == nil && want != nil && st.Signature != *want {
		err = disk.Stale(op, d.Join(name))
	}
	return st, err
}

// hostPath is a path of the host to an entry, for programs: what the directory was opened by may mean something else
// outside a sandbox.
func hostPath(d *disk.Dir, name string) string {
	dir, err := os.Readlink(disk.ProcPath(d.FD()))
	if err != nil {
		dir = d.Path()
	}
	return disk.Join(dir, name)
}

// renameTemp gives a temporary its real name; a fresh one must not replace anything. File systems that cannot promise that
// (EINVAL) get an ordinary rename: the entry was looked at just before.
func renameTemp(d *disk.Dir, temp, name string, fresh bool) error {
	if fresh {
		err := unix.Renameat2(d.FD(), temp, d.FD(), name, unix.RENAME_NOREPLACE)
		if err != unix.EINVAL && err != unix.ENOSYS {
			return err
		}
	}
	return unix.Renameat(d.FD(), temp, d.FD(), name)
}

// ownFault is Dir.Fault for a change of owner, which ordinary users may not make.
func ownFault(op string, d *disk.Dir, name string, err error) error {
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return &reason.Error{
			Code: reason.OwnerNeedsRoot, Doing: op + " " + disk.Shown(d.Join(name)), Cause: err,
			Hint: "run the agent as root, or leave owner and group out",
		}
	}
	return d.Fault(op, name, err)
}

// ignoreMissing makes success of a way that is not there.
func ignoreMissing(err error) error {
	if reason.Is(err, reason.ParentMissing) {
		return nil
	}
	return err
}
