package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"tako.dev/tako/internal/reason"
)

// retryAfter is how much more is written into a file that cannot be put aside before that is tried again.
const retryAfter = 1 << 20

// bounds are those of a file.
type bounds struct {
	size int64 // when it is put aside, in bytes
	kept int   // how many old files stay
}

// file is a log that is put aside when it is full: path.1 is the newest old one. It may be used from several goroutines.
type file struct {
	path   string
	bounds bounds

	mu     sync.Mutex // guards all below
	open   *os.File
	size   int64
	rotate int64 // at what size
}

// openFile opens a log for appending, and makes it with mode 0600.
func openFile(path string, b bounds) (*file, error) {
	open, size, err := appendTo(path)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: "open audit log " + path, Cause: err, Hint: "the server's user must own the directory"}
	}
	return &file{path: path, bounds: b, open: open, size: size, rotate: b.size}, nil
}

func appendTo(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err = errors.Join(err, f.Chmod(0o600)); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// Write appends one or more whole lines. A file that cannot be put aside is written on.
func (f *file) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(b)) > f.rotate {
		if err := f.rotateLocked(); err != nil {
			f.rotate = f.size + retryAfter
		}
	}
	n, err := f.open.Write(b)
	f.size += int64(n)
	return n, err
}

// rotateLocked puts the file aside and begins another. When that fails the present one stays open, whatever it is called by then.
func (f *file) rotateLocked() error {
	for i := f.bounds.kept; i > 1; i-- {
		if err := os.Rename(f.old(i-1), f.old(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// It may have been renamed by a rotation that then failed, or by somebody else.
	if err := os.Rename(f.path, f.old(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, size, err := appendTo(f.path)
	if err != nil {
		return err
	}
	_ = f.open.Close() // what was written is written
	f.open, f.size, f.rotate = next, size, f.bounds.size
	return nil
}

func (f *file) old(i int) string { return fmt.Sprintf("%s.%d", f.path, i) }

// Close closes the log.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open.Close()
}
