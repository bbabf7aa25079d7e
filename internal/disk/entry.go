package disk

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// MkdirSpec says what a new directory shall be.
type MkdirSpec struct {
	Path     string
	Mode     int // permissions with setuid, setgid and sticky; Keep is newDirMode
	UID, GID int // or Keep: the agent's own, or what a setgid directory hands down
}

// Mkdir makes one directory; the directory that holds it must be there. It gets owner and mode under a temporary name, so
// that nobody ever sees it with others. Something that is already there is ConcurrentEdit. The result is durable and its
// Signature returned.
func (r *Root) Mkdir(ctx context.Context, spec MkdirSpec) (Signature, error) {
	const op = "make directory"
	var sig Signature
	err := r.change(ctx, op, spec.Path, func(d *Dir, name string) error {
		temp, err := tryTemporary(name, func(temp string) error { return unix.Mkdirat(d.fd, temp, 0o700) })
		if err != nil {
			return faultAt(op, d, name, err)
		}
		if sig, err = settleDir(d, temp, name, spec); err != nil {
			unix.Unlinkat(d.fd, temp, unix.AT_REMOVEDIR)
		}
		return err
	})
	return sig, err
}

// newDirMode is the mode of a new directory for which none is given.
const newDirMode = 0o755

// settleDir turns a temporary directory into the real one.
func settleDir(d *Dir, temp, name string, spec MkdirSpec) (Signature, error) {
	const op = "make directory"
	fd, err := openat(d.fd, temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	defer unix.Close(fd)
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchown(fd, spec.UID, spec.GID)); err != nil {
			return Signature{}, err
		}
	}
	mode := spec.Mode
	if mode == Keep {
		mode = newDirMode
	}
	err = unix.Fchmod(fd, uint32(mode)&permMask)
	if err == nil {
		err = syncFD(fd)
	}
	var before Stat
	if err == nil {
		before, err = statAt(fd, "")
	}
	if err == nil {
		err = renameTemp(d, temp, name, true)
	}
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	return ours(before, fd), nil
}

// SymlinkSpec says what a symlink shall be.
type SymlinkSpec struct {
	Path     string
	Target   string
	UID, GID int        // or Keep
	Expect   *Signature // as in WriteSpec
	Force    bool       // replace something else than a symlink; never a directory
}

// Symlink makes or replaces a symlink atomically and durably, and returns its Signature.
func (r *Root) Symlink(ctx context.Context, spec SymlinkSpec) (Signature, error) {
	const op = "make symlink"
	var sig Signature
	err := r.change(ctx, op, spec.Path, func(d *Dir, name string) error {
		old, err := d.expected(op, name, spec.Expect)
		if err != nil {
			return err
		}
		if t := old.Type(); t == unix.S_IFDIR || t != 0 && t != unix.S_IFLNK && !spec.Force {
			return &reason.Error{Code: reason.TypeInTheWay, Doing: op + " " + Shown(spec.Path), Hint: "a " + old.Kind() + " is there"}
		}
		temp, err := tryTemporary(name, func(temp string) error { return unix.Symlinkat(spec.Target, d.fd, temp) })
		if err != nil {
			return faultAt(op, d, name, err)
		}
		if sig, err = settleSymlink(d, temp, name, spec, old); err != nil {
			unix.Unlinkat(d.fd, temp, 0)
		}
		return err
	})
	return sig, err
}

// settleSymlink turns a temporary symlink into the real one.
func settleSymlink(d *Dir, temp, name string, spec SymlinkSpec, old Stat) (Signature, error) {
	const op = "make symlink"
	fd, err := openat(d.fd, temp, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	defer unix.Close(fd)
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchownat(fd, "", spec.UID, spec.GID, unix.AT_EMPTY_PATH)); err != nil {
			return Signature{}, err
		}
	}
	before, err := statAt(fd, "")
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	if _, err := d.expected(op, name, &old.Signature); err != nil {
		return Signature{}, err
	}
	if err := renameTemp(d, temp, name, !old.Exists()); err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	return ours(before, fd), nil
}

// AttributeSpec says what owner, group and mode of something that exists shall be; its content stays.
type AttributeSpec struct {
	Path     string
	Mode     int        // or Keep; a symlink has none
	UID, GID int        // or Keep
	Expect   *Signature // as in WriteSpec
}

