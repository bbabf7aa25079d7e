package layerstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"tako.dev/tako/internal/catalog"
)

// file is a file whose head was read. Its handle is guarded by Store.mu.
type file struct {
	head
	handle *os.File // nil: not open at the moment
	turn   uint64   // when it was used last
}

// handlesMax bounds the open files: a host with many layers reads them one after the other, and a chain has few files.
const handlesMax = 16

// read reads all of b from a place in a file. The error is fs.ErrNotExist, io.ErrUnexpectedEOF, or that of the disk; n is how much was read.
func (s *Store) read(f *file, b []byte, at int64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.handle == nil {
		if err := s.makeRoomLocked(); err != nil {
			return 0, err
		}
		if f.handle, err = s.dir.Open(f.root.String()); err != nil {
			return 0, err
		}
		s.handles = append(s.handles, f)
	}
	s.turn++
	f.turn = s.turn
	if n, err = f.handle.ReadAt(b, at); n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// makeRoomLocked closes the file that was not used for longest, where many are open.
func (s *Store) makeRoomLocked() error {
	if len(s.handles) < handlesMax {
		return nil
	}
	oldest := s.handles[0]
	for _, f := range s.handles {
		if f.turn < oldest.turn {
			oldest = f
		}
	}
	return s.closeLocked(oldest)
}

func isEnd(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

// verdictOn makes of an error of reading a file one with a code. Damage makes the layers that have the file unverified.
func (s *Store) verdictOn(f *file, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it is not here any more")
	case isEnd(err):
		err = errors.New("it ends too early")
	}
	e := s.unreadable(f.root, err)
	if isCorrupt(e) {
		s.doubt(f)
	}
	return e
}

const (
	// blockRows is how many rows are read at once by who looks for one: some more than a leaf has, so that a good guess needs one read.
	blockRows = 48
	// streamRows is the same for who reads all: 40 KiB.
	streamRows = 512
)

// cursor reads the rows of a file in order.
type cursor struct {
	store *Store
	file  *file
	buf   []byte // rows from first on
	first int
	block int // rows that are read at once
	next  int // number of the row after head
	head  row
	more  bool // head is there
}

func (s *Store) cursor(f *file, block int) cursor {
	return cursor{store: s, file: f, block: min(block, max(f.rows, 1))}
}

// load reads the block that begins at a row.
func (c *cursor) load(first int) error {
	if c.buf == nil {
		c.buf = make([]byte, 0, c.block*rowBytes)
	}
	c.buf = c.buf[:min(c.block, c.file.rows-first)*rowBytes]
	c.first = first
	n, err := c.store.read(c.file, c.buf, int64(headBytes)+int64(first)*int64(rowBytes))
	c.buf = c.buf[:n-n%rowBytes]
	return err
}

// loaded tells whether a row is in the block.
func (c *cursor) loaded(n int) bool { return n >= c.first && n < c.first+len(c.buf)/rowBytes }

// row is one of the rows in the block; false where it is damaged.
func (c *cursor) row(n int) (row, bool) {
	at := (n - c.first) * rowBytes
	return c.file.decodeRow(c.buf[at : at+rowBytes])
}

// at is a row of the file.
func (c *cursor) at(n int) (row, error) {
	if !c.loaded(n) {
		if err := c.load(n); err != nil {
			return row{}, c.store.verdictOn(c.file, err)
		}
	}
	r, ok := c.row(n)
	if !ok {
		return row{}, c.store.verdictOn(c.file, errRow)
	}
	return r, nil
}

// advance takes the next row.
func (c *cursor) advance() (err error) {
	if c.more = c.next < c.file.rows; !c.more {
		return nil
	}
	before := c.head.Key
	if c.head, err = c.at(c.next); err != nil {
		return err
	}
	if c.next > 0 && bytes.Compare(before[:], c.head.Key[:]) >= 0 && before != (catalog.Digest{}) {
		return c.store.verdictOn(c.file, errOrder)
	}
	c.next++
	return nil
}

// seek takes the first row whose key is not below one.
func (c *cursor) seek(key catalog.Digest) error {
	n, err := c.search(key)
	if err != nil {
		return err
	}
	c.next, c.head = n, row{}
	return c.advance()
}

// guesses is how many guesses are made before the search only halves: with keys that are hashes two are enough.
const guesses = 4

// search is the number of the first row whose key is not below one.
func (c *cursor) search(key catalog.Digest) (int, error) {
	if n := len(c.buf) / rowBytes; n > 0 { // what is asked for is often near to what was before
		end := c.first + n
		at, err := c.within(key, c.first, end)
		if err != nil || (at > c.first || c.first == 0) && (at < end || end == c.file.rows) {
			return at, err
		}
	}
	low, high := 0, c.file.rows // the keys of all rows before low are below, those of all from high on are not
	lowest, highest := uint64(0), ^uint64(0)
	want := binary.BigEndian.Uint64(key[:])
	for tries := 0; low < high; tries++ {
		guess := low + (high-low)/2
		if tries < guesses && highest > lowest {
			share := float64(want-min(want, lowest)) / float64(highest-lowest)
			guess = low + int(min(max(share, 0), 1)*float64(high-low-1))
		}
		if !c.loaded(guess) {
			if err := c.load(min(max(guess-c.block/3, low), max(c.file.rows-c.block, 0))); err != nil {
				return 0, c.store.verdictOn(c.file, err)
			}
		}
		// Within the block halving is as good as guessing.
		from, to := max(low, c.first), min(high, c.first+len(c.buf)/rowBytes)
		at, err := c.within(key, from, to)
		if err != nil {
			return 0, err
		}
		if at > from {
			r, err := c.at(at - 1)
			if err != nil {
				return 0, err
			}
			low, lowest = at, binary.BigEndian.Uint64(r.Key[:])
		}
		if at < to {
			r, err := c.at(at)
			if err != nil {
				return 0, err
			}
			high, highest = at, binary.BigEndian.Uint64(r.Key[:])
		}
	}
	return low, nil
}

// within is the number of the first row from from on, and before to, whose key is not below one. All of these are in the block.
func (c *cursor) within(key catalog.Digest, from, to int) (int, error) {
	for from < to {
		middle := from + (to-from)/2
		r, ok := c.row(middle)
		if !ok {
			return 0, c.store.verdictOn(c.file, errRow)
		}
		if bytes.Compare(r.Key[:], key[:]) < 0 {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from, nil
}

// bodies reads bodies of a file, most of them one after the other.
type bodies struct {
	store *Store
	file  *file
	buf   []byte // of the file, from at on
	at    int64
}

// bodiesWindow is how much of the bodies is read at once.
const bodiesWindow = 64 << 10

// read is the body of a row, until the next call. The error is that of Store.read.
func (b *bodies) read(r *row) ([]byte, error) {
	end := r.at + int64(r.length)
	if r.at < b.at || end > b.at+int64(len(b.buf)) {
		size := max(int64(r.length), min(bodiesWindow, b.file.length-r.at))
		if int64(cap(b.buf)) < size {
			b.buf = make([]byte, size)
		}
		b.buf, b.at = b.buf[:size], r.at
		n, err := b.store.read(b.file, b.buf, r.at)
		if b.buf = b.buf[:n]; n < r.length {
			return nil, err
		}
	}
	return b.buf[r.at-b.at : end-b.at], nil
}
