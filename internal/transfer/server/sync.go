package server

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// listed is what a head allows its host to have.
type listed struct {
	root catalog.Digest // of the list
	list catalog.List
	data []byte // the same, encoded
}

// show verifies the head that a host shows, and reads the list of it. An expired head will do, and so does one that is not the newest.
func (s *Server) show(q *request, head []byte) (listed, error) {
	signed, h, err := catalog.DecodeHead(head)
	if err != nil {
		return listed{}, malformed("read "+q.URL.Path, err)
	}
	// What this server itself says at this moment needs no look at the signature: that is most of what a small sync costs.
	if own, _, err := s.opts.Catalogs.Head(q.who); err != nil || !bytes.Equal(own, head) {
		if h, err = signed.Verify(s.opts.Catalogs.HeadKeys(time.Now()), catalog.Node{Cluster: s.opts.Cluster, Name: q.who.Name, UID: q.who.UID}); err != nil {
			return listed{}, err
		}
	}
	doing := "serve node " + q.who.Name
	root, known := h.Root()
	if !known {
		return listed{}, &reason.Error{Code: reason.RootUnknown, Doing: doing, Cause: errors.New("its head has no root in a format that is known here")}
	}
	data, found := s.opts.Catalogs.List(root)
	if !found {
		return listed{}, &reason.Error{Code: reason.RootUnknown, Doing: doing, Cause: fmt.Errorf("there is no catalog %s", root)}
	}
	list, err := catalog.DecodeList(data)
	return listed{root: root, list: list, data: data}, err
}

// layer is a layer of a list.
func (l *listed) layer(who Identity, id string) (catalog.Layer, error) {
	for _, layer := range l.list {
		if layer.ID == id {
			return layer, nil
		}
	}
	return catalog.Layer{}, notListed(who, "layer "+clip(id))
}

func notListed(who Identity, what string) error {
	return &reason.Error{Code: reason.NotListed, Doing: "serve node " + who.Name, Cause: errors.New(what)}
}

// sync sends what turns one root of a layer into another.
func (s *Server) sync(q *request) error {
	var r wire.SyncRequest
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	l, err := s.show(q, r.Head)
	if err != nil {
		return err
	}
	layer, err := l.layer(q.who, r.Layer)
	if err != nil {
		return err
	}
	if layer.Root != r.Target {
		return notListed(q.who, fmt.Sprintf("root %s of layer %s", r.Target, clip(r.Layer)))
	}
	target, found := s.opts.Catalogs.Layer(r.Layer, r.Target)
	if !found {
		return &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + q.who.Name, Cause: fmt.Errorf("root %s of layer %s", r.Target, clip(r.Layer)), After: time.Second}
	}
	kind, base, err := s.way(&r, target.Trie)
	if err != nil {
		return err
	}
	budget := s.budgets.deltas
	if kind == wire.SyncSnapshot {
		budget = s.budgets.snapshots
	}
	leave, err := budget.enter(q.Context(), q.who.Name, s.opts.Times.Turn)
	if err != nil {
		return err
	}
	defer leave()
	s.metrics.syncs.WithLabelValues(kindName(kind)).Inc()
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	p := parts{server: s, q: q, kind: kind, ends: time.Now().Add(s.opts.Times.Send)}
	if kind == wire.SyncUnknownBase {
		p.last()
		return nil
	}
	p.run(catalog.Difference(base, target.Trie, r.Cursor), target.Body)
	return nil
}

func kindName(k wire.SyncKind) string {
	return map[wire.SyncKind]string{wire.SyncDelta: "delta", wire.SyncUnknownBase: "unknownBase", wire.SyncSnapshot: "snapshot"}[k]
}

// way says how a host gets to a target, and from which trie. It does not depend on the cursor, so that what is resumed goes on.
func (s *Server) way(r *wire.SyncRequest, target catalog.Trie) (wire.SyncKind, catalog.Trie, error) {
	if r.Base == (catalog.Digest{}) {
		return wire.SyncSnapshot, catalog.Trie{}, nil
	}
	base, found := s.opts.Catalogs.Layer(r.Layer, r.Base)
	switch {
	case !found && target.Len() == 0:
		return wire.SyncSnapshot, catalog.Trie{}, nil // there is nothing to send
	case !found:
		return wire.SyncUnknownBase, catalog.Trie{}, nil
	}
	changed := 0
	for _, err := range catalog.Difference(base.Trie, target, catalog.Digest{}) {
		if err != nil {
			return 0, catalog.Trie{}, err
		}
		if changed++; 2*changed > target.Len() && changed > fewChanges {
			return wire.SyncSnapshot, catalog.Trie{}, nil
		}
	}
	return wire.SyncDelta, base.Trie, nil
}

// fewChanges are always sent as such: with so few rows a snapshot saves nothing.
const fewChanges = 16

// changesMax is of one part: deletions have no bodies. What a reader accepts is in wire.
const changesMax = 2_048

// parts sends the parts of one sync.
type parts struct {
	server *Server
	q      *request
	kind   wire.SyncKind
	ends   time.Time // then the host is to resume
	part   wire.SyncPart
	bytes  int // of bodies in part
}

// run sends changes. When it cannot go on it ends the stream without a last part: the host resumes where it was.
func (p *parts) run(changes iter.Seq2[catalog.Change, error], body func(catalog.Digest) ([]byte, bool)) {
	for c, err := range changes {
		if err != nil {
			p.server.opts.Log.Error("send a layer", "node", p.q.who.Name, "err", err)
			return
		}
		out := wire.Change{Key: c.Key, Deleted: c.Deleted}
		if !c.Deleted {
			data, found := body(c.Digest)
			if !found {
				p.server.opts.Log.Error("send a layer", "node", p.q.who.Name, "err", fmt.Sprintf("there is no body %s", c.Digest))
				return
			}
			out.Body = data
		}
		full := p.bytes+len(out.Body) > wire.PartBytesMax || len(p.part.Changes) >= changesMax
		if full && len(p.part.Changes) > 0 && !p.flush() {
			return
		}
		p.part.Changes = append(p.part.Changes, out)
		p.bytes += len(out.Body)
	}
	p.last()
}

// flush sends what was gathered. False means to stop.
func (p *parts) flush() bool {
	p.part.Kind = p.kind
	var b bytes.Buffer
	if err := wire.WriteFrame(&b, p.part); err != nil {
		p.server.opts.Log.Error("send a layer", "node", p.q.who.Name, "err", err)
		return false
	}
	p.part.Changes, p.bytes = slices.Delete(p.part.Changes, 0, len(p.part.Changes)), 0 // lets the bodies go
	return p.server.send(p.q, b.Bytes()) == nil && time.Now().Before(p.ends)
}

func (p *parts) last() {
	p.part.Last = true
	p.flush()
}
