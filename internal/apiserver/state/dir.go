package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// dataFormat is the version of what is in the data directory. A server refuses a higher one, which it cannot know.
	dataFormat = 1
	formatName = "format"
	lockName   = "lock"
	// databaseName is the server's own etcd in the data directory.
	databaseName = "etcd"
	// unfinishedName is what a restore begins with and ends by renaming. A directory that has it and no database holds no server.
	unfinishedName = "etcd.restoring"
	// lostName is what a new file system has at its top.
	lostName = "lost+found"
)

// Dir is the server's directory, which belongs to one process at a time.
type Dir struct {
	path string
	root *os.Root
	lock *os.File
	// made says that the directory, marked that the format in it, is of this run.
	made, marked bool
	// giveTo is the user whose the directory is, while root has it for itself.
	giveTo *syscall.Stat_t
}

// Open makes the directory if it is missing and becomes its owner. One that holds something else, or belongs to another user, is
// refused and left as it is.
func Open(path string) (*Dir, error) { return open(path, false) }

// open opens the directory for a server or, if restoring, to fill it: root may do that for another user.
func open(path string, restoring bool) (_ *Dir, err error) {
	if strings.Contains(path, ",") {
		return nil, &reason.Error{
			Code: reason.InvalidValue, Doing: "open the data directory " + path, Cause: errors.New("its path has a comma, which etcd takes for the end of an address"),
			Hint: "choose another with --data-dir",
		}
	}
	d := &Dir{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.undo(), d.Close())
		}
	}()
	if err := d.enter(); err != nil {
		return nil, err
	}
	st, err := d.status()
	if err != nil {
		return nil, err
	}
	if err := checkOwner(path, st, restoring); err != nil {
		return nil, err
	}
	if err := d.checkOurs(); err != nil {
		return nil, err
	}
	if st.Mode&0o777 != 0o700 {
		if err := d.change(func(f *os.File) error { return f.Chmod(0o700) }); err != nil {
			return nil, dataFault("close the data directory to others", path, err)
		}
	}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if restoring && int(st.Uid) != os.Geteuid() {
		if err := d.seize(st); err != nil {
			return nil, err
		}
	}
	if !restoring {
		if err := d.checkFinished(); err != nil {
			return nil, err
		}
	}
	return d, d.checkFormat()
}

// enter opens the directory, and makes it where it is missing.
func (d *Dir) enter() error {
	st, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(d.path, 0o700)
		d.made = err == nil
	}
	if err == nil {
		d.root, err = os.OpenRoot(d.path)
	}
	if err == nil {
		return nil
	}
	if sys, ok := sysOf(st); ok && errors.Is(err, fs.ErrPermission) {
		return cmp.Or(checkOwner(d.path, sys, false), dataFault("open the data directory", d.path, err))
	}
	return dataFault("open the data directory", d.path, err)
}

func (d *Dir) status() (*syscall.Stat_t, error) {
	st, err := d.root.Stat(".")
	if err != nil {
		return nil, dataFault("look at the data directory", d.path, err)
	}
	sys, ok := sysOf(st)
	if !ok {
		return nil, dataFault("look at the data directory", d.path, errors.New("its file system tells no owner"))
	}
	return sys, nil
}

