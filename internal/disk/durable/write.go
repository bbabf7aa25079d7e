package durable

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Keep as an owner, group or mode leaves what the old file has; a new file gets the agent's user and group, or the mode
// newFileMode.
const Keep = -1

// newFileMode is the mode of a new file whose spec says Keep: what most programs under the usual umask give.
const newFileMode = 0o644

// WriteSpec says what a file shall be.
type WriteSpec struct {
	Path    string
	Content io.ReaderAt // at least Size bytes; read once, from one goroutine
	Size    int64       // bytes
	Mode    int         // permissions with setuid, setgid and sticky, or Keep
	UID     int         // or Keep
	GID     int         // or Keep
	// Attributes are set whatever the old file has; what is not named is as copyAttributes has it.
	Attributes []Attribute
	// Expect, if set, is what the caller has seen there, the zero Signature for nothing. Anything else is ConcurrentEdit.
	Expect *disk.Signature
	// Force replaces a symlink, FIFO, socket or device that is in the way. A directory is never replaced.
	Force bool
	// InPlace writes into the existing file instead of replacing it, for files that are mounted one by one. A reader, or
	// a crash, can then find half of it.
	InPlace bool
	// Check, if set, looks at the new content before anything is replaced. temp is a path of the host. Its error is
	// returned as it is.
	Check func(ctx context.Context, temp string) error
	// OnBackup, if set, keeps the content of the regular file that is replaced.
	OnBackup Backup
}

// Backup gets a regular file, open for reading at its start, and keeps its content. Its error is returned as it is, and the
// file keeps its place.
type Backup func(old *os.File, st disk.Stat) error

// WriteResult says what became of one WriteSpec.
type WriteResult struct {
	// Signature is the new state, for recognising it as ours. It is zero when somebody touched the file in the same
	// moment; that is not noticed with InPlace if size and mode are left alone.
	Signature     disk.Signature
	Changed       bool // the file is the new one, also when Err is set: then it is not known to be durable
	Created       bool // nothing was there
	BrokeHardLink bool // the old file had other names, which still have the old content
	Err           error
}

// Write makes one file durable; see WriteAll.
func Write(ctx context.Context, r *disk.Root, spec WriteSpec) (WriteResult, error) {
	res := WriteAll(ctx, r, []WriteSpec{spec})[0]
	return res, res.Err
}

// writing is one file on its way.
type writing struct {
	*WriteSpec
	dir  *disk.Dir
	name string
	old  disk.Stat
	from *os.File // the old regular file, opened, or nil; held over the rename, so that its blocks are freed after that
	temp string
	fd   int // the temporary, or -1
	res  WriteResult
}

// writeFile takes one file from its spec to the rename; what is left to do is the fsync of the directory.
func writeFile(ctx context.Context, d *disk.Dir, name string, spec *WriteSpec) WriteResult {
	w := writing{WriteSpec: spec, dir: d, name: name, fd: -1}
	err := w.run(ctx)
	w.discard()
	w.res.Err = err
	return w.res
}

func (w *writing) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return stopped("write file", w.Path, err)
	}
	if err := w.look(); err != nil {
		return err
	}
	if w.InPlace && w.old.Exists() {
		return w.overwrite(ctx)
	}
	if err := w.stage(ctx); err != nil {
		return err
	}
	if err := w.sync(w.fd); err != nil {
		return err
	}
	if w.OnBackup != nil && w.from != nil {
		return w.exchange()
	}
	return w.swap()
}

// look finds out what is there, refuses what must not be replaced, and opens the old file.
func (w *writing) look() error {
	old, err := w.dir.Stat(w.name)
	if err != nil {
		return err
	}
	w.old = old
	if w.Expect != nil && old.Signature != *w.Expect {
		return disk.Stale("write file", w.Path)
	}
	switch {
	case !old.Exists():
		return nil
	case old.Fixed:
		return w.fault(unix.EPERM)
	case old.Type() == unix.S_IFDIR, old.Type() != unix.S_IFREG && (!w.Force || w.InPlace):
		return &reason.Error{Code: reason.TypeInTheWay, Doing: "write file " + disk.Shown(w.Path), Hint: "a " + old.Kind() + " is there"}
	case old.MountRoot && !w.InPlace:
		return w.fault(unix.EBUSY)
	case old.Type() == unix.S_IFREG:
		return w.openOld()
	}
	return nil
}

