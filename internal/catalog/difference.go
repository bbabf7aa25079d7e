package catalog

import (
	"bytes"
	"errors"
	"iter"

	"tako.dev/tako/internal/reason"
)

// Change is what becomes of one row on the way from one trie to another.
type Change struct {
	Key     Digest
	Digest  Digest // of the new body
	Deleted bool
}

// Changes are changes that are there already.
func Changes(list ...Change) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// Difference iterates over what turns base into target, in the order of the keys, from a key on. What the tries share is not
// looked at. An error is the last that it yields.
func Difference(base, target Trie, from Digest) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		b, t := base.place(), target.place()
		difference(&b, &t, from, yield)
	}
}

// difference reports whether to go on.
func difference(base, target *place, from Digest, yield func(Change, error) bool) bool {
	switch {
	case base.hash == target.hash:
		return true
	case base.leaf():
		return fromLeaf(base, target, from, yield)
	case target.leaf():
		return toLeaf(base, target, from, yield)
	}
	first := nibble(&from, base.depth)
	for i := first; i < fanout; i++ {
		if base.node.child(i).hash == target.node.child(i).hash {
			continue // as nearly all are: where they stand need not be known
		}
		b, t := base.at(i), target.at(i)
		start := from
		if i > first {
			start = Digest{}
		}
		if !difference(&b, &t, start, yield) {
			return false
		}
	}
	return true
}

// fromLeaf compares a leaf with what has taken its place.
func fromLeaf(base, target *place, from Digest, yield func(Change, error) bool) bool {
	rows, err := base.leafRows()
	if err != nil {
		yield(Change{}, err)
		return false
	}
	i, _ := find(rows, from)
	old := rows[i:]
	going := target.from(from, func(r Row, err error) bool {
		if err != nil {
			yield(Change{}, err)
			return false
		}
		for len(old) > 0 && bytes.Compare(old[0].Key[:], r.Key[:]) < 0 {
			if !yield(Change{Key: old[0].Key, Deleted: true}, nil) {
				return false
			}
			old = old[1:]
		}
		if len(old) > 0 && old[0].Key == r.Key {
			same := old[0].Digest == r.Digest
			if old = old[1:]; same {
				return true
			}
		}
		return yield(Change{Key: r.Key, Digest: r.Digest}, nil)
	})
	for ; going && len(old) > 0; old = old[1:] {
		going = yield(Change{Key: old[0].Key, Deleted: true}, nil)
	}
	return going
}

// toLeaf compares an interior node with the leaf that has taken its place.
func toLeaf(base, target *place, from Digest, yield func(Change, error) bool) bool {
	rows, err := target.leafRows()
	if err != nil {
		yield(Change{}, err)
		return false
	}
	i, _ := find(rows, from)
	put := rows[i:]
	going := base.from(from, func(old Row, err error) bool {
		if err != nil {
			yield(Change{}, err)
			return false
		}
		for len(put) > 0 && bytes.Compare(put[0].Key[:], old.Key[:]) < 0 {
			if !yield(Change{Key: put[0].Key, Digest: put[0].Digest}, nil) {
				return false
			}
			put = put[1:]
		}
		if len(put) == 0 || put[0].Key != old.Key {
			return yield(Change{Key: old.Key, Deleted: true}, nil)
		}
		r := put[0]
		put = put[1:]
		return r.Digest == old.Digest || yield(Change{Key: r.Key, Digest: r.Digest}, nil)
	})
	for ; going && len(put) > 0; put = put[1:] {
		going = yield(Change{Key: put[0].Key, Digest: put[0].Digest}, nil)
	}
	return going
}

// Apply returns the trie after changes, which come in the order of their keys. The leaves that it makes are in memory; those that no
// change is in stay where they are. The errors are those of the changes, of reading leaves, and StateCorrupt where the order is wrong.
func (t Trie) Apply(changes iter.Seq2[Change, error]) (Trie, error) {
	return t.edit(changes, true)
}

