package store

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// journalMin is the size below which a journal is not worth writing anew: one read at start takes in as much.
const journalMin = 256 << 10

// journal is the open file behind the ledger.
type journal struct {
	file  *os.File
	info  fs.FileInfo
	size  int64 // up to the last good frame
	limit int64 // size at which to look whether it is mostly dead
	dirty bool  // something in it may not be durable
	stale bool  // it lacks something that the ledger has, or its end cannot be trusted: write it anew before anything else
}

// decodeEvent reads the payload of one frame.
func decodeEvent(payload []byte) (*event, error) {
	var e event
	if err := decoding.Unmarshal(payload, &e); err != nil {
		return nil, err
	}
	if !e.complete() {
		return nil, fmt.Errorf("an event of kind %d is not complete", e.Kind)
	}
	return &e, nil
}

// replay fills the ledger from the journal. It returns the size of the file, and what is wrong with it, fs.ErrNotExist where
// there is none. A frame that makes no sense is passed over like one with a wrong checksum.
func (s *Store) replay() (size int64, err error) {
	var odd error
	st, err := s.readFrames(journalName, func(payload []byte, _ int64) error {
		e, err := decodeEvent(payload)
		if err != nil {
			odd = err
			return nil
		}
		s.ledger.apply(e)
		return nil
	})
	return st.Size, errors.Join(err, odd)
}

// loadJournal replays the journal, makes it ready for appending, and settles what a crash left open.
func (s *Store) loadJournal(now time.Time, at host.Stamp) error {
	path := s.path(journalName)
	size, err := s.replay()
	if fatal := unjudged(path, err); fatal != nil {
		return fatal
	}
	void, readErr := s.voidRemovals()
	if readErr != nil {
		return readErr // what is active must not be removed
	}
	settled := append(s.ledger.reckon(at), void...)
	for i := range settled {
		s.ledger.apply(&settled[i])
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.damaged(journalName, err, now)
		}
		// What cannot be written now is in memory, and nothing can be promised until it is written: see presentLocked.
		_ = s.unwritableLocked("write", journalName, s.rewriteLocked())
		return nil
	}
	if err := s.openJournal(size); err != nil {
		return s.unwritableLocked("open", journalName, err)
	}
	if len(settled) > 0 {
		if err := s.appendLocked(settled, true); err != nil {
			// It is settled in memory, and will be again at the next start.
			s.journal.stale = true
			_ = s.unwritableLocked("write", journalName, err)
		}
	}
	return nil
}

// voidRemovals returns the events that take back the removals of what is active: the swap that they were for did not happen,
// or somebody else declared the same thing since.
func (s *Store) voidRemovals() ([]event, error) {
	if len(s.ledger.removals) == 0 {
		return nil, nil
	}
	var void []event
	for ref, err := range s.Active().Refs() {
		if err != nil {
			return nil, err
		}
		if _, ok := s.ledger.removals[ref.Claim]; ok {
			void = append(void, event{Kind: removalOver, Key: key(ref.Claim)})
		}
	}
	return void, nil
}

// openJournal opens the file for appending. A descriptor of an earlier one is closed.
func (s *Store) openJournal(size int64) error {
	f, err := os.OpenFile(s.path(journalName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if s.journal.file != nil {
		s.journal.file.Close()
	}
	s.journal = journal{file: f, info: info, size: size, limit: max(journalMin, 2*size)}
	return nil
}

// rewriteLocked replaces the journal by one that holds the ledger and nothing else. The directory must be ours.
func (s *Store) rewriteLocked() error {
	size, err := write(s.root, journalName, s.ledger.chunks())
	if err != nil {
		return err
	}
	return s.openJournal(size)
}

// chunks yields the file that holds the ledger.
func (l *ledger) chunks() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := header(journalName)
		for e := range l.events() {
			if !yield(buf) {
				return
			}
			buf = appendFrame(buf[:0], e)
		}
		yield(buf)
	}
}

// commit makes events part of the journal and the ledger. With durable set, or when one of them is a promise, they are
// durable when it returns.
func (s *Store) commit(events []event, durable bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commitLocked(events, durable)
}

