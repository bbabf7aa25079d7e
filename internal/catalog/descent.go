package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tako.dev/tako/internal/reason"
)

// headerPrefix begins what a layer root is the hash of: the prefix, fanout and leafMax in a byte each, the number of rows in 8
// bytes, the hash of the top node.
const headerPrefix = "layer-v1"

const headerBytes = len(headerPrefix) + 2 + 8 + sha256.Size

// header binds the form of a trie and the number of its rows to the hash of its top.
func header(count int, top Digest) []byte {
	b := append(make([]byte, 0, headerBytes), headerPrefix...)
	b = binary.BigEndian.AppendUint64(append(b, fanout, leafMax), uint64(count))
	return append(b, top[:]...)
}

func parseHeader(b []byte) (count uint64, top Digest, err error) {
	form := append([]byte(headerPrefix), fanout, leafMax)
	if len(b) != headerBytes || !bytes.HasPrefix(b, form) {
		return 0, Digest{}, errors.New("it is no trie of a form that is known here")
	}
	rest := b[len(form):]
	return binary.BigEndian.Uint64(rest), Digest(rest[8:]), nil
}

// Nodes finds what tries are made of by its hash: the roots of layers and their nodes. Use NewNodes.
type Nodes struct {
	roots  map[Digest]Trie
	nodes  map[Digest]*node
	leaves map[Digest]leafPlace // those that are not in memory
}

// leafPlace is where a leaf is read.
type leafPlace struct {
	rows  Rows
	path  Digest
	depth uint8
	count uint8
}

// NewNodes finds what these tries are made of.
func NewNodes(tries ...Trie) *Nodes {
	n := &Nodes{roots: map[Digest]Trie{}, nodes: map[Digest]*node{}, leaves: map[Digest]leafPlace{}}
	for _, t := range tries {
		n.roots[t.Root()] = t
		p := t.place()
		n.add(&p)
	}
	return n
}

func (n *Nodes) add(p *place) {
	if p.node == nil {
		n.leaves[p.hash] = leafPlace{rows: p.rows, path: p.path, depth: uint8(p.depth), count: uint8(p.count)}
		return
	}
	if n.nodes[p.hash] != nil {
		return
	}
	n.nodes[p.hash] = p.node
	if p.leaf() {
		return
	}
	for i := range fanout {
		if c := p.at(i); c.count > 0 {
			n.add(&c)
		}
	}
}

// Encoded is what has a hash, in the form that a Descent takes. The error is that of reading a leaf.
func (n *Nodes) Encoded(hash Digest) ([]byte, bool, error) {
	if t, found := n.roots[hash]; found {
		return header(t.Len(), t.Hash()), true, nil
	}
	if x := n.nodes[hash]; x != nil {
		if x.present == 0 {
			return encodeLeaf(nil, x.rows), true, nil
		}
		return x.encodeInterior(nil), true, nil
	}
	l, found := n.leaves[hash]
	if !found {
		return nil, false, nil
	}
	p := place{ref: ref{hash: hash, count: int(l.count)}, rows: l.rows, path: l.path, depth: int(l.depth)}
	rows, err := p.leafRows()
	if err != nil {
		return nil, false, err
	}
	return encodeLeaf(nil, rows), true, nil
}

// Descent builds the trie of a layer root from parts that may come from anybody: what does not have a hash that was asked for is
// refused, and what a trie that is there already has in the same place is not asked for. Use NewDescent; ask for what is Wanted and
// Take what comes, until nothing is; then it is Built.
type Descent struct {
	root   Digest
	known  Trie
	limit  int
	count  int // of rows, as the root says
	top    Digest
	parts  map[Digest]parsed // what has come
	wanted []part            // what has not, in the order in which it was learnt
	asked  map[Digest]bool   // what was ever wanted
	rows   int               // in parts
}

// part is a node where it is to stand.
type part struct {
	hash  Digest
	path  Digest
	depth int
}

// NewDescent begins to build the trie of a root, which may have at most limit rows, out of a trie that is there.
func NewDescent(root Digest, known Trie, limit int) *Descent {
	d := &Descent{root: root, known: known, limit: limit, parts: map[Digest]parsed{}, asked: map[Digest]bool{}}
	if known.Root() != root {
		d.asked[root] = true
		d.wanted = append(d.wanted, part{hash: root})
	}
	return d
}

// Wanted is what to ask for next, at most that many; none when all is there.
func (d *Descent) Wanted(atMost int) []Digest {
	var hashes []Digest
	for _, p := range d.wanted[:min(atMost, len(d.wanted))] {
		hashes = append(hashes, p.hash)
	}
	return hashes
}

