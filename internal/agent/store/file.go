package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// openFile opens a file of the directory for reading. A file that is not there is fs.ErrNotExist.
func openFile(root *disk.Root, name string) (*os.File, disk.Stat, error) {
	if root == nil {
		return nil, disk.Stat{}, fs.ErrNotExist
	}
	d, err := root.Dir("/")
	if err != nil {
		return nil, disk.Stat{}, err
	}
	defer d.Close()
	return d.Open(name)
}

// unjudged tells a file that is damaged, or not there, from one that could not be looked at: a later version's, one that we
// may not read, or when the system is short of something. What it returns then ends the opening of the store, because a
// good file must not be set aside.
func unjudged(path string, err error) error {
	doing := "read " + disk.Shown(path)
	var newer newerError
	var no unix.Errno
	switch {
	case errors.As(err, &newer):
		return &reason.Error{
			Code: reason.StateNewer, Doing: doing, Cause: err,
			Hint: "run the newer version again, or move the state directory away to start afresh: pending restarts and removals are lost then",
		}
	case !errors.As(err, &no) || no == unix.ENOENT || no == unix.EIO:
		return nil
	case errors.Is(no, fs.ErrPermission):
		return &reason.Error{Code: reason.PermissionDenied, Doing: doing, Cause: err, Hint: "run it as root, or as the user that the agent runs as"}
	}
	return &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: err}
}

// checkVersions makes sure, before anything is touched, that no file is of a later version.
func checkVersions(root *disk.Root, dir string) error {
	check := func(name, kind string) error {
		f, st, err := openFile(root, name)
		if err == nil {
			defer f.Close()
			_, err = newScan(f, min(st.Size, headerMax), kind)
		}
		return unjudged(filepath.Join(dir, name), err)
	}
	for _, name := range []string{activeName, journalName, convergedName, reportName} {
		if err := check(name, name); err != nil {
			return err
		}
	}
	numbers, err := segmentNumbers(filepath.Join(dir, historyName))
	if err != nil || len(numbers) == 0 {
		return nil // a history that cannot be read is found out when it is
	}
	d, err := root.Dir("/" + historyName)
	if err != nil {
		return nil
	}
	defer d.Close()
	name := segmentName(numbers[len(numbers)-1])
	f, st, err := d.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	_, err = newScan(f, min(st.Size, headerMax), historyName)
	return unjudged(filepath.Join(dir, historyName, name), err)
}

// write replaces a file of the directory, atomically and durably, by chunks, which are asked for twice and must be the same
// both times. A chunk is valid until the next one. It returns the size of the file.
func write(root *disk.Root, name string, chunks iter.Seq[[]byte]) (size int64, err error) {
	for c := range chunks {
		size += int64(len(c))
	}
	next, stop := iter.Pull(chunks)
	defer stop()
	return size, replace(root, name, &stream{next: next}, size)
}

// replace is write for content that can be read anywhere.
func replace(root *disk.Root, name string, content io.ReaderAt, size int64) error {
	_, err := durable.Write(context.Background(), root, durable.WriteSpec{
		Path: "/" + name, Content: content, Size: size, Mode: 0o600, UID: durable.Keep, GID: durable.Keep, Force: true,
	})
	return err
}

// stream is chunks in the form that disk reads: once, from the start to the end.
type stream struct {
	next func() ([]byte, bool)
	rest []byte
	at   int64
}

// ReadAt reads on from where the last call ended.
func (s *stream) ReadAt(p []byte, off int64) (n int, err error) {
	if off != s.at {
		return 0, fmt.Errorf("store: read at %d of a stream that is at %d", off, s.at)
	}
	for n < len(p) {
		if len(s.rest) == 0 {
			chunk, ok := s.next()
			if !ok {
				return n, io.EOF
			}
			s.rest = chunk
			continue
		}
		m := copy(p[n:], s.rest)
		n, s.rest, s.at = n+m, s.rest[m:], s.at+int64(m)
	}
	return n, nil
}

// readFrames calls take with the good frames of a file of the directory, and says what is wrong with it: fs.ErrNotExist,
// an error of unjudged, or what damages it.
func (s *Store) readFrames(name string, take func(payload []byte, at int64) error) (disk.Stat, error) {
	f, st, err := openFile(s.root, name)
	if err != nil {
		return st, err
	}
	defer f.Close()
	return st, scanFile(f, st.Size, name, take)
}

// scanFile calls take with the good frames of a file. The first error of take ends it.
func scanFile(r io.Reader, size int64, kind string, take func(payload []byte, at int64) error) error {
	sc, err := newScan(r, size, kind)
	if err != nil {
		return err
	}
	for {
		payload, at, ok := sc.next()
		if !ok {
			return sc.verdict()
		}
		if err := take(payload, at); err != nil {
			return err
		}
	}
}

// readError is the error of reading what is not rebuilt; nil where there is nothing to read.
func readError(path string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if fatal := unjudged(path, err); fatal != nil {
		return fatal
	}
	return &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(path), Cause: err}
}

// replace replaces a file of the directory by bytes.
func (s *Store) replace(name string, file []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.presentLocked()
	if err == nil {
		err = replace(s.root, name, bytes.NewReader(file), int64(len(file)))
	}
	return s.unwritableLocked("write", name, err)
}

// tooLarge refuses what is more than a limit in bytes.
func tooLarge(doing string, size, limit int) error {
	if size <= limit {
		return nil
	}
	return &reason.Error{Code: reason.BodyTooLarge, Doing: doing, Cause: fmt.Errorf("%d bytes, the limit is %d", size, limit)}
}
