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
	roots map[Digest]Trie
	nodes map[Digest]*node
}

// NewNodes finds what these tries are made of.
func NewNodes(tries ...Trie) *Nodes {
	n := &Nodes{roots: map[Digest]Trie{}, nodes: map[Digest]*node{}}
	for _, t := range tries {
		n.roots[t.Root()] = t
		n.add(t.node())
	}
	return n
}

func (n *Nodes) add(x *node) {
	if n.nodes[x.hash] != nil {
		return
	}
	n.nodes[x.hash] = x
	for _, c := range x.children {
		n.add(c)
	}
}

// Encoded is what has a hash, in the form that a Descent takes.
func (n *Nodes) Encoded(hash Digest) ([]byte, bool) {
	if t, found := n.roots[hash]; found {
		return header(t.Len(), t.Hash()), true
	}
	if x := n.nodes[hash]; x != nil {
		return x.encode(), true
	}
	return nil, false
}

// Descent builds the trie of a layer root from parts that may come from anybody: what does not have a hash that was asked for is
// refused, and what the tries that are there already have in common with it is not asked for. Use NewDescent; ask for what is
// Wanted and Take what comes, until nothing is; then it is Built.
type Descent struct {
	root   Digest
	known  *Nodes
	limit  int
	count  int // of rows, as the root says
	top    Digest
	parts  map[Digest]parsed // what has come
	wanted []Digest          // what has not, in the order in which it was learnt
	asked  map[Digest]bool   // what was ever wanted
	rows   int               // in parts
}

// NewDescent begins to build the trie of a root, which may have at most limit rows.
func NewDescent(root Digest, known *Nodes, limit int) *Descent {
	d := &Descent{root: root, known: known, limit: limit, parts: map[Digest]parsed{}, asked: map[Digest]bool{}}
	if _, there := known.roots[root]; !there {
		d.want(root)
	}
	return d
}

// Wanted is what to ask for next, at most that many; none when all is there.
func (d *Descent) Wanted(atMost int) []Digest {
	return slices.Clone(d.wanted[:min(atMost, len(d.wanted))])
}

// Take takes something that was asked for. The error is StateCorrupt, and changes nothing.
func (d *Descent) Take(data []byte) error {
	if err := d.take(data); err != nil {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read a part of layer " + d.root.String(), Cause: err}
	}
	return nil
}

func (d *Descent) take(data []byte) error {
	hash := Digest(sha256.Sum256(data))
	at := slices.Index(d.wanted, hash)
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
		d.want(top)
		return nil
	}
	p, err := parse(data)
	if err != nil {
		return err
	}
	if d.rows+len(p.rows) > d.count || len(d.parts) > 2*d.count+nibbles {
		return fmt.Errorf("it has more entries than the %d that its root says", d.count)
	}
	d.rows += len(p.rows)
	d.parts[hash] = p
	d.wanted = slices.Delete(d.wanted, at, at+1)
	for _, c := range p.children {
		d.want(c)
	}
	return nil
}

func (d *Descent) want(hash Digest) {
	if !d.asked[hash] && d.known.nodes[hash] == nil {
		d.asked[hash] = true
		d.wanted = append(d.wanted, hash)
	}
}

// Built is the trie, when nothing is wanted any more. The error is StateCorrupt: whoever has signed the root has signed something
// that is no trie.
func (d *Descent) Built() (Trie, error) {
	t, err := d.build()
	if err != nil {
		return Trie{}, &reason.Error{Code: reason.StateCorrupt, Doing: "put layer " + d.root.String() + " together", Cause: err}
	}
	return t, nil
}

func (d *Descent) build() (Trie, error) {
	if t, there := d.known.roots[d.root]; there {
		return t, nil
	}
	if len(d.wanted) > 0 {
		return Trie{}, fmt.Errorf("%d parts are missing", len(d.wanted))
	}
	top, err := d.assemble(d.top, Digest{}, 0)
	if err != nil {
		return Trie{}, err
	}
	if t := (Trie{top}); t.Root() == d.root {
		return t, nil
	}
	return Trie{}, fmt.Errorf("it has %d entries, not the %d that its root says", top.count, d.count)
}

// assemble makes the node of a hash, at the place that the first depth half bytes of path say.
func (d *Descent) assemble(hash, path Digest, depth int) (*node, error) {
	p, came := d.parts[hash]
	if !came {
		n := d.known.nodes[hash]
		if n.count > 0 && !under(&n.first().Key, &path, depth) {
			return nil, errors.New("a node stands where its entries do not belong")
		}
		return n, nil
	}
	if p.present == 0 {
		for i := range p.rows {
			if !under(&p.rows[i].Key, &path, depth) {
				return nil, errors.New("an entry stands where it does not belong")
			}
		}
		if len(p.rows) == 0 && depth > 0 {
			return nil, errors.New("a leaf is empty")
		}
		return newLeaf(p.rows), nil
	}
	if depth == nibbles {
		return nil, errors.New("it is too deep")
	}
	var children [fanout]*node
	next := 0
	for at := range fanout {
		if p.present&(1<<at) == 0 {
			continue
		}
		c, err := d.assemble(p.children[next], extended(path, depth, at), depth+1)
		if err != nil {
			return nil, err
		}
		children[at] = c
		next++
	}
	n := newInterior(&children)
	if n.count <= leafMax {
		return nil, fmt.Errorf("an interior node has %d entries only", n.count)
	}
	return n, nil
}

// first is the first row below a node.
func (n *node) first() *Row {
	for !n.leaf() {
		n = n.children[0]
	}
	return &n.rows[0]
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
