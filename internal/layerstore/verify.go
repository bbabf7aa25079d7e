package layerstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// lostMax is how many damaged rows of a layer are worth keeping the rest: to fetch more than that by hash costs about as much as all of it.
const lostMax = 10_000

// layer is a layer that is here, verified; nil where there is none.
func (s *Store) layer(root catalog.Digest) (*layer, error) {
	if l := s.verified(root); l != nil {
		return l, nil
	}
	s.work.Lock()
	defer s.work.Unlock()
	return s.verify(root)
}

func (s *Store) verified(root catalog.Digest) *layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.layers[root]
}

// verify reads all of a layer that is not verified yet. One that is damaged is not here; what is left of it is put under its own root.
func (s *Store) verify(root catalog.Digest) (*layer, error) {
	if l := s.verified(root); l != nil {
		return l, nil
	}
	s.mu.Lock()
	lost := s.lost[root]
	s.mu.Unlock()
	if lost {
		return nil, nil
	}
	chain, err := s.chain(root)
	if isCorrupt(err) {
		return nil, s.giveUp(root, reason.Of(err))
	}
	if err != nil || chain == nil {
		return nil, err
	}
	l := &layer{store: s, root: root, chain: chain}
	var b catalog.Builder
	damage, err := s.survey(chain, func(r *row, _ []byte) error { return b.Add(r.Row) })
	if err != nil && !isCorrupt(err) {
		return nil, err
	}
	if l.trie = b.Trie(l); err == nil && damage.rows == 0 && l.trie.Root() == root {
		s.mu.Lock()
		s.layers[root] = l
		s.mu.Unlock()
		return l, nil
	}
	if err == nil {
		err = damage.error(s, root)
	}
	err = s.salvage(l, damage.rows, reason.Of(err))
	return s.verified(root), err
}

// salvage keeps what is left of a damaged layer, whose trie is that of what is left.
func (s *Store) salvage(l *layer, lost int, e *reason.Error) error {
	if s.opts.ReadOnly {
		return e
	}
	left := l.trie.Root()
	var size uint64
	for _, f := range l.chain {
		size += uint64(f.length)
	}
	if lost == 0 || lost > lostMax || l.trie.Len() == 0 || s.room(size) != nil {
		return s.giveUp(l.root, e)
	}
	h := head{root: left, of: l.root}
	if left == l.root { // what is damaged does not count any more: later files say something else
		h.of = catalog.Digest{}
	}
	var b catalog.Builder
	f, err := s.write(h, l.trie.Len(), func(add adder) error {
		_, err := s.survey(l.chain, func(r *row, body []byte) error {
			if err := b.Add(r.Row); err != nil {
				return err
			}
			return add(*r, body)
		})
		if err == nil && b.Trie(nil).Root() != left {
			err = s.unreadable(l.root, errors.New("it changes while it is read"))
		}
		return err
	})
	switch {
	case isCorrupt(err):
		return s.giveUp(l.root, e)
	case err != nil:
		return err
	}
	s.adopt(f, nil, l.trie)
	if left == l.root {
		s.tell(&reason.Error{Code: e.Code, Doing: e.Doing, Cause: e.Cause, Hint: hintDamage})
		return nil
	}
	return s.giveUp(l.root, e)
}

