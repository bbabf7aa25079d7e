// Package index remembers what tries are made of, by hash: hosts ask for nodes and bodies so. It starts no goroutine.
package index

import (
	"container/list"
	"sync"

	"tako.dev/tako/internal/catalog"
)

// Index has those that were asked about last. Use New. It is safe for concurrent use.
type Index struct {
	rowsMax int

	mu    sync.Mutex // guards all below
	rows  int
	roots map[catalog.Digest]*list.Element // of *Trie
	order list.List                        // the one that was asked about last first
}

// Trie is one trie. What is in it is not to be changed.
type Trie struct {
	root   catalog.Digest
	rows   int
	once   sync.Once
	err    error // of reading it
	Nodes  *catalog.Nodes
	Bodies map[catalog.Digest]struct{} // their digests
}

// New makes one that remembers so many rows.
func New(rowsMax int) *Index {
	return &Index{rowsMax: rowsMax, roots: map[catalog.Digest]*list.Element{}}
}

// Of is what a trie is made of. The error is that of reading it.
func (x *Index) Of(root catalog.Digest, t catalog.Trie) (*Trie, error) {
	i := x.find(root, t)
	i.once.Do(func() {
		i.Nodes = catalog.NewNodes(t)
		i.Bodies = make(map[catalog.Digest]struct{}, i.rows)
		for row, err := range t.From(catalog.Digest{}) {
			if err != nil {
				i.err = err
				return
			}
			i.Bodies[row.Digest] = struct{}{}
		}
	})
	if i.err != nil {
		x.drop(i) // the next one who asks tries again
	}
	return i, i.err
}

// drop forgets a trie.
func (x *Index) drop(i *Trie) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.roots[i.root]; e != nil && e.Value == i {
		x.order.Remove(e)
		delete(x.roots, i.root)
		x.rows -= i.rows
	}
}

// find finds the place of a trie, and makes one. The trie that was asked about last has one, however large it is.
func (x *Index) find(root catalog.Digest, t catalog.Trie) *Trie {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.roots[root]; e != nil {
		x.order.MoveToFront(e)
		return e.Value.(*Trie)
	}
	i := &Trie{root: root, rows: t.Len()}
	x.roots[root] = x.order.PushFront(i)
	x.rows += i.rows
	for x.rows > x.rowsMax && x.order.Len() > 1 {
		last := x.order.Remove(x.order.Back()).(*Trie)
		delete(x.roots, last.root)
		x.rows -= last.rows
	}
	return i
}
