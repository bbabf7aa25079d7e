package server

import (
	"container/list"
	"fmt"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// nodes sends what a list, a trie or a body is made of, by hash.
func (s *Server) nodes(q *request) error {
	var r wire.NodesRequest
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	if n := len(r.Hashes); n == 0 || n > wire.HashesMax {
		return malformed("read "+q.URL.Path, fmt.Errorf("it has %d hashes, 1 to %d are allowed", n, wire.HashesMax))
	}
	l, err := s.show(q, r.Head)
	if err != nil {
		return err
	}
	find := func(hash catalog.Digest) ([]byte, bool, error) { return l.data, hash == l.Root, nil }
	if r.Layer != wire.CatalogLayer {
		at, err := l.layer(r.Layer)
		if err != nil {
			return err
		}
		if find, err = s.opts.Content.Nodes(q.Context(), l.Showing, at, r.Hashes); err != nil {
			return err
		}
	}
	leave, err := s.enter(q, s.budgets.deltas)
	if err != nil {
		return err
	}
	defer leave()
	items, found, err := gather(r.Hashes, find)
	if err != nil {
		return err
	}
	if !found {
		return notListed(l.Who, fmt.Sprintf("none of %d hashes is of %s, the first is %s", len(r.Hashes), clip(r.Layer), r.Hashes[0]))
	}
	return s.reply(q, wire.NodesReply{Items: items})
}

// gather finds things by their hashes, as many as fit into an answer; false when there is not one.
func gather(hashes []catalog.Digest, find func(catalog.Digest) ([]byte, bool, error)) ([][]byte, bool, error) {
	// What stands around an item is less than 8 bytes.
	const around = 8
	items, any, room := make([][]byte, len(hashes)), false, wire.ReplyMax-around
	for i, hash := range hashes {
		data, found, err := find(hash)
		if err != nil {
			return nil, false, err
		}
		any = any || found
		if found && len(data)+around <= room {
			items[i] = data
			room -= len(data) + around
		}
	}
	return items, any, nil
}

// index remembers what tries are made of, of those that were asked about last.
type index struct {
	rowsMax int

	mu    sync.Mutex // guards all below
	rows  int
	roots map[catalog.Digest]*list.Element // of *indexed
	order list.List                        // the one that was asked about last first
}

// indexed is one trie.
type indexed struct {
	root   catalog.Digest
	rows   int
	once   sync.Once
	err    error // of reading it
	nodes  *catalog.Nodes
	bodies map[catalog.Digest]struct{}
}

func newIndex(rowsMax int) *index {
	return &index{rowsMax: rowsMax, roots: map[catalog.Digest]*list.Element{}}
}

// of is what a trie is made of.
func (x *index) of(root catalog.Digest, t catalog.Trie) (*indexed, error) {
	i := x.find(root, t)
	i.once.Do(func() {
		i.nodes = catalog.NewNodes(t)
		i.bodies = make(map[catalog.Digest]struct{}, i.rows)
		for row, err := range t.From(catalog.Digest{}) {
			if err != nil {
				i.err = err
				return
			}
			i.bodies[row.Digest] = struct{}{}
		}
	})
	if i.err != nil {
		x.drop(i) // the next one who asks tries again
	}
	return i, i.err
}

// drop forgets a trie.
func (x *index) drop(i *indexed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.roots[i.root]; e != nil && e.Value == i {
		x.order.Remove(e)
		delete(x.roots, i.root)
		x.rows -= i.rows
	}
}

// find finds the place of a trie, and makes one. The trie that was asked about last has one, however large it is.
func (x *index) find(root catalog.Digest, t catalog.Trie) *indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.roots[root]; e != nil {
		x.order.MoveToFront(e)
		return e.Value.(*indexed)
	}
	i := &indexed{root: root, rows: t.Len()}
	x.roots[root] = x.order.PushFront(i)
	x.rows += i.rows
	for x.rows > x.rowsMax && x.order.Len() > 1 {
		last := x.order.Remove(x.order.Back()).(*indexed)
		delete(x.roots, last.root)
		x.rows -= last.rows
	}
	return i
}
