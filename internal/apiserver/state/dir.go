package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// dataFormat is the version of what is in the data directory. A server refuses a higher one, which it cannot know.
const dataFormat = 1

// Dir is the server's directory, which belongs to one process at a time.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the directory if it is missing and becomes its owner.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, dataFault("make the data directory", path, err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, dataFault("close the data directory to others", path, err)
	}
	d := &Dir{path: path}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := d.checkFormat(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Join is the path of something in the directory.
func (d *Dir) Join(name string) string { return filepath.Join(d.path, name) }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// takeLock locks a file for as long as this process lives, and writes into it who has it.
func (d *Dir) takeLock() error {
	f, err := os.OpenFile(d.Join("lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
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
	path := d.Join("format")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, []byte(strconv.Itoa(dataFormat)+"\n"), 0o600); err != nil {
			return dataFault("mark the data directory", d.path, err)
		}
		return nil
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
	f, err := os.Open(d.path)
	if err != nil {
		return dataFault("sync the data directory", d.path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return dataFault("sync the data directory", d.path, err)
	}
	return nil
}

// Close gives the directory back.
func (d *Dir) Close() error { return d.lock.Close() }

func dataFault(doing, path string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: doing + " " + path, Cause: err, Hint: "the server's user must own it: choose another with --data-dir"}
}
