package peer

import (
	"errors"
	"fmt"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// shown is what a caller has shown: what it may have follows from that.
type shown struct {
	mark catalog.Mark
	list catalog.List // nil where it was not shown
}

// show verifies the head that a caller shows, and that the list is of it. An expired head will do, and so does one that is not the newest.
func (s *Server) show(q *request, head, encoded []byte) (shown, error) {
	signed, _, err := catalog.DecodeHead(head)
	if err != nil {
		return shown{}, malformed(err)
	}
	h, err := signed.Verify(s.opts.Identity.Trust().KeysOf(trust.RoleHeads, q.now), catalog.Node{Cluster: q.who.Cluster, Name: q.who.Name, UID: q.who.UID})
	if err != nil {
		return shown{}, err
	}
	root, known := h.Root()
	if !known {
		return shown{}, &reason.Error{Code: reason.RootUnknown, Doing: "answer node " + q.who.Name, Cause: errors.New("its head has no root in a format that is known here")}
	}
	is := shown{mark: catalog.Mark{Epoch: h.Epoch, Version: h.Version, Root: root, Issued: h.Issued, Expires: h.Expires}}
	if len(encoded) == 0 {
		return is, nil
	}
	if catalog.ListRoot(encoded) != root {
		return shown{}, notListed(q, "the list that it shows is not that of its head")
	}
	if is.list, err = catalog.DecodeList(encoded); err != nil {
		return shown{}, malformed(err)
	}
	return is, nil
}

func notListed(q *request, what string) error {
	return &reason.Error{Code: reason.NotListed, Doing: "answer node " + q.who.Name, Cause: errors.New(what)}
}

// allows refuses a layer at a root that a caller may not have: the list has to name the layer, and the root has to stand in the list, or in
// an operator's statement about that layer which this host has accepted.
func (s *Server) allows(q *request, is *shown, id string, root catalog.Digest) error {
	at := slices.IndexFunc(is.list, func(l catalog.Layer) bool { return l.ID == id && l.Priority != catalog.OwnPriority })
	if at < 0 {
		return notListed(q, fmt.Sprintf("layer %.100q", id))
	}
	if is.list[at].Root == root {
		return nil
	}
	kept, err := s.opts.Store.Kept()
	if err != nil {
		return err
	}
	for _, signed := range statementsOf(&kept, id) {
		if _, st, err := catalog.DecodeStatement(signed); err == nil && st.Root == root {
			return nil
		}
	}
	return notListed(q, fmt.Sprintf("root %s of layer %.100q", root, id))
}

// statementsOf are the statements about a layer that this host goes by, signed, the highest first. What it has refused for itself is not among them.
func statementsOf(kept *core.Kept, layer string) [][]byte {
	at := slices.IndexFunc(kept.Statements, func(x core.Statement) bool { return x.Layer == layer })
	if at < 0 {
		return nil
	}
	var all [][]byte
	for _, signed := range [][]byte{kept.Statements[at].Coming, kept.Statements[at].InForce} {
		if len(signed) > 0 {
			all = append(all, signed)
		}
	}
	return all
}

// trie is a layer that is held here.
func (s *Server) trie(q *request, id string, root catalog.Digest) (catalog.Trie, error) {
	t, found, err := s.opts.Store.Trie(root)
	if err == nil && !found {
		err = &reason.Error{Code: reason.RootUnknown, Doing: "answer node " + q.who.Name, Cause: fmt.Errorf("root %s of layer %.100q is not held here", root, id)}
	}
	return t, err
}

// news tells a caller what is newer than what it has.
func (s *Server) news(q *request) error {
	var r wire.NewsRequest
	if err := q.read(wire.NewsMax, &r); err != nil {
		return err
	}
	if r.Protocol != wire.Protocol {
		return malformed(fmt.Errorf("it is of version %d, and version %d is known here", r.Protocol, wire.Protocol))
	}
	if err := r.Validate(); err != nil {
		return malformed(err)
	}
	var is shown
	if len(r.Head) > 0 {
		var err error
		if is, err = s.show(q, r.Head, r.List); err != nil {
			return err
		}
	}
	chain := s.opts.Identity.Trust()
	var reply wire.NewsReply
	reply.Head, reply.List = s.opts.Deposits.of(q.who.UID, is.mark, is.list != nil, chain.Time(q.now))
	if later := chain.After(r.Trust); len(later) > 0 {
		var err error
		if reply.Trust, err = trust.EncodeDocuments(later); err != nil {
			return err
		}
	}
	var err error
	if reply.Statements, err = s.later(&is, r.Statements, chain.Time(q.now).Unix()); err != nil {
		return err
	}
	return s.reply(q, reply)
}

// later are the statements about layers of a list that are higher than those that the caller has. It could not begin with one that has expired.
func (s *Server) later(is *shown, have []wire.StatementMark, now int64) ([][]byte, error) {
	kept, err := s.opts.Store.Kept()
	if err != nil || len(kept.Statements) == 0 {
		return nil, err
	}
	var later [][]byte
	for _, l := range is.list {
		if l.Priority == catalog.OwnPriority || len(later) == wire.NewsStatementsMax {
			continue
		}
		signed := statementsOf(&kept, l.ID)
		if len(signed) == 0 {
			continue
		}
		_, st, err := catalog.DecodeStatement(signed[0])
		if err != nil || now >= st.Expires {
			continue // it was verified before it was kept
		}
		if !slices.ContainsFunc(have, func(m wire.StatementMark) bool {
			return m.Layer == l.ID && (m.Epoch > st.Epoch || m.Epoch == st.Epoch && m.Number >= st.Number)
		}) {
			later = append(later, signed[0])
		}
	}
	return later, nil
}