// openOld opens the file that is to be replaced, for its attributes and its backup. Without the right to read it, it can
// still be replaced if no backup is wanted.
func (w *writing) openOld() error {
	from, st, err := w.dir.OpenSeen(w.name)
	if errors.Is(err, unix.EACCES) && w.OnBackup == nil {
		from, st, err = w.openUnread()
	}
	w.from = from
	if err != nil {
		return w.fault(err)
	}
	if st.Signature != w.old.Signature {
		return disk.Stale("write file", w.Path)
	}
	return nil
}

// openUnread opens the file that is to be replaced without the right to read it.
func (w *writing) openUnread() (*os.File, disk.Stat, error) {
	fd, err := disk.OpenAt(w.dir.FD(), w.name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, disk.Stat{}, err
	}
	st, err := disk.StatAt(fd, "")
	return os.NewFile(uintptr(fd), w.Path), st, err
}

// stage makes the temporary as the file shall be, and runs the check on it.
func (w *writing) stage(ctx context.Context) error {
	temp, err := tryTemporary(w.name, func(temp string) (err error) {
		w.fd, err = disk.OpenAt(w.dir.FD(), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return w.fault(err)
	}
	w.temp = temp
	if err := w.fill(w.fd); err != nil {
		return w.fault(err)
	}
	if err := w.own(w.fd); err != nil {
		return err
	}
	if w.from != nil {
		if err := copyAttributes(int(w.from.Fd()), w.fd); err != nil {
			return w.fault(err)
		}
	}
	if err := setAttributes(w.dir, w.name, w.fd, w.Attributes); err != nil {
		return err
	}
	if err := unix.Fchmod(w.fd, w.mode()); err != nil {
		return w.fault(err)
	}
	if w.Check == nil {
		return nil
	}
	return w.Check(ctx, hostPath(w.dir, temp))
}

// fill writes the content from the start of a file.
func (w *writing) fill(fd int) error {
	buf := make([]byte, min(w.Size, writeBuffer))
	for at := int64(0); at < w.Size; {
		part := buf[:min(w.Size-at, int64(len(buf)))]
		n, err := w.Content.ReadAt(part, at)
		if n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		for done := 0; done < n; {
			m := 0
			err := disk.Retry(func() (err error) {
				m, err = unix.Pwrite(fd, part[done:], at+int64(done))
				return err
			})
			if err != nil {
				return err
			}
			done += m
		}
		at += int64(n)
	}
	return nil
}

// writeBuffer is how much is written at once; see hashBuffer.
const writeBuffer = 64 << 10

// own sets owner and group before the mode, because a mode that is good for one owner shows too much to another, and
// because a change of owner takes setuid away.
func (w *writing) own(fd int) error {
	uid, gid := w.UID, w.GID
	if w.old.Type() == unix.S_IFREG {
		if uid == Keep {
			uid = int(w.old.UID)
		}
		if gid == Keep {
			gid = int(w.old.GID)
		}
	}
	if uid == Keep && gid == Keep {
		return nil
	}
	return ownFault("write file", w.dir, w.name, unix.Fchown(fd, uid, gid))
}

func (w *writing) mode() uint32 {
	switch {
	case w.Mode != Keep:
		return uint32(w.Mode) & disk.PermMask
	case w.old.Type() == unix.S_IFREG:
		return w.old.Perm()
	}
	return newFileMode
}

func (w *writing) sync(fd int) error { return w.fault(disk.Fsync(fd)) }

// exchange puts the new file in the old one's place and backs that up then, so that readers of a file that has drifted wait
// for one fsync only. Until the backup is durable the old file has the temporary's name: from there a failure puts it back,
// and SweepTemporaries takes it after a crash. Where the file system cannot exchange, the backup comes first.
func (w *writing) exchange() error {
	before, err := w.unchanged()
	if err != nil {
		return err
	}
	err = unix.Renameat2(w.dir.FD(), w.temp, w.dir.FD(), w.name, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		if err := w.OnBackup(w.from, w.old); err != nil {
			return err
		}
		return w.swap()
	}
	if err != nil {
		return w.fault(err)
	}
	w.swapped(before)
	if !w.displaced() {
		return errors.Join(disk.Stale("write file", w.Path), w.putBack())
	}
	if err := w.OnBackup(w.from, w.old); err != nil {
		return errors.Join(err, w.putBack())
	}
	return nil
}

// displaced reports whether what has the temporary's name now is the file that w.look saw.
func (w *writing) displaced() bool {
	st, err := w.dir.Stat(w.temp)
	st.Ctime = w.old.Ctime // the exchange changes it
	return err == nil && st.Signature == w.old.Signature
}

// putBack undoes an exchange. If somebody has changed the new file meanwhile, his stays, and the old one keeps the
// temporary's name until the next sweep.
func (w *writing) putBack() error {
	now, err := w.dir.Stat(w.name)
	if err == nil && now.Signature != w.res.Signature {
		err = disk.Stale("put back file", w.Path)
	}
	if err == nil {
		err = w.fault(unix.Renameat2(w.dir.FD(), w.temp, w.dir.FD(), w.name, unix.RENAME_EXCHANGE))
	}
	if err != nil {
		w.temp = ""
		return err
	}
	w.res = WriteResult{}
	return nil
}

// swap puts the temporary in the file's place, if that is still what we saw.
func (w *writing) swap() error {
	before, err := w.unchanged()
	if err != nil {
		return err
	}
	if err := renameTemp(w.dir, w.temp, w.name, !w.old.Exists()); err != nil {
		return w.fault(err)
	}
	w.temp = ""
	w.swapped(before)
	return nil
}

// unchanged makes sure that the file is still what we saw, and returns what the new one is before it gets its name.
func (w *writing) unchanged() (disk.Stat, error) {
	now, err := w.dir.Stat(w.name)
	if err != nil {
		return disk.Stat{}, err
	}
	if now.Signature != w.old.Signature {
		return disk.Stat{}, disk.Stale("write file", w.Path)
	}
	before, err := disk.StatAt(w.fd, "")
	return before, w.fault(err)
}

// swapped fills in the result, now that the new file has its name.
func (w *writing) swapped(before disk.Stat) {
	w.res.Changed = true
	w.res.Created = !w.old.Exists()
	w.res.BrokeHardLink = w.old.Type() == unix.S_IFREG && w.old.Nlink > 1
	w.res.Signature = ours(before, w.fd)
}

// ours returns the signature of a file that was renamed since before. The rename itself changes ctime, so what somebody
// did in the same moment shows in everything else only; then the signature must not be taken for ours.
func ours(before disk.Stat, fd int) disk.Signature {
	after, err := disk.StatAt(fd, "")
	if err != nil || after.Nlink != before.Nlink || after.Mtime != before.Mtime {
		return disk.Signature{}
	}
	sig := after.Signature
	sig.Ctime = before.Ctime
	if sig != before.Signature {
		return disk.Signature{}
	}
	return after.Signature
}

// overwrite writes into the file that is there.
func (w *writing) overwrite(ctx context.Context) error {
	if w.Check != nil {
		if err := w.stage(ctx); err != nil {
			return err
		}
		w.discardTemp()
	}
	fd, err := disk.OpenAt(w.dir.FD(), w.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return w.fault(err)
	}
	defer unix.Close(fd)
	if w.OnBackup != nil {
		if err := w.OnBackup(w.from, w.old); err != nil {
			return err
		}
	}
	now, err := disk.StatAt(fd, "")
	if err != nil {
		return w.fault(err)
	}
	if now.Signature != w.old.Signature {
		return disk.Stale("write file", w.Path)
	}
	w.res.Changed = true
	if err := w.refill(fd); err != nil {
		return err
	}
	if after, err := disk.StatAt(fd, ""); err == nil && after.Size == w.Size && after.Perm() == w.mode() {
		w.res.Signature = after.Signature
	}
	return nil
}

// refill is the part of overwrite that cannot be undone. Owner and mode come first, so that new content is never shown to
// those who may read the old one only; writing takes setuid and capabilities away, so that comes last again.
func (w *writing) refill(fd int) error {
	if err := w.own(fd); err != nil {
		return err
	}
	mode := w.mode()
	if err := setAttributes(w.dir, w.name, fd, w.Attributes); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode&0o1777); err != nil {
		return w.fault(err)
	}
	if err := w.fill(fd); err != nil {
		return w.fault(err)
	}
	if err := unix.Ftruncate(fd, w.Size); err != nil {
		return w.fault(err)
	}
	if err := setAttributes(w.dir, w.name, fd, w.Attributes); err != nil {
		return err
	}
	if mode&0o6000 != 0 || len(w.Attributes) > 0 {
		if err := unix.Fchmod(fd, mode); err != nil {
			return w.fault(err)
		}
	}
	return w.sync(fd)
}

// discard gives everything back that the write still holds.
func (w *writing) discard() {
	if w.from != nil {
		w.from.Close()
	}
	w.discardTemp()
}

func (w *writing) discardTemp() {
	if w.temp != "" {
		unix.Unlinkat(w.dir.FD(), w.temp, 0)
		w.temp = ""
	}
	if w.fd >= 0 {
		unix.Close(w.fd)
		w.fd = -1
	}
}

func (w *writing) fault(err error) error { return w.dir.Fault("write file", w.name, err) }