// Outline is Apply without the leaves, however many there are: it takes memory for the interior nodes alone. Lean says where the leaves
// are, once they are somewhere.
func (t Trie) Outline(changes iter.Seq2[Change, error]) (Trie, error) {
	if t.Len() > 0 {
		changed, err := t.edit(changes, false)
		return Trie{top: changed.ref().lean()}, err
	}
	var b Builder
	for c, err := range changes { // as edit does, without a coroutine for each row
		if err != nil {
			return Trie{}, err
		}
		if c.Deleted {
			continue
		}
		if err := b.Add(Row{Key: c.Key, Digest: c.Digest}); err != nil {
			return Trie{}, err
		}
	}
	return b.Trie(nil), nil
}

func (t Trie) edit(changes iter.Seq2[Change, error], keep bool) (Trie, error) {
	next, stop := iter.Pull2(changes)
	defer stop()
	e := editor{next: next, keep: keep}
	if err := e.advance(); err != nil {
		return Trie{}, err
	}
	p := t.place()
	top, err := e.edit(&p)
	if err != nil {
		return Trie{}, err
	}
	return Trie{top: top, rows: t.rows}, nil
}

// editor applies changes on one way through a trie.
type editor struct {
	next func() (Change, error, bool)
	keep bool // leaves that are made stay in memory
	head Change
	more bool // head is there
	any  bool // and was before
}

// advance takes the next change.
func (e *editor) advance() error {
	before := e.head.Key
	c, err, more := e.next()
	switch {
	case err != nil:
		return err
	case more && e.any && bytes.Compare(before[:], c.Key[:]) >= 0:
		return &reason.Error{Code: reason.StateCorrupt, Doing: "change a layer", Cause: errors.New("the changes are not in order")}
	}
	e.head, e.more, e.any = c, more, true
	return nil
}

// under tells whether the next change is below a node.
func (e *editor) under(p *place) bool { return e.more && under(&e.head.Key, &p.path, p.depth) }

// edit makes all changes below a node.
func (e *editor) edit(p *place) (ref, error) {
	if p.leaf() {
		return e.editLeaf(p)
	}
	var children [fanout]ref
	for i := range fanout {
		if c := p.node.child(i); c.count > 0 {
			children[i] = c
		}
	}
	changed := false
	for e.under(p) {
		i := nibble(&e.head.Key, p.depth)
		c := p.at(i)
		was := c.hash
		r, err := e.edit(&c)
		if err != nil {
			return ref{}, err
		}
		if r.hash != was {
			children[i], changed = r, true
		}
	}
	if !changed {
		return p.ref, nil
	}
	return e.interior(p, &children)
}

// interior makes the node of changed children: a leaf, when few rows are left.
func (e *editor) interior(p *place, children *[fanout]ref) (ref, error) {
	count := 0
	for i := range children {
		count += children[i].count
	}
	if count > leafMax {
		for i := range children {
			if c := &children[i]; !e.keep && c.leaf() {
				c.node = nil
			}
		}
		return newInterior(children), nil
	}
	rows := make([]Row, 0, count)
	for i := range children {
		if children[i].count == 0 {
			continue
		}
		c := place{ref: children[i], rows: p.rows, path: extended(p.path, p.depth, i), depth: p.depth + 1}
		some, err := c.leafRows()
		if err != nil {
			return ref{}, err
		}
		rows = append(rows, some...)
	}
	return newLeaf(rows), nil
}

// editLeaf makes the changes below a leaf.
func (e *editor) editLeaf(p *place) (ref, error) {
	rows, err := p.leafRows()
	if err != nil {
		return ref{}, err
	}
	b := builder{depth: p.depth, keep: e.keep}
	changed := false
	for e.under(p) {
		i, found := find(rows, e.head.Key)
		for _, r := range rows[:i] {
			b.add(r)
		}
		rows = rows[i:]
		if found {
			changed = changed || e.head.Deleted || rows[0].Digest != e.head.Digest
			rows = rows[1:]
		}
		if !e.head.Deleted {
			changed = changed || !found
			b.add(Row{Key: e.head.Key, Digest: e.head.Digest})
		}
		if err := e.advance(); err != nil {
			return ref{}, err
		}
	}
	if !changed {
		return p.ref, nil
	}
	for _, r := range rows {
		b.add(r)
	}
	return b.finish(), nil
}
