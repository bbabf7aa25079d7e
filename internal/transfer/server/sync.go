package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// listed is what a head allows its host to have.
type listed struct {
	Showing
	list catalog.List
	data []byte // the same, encoded
}

// show verifies the head that a caller shows, and reads the list of it. An expired head will do, and so does one that is not the newest. A
// host shows a head of its own, and a relay that of any node which is still there.
func (s *Server) show(q *request, head []byte) (listed, error) {
	signed, h, err := catalog.DecodeHead(head)
	if err != nil {
		return listed{}, malformed("read "+q.URL.Path, err)
	}
	who := q.who
	if who.Relay {
		who, err = s.showRelayed(q, signed, &h)
	} else if own, _, unknown := s.opts.Heads.Head(who); unknown != nil || !bytes.Equal(own, head) {
		// What this server itself says at this moment needs no look at the signature: that is most of what a small sync costs.
		h, err = signed.Verify(s.opts.Heads.HeadKeys(time.Now()), catalog.Node{Cluster: s.opts.Cluster, Name: who.Name, UID: who.UID})
	}
	if err != nil {
		return listed{}, err
	}
	root, known := h.Root()
	if !known {
		return listed{}, &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + who.Name, Cause: errors.New("its head has no root in a format that is known here")}
	}
	l := listed{Showing: Showing{Who: who, Head: head, Root: root}}
	if l.data, err = s.opts.Content.List(q.Context(), l.Showing); err != nil {
		return listed{}, err
	}
	l.list, err = catalog.DecodeList(l.data)
	return l, err
}

// showRelayed verifies a head that a relay shows, and returns for whom it is: a node that is still there.
func (s *Server) showRelayed(q *request, signed catalog.SignedHead, h *catalog.Head) (Identity, error) {
	who := Identity{Name: h.Node, UID: h.UID, Through: q.who.Name}
	if _, err := signed.Verify(s.opts.Heads.HeadKeys(time.Now()), catalog.Node{Cluster: s.opts.Cluster, Name: who.Name, UID: who.UID}); err != nil {
		return who, err
	}
	_, _, err := s.opts.Heads.Head(who)
	return who, err
}

// layer is a layer of a list.
func (l *listed) layer(id string) (catalog.Layer, error) {
	for _, layer := range l.list {
		if layer.ID == id {
			return layer, nil
		}
	}
	return catalog.Layer{}, notListed(l.Who, "layer "+clip(id))
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
	layer, err := l.layer(r.Layer)
	if err != nil {
		return err
	}
	if layer.Root != r.Target {
		return notListed(l.Who, fmt.Sprintf("root %s of layer %s", r.Target, clip(r.Layer)))
	}
	way, err := s.opts.Content.Sync(q.Context(), l.Showing, &r)
	if err != nil {
		return err
	}
	if way.Close != nil {
		defer way.Close()
	}
	places := s.budgets.deltas
	if way.Kind == wire.SyncSnapshot {
		places = s.budgets.snapshots
	}
	leave, err := s.enter(q, places)
	if err != nil {
		return err
	}
	defer leave()
	s.metrics.syncs.WithLabelValues(kindName(way.Kind)).Inc()
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	// When it cannot go on it ends the stream without a last part: the host resumes where it was.
	ends := time.Now().Add(s.opts.Times.Send)
	for frame, err := range way.Frames {
		if err != nil {
			s.opts.Log.Warn("send a layer", "node", l.Who.Name, "layer", r.Layer, "err", err)
			return nil
		}
		if s.send(q, frame) != nil || !time.Now().Before(ends) {
			return nil
		}
	}
	return nil
}

func kindName(k wire.SyncKind) string {
	return map[wire.SyncKind]string{wire.SyncDelta: "delta", wire.SyncUnknownBase: "unknownBase", wire.SyncSnapshot: "snapshot"}[k]
}
