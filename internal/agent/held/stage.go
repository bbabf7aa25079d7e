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

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// stage is the log of the fetch that is under way.
type stage struct {
	fetch core.Fetch
	file  *os.File
	size  int64    // up to the last good frame
	rows  []staged // in the order of the keys
}

// staged is one change, without its body.
type staged struct {
	catalog.Change
	at     int64 // of the frame of the change
	length int64 // of it
	body   int   // length of the body
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
	if err := st.resume(); err != nil {
		file.Close()
		return core.Staged{}, unwritable("write", s.stagePath(), err)
	}
	s.stage = st
	staged := core.Staged{Changes: make([]catalog.Change, len(st.rows))}
	for i := range st.rows {
		staged.Changes[i] = st.rows[i].Change
		staged.Bytes += uint64(st.rows[i].body)
	}
	return staged, nil
}

func (s *Store) stagePath() string { return filepath.Join(s.state, stageName) }

// resume takes up what is there of the same fetch, and cuts off the rest.
func (st *stage) resume() error {
	begin, err := wire.Encode(&st.fetch)
	if err != nil {
		return err
	}
	begin = appendFrame(header(stageName), begin)
	have := make([]byte, len(begin))
	if n, err := st.file.ReadAt(have, 0); err != nil && err != io.EOF {
		return err
	} else if n < len(begin) || !bytes.Equal(have, begin) {
		if err := st.file.Truncate(0); err != nil {
			return err
		}
		st.size = int64(len(begin))
		_, err := st.file.WriteAt(begin, 0)
		return err
	}
	st.size = int64(len(begin))
	r := bufio.NewReaderSize(io.NewSectionReader(st.file, st.size, 1<<62), readBuffer)
	for {
		frame, ok, err := readFrame(r)
		if err != nil {
			return err
		}
		if !ok || st.note(frame) != nil {
			return st.file.Truncate(st.size)
		}
	}
}

// readFrame reads a whole frame; false at the end, and where it is torn or damaged.
func readFrame(r io.Reader) (frame []byte, ok bool, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, false, systemError(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frameMax {
		return nil, false, nil
	}
	frame = append(make([]byte, 0, frameHead+int(n)), head[:]...)[:frameHead+int(n)]
	if _, err := io.ReadFull(r, frame[frameHead:]); err != nil {
		return nil, false, systemError(err)
	}
	_, _, ok = cutFrame(frame)
	return frame, ok, nil
}

// note takes a frame that stands, or will stand, at the end of the log.
func (st *stage) note(frame []byte) error {
	var c wire.Change
	if err := wire.Decode(frame[frameHead:], &c); err != nil {
		return err
	}
	row := staged{Change: catalog.Change{Key: c.Key, Deleted: c.Deleted}, at: st.size, length: int64(len(frame)), body: len(c.Body)}
	if !c.Deleted {
		row.Digest = sha256.Sum256(c.Body)
	}
	if n := len(st.rows); n > 0 && bytes.Compare(st.rows[n-1].Key[:], c.Key[:]) >= 0 {
		return errors.New("its keys are not in order")
	}
	st.rows = append(st.rows, row)
	st.size += row.length
	return nil
}

// Append is part of client.Stage.
func (s *Store) Append(changes []wire.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stage
	if st == nil {
		return notStaged("stage changes")
	}
	size, rows := st.size, len(st.rows)
	var frames []byte
	for i := range changes {
		payload, err := wire.Encode(&changes[i])
		if err == nil && len(changes[i].Body) > declare.BodyBytesMax {
			err = &reason.Error{Code: reason.BodyTooLarge, Doing: "stage a body"}
		}
		if err == nil {
			frame := appendFrame(nil, payload)
			frames = append(frames, frame...)
			err = st.note(frame)
		}
		if err != nil {
			st.size, st.rows = size, st.rows[:rows]
			return &reason.Error{Code: reason.StateCorrupt, Doing: "stage changes of layer " + st.fetch.Layer, Cause: err}
		}
	}
	if err := s.spare(uint64(len(frames)), uint64(st.size)); err != nil {
		st.size, st.rows = size, st.rows[:rows]
		return err
	}
	if _, err := st.file.WriteAt(frames, size); err != nil {
		st.size, st.rows = size, st.rows[:rows]
		return unwritable("write", s.stagePath(), errors.Join(err, st.file.Truncate(size)))
	}
	return nil
}

func notStaged(doing string) error {
	return &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("nothing is staged")}
}

