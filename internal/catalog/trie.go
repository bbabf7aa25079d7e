package catalog

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// The parameters of a trie. They are part of its root.
const (
	fanout  = 16 // children of an interior node: one for each value of half a byte of the key
	leafMax = 64 // rows of a leaf
)

// nibbles is how many half bytes a key has.
const nibbles = 2 * sha256.Size

// Row is one entry of a layer as its trie has it.
type Row struct {
	Key    Digest // of the claim: KeyOf
	Digest Digest // of the body
}

// KeyOf is where the entry of a claim stands, given the claim's text form.
func KeyOf(claim string) Digest { return sha256.Sum256([]byte(claim)) }

// Trie is a set of rows, at most one for a key, with one hash over all of them. It does not change: Put and Delete return
// another one, which shares what is equal. Its form depends on the rows alone and not on the way to them.
//
//	leaf:     0x00, rows of 64 bytes (key, digest) in the order of their keys; a subtree of at most 64 rows is one leaf
//	interior: 0x01, 2 bytes of bits for the children that there are, lowest value lowest bit, 32 bytes of hash for each
//
// The zero Trie is empty.
type Trie struct{ top *node }

// node is a node with all that is below it.
type node struct {
	hash     Digest
	count    int     // rows below
	rows     []Row   // of a leaf, sorted by key
	present  uint16  // of an interior node: which children there are
	children []*node // of an interior node: those, in order
}

var empty = newLeaf(nil)

// Build makes the trie of rows, which it sorts. It panics when two rows have one key: who compiles a layer has refused that.
func Build(rows []Row) Trie {
	slices.SortFunc(rows, func(a, b Row) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	for i := 1; i < len(rows); i++ {
		if rows[i].Key == rows[i-1].Key {
			panic(fmt.Sprintf("catalog: two rows have the key %s", rows[i].Key))
		}
	}
	return Trie{build(rows, 0)}
}

// build makes the node of sorted rows that have their first depth half bytes in common.
func build(rows []Row, depth int) *node {
	if len(rows) <= leafMax {
		return newLeaf(slices.Clone(rows))
	}
	var children [fanout]*node
	for len(rows) > 0 {
		at := nibble(&rows[0].Key, depth)
		n := len(rows)
		if i := slices.IndexFunc(rows, func(r Row) bool { return nibble(&r.Key, depth) != at }); i >= 0 {
			n = i
		}
		children[at] = build(rows[:n], depth+1)
		rows = rows[n:]
	}
	return newInterior(&children)
}

func nibble(key *Digest, depth int) int {
	b := key[depth/2]
	if depth%2 == 0 {
		return int(b >> 4)
	}
	return int(b & 0xf)
}

func newLeaf(rows []Row) *node {
	n := &node{count: len(rows), rows: rows}
	n.hash = sha256.Sum256(n.encode())
	return n
}

func newInterior(children *[fanout]*node) *node {
	n := &node{}
	for i, c := range children {
		if c != nil {
			n.present |= 1 << i
			n.children = append(n.children, c)
			n.count += c.count
		}
	}
	n.hash = sha256.Sum256(n.encode())
	return n
}

func (n *node) leaf() bool { return n.present == 0 }

// child is the child for one half byte, or nil.
func (n *node) child(at int) *node {
	if n.present&(1<<at) == 0 {
		return nil
	}
	return n.children[bits.OnesCount16(n.present&(1<<at-1))]
}

// with is the node with another child, or without one that becomes nil.
func (n *node) with(at int, c *node) *node {
	var children [fanout]*node
	for i := range fanout {
		children[i] = n.child(i)
	}
	children[at] = c
	changed := newInterior(&children)
	if changed.count > leafMax {
		return changed
	}
	return newLeaf(changed.gather(nil))
}

func (n *node) gather(rows []Row) []Row {
	rows = append(rows, n.rows...)
	for _, c := range n.children {
		rows = c.gather(rows)
	}
	return rows
}

func (t Trie) node() *node {
	if t.top == nil {
		return empty
	}
	return t.top
}

// Len is the number of rows.
func (t Trie) Len() int { return t.node().count }

// Hash is the hash of the top node, where a descent begins.
func (t Trie) Hash() Digest { return t.node().hash }

// Root is the root of the layer that has these rows.
func (t Trie) Root() Digest { return sha256.Sum256(header(t.Len(), t.Hash())) }

// Get returns the digest of the body that stands at a key.
func (t Trie) Get(key Digest) (Digest, bool) {
	n := t.node()
	for depth := 0; !n.leaf(); depth++ {
		if n = n.child(nibble(&key, depth)); n == nil {
			return Digest{}, false
		}
	}
	if i, found := n.find(key); found {
		return n.rows[i].Digest, true
	}
	return Digest{}, false
}

func (n *node) find(key Digest) (int, bool) {
	return slices.BinarySearchFunc(n.rows, key, func(r Row, key Digest) int { return bytes.Compare(r.Key[:], key[:]) })
}

// Put returns the trie with a row, in the place of one with its key if there is one.
func (t Trie) Put(r Row) Trie { return Trie{t.node().put(r, 0)} }

func (n *node) put(r Row, depth int) *node {
	if !n.leaf() {
		at := nibble(&r.Key, depth)
		c := n.child(at)
		if c == nil {
			c = empty
		}
		changed := c.put(r, depth+1)
		if changed == c {
			return n
		}
		return n.with(at, changed)
	}
	i, found := n.find(r.Key)
	if found && n.rows[i] == r {
		return n
	}
	rows := slices.Clone(n.rows)
	if found {
		rows[i] = r
	} else {
		rows = slices.Insert(rows, i, r)
	}
	return build(rows, depth)
}

// Delete returns the trie without the row of a key.
func (t Trie) Delete(key Digest) Trie { return Trie{t.node().delete(key, 0)} }

func (n *node) delete(key Digest, depth int) *node {
	if n.leaf() {
		i, found := n.find(key)
		if !found {
			return n
		}
		return newLeaf(slices.Delete(slices.Clone(n.rows), i, i+1))
	}
	at := nibble(&key, depth)
	c := n.child(at)
	if c == nil {
		return n
	}
	changed := c.delete(key, depth+1)
	switch {
	case changed == c:
		return n
	case changed.count == 0:
		changed = nil
	}
	return n.with(at, changed)
}

// From iterates over the rows in the order of their keys, from a key on.
func (t Trie) From(key Digest) iter.Seq[Row] {
	return func(yield func(Row) bool) { t.node().from(key, 0, yield) }
}

// from reports whether to go on.
func (n *node) from(key Digest, depth int, yield func(Row) bool) bool {
	if n.leaf() {
		i, _ := n.find(key)
		for _, r := range n.rows[i:] {
			if !yield(r) {
				return false
			}
		}
		return true
	}
	first := nibble(&key, depth)
	for at := first; at < fanout; at++ {
		c := n.child(at)
		if c == nil {
			continue
		}
		start := key
		if at > first {
			start = Digest{} // all of it
		}
		if !c.from(start, depth+1, yield) {
			return false
		}
	}
	return true
}
