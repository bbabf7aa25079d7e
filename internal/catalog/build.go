package catalog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"

	"tako.dev/tako/internal/reason"
)

// Builder makes a trie of rows that come in the order of their keys, without the leaves: of a million rows it takes some 4 MB. The zero
// Builder has no rows.
type Builder struct {
	builder builder
	any     bool
}

// Add takes the next row. The error is StateCorrupt, when its key is not above the one before.
func (b *Builder) Add(r Row) error {
	if b.any && bytes.Compare(b.builder.last[:], r.Key[:]) >= 0 {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "put a layer together", Cause: errors.New("its entries are not in order")}
	}
	b.any = true
	b.builder.add(r)
	return nil
}

// Trie is the trie of what was added. Its leaves are read from rows, which may be nil as long as nobody reads them. Nothing is added any
// more.
func (b *Builder) Trie(rows Rows) Trie { return Trie{top: b.builder.finish().lean(), rows: rows} }

// builder makes a node of rows that come in the order of their keys, and have their first depth half bytes in common. A node is interior
// as soon as more rows have come than a leaf may have; those that come later belong to the last of its children, or behind it.
type builder struct {
	keep  bool // leaves stay in memory. A leaf that is the whole node does in any case
	depth int
	open  []level // interior nodes that rows may still come to, from the top
	rows  []Row   // of the leaf below the last of these
	last  Digest  // key that came last
}

// level is an interior node with the children that are complete.
type level struct{ children [fanout]ref }

func (b *builder) add(r Row) {
	if len(b.rows) > 0 {
		shared := shared(&b.last, &r.Key)
		if shared < b.depth+len(b.open) {
			b.closeLeaf()
		}
		for shared < b.depth+len(b.open)-1 {
			b.closeLevel()
		}
	}
	b.last = r.Key
	b.rows = append(b.rows, r)
	for len(b.rows) > leafMax {
		b.split()
	}
}

// split makes an interior node of the leaf that rows come to.
func (b *builder) split() {
	depth := b.depth + len(b.open)
	b.open = append(b.open, level{})
	children := &b.open[len(b.open)-1].children
	last := nibble(&b.last, depth)
	from := 0
	for i := range b.rows {
		if at := nibble(&b.rows[from].Key, depth); nibble(&b.rows[i].Key, depth) != at {
			children[at] = b.leaf(b.rows[from:i])
			from = i
		}
		if nibble(&b.rows[i].Key, depth) == last {
			break
		}
	}
	b.rows = b.rows[:copy(b.rows, b.rows[from:])]
}

// leaf makes a leaf below an interior node.
func (b *builder) leaf(rows []Row) ref {
	if b.keep {
		return newLeaf(slices.Clone(rows))
	}
	return ref{hash: leafHash(rows), count: len(rows)}
}

// closeLeaf hands the last leaf to the interior node above it.
func (b *builder) closeLeaf() {
	top := len(b.open) - 1
	b.open[top].children[nibble(&b.last, b.depth+top)] = b.leaf(b.rows)
	b.rows = b.rows[:0]
}

// closeLevel hands the last interior node to the one above it.
func (b *builder) closeLevel() {
	top := len(b.open) - 1
	n := newInterior(&b.open[top].children)
	b.open = b.open[:top]
	b.open[top-1].children[nibble(&b.last, b.depth+top-1)] = n
}

func (b *builder) finish() ref {
	if len(b.open) == 0 {
		return newLeaf(slices.Clone(b.rows))
	}
	b.closeLeaf()
	for len(b.open) > 1 {
		b.closeLevel()
	}
	return newInterior(&b.open[0].children)
}

// shared is how many half bytes two different keys have in common.
func shared(a, b *Digest) int {
	for i := range sha256.Size {
		switch d := a[i] ^ b[i]; {
		case d >= 0x10:
			return 2 * i
		case d > 0:
			return 2*i + 1
		}
	}
	return nibbles
}
