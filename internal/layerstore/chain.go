package layerstore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math/bits"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// layer is a layer that was verified.
type layer struct {
	store *Store
	root  catalog.Digest
	chain []*file // the whole one first; what a later one has counts
	trie  catalog.Trie
}

// chain is the files that a layer is read of; none where it is not here. The error of one that is not complete is StateCorrupt.
func (s *Store) chain(root catalog.Digest) ([]*file, error) {
	var chain []*file
	for at := root; ; {
		f, err := s.file(at)
		if err != nil {
			return nil, err
		}
		switch {
		case f == nil && len(chain) == 0:
			return nil, nil
		case f == nil:
			return nil, s.unreadable(root, fmt.Errorf("%s is not here, upon which it builds", at))
		case len(chain) == chainMax:
			return nil, s.unreadable(root, fmt.Errorf("it builds upon more than %d files", chainMax))
		}
		chain = append([]*file{f}, chain...)
		if f.whole() {
			return chain, nil
		}
		at = f.base
	}
}

// merge reads the rows of a chain in order: of each key, the one in the last file.
type merge struct {
	cursors []cursor // in the order of the files
	winner  int      // whose head is the row that is read; -1 at the end
}

func (s *Store) merge(files []*file, block int) *merge {
	m := &merge{cursors: make([]cursor, len(files)), winner: -1}
	for i, f := range files {
		m.cursors[i] = s.cursor(f, block)
	}
	return m
}

// seek begins with the first key that is not below one.
func (m *merge) seek(key catalog.Digest) error {
	for i := range m.cursors {
		if err := m.cursors[i].seek(key); err != nil {
			return err
		}
	}
	m.choose()
	return nil
}

// start begins with the first key.
func (m *merge) start() error {
	for i := range m.cursors {
		if err := m.cursors[i].advance(); err != nil {
			return err
		}
	}
	m.choose()
	return nil
}

func (m *merge) choose() {
	m.winner = -1
	for i := range m.cursors {
		c := &m.cursors[i]
		if c.more && (m.winner < 0 || bytes.Compare(c.head.Key[:], m.cursors[m.winner].head.Key[:]) <= 0) {
			m.winner = i
		}
	}
}

// row is the row that is read; nil at the end.
func (m *merge) row() *row {
	if m.winner < 0 {
		return nil
	}
	return &m.cursors[m.winner].head
}

// advance goes to the next key.
func (m *merge) advance() error {
	key := m.row().Key
	for i := range m.cursors {
		if c := &m.cursors[i]; c.more && c.head.Key == key {
			if err := c.advance(); err != nil {
				return err
			}
		}
	}
	m.choose()
	return nil
}

// leafRowsMax is more than a leaf has: more rows are damage, and need not be read.
const leafRowsMax = 65