func (s *Store) commitLocked(events []event, durable bool) error {
	if len(events) == 0 {
		return nil
	}
	for i := range events {
		durable = durable || events[i].promise()
	}
	err := s.appendLocked(events, durable)
	for i := range events {
		if err == nil || !events[i].promise() {
			s.ledger.apply(&events[i])
		}
	}
	if err != nil {
		s.journal.stale = true
		return s.unwritableLocked("write", journalName, err)
	}
	s.compactLocked()
	return nil
}

// appendLocked writes events behind the last good frame.
func (s *Store) appendLocked(events []event, durable bool) error {
	if err := s.presentLocked(); err != nil {
		return err
	}
	if s.journal.stale {
		if err := s.rewriteLocked(); err != nil {
			return err
		}
	}
	var frames []byte
	for i := range events {
		frames = appendFrame(frames, &events[i])
	}
	j := &s.journal
	if err := appendAt(j.file, frames, j.size); err != nil {
		return err
	}
	j.size += int64(len(frames))
	j.dirty = true
	if durable {
		return s.syncLocked()
	}
	return nil
}

// appendAt writes at the end of a file, or leaves the file as it was.
func appendAt(f *os.File, b []byte, size int64) error {
	if _, err := f.WriteAt(b, size); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	return nil
}

// syncLocked makes the journal durable. After a failure the kernel may take lost pages for written, so the file is not
// trusted any more.
func (s *Store) syncLocked() error {
	if !s.journal.dirty {
		return nil
	}
	if err := disk.Sync(s.journal.file); err != nil {
		s.journal.stale = true
		return err
	}
	s.journal.dirty = false
	return nil
}

// noteBytes is room for the notes about one thing that is done.
const noteBytes = 4096

// Ready says whether what is done next can be noted. Then everything before it is durable, and there is room for the note.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.presentLocked()
	if err == nil {
		err = s.flushLocked()
	}
	if err == nil {
		err = unix.Fallocate(int(s.journal.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.journal.size, noteBytes)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // of a file system that cannot keep room free
	}
	return s.unwritableLocked("write", journalName, err)
}

// flushLocked makes everything that the ledger has durable.
func (s *Store) flushLocked() error {
	if s.journal.stale {
		return s.rewriteLocked()
	}
	return s.syncLocked()
}

// compactLocked writes the journal anew when most of it is dead. If that cannot be done now, it is tried again when the
// journal has doubled.
func (s *Store) compactLocked() {
	j := &s.journal
	if j.size < j.limit {
		return
	}
	j.limit = 2 * j.size
	var live int64
	for c := range s.ledger.chunks() {
		live += int64(len(c))
	}
	if live > j.size/2 {
		return
	}
	if err := s.rewriteLocked(); err != nil {
		_ = s.unwritableLocked("compact", journalName, err)
	}
}

// presentLocked makes sure that what is written goes where the next start will look for it.
func (s *Store) presentLocked() error {
	if s.lock == nil {
		return errNotOwned
	}
	if inPlace(s.path(lockName), s.lock.info) && inPlace(s.path(journalName), s.journal.info) {
		return nil
	}
	return s.rebuildLocked()
}

// rebuildLocked makes the directory again, from memory and from the files that are still open.
func (s *Store) rebuildLocked() error {
	if !inPlace(s.path(lockName), s.lock.info) {
		if err := makeDir(s.dir, 0o700); err != nil {
			return err
		}
		l, err := takeLock(s.dir)
		if err != nil {
			return err
		}
		root, err := disk.OpenRoot(s.dir)
		if err != nil {
			l.file.Close()
			return err
		}
		s.lock.file.Close()
		s.root.Close()
		s.lock, s.root = l, root
	}
	deleted := s.journal.info != nil // rather than never written, for want of room
	// The journal comes last: as long as it is missing, this is tried again.
	if err := s.active.rewrite(s.root, s.path(activeName)); err != nil {
		return err
	}
	if err := s.rewriteLocked(); err != nil {
		return err
	}
	if deleted {
		s.troubleLocked(rebuilt(s.dir))
	}
	return nil
}

// path is the path of an entry of the directory.
func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// unwritableLocked is the error of writing a file of the directory; nil stays nil. The last one is a trouble until something can be written.
func (s *Store) unwritableLocked(what, name string, err error) error {
	if err != nil {
		err = unwritable(what, s.path(name), err)
	}
	s.unwrote = reason.Of(err)
	return err
}
