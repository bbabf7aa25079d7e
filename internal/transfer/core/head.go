package core

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// errEpoch is of a head for an epoch that the trust documents do not know: whoever can sign heads cannot begin one.
var errEpoch = errors.New("its epoch is above that of the trust documents")

// verify believes a head, or says why not. A head of an epoch below that of the trust documents is believed: Judge would call it old,
// and so does headCame.
func (m *Machine) verify(signed []byte) (catalog.Head, error) {
	s, _, err := catalog.DecodeHead(signed)
	if err != nil {
		return catalog.Head{}, err
	}
	h, err := s.Verify(m.chain.KeysOf(trust.RoleHeads, m.time()), m.node)
	if err != nil {
		return catalog.Head{}, err
	}
	if epoch := m.chain.Current().Epoch; h.Epoch > epoch {
		return catalog.Head{}, &reason.Error{
			Code: reason.HeadRefused, Doing: "verify the head of node " + m.node.Name,
			Cause: fmt.Errorf("%w: %d, and they say %d", errEpoch, h.Epoch, epoch),
		}
	}
	return h, nil
}

// began goes on with the head that was accepted last.
func (m *Machine) began() {
	if m.kept.Ground != nil {
		m.stand()
	}
	if m.refused() {
		m.inspect()
		return
	}
	if m.kept.Mark.Version == 0 {
		return
	}
	h, err := m.verify(m.kept.Head)
	if err != nil {
		return // its key has been replaced, or the disk has changed it: it comes again
	}
	if root, _ := h.Root(); h.Epoch != m.kept.Mark.Epoch || h.Version != m.kept.Mark.Version || root != m.kept.Mark.Root {
		return
	}
	m.goal = &candidate{mark: m.kept.Mark, head: h, signed: m.kept.Head, had: m.kept.Ground == nil}
	m.resumeTrial()
}

// trusted looks again at the heads that could not be verified.
func (m *Machine) trusted(c *trust.Chain) {
	heads := m.doubt.heads
	m.chain, m.doubt.heads, m.doubt.open = c, nil, false
	for _, d := range heads {
		if _, err := m.verify(d.signed); err != nil {
			d.err = err
			m.forged(&d)
			m.doubt.heads = append(m.doubt.heads, d) // there may be later documents
			continue
		}
		m.headCame(d.signed)
	}
	m.review()
}

func (m *Machine) headCame(signed []byte) {
	h, err := m.verify(signed)
	if err != nil {
		m.disbelieve(signed, err)
		return
	}
	if h.Epoch < m.chain.Current().Epoch {
		m.old(&h)
		return
	}
	seen := m.kept.Mark
	if m.next != nil {
		seen = m.next.mark
	}
	standing, mark := seen.Judge(&h, m.time())
	switch standing {
	case catalog.HeadNews:
		m.next = &candidate{mark: mark, head: h, signed: signed}
	case catalog.HeadRepeated:
		m.repeated(h, mark, signed)
	case catalog.HeadOld:
		m.old(&h)
	case catalog.HeadEquivocation:
		m.equivocation(h, signed)
	case catalog.HeadUnknown:
		m.unsupported(h)
	case catalog.HeadExpired:
	}
}

func (m *Machine) old(h *catalog.Head) {
	m.count(func(r *wire.Refused) { r.Old++ })
	m.do(Disbelieve{Doubt: DoubtOld, Err: &reason.Error{
		Code: reason.HeadRefused, Doing: "judge the head of node " + m.node.Name,
		Cause: fmt.Errorf("it is version %d of epoch %d, and version %d of epoch %d was accepted", h.Version, h.Epoch, m.kept.Mark.Version, m.chain.Current().Epoch),
	}})
}

// doubtOf says what is wrong with a head that was not believed.
func (m *Machine) doubtOf(signed []byte, err error) Doubt {
	_, h, unread := catalog.DecodeHead(signed)
	switch {
	case unread != nil:
		return DoubtMalformed
	case h.Cluster != m.node.Cluster:
		return DoubtCluster
	case h.Node != m.node.Name || h.UID != m.node.UID:
		return DoubtNode
	case errors.Is(err, errEpoch):
		return DoubtEpoch
	}
	return DoubtKey
}

