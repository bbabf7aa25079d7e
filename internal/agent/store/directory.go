package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// The names in the state directory. Those of files are also the kinds in their headers.
const (
	lockName      = "lock"
	activeName    = "active"
	journalName   = "journal"
	convergedName = "converged"
	reportName    = "report"
	historyName   = "history"
	corruptName   = "corrupt"
)

const (
	// corruptKept is how many damaged files are kept for a person to look at.
	corruptKept = 10
	// corruptTime ends the name of a damaged file; it sorts by time.
	corruptTime = "20060102T150405.000000000Z"
	// lockTries bounds how often the lock's file may be deleted while we take it; once is odd already.
	lockTries = 3
)

// makeDir makes a directory that survives a power cut, and what is missing above it.
func makeDir(dir string, mode fs.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if errors.Is(err, fs.ErrExist) {
		if st, statErr := os.Stat(dir); statErr == nil && !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	if err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	return disk.Sync(parent)
}

// lock is held by the one process that owns the directory. The kernel gives it back however the process ends.
type lock struct {
	file *os.File
	info fs.FileInfo
}

// takeLock takes the lock without waiting.
func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockName)
	for range lockTries {
		l, err := tryLock(path)
		if err != nil {
			return nil, err
		}
		// Who held it before may have deleted it while we opened it: then nobody else would meet us there.
		if inPlace(path, l.info) {
			l.sign()
			return l, nil
		}
		l.file.Close()
	}
	return nil, unwritable("lock", path, errors.New("it is deleted again and again"))
}

func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		defer f.Close()
		return nil, anotherAgent(f)
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr); err != nil {
		f.Close()
		return nil, unwritable("lock", path, err)
	}
	return &lock{file: f, info: info}, nil
}

// sign writes our process id into the lock. It is for people only, so a full disk is no reason to stop.
func (l *lock) sign() {
	if l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	}
}

func anotherAgent(f *os.File) error {
	who := "a process that did not say its id"
	var digits [20]byte // of the largest 64-bit number
	n, _ := f.ReadAt(digits[:], 0)
	if pid, err := strconv.ParseUint(string(digits[:n]), 10, 32); err == nil {
		who = fmt.Sprintf("process %d", pid)
	}
	return &reason.Error{
		Code: reason.AnotherAgent, Doing: "open state directory " + disk.Shown(filepath.Dir(f.Name())), Cause: errors.New(who + " has it"),
		Hint: "stop that agent first (systemctl stop tako-agent), or work under another --root",
	}
}

// inPlace reports whether a file that was opened is still the one at a path.
func inPlace(path string, info fs.FileInfo) bool {
	now, err := os.Lstat(path)
	return err == nil && info != nil && os.SameFile(now, info)
}

// setAside keeps a damaged entry of a directory for a person to look at, and returns where. A regular file that stays
// in use until it is replaced is linked, anything else is moved.
func setAside(dir, name string, stays bool, now time.Time) (string, error) {
	corrupt := filepath.Join(dir, corruptName)
	if err := os.Mkdir(corrupt, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	target := filepath.Join(corrupt, name+"."+now.UTC().Format(corruptTime))
	move := os.Rename
	if stays {
		move = os.Link
	}
	if err := move(filepath.Join(dir, name), target); err != nil {
		return "", err
	}
	return target, trimCorrupt(corrupt)
}

// trimCorrupt keeps the newest damaged files.
func trimCorrupt(corrupt string) error {
	entries, err := os.ReadDir(corrupt)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		_, ta, _ := strings.Cut(a.Name(), ".")
		_, tb, _ := strings.Cut(b.Name(), ".")
		return strings.Compare(ta, tb)
	})
	for len(entries) > corruptKept {
		if err := os.RemoveAll(filepath.Join(corrupt, entries[0].Name())); err != nil {
			return err
		}
		entries = entries[1:]
	}
	return nil
}

// unwritable says that state could not be written; the error of the system stays inside.
func unwritable(what, path string, err error) error {
	var have *reason.Error
	if errors.As(err, &have) {
		switch have.Code {
		case reason.AnotherAgent, reason.StateNewer, reason.StateUnwritable, reason.BodyTooLarge:
			return err
		}
	}
	e := &reason.Error{Code: reason.StateUnwritable, Doing: what + " " + disk.Shown(path), Cause: err,
		Hint: "the agent needs its state directory writable, with room for a copy of what is in it"}
	if have != nil && have.Hint != "" {
		e.Hint = have.Hint
	}
	return e
}
