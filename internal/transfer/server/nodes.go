package server

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
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
	find := func(hash catalog.Digest) ([]byte, bool) { return l.data, hash == l.root }
	if r.Layer != wire.CatalogLayer {
		if find, err = s.within(q, &l, r.Layer); err != nil {
			return err
		}
	}
	leave, err := s.budgets.deltas.enter(q.Context(), q.who.Name, s.opts.Times.Turn)
	if err != nil {
		return err
	}
	defer leave()
	items, found := gather(r.Hashes, find)
	if !found {
		return notListed(q.who, fmt.Sprintf("none of %d hashes is of %s, the first is %s", len(r.Hashes), clip(r.Layer), r.Hashes[0]))
	}
	return s.reply(q, wire.NodesReply{Items: items})
}

// gather finds things by their hashes, as many as fit into an answer; false when there is not one.
func gather(hashes []catalog.Digest, find func(catalog.Digest) ([]byte, bool)) ([][]byte, bool) {
	// What stands around an item is less than 8 bytes.
	const around = 8
	items, any, room := make([][]byte, len(hashes)), false, wire.ReplyMax-around
	for i, hash := range hashes {
		data, found := find(hash)
		any = any || found
		if found && len(data)+around <= room {
			items[i] = data
			room -= len(data) + around
		}
	}
	return items, any
}

// within finds what a listed layer is made of.
func (s *Server) within(q *request, l *listed, id string) (func(catalog.Digest) ([]byte, bool), error) {
	at, err := l.layer(q.who, id)
	if err != nil {
		return nil, err
	}
	layer, found := s.opts.Catalogs.Layer(id, at.Root)
	if !found {
		return nil, &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + q.who.Name, Cause: fmt.Errorf("root %s of layer %s", at.Root, clip(id)), After: time.Second}
	}
	of := s.index.of(at.Root, layer.Trie)
	return func(hash catalog.Digest) ([]byte, bool) {
		if data, found := of.nodes.Encoded(hash); found {
			return data, true
		}
		if _, has := of.bodies[hash]; has {
			return layer.Body(hash)
		}
		return nil, false
	}, nil
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
	nodes  *catalog.Nodes
	bodies map[catalog.Digest]struct{}
}

func newIndex(rowsMax int) *index {
	return &index{rowsMax: rowsMax, roots: map[catalog.Digest]*list.Element{}}
}

// of is what a trie is made of.
func (x *index) of(root catalog.Digest, t catalog.Trie) *indexed {
	i := x.find(root, t)
	i.once.Do(func() {
		i.nodes = catalog.NewNodes(t)
		i.bodies = make(map[catalog.Digest]struct{}, i.rows)
		for row := range t.From(catalog.Digest{}) {
			i.bodies[row.Digest] = struct{}{}
		}
	})
	return i
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
