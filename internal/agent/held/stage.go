package held

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/layerstore"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// readBuffer is what reading the stage costs besides its largest body.
	readBuffer = 64 << 10
	// framesKept is how much room for frames is kept while parts come: what a part of short bodies takes.
	framesKept = 512 << 10

	stagedPut, stagedDeletion = 0, 1
	// stagedHead is the kind of a change and its key.
	stagedHead = 1 + sha256.Size
)

// errStaged says that what was staged is not what was appended.
var errStaged = errors.New("the disk has changed what was staged")

// stage is the log of the fetch that is under way: the fetch, and then a frame for each change, with the digest of its body and the body.
type stage struct {
	fetch  core.Fetch
	file   *os.File
	begin  int64 // of the changes
	size   int64 // up to the last good frame
	staged core.Staged
	// rows are those that are staged of a layer that is made out of nothing, so that they need not be read once more to know its root; nil where
	// they are not known.
	rows *catalog.Builder
	// frames is the room for those of one Append, for the next one.
	frames []byte
}

// Begin is part of client.Stage.
func (s *Store) Begin(f core.Fetch) (core.Staged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.endStageLocked(); err != nil {
		return core.Staged{}, err
	}
	file, err := s.top.root.OpenFile(stageName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return core.Staged{}, unwritable("open", s.stagePath(), err)
	}
	st := &stage{fetch: f, file: file}
	if f.Base == (catalog.Digest{}) {
		st.rows = &catalog.Builder{}
	}
	if err := st.resume(); err != nil {
		file.Close()
		return core.Staged{}, unwritable("write", s.stagePath(), err)
	}
	s.stage = st
	return st.staged, nil
}

func (s *Store) stagePath() string { return filepath.Join(s.state, stageName) }

// resume takes up what is there of the same fetch, and cuts off the rest.
func (st *stage) resume() error {
	begin, err := wire.Encode(&st.fetch)
	if err != nil {
		return err
	}
	begin = appendFrame(header(stageName), begin)
	st.begin = int64(len(begin))
	st.size = st.begin
	have := make([]byte, len(begin))
	if n, err := st.file.ReadAt(have, 0); err != nil && err != io.EOF {
		return err
	} else if n < len(begin) || !bytes.Equal(have, begin) {
		if err := st.file.Truncate(0); err != nil {
			return err
		}
		_, err := st.file.WriteAt(begin, 0)
		return err
	}
	info, err := st.file.Stat()
	if err != nil {
		return err
	}
	r := st.read(info.Size())
	for {
		c, ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok || !st.note(&c) {
			return st.file.Truncate(st.size)
		}
		st.size += int64(len(r.frame))
	}
}

// note counts a change that stands, or will stand, at the end of the log; false where it does not belong there.
func (st *stage) note(c *layerstore.Change) bool {
	if st.staged.Count > 0 && bytes.Compare(st.staged.Last[:], c.Key[:]) >= 0 {
		return false
	}
	if st.rows != nil && !c.Deleted && st.rows.Add(catalog.Row{Key: c.Key, Digest: c.Digest}) != nil {
		return false
	}
	st.staged.Count++
	st.staged.Last = c.Key
	st.staged.Bytes += uint64(len(c.Body))
	return true
}

// stageReader reads a log from the beginning, one change at a time.
type stageReader struct {
	from  *bufio.Reader
	frame []byte // that was read last
}

func (st *stage) read(end int64) *stageReader {
	return &stageReader{from: bufio.NewReaderSize(io.NewSectionReader(st.file, st.begin, end-st.begin), readBuffer)}
}

// next is the next change, whose body is good until the next call; false at the end, and where the log is torn or damaged.
func (r *stageReader) next() (c layerstore.Change, ok bool, err error) {
	head, err := r.from.Peek(frameHead)
	if err != nil {
		return c, false, systemError(err)
	}
	n := binary.BigEndian.Uint32(head)
	if n > frameMax {
		return c, false, nil
	}
	r.frame = slices.Grow(r.frame[:0], frameHead+int(n))[:frameHead+int(n)]
	if _, err := io.ReadFull(r.from, r.frame); err != nil {
		return c, false, systemError(err)
	}
	payload, _, ok := cutFrame(r.frame)
	if !ok {
		return c, false, nil
	}
	c, ok = decodeStaged(payload)
	return c, ok, nil
}

// appendStaged appends the frame of a change.
func appendStaged(b []byte, c *layerstore.Change) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	if c.Deleted {
		b = append(append(b, stagedDeletion), c.Key[:]...)
	} else {
		b = append(append(append(b, stagedPut), c.Key[:]...), c.Digest[:]...)
		b = append(b, c.Body...)
	}
	sealFrame(b[at:])
	return b
}

