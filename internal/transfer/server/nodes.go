package server

import (
	"fmt"

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
