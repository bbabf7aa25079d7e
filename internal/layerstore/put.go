package layerstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Change is a change of a row, with its new body.
type Change struct {
	catalog.Change
	Body []byte // has the Digest; it is not kept
}

// Changes are what makes one layer of another.
type Changes struct {
	Count int
	Bytes uint64 // of all bodies
	// All iterates over them in the order of their keys. It is gone through more than once.
	All iter.Seq2[Change, error]
}

// rows are the changes without the bodies.
func (c *Changes) rows(yield func(catalog.Change, error) bool) {
	for change, err := range c.All {
		if !yield(change.Change, err) {
			return
		}
	}
}

// size is what they take in a file.
func (c *Changes) size() uint64 { return uint64(c.Count)*uint64(rowBytes+1) + c.Bytes }

// Put makes a layer out of another one, which is here (the zero Digest is the empty one), and it is durable when Put returns. Only the length
// and the root of target are looked at. The errors are StateCorrupt where the changes do not lead there, or the base is damaged; those of Options.Room, of
// the changes and of the disk. After an error nothing has changed.
func (s *Store) Put(base catalog.Digest, target catalog.Trie, changes Changes) error {
	s.work.Lock()
	defer s.work.Unlock()
	from := &layer{store: s}
	if base != (catalog.Digest{}) {
		l, err := s.verify(base)
		if err != nil {
			return err
		}
		if l == nil {
			return s.unmade(target.Root(), "the layer that it is made out of is not here")
		}
		from = l
	}
	p := newPlan(from.chain, changes.size(), target.Root())
	if err := s.room(p.size); err != nil {
		return err
	}
	if len(p.below) == 0 {
		return s.putWhole(p, target, changes)
	}
	return s.putDifference(p, from.trie, target, changes)
}

func (s *Store) unmade(root catalog.Digest, why string) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "write layer " + root.String(), Cause: errors.New(why)}
}

const unlike = "what was put together has another root"

func (s *Store) room(bytes uint64) error {
	if s.opts.Room == nil {
		return nil
	}
	return s.opts.Room(bytes)
}

// plan is how a layer is written.
type plan struct {
	below []*file // what the new file is a difference to; none: it is whole
	along []*file // what is written again in it
	size  uint64  // of the new file, at most
}

// wholeMax is up to where a layer is always written as a whole: one more file costs as much as these bytes.
const wholeMax = 64 << 10

// newPlan plans to write changes of a size, to a layer that is read of a chain. What becomes of it is a layer of a root, which does not build
// upon a file that it takes the place of.
func newPlan(chain []*file, size uint64, root catalog.Digest) plan {
	all := uint64(headBytes) + size
	for _, f := range chain {
		all += uint64(f.length)
	}
	whole := plan{along: chain, size: all}
	if len(chain) == 0 || chain[0].length <= wholeMax {
		return whole
	}
	below := len(chain)
	size += uint64(headBytes)
	for below > 1 && uint64(chain[below-1].length) <= 2*size {
		below--
		size += uint64(chain[below].length)
	}
	back := slices.ContainsFunc(chain[:below], func(f *file) bool { return f.root == root })
	if 2*size > uint64(chain[0].length) || below == chainMax || back {
		return whole
	}
	return plan{below: chain[:below], along: chain[below:], size: size}
}