// adopt takes up a file that was written, on top of a chain, as a layer that is verified.
func (s *Store) adopt(f *file, below []*file, t catalog.Trie) {
	s.forget(f.root)
	l := &layer{store: s, root: f.root, chain: append(append([]*file{}, below...), f)}
	l.trie = t.Lean(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[f.root], s.layers[f.root] = f, l
}

// Check reads all of the layers once more that were verified since the start, until ctx ends, and reports whether they are what they were.
// One that is not is verified anew when it is asked for. The error is that of ctx, or of the disk.
func (s *Store) Check(ctx context.Context) (bool, error) {
	s.mu.Lock()
	layers := slices.Collect(maps.Values(s.layers))
	s.mu.Unlock()
	whole := true
	for _, l := range layers {
		good, err := s.check(ctx, l)
		if err != nil {
			return whole, err
		}
		whole = whole && good
	}
	return whole, nil
}

// check reports whether a layer is what it was.
func (s *Store) check(ctx context.Context, l *layer) (bool, error) {
	s.work.Lock()
	defer s.work.Unlock()
	if s.verified(l.root) != l {
		return true, nil // it is gone by now
	}
	var b catalog.Builder
	damage, err := s.survey(l.chain, func(r *row, _ []byte) error { return errors.Join(ctx.Err(), b.Add(r.Row)) })
	switch {
	case err != nil && !isCorrupt(err):
		return true, err
	case err == nil && damage.rows == 0 && b.Trie(nil).Root() == l.root:
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.layers, l.root)
	return false, nil
}

// damage is what a survey has found.
type damage struct {
	rows int // that cannot be read
	file *file
}

func (d *damage) error(s *Store, root catalog.Digest) error {
	if d.rows == 0 {
		return s.unreadable(root, errors.New("it is not what its name says"))
	}
	return s.unreadable(d.file.root, fmt.Errorf("%d of its entries are damaged", d.rows))
}

// survey reads all rows of a chain with their bodies, in order, and passes over what is damaged. The body is take's until it returns. The
// error is StateCorrupt where a file is no such file at all.
func (s *Store) survey(chain []*file, take func(r *row, body []byte) error) (d damage, err error) {
	readers := make([]surveyor, len(chain))
	for i, f := range chain {
		readers[i] = surveyor{cursor: s.cursor(f, streamRows), bodies: bodies{store: s, file: f}, damage: &d}
		if err := readers[i].begin(); err != nil {
			return d, err
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
			return d, nil
		}
		r := readers[first].head
		if !r.deleted {
			body, ok, err := readers[first].body(&r)
			if err != nil {
				return d, err
			}
			if !ok {
				readers[first].lose(1)
			} else if err := take(&r, body); err != nil {
				return d, err
			}
		}
		for i := range readers {
			if c := &readers[i]; c.more && c.head.Key == r.Key {
				if err := c.advanceGood(); err != nil {
					return d, err
				}
			}
		}
	}
}

// surveyor reads the rows of a file that are not damaged.
type surveyor struct {
	cursor
	bodies bodies
	bits   []byte
	damage *damage
}

func (c *surveyor) lose(rows int) {
	c.damage.rows += rows
	c.damage.file = c.file
}

func (c *surveyor) begin() error {
	c.bits = make([]byte, bitBytes(c.file.rows))
	if _, err := c.store.read(c.file, c.bits, c.file.actingAt()); err != nil && !isEnd(err) {
		return c.store.unreadable(c.file.root, err)
	}
	return c.advanceGood()
}

// advanceGood takes the next row that is not damaged.
func (c *surveyor) advanceGood() error {
	before, any := c.head.Key, c.more
	for c.more = false; c.next < c.file.rows; {
		n := c.next
		if !c.loaded(n) {
			if err := c.load(n); err != nil && !isEnd(err) {
				return c.store.unreadable(c.file.root, err)
			}
		}
		if !c.loaded(n) { // the file is cut off
			c.lose(c.file.rows - n)
			c.next = c.file.rows
			return nil
		}
		c.next++
		r, ok := c.row(n)
		if !ok || bit(c.bits, n) != r.acting() || n == c.file.rows-1 && n%8 != 7 && c.bits[n/8]>>(n%8+1) != 0 {
			c.lose(1)
			continue
		}
		if any && bytes.Compare(before[:], r.Key[:]) >= 0 {
			return c.store.unreadable(c.file.root, errOrder)
		}
		c.head, c.more = r, true
		return nil
	}
	return nil
}

// body is the body of a row; false where it is damaged.
func (c *surveyor) body(r *row) ([]byte, bool, error) {
	body, err := c.bodies.read(r)
	if isEnd(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, c.store.unreadable(c.file.root, err)
	}
	return body, sha256.Sum256(body) == r.Digest && catalog.Delivered(body) == r.delivered, nil
}
