package disk

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// PermMask covers the bits of a mode that chmod sets.
const PermMask = 0o7777

// Signature is what tells one state of an inode from every other, as far as stat can: our own writes are recognised by it.
// The zero Signature means that nothing is there. It is comparable.
type Signature struct {
	Dev, Ino uint64
	Born     int64  // nanoseconds since 1970; 0 where the file system does not say. The number of an inode is given to others, too
	Ctime    int64  // nanoseconds since 1970
	Size     int64  // bytes
	Mode     uint32 // type and permissions
	UID, GID uint32
}

// Exists reports whether anything was there.
func (s Signature) Exists() bool { return s.Mode != 0 }

// Type returns the S_IF bits of the mode.
func (s Signature) Type() uint32 { return s.Mode & unix.S_IFMT }

// Perm returns the permissions with setuid, setgid and sticky.
func (s Signature) Perm() uint32 { return s.Mode & PermMask }

// Stat is one look at a directory entry, symlinks not followed. The zero Stat means that nothing is there.
type Stat struct {
	Signature
	Mtime     int64 // nanoseconds since 1970
	Nlink     uint32
	MountRoot bool // something is mounted here
	Fixed     bool // immutable or append-only
}

// Kind names the type of what is there in a word: "file", "directory", "symlink", "fifo", "socket", "device" or "nothing".
func (s Signature) Kind() string {
	switch s.Type() {
	case 0:
		return "nothing"
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// Dir is an opened directory. Names given to its methods are single components. Its methods may be called from several
// goroutines, but not after Close.
type Dir struct {
	fd   int // O_PATH
	path string
}

// Close gives the descriptor back.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// Path is the path that the directory was opened by.
func (d *Dir) Path() string { return d.path }

// FD is the descriptor, opened with O_PATH: good for calls that name an entry relative to it, until Close.
func (d *Dir) FD() int { return d.fd }

// Join is the path of an entry; the empty name is the directory itself.
func (d *Dir) Join(name string) string {
	if name == "" {
		return d.path
	}
	return Join(d.path, name)
}

// Stat looks at one entry; the empty name is the directory itself. Where nothing is, it returns the zero Stat and no error.
func (d *Dir) Stat(name string) (Stat, error) {
	st, err := StatAt(d.fd, name)
	if err != nil {
		return Stat{}, d.Fault("look at", name, err)
	}
	return st, nil
}

// StatAll looks at many entries, one system call each; stats and errs have the length of names, and errs is nil when
// nothing went wrong.
func (d *Dir) StatAll(names []string) (stats []Stat, errs []error) {
	stats = make([]Stat, len(names))
	for i, name := range names {
		st, err := d.Stat(name)
		if err != nil {
			if errs == nil {
				errs = make([]error, len(names))
			}
			errs[i] = err
		}
		stats[i] = st
	}
	return stats, errs
}

// Sub opens a directory in this one, not following a symlink. The caller closes it.
func (d *Dir) Sub(name string) (*Dir, error) {
	fd, err := OpenAt(d.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, Fault("open directory", d.Join(name), err)
	}
	return &Dir{fd: fd, path: d.Join(name)}, nil
}

// Names lists the entries, sorted, without . and .. and without our own temporaries. More than limit entries are an error.
func (d *Dir) Names(limit int) ([]string, error) {
	f, err := d.Reopen()
	if err != nil {
		return nil, Fault("list directory", d.path, err)
	}
	defer f.Close()
	var names []string
	for {
		some, err := f.Readdirnames(namesAtOnce)
		for _, n := range some {
			if !IsTemporary(n) {
				names = append(names, n)
			}
		}
		if len(names) > limit {
			return nil, &reason.Error{Code: reason.BodyTooLarge, Doing: "list directory " + Shown(d.path), Hint: "it has more entries than can be handled at once"}
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, Fault("list directory", d.path, err)
		}
	}
}

// namesAtOnce bounds one step of a listing, so that a huge directory is noticed before it fills the memory.
const namesAtOnce = 1024

// Reopen opens the directory once more, for reading its entries or for fsync, which the first descriptor is not good for.
// The error is the system's own. The caller closes the file.
func (d *Dir) Reopen() (*os.File, error) {
	fd, err := OpenAt(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.path), nil
}

// StatAt is one look from an open directory, not following a symlink; the empty name is what dir itself is a descriptor of.
// Where nothing is, it returns the zero Stat and no error; any other error is the system's own.
func StatAt(dir int, name string) (Stat, error) {
	var x unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := Retry(func() error { return unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x) })
	if err == unix.ENOENT {
		return Stat{}, nil
	}
	if err != nil {
		return Stat{}, err
	}
	return Stat{
		Signature: Signature{
			Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino,
			Born: x.Btime.Sec*1e9 + int64(x.Btime.Nsec), Ctime: x.Ctime.Sec*1e9 + int64(x.Ctime.Nsec),
			Size: int64(x.Size), Mode: uint32(x.Mode), UID: x.Uid, GID: x.Gid,
		},
		Mtime:     x.Mtime.Sec*1e9 + int64(x.Mtime.Nsec),
		Nlink:     x.Nlink,
		MountRoot: x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		Fixed:     x.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0,
	}, nil
}

// OpenAt opens a name, which must not be empty, from an open directory, with close-on-exec. The error is the system's own.
func OpenAt(dir int, name string, flags int, mode uint32) (int, error) {
	fd := -1
	err := Retry(func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// ProcPath is a path to an open descriptor; unlike the descriptor itself it also works where that was opened with O_PATH.
func ProcPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// targetMax is the longest target that a symlink can have, PATH_MAX.
const targetMax = 4096

// readlinkat reads a symlink; with the empty name, the one that dir is an O_PATH descriptor of.
func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, targetMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Retry repeats a system call that a signal interrupted: the Go runtime's own signals interrupt calls on some file systems.
func Retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// Tick returns the clock by which the kernel stamps what is written now, in nanoseconds since 1970, as Ctime of a Stat has it. A thing with
// an older Ctime cannot be written again with the same one.
func Tick() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return 0 // everything is younger, so nothing is settled
	}
	return ts.Nano()
}