// Rows is how many rows have come, and will come at least.
func (d *Descent) Rows() int { return d.rows + len(d.wanted) }

// Take takes something that was asked for. The error is StateCorrupt, and changes nothing.
func (d *Descent) Take(data []byte) error {
	if err := d.take(data); err != nil {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read a part of layer " + d.root.String(), Cause: err}
	}
	return nil
}

func (d *Descent) take(data []byte) error {
	hash := Digest(sha256.Sum256(data))
	at := slices.IndexFunc(d.wanted, func(p part) bool { return p.hash == hash })
	if at < 0 {
		return fmt.Errorf("%s was not asked for", hash)
	}
	if hash == d.root {
		count, top, err := parseHeader(data)
		if err != nil {
			return err
		}
		if count > uint64(d.limit) {
			return fmt.Errorf("it has %d entries, at most %d are allowed", count, d.limit)
		}
		d.count, d.top = int(count), top
		d.wanted = slices.Delete(d.wanted, at, at+1)
		d.want(part{hash: top})
		return nil
	}
	p, err := parse(data)
	if err != nil {
		return err
	}
	w := d.wanted[at]
	switch {
	case d.rows+len(p.rows) > d.count || len(d.parts) > 2*d.count+nibbles:
		return fmt.Errorf("it has more entries than the %d that its root says", d.count)
	case p.present != 0 && w.depth == nibbles:
		return errDeep
	}
	d.rows += len(p.rows)
	d.parts[hash] = p
	d.wanted = slices.Delete(d.wanted, at, at+1)
	next := 0
	for i := range fanout {
		if p.present&(1<<i) != 0 {
			d.want(part{hash: p.children[next], path: extended(w.path, w.depth, i), depth: w.depth + 1})
			next++
		}
	}
	return nil
}

var errDeep = errors.New("it is too deep")

func (d *Descent) want(p part) {
	if d.asked[p.hash] || d.have(&p) != nil {
		return
	}
	d.asked[p.hash] = true
	d.wanted = append(d.wanted, p)
}

// have is a node of the trie that is there, if it has one of this hash in this place; nil otherwise.
func (d *Descent) have(want *part) *ref {
	r := d.known.ref()
	for depth := range want.depth {
		if r.leaf() {
			return nil
		}
		r = r.node.child(nibble(&want.path, depth))
	}
	if r.hash != want.hash {
		return nil
	}
	return &r
}

// Built is the trie, when nothing is wanted any more. What has come is in memory. The error is StateCorrupt: whoever has signed the root
// has signed something that is no trie.
func (d *Descent) Built() (Trie, error) {
	t, err := d.build()
	if err != nil {
		return Trie{}, &reason.Error{Code: reason.StateCorrupt, Doing: "put layer " + d.root.String() + " together", Cause: err}
	}
	return t, nil
}

func (d *Descent) build() (Trie, error) {
	if d.known.Root() == d.root {
		return d.known, nil
	}
	if len(d.wanted) > 0 {
		return Trie{}, fmt.Errorf("%d parts are missing", len(d.wanted))
	}
	top, err := d.assemble(part{hash: d.top})
	if err != nil {
		return Trie{}, err
	}
	if t := (Trie{top: top, rows: d.known.rows}); t.Root() == d.root {
		return t, nil
	}
	return Trie{}, fmt.Errorf("it has %d entries, not the %d that its root says", top.count, d.count)
}

// assemble makes the node of a part.
func (d *Descent) assemble(at part) (ref, error) {
	p, came := d.parts[at.hash]
	if !came {
		if r := d.have(&at); r != nil {
			return *r, nil
		}
		return ref{}, errors.New("a node stands where its entries do not belong")
	}
	if p.present == 0 {
		for i := range p.rows {
			if !under(&p.rows[i].Key, &at.path, at.depth) {
				return ref{}, errors.New("an entry stands where it does not belong")
			}
		}
		if len(p.rows) == 0 && at.depth > 0 {
			return ref{}, errors.New("a leaf is empty")
		}
		return newLeaf(p.rows), nil
	}
	if at.depth == nibbles {
		return ref{}, errDeep
	}
	var children [fanout]ref
	next := 0
	for i := range fanout {
		if p.present&(1<<i) == 0 {
			continue
		}
		c, err := d.assemble(part{hash: p.children[next], path: extended(at.path, at.depth, i), depth: at.depth + 1})
		if err != nil {
			return ref{}, err
		}
		children[i] = c
		next++
	}
	r := newInterior(&children)
	if r.count <= leafMax {
		return ref{}, fmt.Errorf("an interior node has %d entries only", r.count)
	}
	return r, nil
}