func sysOf(st fs.FileInfo) (*syscall.Stat_t, bool) {
	if st == nil {
		return nil, false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return sys, ok
}

// change does something to the directory itself.
func (d *Dir) change(do func(*os.File) error) error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// checkOwner refuses the directory of another user: what one process makes there the next could not read.
func checkOwner(path string, st *syscall.Stat_t, restoring bool) error {
	owner, me := int(st.Uid), os.Geteuid()
	if owner == me || restoring && me == 0 {
		return nil
	}
	hint := "choose another with --data-dir, or have root give it to this user"
	if me == 0 {
		hint = "run the server as that user: systemctl start tako-server"
		if name, _, named := strings.Cut(trust.UserName(owner), " ("); named {
			hint += ", or runuser -u " + name + " -- tako server …"
		}
	}
	return &reason.Error{
		Code: reason.StateUnwritable, Doing: "open the data directory " + path,
		Cause: fmt.Errorf("it belongs to %s, and this is %s", trust.UserName(owner), trust.UserName(me)), Hint: hint,
	}
}

// checkOurs refuses a directory that is neither a server's nor empty, nor holds just the keys for one.
func (d *Dir) checkOurs() error {
	names, err := d.names()
	if err != nil || slices.Contains(names, formatName) {
		return err
	}
	for _, name := range names {
		if !slices.Contains([]string{lockName, secretName, trustDir, unfinishedName, lostName}, name) && !strings.HasPrefix(name, ".tako-") {
			return &reason.Error{
				Code: reason.DirectoryNotEmpty, Doing: "use " + d.path + " as the data directory",
				Cause: fmt.Errorf("it holds %q, and it is no data directory of tako", name), Hint: "choose a new or empty directory with --data-dir",
			}
		}
	}
	return nil
}

func (d *Dir) names() ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, dataFault("look into the data directory", d.path, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// checkFinished refuses what a restore that was cut off has left: a server would begin a new cluster there.
func (d *Dir) checkFinished() error {
	if !d.has(unfinishedName) || d.has(databaseName) {
		return nil
	}
	return &reason.Error{
		Code: reason.BackupUnusable, Doing: "open the data directory " + d.path, Cause: errors.New("a restore into it has not come to its end"),
		Hint: "repeat `tako server restore`, or remove " + d.Join(unfinishedName),
	}
}

func (d *Dir) has(name string) bool {
	_, err := d.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// Join is the path of something in the directory.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// takeLock locks a file for as long as this process lives, and writes into it who has it.
func (d *Dir) takeLock() error {
	f, err := d.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return dataFault("lock the data directory", d.path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(f.Name()) // only for the words below
		f.Close()
		return &reason.Error{
			Code: reason.AnotherServer, Doing: "lock the data directory " + d.path,
			Cause: fmt.Errorf("another server uses it: process %s", bytes.TrimSpace(holder)), Hint: "stop that one, or give this one another --data-dir",
		}
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		f.Close()
		return dataFault("lock the data directory", d.path, err)
	}
	d.lock = f
	return nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// checkFormat refuses a directory that a later version has written, and marks a new one.
func (d *Dir) checkFormat() error {
	path := d.Join(formatName)
	b, err := d.root.ReadFile(formatName)
	if errors.Is(err, fs.ErrNotExist) {
		d.marked = true
		return trust.WritePrivateIn(d.root, formatName, []byte(strconv.Itoa(dataFormat)+"\n"))
	}
	if err != nil {
		return dataFault("read the data directory's format", d.path, err)
	}
	format, err := strconv.Atoi(strings.TrimSpace(string(b)))
	switch {
	case err != nil:
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read " + path, Cause: err, Hint: "restore the data directory from a backup"}
	case format > dataFormat:
		return &reason.Error{
			Code: reason.StateNewer, Doing: "open the data directory " + d.path,
			Cause: fmt.Errorf("it has format %d, and this version knows up to %d", format, dataFormat), Hint: "run the version of tako that wrote it, or a later one",
		}
	}
	return nil
}

// sync makes what was renamed in the directory durable.
func (d *Dir) sync() error {
	if err := trust.SyncDirectory(d.root, "."); err != nil {
		return dataFault("sync the data directory", d.path, err)
	}
	return nil
}

// seize gives root the directory of another user until it is closed, so that the other cannot lead astray what root writes there.
// What is in it already may lead nowhere either.
func (d *Dir) seize(st *syscall.Stat_t) error {
	if err := d.change(func(f *os.File) error { return f.Chown(0, 0) }); err != nil {
		return dataFault("take the data directory", d.path, err)
	}
	d.giveTo = st
	err := fs.WalkDir(d.root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		sys, ok := sysOf(info)
		if e.Type() == fs.ModeSymlink || ok && e.Type().IsRegular() && sys.Nlink > 1 {
			return &reason.Error{
				Code: reason.TypeInTheWay, Doing: "restore into " + d.path, Cause: fmt.Errorf("%s is a link", path), Hint: "restore into an empty directory",
			}
		}
		return nil
	})
	if err != nil && !reason.Is(err, reason.TypeInTheWay) {
		return dataFault("look through the data directory", d.path, err)
	}
	return err
}

// giveBack gives the directory and all in it to the user whose it was.
func (d *Dir) giveBack() error {
	if d.giveTo == nil {
		return nil
	}
	uid, gid := int(d.giveTo.Uid), int(d.giveTo.Gid)
	d.giveTo = nil
	err := fs.WalkDir(d.root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return d.root.Lchown(path, uid, gid)
	})
	if err == nil {
		err = d.change(func(f *os.File) error { return f.Chown(uid, gid) }) // the last: nobody was in there meanwhile
	}
	if err != nil {
		return dataFault("give the data directory back", d.path, err)
	}
	return nil
}

// undo removes what this run has made, if there is nothing else.
func (d *Dir) undo() error {
	if d.lock == nil || d.has(databaseName) {
		return nil // somebody else may be in there, or something worth keeping
	}
	var errs []error
	if d.marked {
		errs = append(errs, d.root.RemoveAll(formatName), d.root.RemoveAll(lockName))
	}
	if d.made {
		errs = append(errs, d.root.RemoveAll(lockName), os.Remove(d.path))
	}
	return errors.Join(errs...)
}

// Close gives the directory back.
func (d *Dir) Close() error {
	if d.root == nil {
		return nil
	}
	err := d.giveBack()
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return errors.Join(err, d.root.Close())
}

func dataFault(doing, path string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: doing + " " + path, Cause: err, Hint: "the server's user must own it: choose another with --data-dir"}
}
