package peer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// fewChanges are always sent as such: with so few rows a snapshot saves nothing.
	fewChanges = 16
	// changesMax is of one part: deletions have no bodies.
	changesMax = 2_048
)

// sync sends what turns one root of a layer into another.
func (s *Server) sync(q *request) error {
	var r wire.SyncRequest
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	is, err := s.show(q, r.Head, r.List)
	if err != nil {
		return err
	}
	if err := s.allows(q, &is, r.Layer, r.Target); err != nil {
		return err
	}
	target, err := s.trie(q, r.Layer, r.Target)
	if err != nil {
		return err
	}
	kind, base, err := s.way(&r, target)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	w := &parts{server: s, q: q, root: r.Target, kind: kind, ends: time.Now().Add(s.opts.Limits.Send)}
	if kind == wire.SyncUnknownBase {
		w.flush(true)
		return nil
	}
	for c, err := range catalog.Difference(base, target, r.Cursor) {
		if err == nil {
			err = w.add(c)
		}
		if err != nil {
			// It ends without a last part: the caller goes on where it was, with another one.
			s.opts.Log.Debug("send a layer to another host", "node", q.who.Name, "layer", r.Layer, "err", err)
			return nil
		}
		if w.over {
			return nil
		}
	}
	w.flush(true)
	return nil
}

// way says how a caller gets to a target, and from which trie. It does not depend on the cursor, so that what is resumed goes on.
func (s *Server) way(r *wire.SyncRequest, target catalog.Trie) (wire.SyncKind, catalog.Trie, error) {
	if r.Base == (catalog.Digest{}) || target.Len() == 0 {
		return wire.SyncSnapshot, catalog.Trie{}, nil
	}
	base, found, err := s.opts.Store.Trie(r.Base)
	if err != nil || !found {
		return wire.SyncUnknownBase, catalog.Trie{}, err
	}
	changed := 0
	for _, err := range catalog.Difference(base, target, catalog.Digest{}) {
		if err != nil {
			return 0, catalog.Trie{}, err
		}
		if changed++; 2*changed > target.Len() && changed > fewChanges {
			return wire.SyncSnapshot, catalog.Trie{}, nil
		}
	}
	return wire.SyncDelta, base, nil
}

// parts puts changes into parts, and sends them.
type parts struct {
	server *Server
	q      *request
	root   catalog.Digest
	kind   wire.SyncKind
	ends   time.Time
	part   wire.SyncPart
	size   int  // of the bodies in part
	over   bool // the caller is gone, or its time is up
}

func (w *parts) add(c catalog.Change) error {
	out := wire.Change{Key: c.Key, Deleted: c.Deleted}
	if !c.Deleted {
		body, err := w.server.opts.Store.Body(w.root, c.Key)
		if err == nil && body == nil {
			err = &reason.Error{Code: reason.StateCorrupt, Doing: "send a layer", Cause: fmt.Errorf("there is no body %s", c.Digest)}
		}
		if err != nil {
			return err
		}
		out.Body = body
	}
	if full := w.size+len(out.Body) > wire.PartBytesMax || len(w.part.Changes) >= changesMax; full && len(w.part.Changes) > 0 {
		w.flush(false)
	}
	w.part.Changes = append(w.part.Changes, out)
	w.size += len(out.Body)
	return nil
}

func (w *parts) flush(last bool) {
	w.part.Kind, w.part.Last = w.kind, last
	var frame bytes.Buffer
	if wire.WriteFrame(&frame, w.part) != nil || w.server.send(w.q, frame.Bytes()) != nil || !time.Now().Before(w.ends) {
		w.over = true
	}
	// Lets the bodies go.
	w.part.Changes, w.size = slices.Delete(w.part.Changes, 0, len(w.part.Changes)), 0
}

// nodes sends what a trie is made of, and bodies, by hash.
func (s *Server) nodes(q *request) error {
	var r wire.NodesRequest
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	if n := len(r.Hashes); n == 0 || n > wire.HashesMax {
		return malformed(fmt.Errorf("it has %d hashes, 1 to %d are allowed", n, wire.HashesMax))
	}
	is, err := s.show(q, r.Head, r.List)
	if err != nil {
		return err
	}
	t, err := s.listed(q, &is, r.Layer)
	if err != nil {
		return err
	}
	items, found, err := s.gather(q, t, r.Hashes)
	if err != nil {
		return err
	}
	if !found {
		return notListed(q, fmt.Sprintf("none of %d hashes is of %.100q, the first is %s", len(r.Hashes), r.Layer, r.Hashes[0]))
	}
	return s.reply(q, wire.NodesReply{Items: items})
}

// listed are the tries of a layer that a caller may have: that of its list, and those of statements.
func (s *Server) listed(q *request, is *shown, id string) ([]catalog.Trie, error) {
	at := slices.IndexFunc(is.list, func(l catalog.Layer) bool { return l.ID == id && l.Priority != catalog.OwnPriority })
	if at < 0 {
		return nil, notListed(q, fmt.Sprintf("layer %.100q", id))
	}
	kept, err := s.opts.Store.Kept()
	if err != nil {
		return nil, err
	}
	roots := []catalog.Digest{is.list[at].Root}
	for _, signed := range statementsOf(&kept, id) {
		if _, st, err := catalog.DecodeStatement(signed); err == nil && !slices.Contains(roots, st.Root) {
			roots = append(roots, st.Root)
		}
	}
	var tries []catalog.Trie
	for _, root := range roots {
		t, found, err := s.opts.Store.Trie(root)
		if err != nil {
			return nil, err
		}
		if found {
			tries = append(tries, t)
		}
	}
	if len(tries) == 0 {
		_, err = s.trie(q, id, is.list[at].Root)
	}
	return tries, err
}

// gather finds things by their hashes, as many as fit into an answer; false where there is not one. Bodies are found by looking through the rows: an
// index of them would take as much memory as the agent has for all else.
func (s *Server) gather(q *request, tries []catalog.Trie, hashes []catalog.Digest) (items [][]byte, any bool, err error) {
	const around = 8 // what stands around an item is less
	items, room := make([][]byte, len(hashes)), wire.ReplyMax-around
	put := func(i int, data []byte) {
		any = true
		if len(data)+around <= room {
			items[i], room = data, room-len(data)-around
		}
	}
	wanted := map[catalog.Digest]int{}
	nodes := catalog.NewNodes(tries...)
	for i, hash := range hashes {
		data, found, err := nodes.Encoded(hash)
		if err != nil {
			return nil, false, err
		}
		if found {
			put(i, data)
		} else {
			wanted[hash] = i
		}
	}
	for _, t := range tries {
		if len(wanted) == 0 {
			break
		}
		for row, err := range t.From(catalog.Digest{}) {
			if err == nil {
				err = q.Context().Err()
			}
			if err != nil {
				return nil, false, err
			}
			i, is := wanted[row.Digest]
			if !is {
				continue
			}
			body, err := s.opts.Store.Body(t.Root(), row.Key)
			if err != nil {
				return nil, false, err
			}
			if sha256.Sum256(body) == row.Digest {
				put(i, body)
			}
			if delete(wanted, row.Digest); len(wanted) == 0 {
				break
			}
		}
	}
	return items, any, nil
}