// Leaf is part of catalog.Rows.
func (l *layer) Leaf(path catalog.Digest, depth int) ([]catalog.Row, error) {
	m := l.store.merge(l.chain, blockRows)
	if err := m.seek(path); err != nil {
		return nil, err
	}
	var rows []catalog.Row
	for r := m.row(); r != nil && begins(&r.Key, &path, depth) && len(rows) < leafRowsMax; r = m.row() {
		if !r.deleted {
			rows = append(rows, r.Row)
		}
		if err := m.advance(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// begins tells whether a key begins with the first depth half bytes of a path.
func begins(key, path *catalog.Digest, depth int) bool {
	whole := depth / 2
	return bytes.Equal(key[:whole], path[:whole]) && (depth%2 == 0 || key[whole]>>4 == path[whole]>>4)
}

// Damaged is part of catalog.Rows.
func (l *layer) Damaged(error) {
	for _, f := range l.chain {
		l.store.doubt(f)
	}
}

// body is the body at a key; nil where there is none.
func (l *layer) body(key catalog.Digest) ([]byte, error) {
	for i := len(l.chain) - 1; i >= 0; i-- {
		c := l.store.cursor(l.chain[i], blockRows)
		if err := c.seek(key); err != nil {
			return nil, err
		}
		if !c.more || c.head.Key != key {
			continue
		}
		if c.head.deleted {
			return nil, nil
		}
		return l.read(l.chain[i], &c.head)
	}
	return nil, nil
}

// read reads a body, and compares it with its digest.
func (l *layer) read(f *file, r *row) ([]byte, error) {
	body := make([]byte, r.length)
	if _, err := l.store.read(f, body, r.at); err != nil {
		return nil, l.store.verdictOn(f, err)
	}
	if sha256.Sum256(body) != r.Digest {
		return nil, l.store.verdictOn(f, errBody)
	}
	return body, nil
}

// Acting iterates over the keys and bodies of a layer that are acted upon, in the order of the keys. The rest is not read. An error is the
// last that it yields: StateCorrupt where the layer is not here, or not any more, and those of Trie. Whoever gets a body may keep it.
func (s *Store) Acting(root catalog.Digest) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		l, err := s.layer(root)
		if err == nil && l == nil {
			err = &reason.Error{Code: reason.StateCorrupt, Doing: "read layer " + root.String(), Cause: errors.New("it is not here"),
				Hint: "it is fetched again when a server can be reached"}
		}
		if err == nil {
			err = l.acting(yield)
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// Entry is one row of a layer with its body.
type Entry struct {
	Key  catalog.Digest
	Body []byte
}

// acting returns nil also when yield has enough.
func (l *layer) acting(yield func(Entry, error) bool) error {
	readers := make([]actor, len(l.chain))
	for i, f := range l.chain {
		readers[i] = actor{cursor: l.store.cursor(f, blockRows), all: l.store.cursor(f, blockRows)}
		if err := readers[i].begin(); err != nil {
			return err
		}
	}
	for {
		first := -1
		for i := range readers {
			if c := &readers[i]; c.more && (first < 0 || bytes.Compare(c.head.Key[:], readers[first].head.Key[:]) <= 0) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		r := readers[first].head
		counts := true
		for i := range readers {
			c := &readers[i]
			if c.more && c.head.Key == r.Key {
				if err := c.advanceActing(); err != nil {
					return err
				}
			} else if i > first && counts {
				has, err := c.has(r.Key)
				if err != nil {
					return err
				}
				counts = !has
			}
		}
		if !counts {
			continue // a later difference has deleted it, or made data of it
		}
		body, err := l.read(l.chain[first], &r)
		if err != nil {
			return err
		}
		if !yield(Entry{Key: r.Key, Body: body}, nil) {
			return nil
		}
	}
}

// actor reads the acting rows of a file in order.
type actor struct {
	cursor
	all  cursor // for looking up any row
	bits []byte
}

// begin takes the first acting row.
func (a *actor) begin() error {
	a.bits = make([]byte, bitBytes(a.file.rows))
	if _, err := a.store.read(a.file, a.bits, a.file.actingAt()); err != nil {
		return a.store.verdictOn(a.file, err)
	}
	if ones(a.bits) != a.file.acting {
		return a.store.verdictOn(a.file, errRow)
	}
	return a.advanceActing()
}

func ones(b []byte) (n int) {
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

func bit(b []byte, n int) bool { return b[n/8]&(1<<(n%8)) != 0 }

// advanceActing takes the next acting row.
func (a *actor) advanceActing() error {
	n := a.next
	for n < a.file.rows && !bit(a.bits, n) {
		if n++; n%8 == 0 {
			for n < a.file.rows && a.bits[n/8] == 0 {
				n += 8
			}
		}
	}
	if a.more = n < a.file.rows; !a.more {
		a.next = a.file.rows
		return nil
	}
	r, err := a.at(n)
	if err == nil && !r.acting() {
		err = a.store.verdictOn(a.file, errRow)
	}
	a.head, a.next = r, n+1
	return err
}

// has tells whether the file has a row of a key. Keys that are asked for ascend, so that most are in the block that was read last.
func (a *actor) has(key catalog.Digest) (bool, error) {
	c := &a.all
	n, err := c.search(key)
	if err != nil || n == c.file.rows {
		return false, err
	}
	r, err := c.at(n)
	return r.Key == key, err
}