// SetAttributes changes owner, group and mode of one inode, never of what a symlink leads to, and returns the new
// Signature. Owner comes first because its change takes setuid away. The result is durable for files and directories that
// the agent may read.
func (r *Root) SetAttributes(ctx context.Context, spec AttributeSpec) (Signature, error) {
	const op = "set owner and mode of"
	if err := ctx.Err(); err != nil {
		return Signature{}, stopped(op, spec.Path, err)
	}
	d, name, err := r.Parent(spec.Path)
	if err != nil {
		return Signature{}, err
	}
	defer d.Close()
	fd, err := openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	defer unix.Close(fd)
	now, err := statAt(fd, "")
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	if spec.Expect != nil && now.Signature != *spec.Expect {
		return Signature{}, staleFault(op, spec.Path)
	}
	if err := applyAttributes(d, name, fd, now, spec); err != nil {
		return Signature{}, err
	}
	after, err := statAt(fd, "")
	if err != nil {
		return Signature{}, faultAt(op, d, name, err)
	}
	return after.Signature, nil
}

// Chmod is SetAttributes for the mode alone.
func (r *Root) Chmod(ctx context.Context, p string, mode int, expect *Signature) (Signature, error) {
	return r.SetAttributes(ctx, AttributeSpec{Path: p, Mode: mode, UID: Keep, GID: Keep, Expect: expect})
}

// Chown is SetAttributes for owner and group alone.
func (r *Root) Chown(ctx context.Context, p string, uid, gid int, expect *Signature) (Signature, error) {
	return r.SetAttributes(ctx, AttributeSpec{Path: p, Mode: Keep, UID: uid, GID: gid, Expect: expect})
}

func applyAttributes(d *Dir, name string, fd int, now Stat, spec AttributeSpec) error {
	const op = "set owner and mode of"
	// The readable descriptor for the fsync is opened before the mode may forbid it. Only files and directories have one:
	// opening a device or FIFO does things.
	handle := -1
	if t := now.Type(); t == unix.S_IFREG || t == unix.S_IFDIR {
		if h, err := openat(unix.AT_FDCWD, procFD(fd), unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			handle = h
			defer unix.Close(h)
		}
	}
	if spec.UID != Keep || spec.GID != Keep {
		if err := ownFault(op, d, name, unix.Fchownat(fd, "", spec.UID, spec.GID, unix.AT_EMPTY_PATH)); err != nil {
			return err
		}
	}
	if spec.Mode != Keep {
		if now.Type() == unix.S_IFLNK {
			return &reason.Error{Code: reason.TypeInTheWay, Doing: op + " " + Shown(spec.Path), Hint: "a symlink has no mode"}
		}
		if err := unix.Chmod(procFD(fd), uint32(spec.Mode)&permMask); err != nil {
			return faultAt(op, d, name, err)
		}
	}
	if handle < 0 {
		return nil
	}
	return faultAt(op, d, name, syncFD(handle))
}

// RemoveSpec says what is to be removed.
type RemoveSpec struct {
	Path     string
	Expect   *Signature // as in WriteSpec
	OnBackup Backup     // as in WriteSpec
}

// Remove removes one entry; see RemoveMany.
func (r *Root) Remove(ctx context.Context, spec RemoveSpec) error {
	return r.RemoveMany(ctx, []RemoveSpec{spec})[0]
}

// RemoveMany removes files, symlinks and empty directories in the order given, durably; errs[i] belongs to specs[i]. What
// is not there is removed already. A directory with entries is DirectoryNotEmpty. Neighbours in specs that share a
// directory share its fsync.
func (r *Root) RemoveMany(ctx context.Context, specs []RemoveSpec) (errs []error) {
	errs = make([]error, len(specs))
	for i := 0; i < len(specs); {
		if errs[i] = validPath(specs[i].Path); errs[i] != nil {
			i++
			continue
		}
		dir, _ := split(specs[i].Path)
		end := i + 1
		for end < len(specs) && validPath(specs[end].Path) == nil {
			if d, _ := split(specs[end].Path); d != dir {
				break
			}
			end++
		}
		r.removeFrom(ctx, dir, specs[i:end], errs[i:end])
		i = end
	}
	return errs
}

