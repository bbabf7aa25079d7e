package held

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"tako.dev/tako/internal/reason"
)

// Started is SetLife for the start of the agent, which it counts. That must not depend on room on the disk: a host with a full one is to be
// kept as well. Where the life cannot be written it counts in memory, Troubles says so, and it becomes durable with the next change that
// can be written. Errors are those of reading.
func (s *Store) Started(l Life) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed, err := s.missedStarts()
	if err != nil {
		return err
	}
	r := s.record.setLife(l)
	r.Life.Starts = s.record.Life.Starts + missed + 1
	err = s.changeLocked(r)
	if !reason.Is(err, reason.StateUnwritable) {
		return err
	}
	s.record, s.counted, s.uncounted = r, true, true
	return s.missStart(missed + 1)
}

// missedStarts is how many starts are not in the record.
func (s *Store) missedStarts() (uint64, error) {
	info, err := s.top.root.Lstat(startsName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, unreadable(filepath.Join(s.state, startsName), err)
	}
	s.uncounted = true
	return uint64(info.Size()), nil
}

// missStart counts in the length of a file, which takes no room: servers would take a second run with the number of another for a second
// host. Where not even that can be written, they do.
func (s *Store) missStart(n uint64) error {
	f, err := s.top.root.OpenFile(startsName, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	return errors.Join(f.Truncate(int64(n)), f.Close())
}

// Flush writes what could not be written before; without such a thing it does nothing.
func (s *Store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unnoted == nil {
		return nil
	}
	return s.changeLocked(s.record)
}
