package server

import (
	"bytes"
	"context"
	"math"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// carrier is a Heads that has what another server leaves with hosts for others: a relay passes it on.
type carrier interface {
	// Carried takes what is to go to the host of one watch. It does not block. The channel of Head is closed when there may be more.
	Carried(holder Identity, conn uint64) []wire.Deposit
}

// carry passes on what another server leaves with the host of a watch. False when the watch is over.
func (f *feed) carry() bool {
	from, does := f.server.opts.Heads.(carrier)
	return !does || f.leave(from.Carried(f.q.who, f.watch.number))
}

// deposit leaves with the host of a watch what is signed for hosts that are away, each newest head once: when no server is there any more, they
// get it from there. That is looked at with each heartbeat, so that a host which only comes back has no one keep anything. False when the watch is over.
func (f *feed) deposit() bool {
	var fresh []wire.Deposit
	fresh, f.left = f.server.deposits(f.q.Context(), f.q.who, f.left, math.MaxInt)
	return f.leave(fresh)
}

func (f *feed) leave(all []wire.Deposit) bool {
	for i := range all {
		if !f.frame(wire.Frame{Deposit: &all[i]}) {
			return false
		}
		f.server.metrics.deposits.Inc()
	}
	return true
}

// deposits are what a host is to keep for others that are away and was not left there yet, at most so many, and all that it keeps then: heads, by the UIDs
// of their nodes. The others wait.
func (s *Server) deposits(ctx context.Context, holder Identity, before map[string][]byte, most int) (fresh []wire.Deposit, left map[string][]byte) {
	if s.opts.Entrusted == nil {
		return nil, nil
	}
	left = map[string][]byte{}
	for _, of := range s.opts.Entrusted(holder) {
		head, _, err := s.opts.Heads.Head(of)
		if err != nil || len(head) == 0 || s.desk.newest(of) != 0 {
			continue
		}
		known := bytes.Equal(before[of.UID], head)
		if !known && len(fresh) == most {
			continue
		}
		if left[of.UID] = head; known {
			continue
		}
		_, h, err := catalog.DecodeHead(head)
		if err != nil {
			continue
		}
		root, _ := h.Root()
		list, err := s.opts.Content.List(ctx, Showing{Who: of, Head: head, Root: root})
		if err != nil || len(head)+len(list) > wire.DepositMax {
			continue // it waits for a server
		}
		fresh = append(fresh, wire.Deposit{Head: head, List: list})
	}
	return fresh, left
}
