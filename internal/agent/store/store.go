package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// troublesMax bounds what is told of the state directory itself; the newest count.
const troublesMax = 20

// Store is the state directory of one agent.
type Store struct {
	dir     string
	boot    string // id of this boot; empty for Inspect
	active  activeState
	history history

	mu       sync.Mutex // guards what follows
	root     *disk.Root // nil where Inspect found no directory
	lock     *lock      // nil where the directory is not ours to write in
	journal  journal
	ledger   ledger
	troubles []*reason.Error
	unwrote  *reason.Error // why a file could not be written last; nil where it could
}

var (
	errNotOwned = errors.New("it is closed, or opened for reading only")
	errDeleted  = errors.New("somebody deleted or replaced it while the agent ran")
)

func key(c declare.Claim) converge.Key { return converge.Key(c.String()) }

// Open takes possession of a state directory, which is made where it is missing, and reads what is in it. now is the wall
// clock. Damaged files are set aside and told of by Troubles. Errors: AnotherAgent when another process has the directory,
// StateNewer when a later version wrote it (then nothing was touched), StateUnwritable.
func Open(dir string, now time.Time) (*Store, error) {
	at, err := stampNow()
	if err != nil {
		return nil, err
	}
	return openAt(dir, now, at)
}

func openAt(dir string, now time.Time, at host.Stamp) (*Store, error) {
	s, err := newStore(dir)
	if err != nil {
		return nil, unwritable("open state directory", dir, err)
	}
	if err := s.possess(); err != nil {
		return nil, errors.Join(unwritable("open state directory", dir, err), s.Close())
	}
	s.boot = at.Boot
	if err := s.load(now, at); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newStore makes a Store of a directory, with nothing read yet.
func newStore(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, ledger: newLedger(), history: history{dir: filepath.Join(dir, historyName)}}
	root, err := disk.OpenRoot(dir)
	switch {
	case err == nil:
		s.root = root
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return s, nil
}

// possess makes the directory if need be, and takes its lock.
func (s *Store) possess() (err error) {
	if s.root != nil {
		if err := checkVersions(s.root, s.dir); err != nil {
			return err
		}
	} else {
		if err := makeDir(s.dir, 0o700); err != nil {
			return err
		}
		if s.root, err = disk.OpenRoot(s.dir); err != nil {
			return err
		}
	}
	s.lock, err = takeLock(s.dir)
	return err
}

// load reads what the directory holds and settles what the last run left open.
func (s *Store) load(now time.Time, at host.Stamp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.judge(activeName, s.loadActive(), now); err != nil {
		return err
	}
	if err := s.loadJournal(now, at); err != nil {
		return err
	}
	for _, name := range []string{convergedName, reportName} {
		_, err := s.readFrames(name, func([]byte, int64) error { return nil })
		if err := s.judge(name, err, now); err != nil {
			return err
		}
	}
	if _, err := durable.SweepTemporaries(context.Background(), s.root, []string{"/"}, nil); err != nil {
		s.troubleLocked(reason.Of(err))
	}
	return nil
}

// judge decides what an error of reading a file means: nothing where there is no file, the end where it is not for us to
// judge, otherwise damage, which is set aside.
func (s *Store) judge(name string, err error, now time.Time) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if fatal := unjudged(s.path(name), err); fatal != nil {
		return fatal
	}
	s.damaged(name, err, now)
	return nil
}

// damaged sets a damaged file aside and tells of it. The journal stays where it is until a good one replaces it.
func (s *Store) damaged(name string, err error, now time.Time) {
	info, statErr := os.Lstat(s.path(name))
	stays := name == journalName && statErr == nil && info.Mode().IsRegular()
	hint := "what could not be read is made anew from the declarations"
	kept, asideErr := setAside(s.dir, name, stays, now)
	if kept != "" {
		hint += "; the damaged file is kept as " + disk.Shown(kept)
	}
	s.troubleLocked(&reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(s.path(name)), Cause: errors.Join(err, asideErr), Hint: hint})
}

// Inspect reads a state directory for looking at it: it takes no lock, writes nothing, and works beside a running agent. A
// directory that is not there is empty. Methods that write fail with StateUnwritable. Errors: StateNewer, PermissionDenied.
func Inspect(dir string) (*Store, error) {
	s, err := newStore(dir)
	if err != nil {
		return nil, err
	}
	if err := s.look(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// look is load for somebody who only looks.
func (s *Store) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// In this order: a removal is in the journal before its claim is gone from the active state.
	if err := s.tell(activeName, s.loadActive()); err != nil {
		return err
	}
	_, err := s.replay()
	var d damage
	if errors.As(err, &d) && d.passed == 0 {
		return nil // a running agent is about to write the rest
	}
	return s.tell(journalName, err)
}

// tell is judge for somebody who only looks.
func (s *Store) tell(name string, err error) error {
	err = readError(s.path(name), err)
	if !reason.Is(err, reason.StateCorrupt) {
		return err
	}
	e := reason.Of(err)
	e.Hint = "the agent sets it aside and makes it anew when it starts"
	s.troubleLocked(e)
	return nil
}

// Close makes the journal durable and gives the directory back. No other method may follow.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.active.close(), s.history.close()}
	if s.journal.file != nil {
		// Where the directory was deleted there is nothing to keep, and somebody else's must not be written in.
		if inPlace(s.path(lockName), s.lock.info) && inPlace(s.path(journalName), s.journal.info) {
			errs = append(errs, s.unwritableLocked("write", journalName, s.flushLocked()))
		}
		errs = append(errs, s.journal.file.Close())
		s.journal.file = nil
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
		s.root = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.file.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// Troubles returns what was found wrong with the state directory, oldest first; an old trouble that came again counts as
// new. The last one is why it cannot be written at the moment.
func (s *Store) Troubles() []*reason.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.troubles)
	if s.unwrote != nil {
		list = append(list, s.unwrote)
	}
	return list
}

// Writes reports whether an error is of writing one of the files of the store.
func (s *Store) Writes(e *reason.Error) bool {
	names := []string{activeName, journalName, convergedName, reportName, historyName}
	return e.Code == reason.StateUnwritable && slices.ContainsFunc(names, func(name string) bool { return strings.Contains(e.Doing, disk.Shown(s.path(name))) })
}

func (s *Store) troubleLocked(e *reason.Error) {
	s.troubles = slices.DeleteFunc(s.troubles, func(t *reason.Error) bool { return t.Code == e.Code && t.Doing == e.Doing })
	s.troubles = append(s.troubles, e)
	if over := len(s.troubles) - troublesMax; over > 0 {
		s.troubles = slices.Clone(s.troubles[over:])
	}
}

func rebuilt(dir string) *reason.Error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "keep state in " + disk.Shown(dir), Cause: errDeleted,
		Hint: "it was made again from memory; what happened before is not in the history any more"}
}
