package disk

import (
	"errors"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Root is where absolute paths begin. Its methods may be called from several goroutines.
type Root struct {
	dir   string // of the host, as given and cleaned
	fd    int    // O_PATH
	trust trust
	// slow says that openat2 is not to be had (an old kernel, a filter that denies it), so that every way is walked.
	slow atomic.Bool
}

// OpenRoot opens dir, an absolute path of the host: "/" or the sandbox that every path given to the Root stays in.
func OpenRoot(dir string) (*Root, error) {
	dir = path.Clean(dir)
	if !path.IsAbs(dir) {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "open root directory " + Shown(dir), Hint: "give an absolute path"}
	}
	fd, err := OpenAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, Fault("open root directory", dir, err)
	}
	return &Root{dir: dir, fd: fd, trust: trust{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}}, nil
}

// Close gives the descriptor back. No other method may be running or follow.
func (r *Root) Close() error { return unix.Close(r.fd) }

// Path is the directory that OpenRoot was given, cleaned.
func (r *Root) Path() string { return r.dir }

// Dir opens the directory at a path, for looking at its entries. The caller closes it, soon: a directory that is kept open
// hides that another one took its place.
func (r *Root) Dir(p string) (*Dir, error) {
	if err := ValidPath(p); err != nil {
		return nil, err
	}
	fd, err := r.openDir(p)
	if err != nil {
		return nil, err
	}
	return &Dir{fd: fd, path: p}, nil
}

// Parent opens the directory that holds what is at a path, and returns the name in it. The path "/" has no parent and is
// an error.
func (r *Root) Parent(p string) (*Dir, string, error) {
	if err := ValidPath(p); err != nil {
		return nil, "", err
	}
	dir, name := Split(p)
	if name == "" {
		return nil, "", &reason.Error{Code: reason.InvalidValue, Doing: "open the directory that holds /"}
	}
	d, err := r.Dir(dir)
	return d, name, err
}

// Stat looks at what is at a path, not following a symlink there. Where nothing is, also where the way to it is missing,
// it returns the zero Stat and no error.
func (r *Root) Stat(p string) (Stat, error) {
	if p == "/" {
		return StatAt(r.fd, "")
	}
	d, name, err := r.Parent(p)
	if reason.Is(err, reason.ParentMissing) {
		return Stat{}, nil
	}
	if err != nil {
		return Stat{}, err
	}
	defer d.Close()
	return d.Stat(name)
}

// openDir opens the directory at a valid path. Where the straight way fails, the walk finds out whether it can be gone all
// the same, and if not, at which component it ends.
func (r *Root) openDir(p string) (int, error) {
	if !r.slow.Load() {
		fd, err := r.openStraight(p)
		if err == nil {
			return fd, nil
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			r.slow.Store(true)
		}
	}
	w := r.Walker(nil)
	defer w.Close()
	if err := w.Walk(p); err != nil {
		return -1, err
	}
	return w.takeTop(), nil
}

// openStraight opens a directory with one system call, if no symlink is on the way.
func (r *Root) openStraight(p string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_IN_ROOT,
	}
	fd := -1
	err := Retry(func() (err error) {
		fd, err = unix.Openat2(r.fd, p, &how)
		return err
	})
	return fd, err
}

// ValidPath refuses what is not an absolute, clean path that a system call can take.
func ValidPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.IndexByte(p, 0) >= 0 {
		return &reason.Error{Code: reason.InvalidValue, Doing: "open path " + Shown(p), Hint: "paths are absolute, without //, . and .."}
	}
	return nil
}

// Split cuts a valid path into the directory that holds it and its name. The name of "/" is empty.
func Split(p string) (dir, name string) {
	i := strings.LastIndexByte(p, '/')
	if i == 0 {
		return "/", p[1:]
	}
	return p[:i], p[i+1:]
}

// Join is the inverse of Split.
func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}
