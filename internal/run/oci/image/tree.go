package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
)

const (
	// nameMax is the longest path in a layer, PATH_MAX.
	nameMax = 4096
	// partsMax bounds its depth.
	partsMax = 256
	dirMode  = 0o755
)

// root is a directory that no path leads out of: the kernel takes it for the root of every way below it.
type root struct {
	fd int
	// The directory that was used last: what is in one directory mostly stands together.
	last   string
	lastFD int
}

func openRoot(dir string) (*root, error) {
	fd, err := disk.OpenAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &root{fd: fd, lastFD: -1}, nil
}

func (r *root) close() error {
	r.forget()
	return unix.Close(r.fd)
}

// forget is called when what a way leads through may have changed.
func (r *root) forget() {
	if r.lastFD >= 0 {
		_ = unix.Close(r.lastFD) // it was opened with O_PATH
	}
	r.last, r.lastFD = "", -1
}

// within opens something below the root, links in its path resolved as if that were the root of the file system.
func (r *root) within(name string, flags uint64) (int, error) {
	fd := -1
	err := disk.Retry(func() (err error) {
		fd, err = unix.Openat2(r.fd, name, &unix.OpenHow{
			Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		return err
	})
	return fd, err
}

// clean is the path of an entry below the root; empty: the root itself.
func clean(name string) (string, error) {
	switch {
	case len(name) > nameMax || strings.Count(name, "/") > partsMax:
		return "", fmt.Errorf("the path %.80q... is too long", name)
	case strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("the path %.80q is absolute, or holds a zero byte", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("the path %.80q leads out of the image", name)
		}
	}
	if name = path.Clean(name); name == "." {
		return "", nil
	}
	return name, nil
}

// dir opens a directory, and makes what is missing of its path. The descriptor stays r's, until the next call.
func (r *root) dir(name string) (int, error) {
	if name == "." || name == "" {
		return r.fd, nil
	}
	if r.lastFD >= 0 && r.last == name {
		return r.lastFD, nil
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := r.within(name, flags)
	if errors.Is(err, unix.ENOENT) {
		var up int
		if up, err = r.dir(path.Dir(name)); err != nil {
			return -1, err
		}
		if err = unix.Mkdirat(up, path.Base(name), dirMode); err == nil {
			fd, err = r.within(name, flags)
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open the directory", Path: name, Err: err}
	}
	r.forget()
	r.last, r.lastFD = name, fd
	return fd, nil
}

// removeAll takes away what is there of a name in a directory.
func (r *root) removeAll(dir int, name string) error {
	err := removeAt(dir, name)
	r.forget() // also the descriptor, perhaps
	return err
}

// removeAt is below a descriptor, so that no way leads elsewhere: the last part of a path is not followed.
func removeAt(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = os.RemoveAll(filepath.Join(disk.ProcPath(dir), name))
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
