package catalog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"tako.dev/tako/internal/reason"
)

// The parameters of a trie. They are part of its root.
const (
	fanout  = 16 // children of an interior node: one for each value of half a byte of the key
	leafMax = 64 // rows of a leaf
)

// EntriesMax is how many rows a layer may have: twice the largest that is planned for, so that a bound is never the reason to split one.
const EntriesMax = 2_000_000

// nibbles is how many half bytes a key has.
const nibbles = 2 * sha256.Size

// Row is one entry of a layer as its trie has it.
type Row struct {
	Key    Digest // of the claim: KeyOf
	Digest Digest // of the body
}

// KeyOf is where the entry of a claim stands, given the claim's text form.
func KeyOf(claim string) Digest { return sha256.Sum256([]byte(claim)) }

// Rows reads the rows of a trie whose leaves are not in memory. Its methods may be called from several goroutines.
type Rows interface {
	// Leaf is the rows whose keys begin with the first depth half bytes of path, in order. What it returns is not changed by either side.
	// The trie checks them: they may come from a disk that has changed them.
	Leaf(path Digest, depth int) ([]Row, error)
	// Damaged is told that what Leaf has returned is not what the trie was made of.
	Damaged(err error)
}

// Trie is a set of rows, at most one for a key, with one hash over all of them. It does not change: Apply returns another one, which
// shares what is equal. Its form depends on the rows alone and not on the way to them.
//
//	leaf:     0x00, rows of 64 bytes (key, digest) in the order of their keys; a subtree of at most 64 rows is one leaf
//	interior: 0x01, 2 bytes of bits for the children that there are, lowest value lowest bit, 32 bytes of hash for each
//
// A leaf need not be in memory: then its hash and the number of its rows are, 48 bytes, and what needs the rows reads them and compares
// them with the hash. The error of that is StateCorrupt, or that of Rows. A trie whose leaves are all in memory returns no errors.
//
// The zero Trie is empty.
type Trie struct {
	top  ref
	rows Rows // reads the leaves that are not in memory; nil where that cannot be, or not yet
}

// ref names a node.
type ref struct {
	hash  Digest
	count int   // rows below
	node  *node // nil: a leaf that is not in memory
}

// node is a leaf, or an interior node with all of those below it.
type node struct {
	rows     []Row  // of a leaf, sorted by key
	present  uint16 // of an interior node: which children there are
	children []ref  // of an interior node: those, in order
}

var empty = newLeaf(nil)

// errNowhere is of a trie that was made without its leaves, and was not told yet where they are.
var errNowhere = errors.New("its leaves are neither in memory nor on disk")

// newLeaf makes a leaf of at most leafMax rows, which it keeps.
func newLeaf(rows []Row) ref {
	return ref{hash: leafHash(rows), count: len(rows), node: &node{rows: rows}}
}

func newInterior(children *[fanout]ref) ref {
	n := &node{children: make([]ref, 0, present(children))}
	count := 0
	for i := range children {
		if c := &children[i]; c.count > 0 {
			n.present |= 1 << i
			n.children = append(n.children, *c)
			count += c.count
		}
	}
	return ref{hash: n.interiorHash(), count: count, node: n}
}

func present(children *[fanout]ref) (n int) {
	for i := range children {
		if children[i].count > 0 {
			n++
		}
	}
	return n
}

func nibble(key *Digest, depth int) int {
	b := key[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 0xf)
}

// leaf tells whether the node has rows of its own.
func (r *ref) leaf() bool { return r.node == nil || r.node.present == 0 }

// child is the child for one half byte; empty where there is none.
func (n *node) child(at int) ref {
	if n.present&(1<<at) == 0 {
		return empty
	}
	return n.children[bits.OnesCount16(n.present&(1<<at-1))]
}

// lean is the node without its leaves.
func (r ref) lean() ref {
	switch {
	case r.node == nil || r.count == 0:
		return r
	case r.leaf():
		r.node = nil
		return r
	}
	var children []ref // with those that are another, if any is
	for i, c := range r.node.children {
		if l := c.lean(); l.node != c.node {
			if children == nil {
				children = slices.Clone(r.node.children)
			}
			children[i] = l
		}
	}
	if children != nil {
		r.node = &node{present: r.node.present, children: children}
	}
	return r
}

