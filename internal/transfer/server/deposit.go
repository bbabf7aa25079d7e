package server

import (
	"bytes"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// deposit leaves with the host of a watch what is signed for hosts that are away, each newest head once: when no server is there any more, they
// get it from there. That is looked at with each heartbeat, so that a host which only comes back has no one keep anything. False when the watch is over.
func (f *feed) deposit() bool {
	s := f.server
	if s.opts.Entrusted == nil {
		return true
	}
	left := map[string][]byte{}
	for _, of := range s.opts.Entrusted(f.q.who) {
		head, _, err := s.opts.Heads.Head(of)
		if err != nil || len(head) == 0 || s.desk.newest(of) != 0 {
			continue
		}
		left[of.UID] = head
		if bytes.Equal(f.left[of.UID], head) {
			continue
		}
		_, h, err := catalog.DecodeHead(head)
		if err != nil {
			continue
		}
		root, _ := h.Root()
		list, err := s.opts.Content.List(f.q.Context(), Showing{Who: of, Head: head, Root: root})
		if err != nil || len(head)+len(list) > wire.DepositMax {
			continue // it waits for a server
		}
		if !f.frame(wire.Frame{Deposit: &wire.Deposit{Head: head, List: list}}) {
			return false
		}
		s.metrics.deposits.Inc()
	}
	f.left = left
	return true
}