// removeFrom removes entries of one directory.
func (r *Root) removeFrom(ctx context.Context, dir string, specs []RemoveSpec, errs []error) {
	err := r.changeIn(ctx, "remove", dir, func(d *Dir) error {
		for i := range specs {
			if err := ctx.Err(); err != nil {
				errs[i] = stopped("remove", specs[i].Path, err)
				continue
			}
			_, name := split(specs[i].Path)
			errs[i] = d.remove(name, specs[i])
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
func (d *Dir) remove(name string, spec RemoveSpec) error {
	const op = "remove"
	if name == "" {
		return &reason.Error{Code: reason.InvalidValue, Doing: op + " /"}
	}
	old, err := d.expected(op, name, spec.Expect)
	if err != nil || !old.Exists() {
		return err
	}
	if spec.OnBackup != nil && old.Type() == unix.S_IFREG {
		if err := d.backup(op, name, old, spec.OnBackup); err != nil {
			return err
		}
	}
	flags := 0
	if old.Type() == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	err = unix.Unlinkat(d.fd, name, flags)
	if err == unix.ENOENT {
		return nil
	}
	return faultAt(op, d, name, err)
}

// backup hands a file to its owner's store and makes sure that it is still what it was before that.
func (d *Dir) backup(op, name string, old Stat, store Backup) error {
	f, st, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st.Signature != old.Signature {
		return staleFault(op, d.join(name))
	}
	if err := store(f, st); err != nil {
		return err
	}
	_, err = d.expected(op, name, &old.Signature)
	return err
}

// change changes one entry at a path, and makes that durable.
func (r *Root) change(ctx context.Context, op, p string, do func(d *Dir, name string) error) error {
	if err := validPath(p); err != nil {
		return err
	}
	dir, name := split(p)
	if name == "" {
		return &reason.Error{Code: reason.InvalidValue, Doing: op + " /"}
	}
	return r.changeIn(ctx, op, dir, func(d *Dir) error { return do(d, name) })
}

// changeIn opens a directory, changes entries of it, and makes that durable.
func (r *Root) changeIn(ctx context.Context, op, dir string, do func(*Dir) error) error {
	if err := ctx.Err(); err != nil {
		return stopped(op, dir, err)
	}
	d, err := r.Dir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	handle, err := d.openToChange()
	if err != nil {
		return err
	}
	defer handle.Close()
	if err := do(d); err != nil {
		return err
	}
	return fault("make directory durable", dir, syncFD(int(handle.Fd())))
}

// openToChange opens the directory for the fsync that follows a change of its entries: what makes that impossible must show
// before anything has changed. In an append-only directory a temporary could be made, but neither renamed nor removed.
func (d *Dir) openToChange() (*os.File, error) {
	f, err := d.list()
	if err == nil && fixed(d.fd, "") {
		f.Close()
		err = unix.EPERM
	}
	if err != nil {
		return nil, faultAt("change directory", d, "", err)
	}
	return f, nil
}

// expected looks at an entry and compares it with what somebody believes is there; nil believes nothing.
func (d *Dir) expected(op, name string, want *Signature) (Stat, error) {
	st, err := d.Stat(name)
	if err == nil && want != nil && st.Signature != *want {
		err = staleFault(op, d.join(name))
	}
	return st, err
}

// hostPath is a path of the host to an entry, for programs: what the directory was opened by may mean something else
// outside a sandbox.
func (d *Dir) hostPath(name string) string {
	dir, err := os.Readlink(procFD(d.fd))
	if err != nil {
		dir = d.path
	}
	return join(dir, name)
}

// renameTemp gives a temporary its real name; a fresh one must not replace anything. File systems that cannot promise that
// (EINVAL) get an ordinary rename: the entry was looked at just before.
func renameTemp(d *Dir, temp, name string, fresh bool) error {
	if fresh {
		err := unix.Renameat2(d.fd, temp, d.fd, name, unix.RENAME_NOREPLACE)
		if err != unix.EINVAL && err != unix.ENOSYS {
			return err
		}
	}
	return unix.Renameat(d.fd, temp, d.fd, name)
}

// ownFault is faultAt for a change of owner, which ordinary users may not make.
func ownFault(op string, d *Dir, name string, err error) error {
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		return &reason.Error{
			Code: reason.OwnerNeedsRoot, Doing: op + " " + Shown(d.join(name)), Cause: err,
			Hint: "run the agent as root, or leave owner and group out",
		}
	}
	return faultAt(op, d, name, err)
}

// ignoreMissing makes success of a way that is not there.
func ignoreMissing(err error) error {
	if reason.Is(err, reason.ParentMissing) {
		return nil
	}
	return err
}