// disbelieve counts a head. One whose key or epoch nobody knows here is only not verified yet: the keys may have changed, so it is counted
// once later trust documents were asked for and it still is not.
func (m *Machine) disbelieve(signed []byte, err error) {
	d := doubtful{signed: signed, kind: m.doubtOf(signed, err), err: err}
	if d.kind != DoubtKey && d.kind != DoubtEpoch {
		m.forged(&d)
		return
	}
	at := slices.IndexFunc(m.doubt.heads, func(o doubtful) bool { return bytes.Equal(o.signed, signed) })
	if at >= 0 && !m.doubt.heads[at].counted {
		return
	}
	if m.doubt.asked.IsZero() || m.now.Sub(m.doubt.asked) >= trustPause {
		m.doubt.asked, m.doubt.open = m.now, true
		m.do(AskTrust{})
	} else if !m.doubt.open {
		m.forged(&d) // they were asked for a moment ago
	}
	if at < 0 && len(m.doubt.heads) == doubtsMax {
		m.forged(&m.doubt.heads[0])
		at = 0
	}
	if at >= 0 {
		m.doubt.heads = slices.Delete(m.doubt.heads, at, at+1)
	}
	m.doubt.heads = append(m.doubt.heads, d)
}

// forged counts a head that is not believed, and says so, once.
func (m *Machine) forged(d *doubtful) {
	if d.counted {
		return
	}
	d.counted = true
	m.count(func(r *wire.Refused) { r.Forged++ })
	m.do(Disbelieve{Doubt: d.kind, Err: d.err})
}

// unanswered stops waiting for trust documents: whoever sends what cannot be verified may well keep them back, too.
func (m *Machine) unanswered() {
	if !m.doubt.open || m.now.Sub(m.doubt.asked) < trustPause {
		return
	}
	m.doubt.open = false
	for i := range m.doubt.heads {
		m.forged(&m.doubt.heads[i])
	}
}

// repeated takes over what a later issue of a known version says: how long it is valid.
func (m *Machine) repeated(h catalog.Head, mark catalog.Mark, signed []byte) {
	if m.next != nil {
		if mark.Issued > m.next.mark.Issued {
			m.next.mark, m.next.head, m.next.signed = mark, h, signed
		}
		return
	}
	if mark.Issued > m.kept.Mark.Issued {
		m.kept.Mark, m.kept.Head = mark, signed
		m.do(Prolong{Mark: mark, Signed: signed})
		for _, c := range []*candidate{m.goal, m.active, m.orders.paused} {
			if c != nil && c.mark.Version == mark.Version && c.mark.Epoch == mark.Epoch {
				c.mark, c.head, c.signed = mark, h, signed
			}
		}
	}
	if m.goal == nil && m.active == nil && !m.refused() {
		m.goal = &candidate{mark: m.kept.Mark, head: h, signed: signed, had: m.kept.Ground == nil}
	}
}

// equivocation keeps what came first.
func (m *Machine) equivocation(h catalog.Head, signed []byte) {
	m.count(func(r *wire.Refused) { r.Equivocation++ })
	root, _ := h.Root()
	err := &reason.Error{
		Code: reason.HeadRefused, Doing: "judge the head of node " + m.node.Name,
		Cause: fmt.Errorf("version %d of epoch %d was signed with two roots; the second is %s", h.Version, h.Epoch, root),
	}
	m.do(Disbelieve{Doubt: DoubtEquivocation, Err: err})
	if m.doubt.alarmed == root {
		return
	}
	m.doubt.alarmed = root
	first := m.kept.Head
	if m.next != nil {
		first = m.next.signed
	}
	m.do(Alarm{Err: err, Evidence: [][]byte{first, signed}})
}

func (m *Machine) unsupported(h catalog.Head) {
	mark := catalog.Mark{Epoch: h.Epoch, Version: h.Version}
	if v := &m.verdict; v.Version == h.Version && v.Epoch == h.Epoch && v.Code == reason.LaterVersion {
		return
	}
	m.verdict = verdictOn(mark, wire.Rejected, reason.LaterVersion, "this version of tako-agent is too old for what the server has for this host", m.now)
	m.tell()
}

func (m *Machine) count(one func(*wire.Refused)) {
	one(&m.kept.Refused)
	m.do(Count{Refused: m.kept.Refused})
}