// Commit is part of client.Stage.
func (s *Store) Commit(target catalog.Trie) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stage
	if st == nil {
		return notStaged("commit a layer")
	}
	root := target.Root()
	doing := "commit layer " + st.fetch.Layer
	var base *layer
	var err error
	switch {
	case root != st.fetch.Target:
		err = &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: fmt.Errorf("it has the root %s, and %s was staged", root, st.fetch.Target)}
	case st.fetch.Base != (catalog.Digest{}):
		if base, err = s.layerLocked(st.fetch.Base); err == nil && base == nil {
			err = &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: errors.New("the layer that it is made out of is not here")}
		}
	}
	if err == nil {
		need := s.targetLocked(base)
		err = s.spare(need, need)
	}
	if err == nil {
		err = s.layers.write(root.String(), func(w io.Writer) error { return s.mergeLocked(w, base, target) })
	}
	if err != nil && !reason.Is(err, reason.StateCorrupt) {
		return err
	}
	s.forgetLocked(root.String())
	return errors.Join(err, s.dropLocked())
}

// mergeLocked writes the file of the target: what is staged, and of the base what is not.
func (s *Store) mergeLocked(w io.Writer, base *layer, target catalog.Trie) error {
	out := bufio.NewWriterSize(w, readBuffer)
	if _, err := out.Write(layerHeader(target.Len())); err != nil {
		return err
	}
	want, stop := iter.Pull(target.From(catalog.Digest{}))
	defer stop()
	for key, read := range s.merged(base) {
		body, err := read()
		if err != nil {
			return err
		}
		row, more := want()
		if !more || row.Key != key || row.Digest != sha256.Sum256(body) {
			return s.notTheTarget()
		}
		head := binary.BigEndian.AppendUint32(key[:], uint32(len(body)))
		if _, err := out.Write(head); err != nil {
			return err
		}
		if _, err := out.Write(body); err != nil {
			return err
		}
	}
	if _, more := want(); more {
		return s.notTheTarget()
	}
	return out.Flush()
}

func (s *Store) notTheTarget() error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "commit layer " + s.stage.fetch.Layer, Cause: errors.New("what was staged does not make it")}
}

// merged iterates over the rows that there are after the changes, in the order of the keys.
func (s *Store) merged(base *layer) iter.Seq2[catalog.Digest, func() ([]byte, error)] {
	return func(yield func(catalog.Digest, func() ([]byte, error)) bool) {
		var old []place
		if base != nil {
			old = base.rows
		}
		ofBase := func(p place) func() ([]byte, error) {
			return func() ([]byte, error) {
				body, err := s.bodyLocked(base, p)
				if err == nil && body == nil {
					err = s.notTheTarget()
				}
				return body, err
			}
		}
		for i := range s.stage.rows {
			row := &s.stage.rows[i]
			for len(old) > 0 && bytes.Compare(old[0].key[:], row.Key[:]) < 0 {
				if !yield(old[0].key, ofBase(old[0])) {
					return
				}
				old = old[1:]
			}
			if len(old) > 0 && old[0].key == row.Key {
				old = old[1:]
			}
			if !row.Deleted && !yield(row.Key, func() ([]byte, error) { return s.stage.body(row) }) {
				return
			}
		}
		for _, p := range old {
			if !yield(p.key, ofBase(p)) {
				return
			}
		}
	}
}

// body reads a staged body again.
func (st *stage) body(row *staged) ([]byte, error) {
	frame := make([]byte, row.length)
	if _, err := st.file.ReadAt(frame, row.at); err != nil {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: "read what was staged of layer " + st.fetch.Layer, Cause: err}
	}
	var c wire.Change
	if err := wire.Decode(frame[frameHead:], &c); err != nil {
		return nil, err
	}
	return c.Body, nil
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