// decodeStaged reads what appendStaged has written; false where it is nothing of that.
func decodeStaged(payload []byte) (c layerstore.Change, ok bool) {
	if len(payload) < stagedHead {
		return c, false
	}
	c.Key = catalog.Digest(payload[1:stagedHead])
	rest := payload[stagedHead:]
	switch payload[0] {
	case stagedDeletion:
		c.Deleted = true
		return c, len(rest) == 0
	case stagedPut:
		if len(rest) < sha256.Size || len(rest) > sha256.Size+declare.BodyBytesMax {
			return c, false
		}
		c.Digest, c.Body = catalog.Digest(rest[:sha256.Size]), rest[sha256.Size:]
		return c, true
	}
	return c, false
}

// Append is part of client.Stage.
func (s *Store) Append(changes []wire.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stage
	if st == nil {
		return notStaged("stage changes")
	}
	before := st.staged
	frames := slices.Grow(st.frames[:0], framesSize(changes))
	err := func() error {
		for i := range changes {
			c := layerstore.Change{Change: catalog.Change{Key: changes[i].Key, Deleted: changes[i].Deleted}, Body: changes[i].Body}
			if !c.Deleted {
				c.Digest = sha256.Sum256(c.Body)
			}
			if len(c.Body) > declare.BodyBytesMax {
				return &reason.Error{Code: reason.BodyTooLarge, Doing: "stage a body"}
			}
			if !st.note(&c) {
				return &reason.Error{Code: reason.StateCorrupt, Doing: "stage changes of layer " + st.fetch.Layer, Cause: errors.New("their keys are not in order")}
			}
			frames = appendStaged(frames, &c)
		}
		if err := s.spare(uint64(len(frames)), uint64(st.size)+uint64(len(frames))); err != nil {
			return err
		}
		if _, err := st.file.WriteAt(frames, st.size); err != nil {
			return unwritable("write", s.stagePath(), errors.Join(err, st.file.Truncate(st.size)))
		}
		return nil
	}()
	if err != nil {
		st.staged, st.rows = before, nil
		return err
	}
	st.size += int64(len(frames))
	if st.frames = frames; cap(frames) > framesKept {
		st.frames = nil
	}
	return nil
}

// framesSize is more than the frames of changes take.
func framesSize(changes []wire.Change) (n int) {
	for i := range changes {
		n += frameHead + stagedHead + sha256.Size + len(changes[i].Body)
	}
	return n
}

func notStaged(doing string) error {
	return &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("nothing is staged")}
}

// Staged is part of client.Stage.
func (s *Store) Staged() iter.Seq2[catalog.Change, error] {
	return func(yield func(catalog.Change, error) bool) {
		s.mu.Lock()
		st := s.stage
		s.mu.Unlock()
		if st == nil {
			yield(catalog.Change{}, notStaged("read what is staged"))
			return
		}
		for c, err := range st.changes {
			if !yield(c.Change, err) {
				return
			}
		}
	}
}

// Outline is part of client.Stage.
func (s *Store) Outline(base catalog.Trie) (catalog.Trie, error) {
	s.mu.Lock()
	var rows *catalog.Builder
	if st := s.stage; st != nil && base.Len() == 0 {
		rows, st.rows = st.rows, nil // it makes one trie
	}
	s.mu.Unlock()
	if rows != nil {
		return rows.Trie(nil), nil
	}
	return base.Outline(s.Staged())
}

// changes iterates over what is staged.
func (st *stage) changes(yield func(layerstore.Change, error) bool) {
	r := st.read(st.size)
	for n := 0; n < st.staged.Count; n++ {
		c, ok, err := r.next()
		doing := "read what was staged of layer " + st.fetch.Layer
		switch {
		case err != nil:
			err = &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
		case !ok:
			err = &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: errStaged}
		}
		if !yield(c, err) || err != nil {
			return
		}
	}
}

// Commit is part of client.Stage.
func (s *Store) Commit(target catalog.Trie) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stage
	if st == nil {
		return notStaged("commit a layer")
	}
	var err error
	if root := target.Root(); root != st.fetch.Target {
		err = &reason.Error{Code: reason.StateCorrupt, Doing: "commit layer " + st.fetch.Layer, Cause: fmt.Errorf("it has the root %s, and %s was staged", root, st.fetch.Target)}
	} else {
		err = s.layers.Put(st.fetch.Base, target, layerstore.Changes{Count: st.staged.Count, Bytes: st.staged.Bytes, All: st.changes})
	}
	if err != nil && !reason.Is(err, reason.StateCorrupt) {
		return err
	}
	return errors.Join(err, s.dropLocked())
}

// Drop is part of client.Stage.
func (s *Store) Drop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropLocked()
}

func (s *Store) dropLocked() error {
	err := s.endStageLocked()
	if gone := s.top.root.Remove(stageName); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, unwritable("remove", s.stagePath(), gone))
	}
	return err
}

func (s *Store) endStageLocked() error {
	if s.stage == nil {
		return nil
	}
	err := s.stage.file.Close()
	s.stage = nil
	return unwritable("close", s.stagePath(), err)
}

// systemError is an error of the system; what the end of a file makes of reading is not.
func systemError(err error) error {
	var system *fs.PathError
	if errors.As(err, &system) {
		return err
	}
	return nil
}