// place is a node where it stands in a trie.
type place struct {
	ref
	rows  Rows
	path  Digest // what the keys below begin with: the first depth half bytes count
	depth int
}

func (t *Trie) place() place { return place{ref: t.ref(), rows: t.rows} }

func (t *Trie) ref() ref {
	if t.top.count == 0 {
		return empty
	}
	return t.top
}

// at is the child for one half byte of an interior node.
func (p *place) at(i int) place {
	return place{ref: p.node.child(i), rows: p.rows, path: extended(p.path, p.depth, i), depth: p.depth + 1}
}

// leafRows is the rows of a leaf.
func (p *place) leafRows() ([]Row, error) {
	if p.node != nil {
		return p.node.rows, nil
	}
	doing := fmt.Sprintf("read the entries of a layer whose keys begin with %.*s", p.depth, p.path)
	if p.rows == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errNowhere}
	}
	rows, err := p.rows.Leaf(p.path, p.depth)
	if err != nil {
		return nil, err
	}
	if len(rows) != p.count || leafHash(rows) != p.hash {
		err := &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: errors.New("they are not what was verified before")}
		p.rows.Damaged(err)
		return nil, err
	}
	return rows, nil
}

// Build makes the trie of rows, which it sorts. It panics when two rows have one key: who compiles a layer has refused that.
func Build(rows []Row) Trie {
	slices.SortFunc(rows, func(a, b Row) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	b := builder{keep: true}
	for i := range rows {
		if i > 0 && rows[i].Key == rows[i-1].Key {
			panic(fmt.Sprintf("catalog: two rows have the key %s", rows[i].Key))
		}
		b.add(rows[i])
	}
	return Trie{top: b.finish()}
}

// Len is the number of rows.
func (t Trie) Len() int { return t.top.count }

// Hash is the hash of the top node, where a descent begins.
func (t Trie) Hash() Digest { return t.ref().hash }

// Root is the root of the layer that has these rows.
func (t Trie) Root() Digest { return sha256.Sum256(header(t.Len(), t.Hash())) }

// Lean is the trie without its leaves: they are read from rows from now on.
func (t Trie) Lean(rows Rows) Trie { return Trie{top: t.ref().lean(), rows: rows} }

// Get returns the digest of the body that stands at a key.
func (t Trie) Get(key Digest) (Digest, bool, error) {
	p := t.place()
	for !p.leaf() {
		p = p.at(nibble(&key, p.depth))
	}
	rows, err := p.leafRows()
	if err != nil {
		return Digest{}, false, err
	}
	if i, found := find(rows, key); found {
		return rows[i].Digest, true, nil
	}
	return Digest{}, false, nil
}

func find(rows []Row, key Digest) (int, bool) {
	return slices.BinarySearchFunc(rows, key, func(r Row, key Digest) int { return bytes.Compare(r.Key[:], key[:]) })
}

// From iterates over the rows in the order of their keys, from a key on. An error is the last that it yields.
func (t Trie) From(key Digest) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		p := t.place()
		p.from(key, yield)
	}
}

// from reports whether to go on.
func (p *place) from(key Digest, yield func(Row, error) bool) bool {
	if p.leaf() {
		rows, err := p.leafRows()
		if err != nil {
			yield(Row{}, err)
			return false
		}
		i, _ := find(rows, key)
		for _, r := range rows[i:] {
			if !yield(r, nil) {
				return false
			}
		}
		return true
	}
	first := nibble(&key, p.depth)
	for i := first; i < fanout; i++ {
		start := key
		if i > first {
			start = Digest{} // all of it
		}
		if c := p.at(i); c.count > 0 && !c.from(start, yield) {
			return false
		}
	}
	return true
}

// under reports whether the first depth half bytes of a key are those of a path.
func under(key, path *Digest, depth int) bool {
	if !bytes.Equal(key[:depth/2], path[:depth/2]) {
		return false
	}
	return depth%2 == 0 || nibble(key, depth-1) == nibble(path, depth-1)
}

// extended is a path of depth half bytes with one more.
func extended(path Digest, depth, at int) Digest {
	if depth%2 == 0 {
		path[depth/2] = byte(at << 4)
	} else {
		path[depth/2] |= byte(at)
	}
	return path
}
