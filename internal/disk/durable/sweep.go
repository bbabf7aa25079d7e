package durable

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// tempTries bounds the search for a free name; one is enough unless somebody plays with us.
const tempTries = 4

// tryTemporary calls create with temporary names until it succeeds or fails for another reason than a name that is taken.
func tryTemporary(name string, create func(temp string) error) (string, error) {
	var err error
	for range tempTries {
		temp := disk.TempName(name)
		if err = create(temp); err != unix.EEXIST {
			return temp, err
		}
	}
	return "", err
}

// SweepTemporaries removes what a killed run left in directories: entries with the exact form of our temporary names that
// are regular files, symlinks or empty directories. A file may be an old one that had not been backed up yet, so backup, if
// set, gets each first, and one that it refuses stays. It must not run beside a write; one agent for each state directory,
// and calling it at start only, see to that. Directories that are not there are passed over. It returns how many entries it
// removed, also with an error, which joins all.
func SweepTemporaries(ctx context.Context, r *disk.Root, dirs []string, backup Backup) (removed int, err error) {
	var errs []error
	for _, p := range dirs {
		if err := ctx.Err(); err != nil {
			errs = append(errs, stopped("sweep directory", p, err))
			break
		}
		n, err := sweep(r, p, backup)
		removed += n
		if err != nil {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

func sweep(r *disk.Root, p string, backup Backup) (removed int, err error) {
	d, err := r.Dir(p)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	defer d.Close()
	f, err := d.Reopen()
	if err != nil {
		return 0, disk.Fault("list directory", p, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, disk.Fault("list directory", p, err)
	}
	var errs []error
	for _, name := range names {
		if !disk.IsTemporary(name) {
			continue
		}
		gone, err := sweepOne(d, name, backup)
		if err != nil {
			errs = append(errs, err)
		}
		if gone {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// sweepOne removes one temporary, and reports whether it did. An ordinary user leaves alone what belongs to another.
func sweepOne(d *disk.Dir, name string, backup Backup) (bool, error) {
	st, err := d.Stat(name)
	if err != nil || !st.Exists() || os.Geteuid() != 0 && st.UID != uint32(os.Geteuid()) {
		return false, err
	}
	flags := 0
	switch st.Type() {
	case unix.S_IFREG:
		if backup != nil {
			if err := keepOld(d, "sweep", name, st, backup); err != nil {
				return false, err
			}
		}
	case unix.S_IFLNK:
	case unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	default:
		return false, nil
	}
	// A directory that is not empty is not ours, and what cannot be removed now is tried again at the next start.
	return unix.Unlinkat(d.FD(), name, flags) == nil, nil
}

const (
	// besideMax bounds what is removed beside one path: a killed run leaves one temporary. sweptMax does of one directory.
	besideMax, sweptMax = 16, 1024
	// namesAtOnce bounds one step of a listing, and listSteps how many there are: somebody may have filled the directory.
	namesAtOnce, listSteps = 1024, 64
)

// Sweeper removes what a killed run has left in directories, and beside a path that is about to be written, once for each path. What is younger than the
// Sweeper is left alone: somebody may be writing it. Nothing that it removes is kept: it is for who keeps old content before it is moved away, or none.
// Its methods may be called from any goroutine.
type Sweeper struct {
	root    *disk.Root
	started int64 // the clock of the file system, as Stat has it

	mu    sync.Mutex // guards swept
	swept map[string]bool
}

// NewSweeper makes a Sweeper.
func NewSweeper(root *disk.Root) *Sweeper {
	return &Sweeper{root: root, started: disk.Tick(), swept: map[string]bool{}}
}

// Sweep sweeps directories. Those that are not there are passed over.
func (s *Sweeper) Sweep(ctx context.Context, dirs []string) error {
	var errs []error
	for _, p := range dirs {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, stopped("sweep directory", p, err))...)
		}
		d, err := s.root.Dir(p)
		if err != nil {
			errs = append(errs, ignoreMissing(err))
			continue
		}
		errs = append(errs, s.old(d, "", sweptMax, func(name string) error {
			_, err := sweepOne(d, name, nil)
			return err
		}), d.Close())
	}
	return errors.Join(errs...)
}

// Beside sweeps beside a path. What cannot be listed, or is not ours to remove, is no reason not to write.
func (s *Sweeper) Beside(ctx context.Context, p string) error {
	s.mu.Lock()
	done := s.swept[p]
	s.swept[p] = true
	s.mu.Unlock()
	if done {
		return nil
	}
	d, name, err := s.root.Parent(p)
	if reason.Is(err, reason.ParentMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return s.old(d, name+".", besideMax, func(temp string) error {
		if err := Remove(ctx, s.root, RemoveSpec{Path: d.Join(temp)}); err != nil && !reason.Is(err, reason.PermissionDenied) {
			return err
		}
		return nil
	})
}

// old has each be removed, up to so many, of what killed runs have left in a directory under names that begin so.
func (s *Sweeper) old(d *disk.Dir, begin string, most int, remove func(temp string) error) error {
	list, err := d.Reopen()
	if err != nil {
		return d.Fault("list directory", "", err)
	}
	defer list.Close()
	removed := 0
	for range listSteps {
		names, err := list.Readdirnames(namesAtOnce)
		for _, n := range names {
			if removed == most || !disk.IsTemporary(n) || !strings.HasPrefix(n, disk.TempPrefix+begin) {
				continue
			}
			if st, err := d.Stat(n); err != nil || st.Ctime >= s.started {
				continue
			}
			if err := remove(n); err != nil {
				return err
			}
			removed++
		}
		if err != nil {
			return nil // the end, or it cannot be listed
		}
	}
	return nil
}