func (s *Store) putWhole(p plan, target catalog.Trie, changes Changes) error {
	root := target.Root()
	var b catalog.Builder
	var t catalog.Trie
	f, err := s.write(head{root: root}, target.Len(), func(add adder) error {
		err := s.combine(p.along, changes.All, func(r *row, body []byte) error {
			if r.deleted {
				return nil
			}
			if err := b.Add(r.Row); err != nil {
				return err
			}
			return add(*r, body)
		})
		if t = b.Trie(nil); err == nil && t.Root() != root {
			err = s.unmade(root, unlike)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.adopt(f, nil, t)
	return nil
}

func (s *Store) putDifference(p plan, from, target catalog.Trie, changes Changes) error {
	root := target.Root()
	t, err := from.Outline(changes.rows)
	if err != nil {
		return err
	}
	if t.Root() != root {
		return s.unmade(root, unlike)
	}
	rows := changes.Count
	if len(p.along) > 0 {
		rows = 0
		if err := s.combine(p.along, changes.All, func(*row, []byte) error { rows++; return nil }); err != nil {
			return err
		}
	}
	h := head{root: root, base: p.below[len(p.below)-1].root}
	f, err := s.write(h, rows, func(add adder) error {
		return s.combine(p.along, changes.All, func(r *row, body []byte) error { return add(*r, body) })
	})
	if err != nil {
		return err
	}
	s.adopt(f, p.below, t)
	return nil
}

// combine calls take with the rows that files have after changes, and their bodies, in the order of the keys. Both are take's until it
// returns.
func (s *Store) combine(files []*file, changes iter.Seq2[Change, error], take func(r *row, body []byte) error) error {
	m := s.merge(files, streamRows)
	if err := m.start(); err != nil {
		return err
	}
	readers := make([]bodies, len(files))
	for i, f := range files {
		readers[i] = bodies{store: s, file: f}
	}
	// until takes the rows before a key; all where there is none.
	until := func(key *catalog.Digest) error {
		for r := m.row(); r != nil && (key == nil || bytes.Compare(r.Key[:], key[:]) < 0); r = m.row() {
			var body []byte
			if !r.deleted {
				var err error
				if body, err = readers[m.winner].verified(r); err != nil {
					return err
				}
			}
			if err := take(r, body); err != nil {
				return err
			}
			if err := m.advance(); err != nil {
				return err
			}
		}
		return nil
	}
	for c, err := range changes {
		if err != nil {
			return err
		}
		if err := until(&c.Key); err != nil {
			return err
		}
		if r := m.row(); r != nil && r.Key == c.Key {
			if err := m.advance(); err != nil {
				return err
			}
		}
		r := row{Row: catalog.Row{Key: c.Key, Digest: c.Digest}, deleted: c.Deleted, delivered: !c.Deleted && catalog.Delivered(c.Body)}
		if err := take(&r, c.Body); err != nil {
			return err
		}
	}
	return until(nil)
}

// verified is a body, compared with its digest, until the next call.
func (b *bodies) verified(r *row) ([]byte, error) {
	body, err := b.read(r)
	if err == nil && sha256.Sum256(body) != r.Digest {
		err = errBody
	}
	if err != nil {
		return nil, b.store.verdictOn(b.file, err)
	}
	return body, nil
}

// adder writes a row with its body. Where the body is, and how long, is filled in.
type adder func(r row, body []byte) error

// write writes a file of so many rows, as fill adds them in the order of their keys. It is durable, and in its place, when write returns.
func (s *Store) write(h head, rows int, fill func(add adder) error) (*file, error) {
	name := h.root.String()
	temporary := disk.TempName(name)
	w := writer{head: h, rows: rows}
	err := s.writeBeside(temporary, &w, fill)
	if err == nil {
		err = s.dir.Rename(temporary, name)
	}
	if err != nil {
		if gone := s.dir.Remove(temporary); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return nil, unwritable("write", filepath.Join(s.path, name), err)
	}
	d, err := s.dir.Open(".")
	if err != nil {
		return nil, unwritable("open", s.path, err)
	}
	if err := errors.Join(disk.Sync(d), d.Close()); err != nil {
		return nil, unwritable("write", s.path, err)
	}
	return &file{head: w.head}, nil
}

func (s *Store) writeBeside(temporary string, w *writer, fill func(add adder) error) error {
	f, err := s.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.begin(f)
	err = fill(w.add)
	if err == nil {
		err = w.end(f)
	}
	if err == nil {
		err = disk.Sync(f)
	}
	return errors.Join(err, f.Close())
}

// writeBuffer is for the rows, and for the bodies.
const writeBuffer = 64 << 10

// writer writes the rows of a file and their bodies side by side.
type writer struct {
	head   head
	rows   int // that there will be
	index  *bufio.Writer
	bodies *bufio.Writer
	bits   []byte
	at     int64 // of the next body
	last   catalog.Digest
	buf    [rowBytes]byte
}

func (w *writer) begin(f io.WriterAt) {
	all := w.head
	all.rows = w.rows
	w.at = all.bodiesAt()
	w.bits = make([]byte, bitBytes(w.rows))
	w.index = bufio.NewWriterSize(io.NewOffsetWriter(f, int64(headBytes)), writeBuffer)
	w.bodies = bufio.NewWriterSize(io.NewOffsetWriter(f, w.at), writeBuffer)
}

func (w *writer) add(r row, body []byte) error {
	n := w.head.rows
	switch {
	case n == w.rows:
		return w.wrong(fmt.Sprintf("it has more entries than %d", w.rows))
	case n > 0 && bytes.Compare(w.last[:], r.Key[:]) >= 0:
		return w.wrong("its entries are not in order")
	}
	w.last = r.Key
	r.at, r.length = w.at, len(body)
	if r.deleted {
		r.at, r.Digest = 0, catalog.Digest{}
	}
	if r.acting() {
		w.bits[n/8] |= 1 << (n % 8)
		w.head.acting++
	}
	w.head.rows++
	w.at += int64(len(body))
	if _, err := w.index.Write(r.append(w.buf[:0])); err != nil {
		return err
	}
	_, err := w.bodies.Write(body)
	return err
}

func (w *writer) wrong(why string) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: "write layer " + w.head.root.String(), Cause: errors.New(why)}
}

// end writes what is left, and the head last: without it there is no file.
func (w *writer) end(f io.WriterAt) error {
	if w.head.rows != w.rows {
		return w.wrong(fmt.Sprintf("it has %d entries, not %d", w.head.rows, w.rows))
	}
	w.head.length = w.at
	if err := errors.Join(w.index.Flush(), w.bodies.Flush()); err != nil {
		return err
	}
	if len(w.bits) > 0 {
		if _, err := f.WriteAt(w.bits, w.head.actingAt()); err != nil {
			return err
		}
	}
	_, err := f.WriteAt(w.head.encode(), 0)
	return err
}
