package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"tako.dev/tako/internal/reason"
)

const (
	// sizeMax is when a file is put aside.
	sizeMax = 64 << 20
	// filesKept is how many old files stay: with the present one half a GiB.
	filesKept = 7
)

// File is a log that is put aside when it is full: path.1 is the newest old one. It may be used from several goroutines.
type File struct {
	path string
	max  int64

	mu   sync.Mutex // guards all below
	file *os.File
	size int64
}

// Open opens a log for appending, and makes it with mode 0600.
func Open(path string) (*File, error) {
	f := &File{path: path, max: sizeMax}
	if err := f.openLocked(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) openLocked() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		err = file.Chmod(0o600)
	}
	var st fs.FileInfo
	if err == nil {
		st, err = file.Stat()
	}
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "open audit log " + f.path, Cause: err, Hint: "the server's user must own the directory"}
	}
	f.file, f.size = file, st.Size()
	return nil
}

// Write appends one or more whole lines.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(b)) > f.max {
		if err := f.rotateLocked(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(b)
	f.size += int64(n)
	return n, err
}

// rotateLocked puts the file aside and begins another.
func (f *File) rotateLocked() error {
	if err := f.file.Close(); err != nil {
		return err
	}
	for i := filesKept; i > 1; i-- {
		if err := os.Rename(f.old(i-1), f.old(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(f.path, f.old(1)); err != nil {
		return err
	}
	return f.openLocked()
}

func (f *File) old(i int) string { return fmt.Sprintf("%s.%d", f.path, i) }

// Close closes the log.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
