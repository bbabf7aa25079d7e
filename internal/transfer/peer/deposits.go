package peer

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// depositsMax is how many other hosts something is kept for: many times the few whose lists this host stands at the beginning of.
const depositsMax = 64

// Deposits is what servers have left here for hosts that are away: of each the newest head, with its list. It is in memory: whoever has
// been away for longer than this host has run is left it anew by the next server. Use NewDeposits. It is safe for concurrent use.
type Deposits struct {
	mu   sync.Mutex // guards what follows
	kept map[string]deposit
}

// deposit is what is kept for one node.
type deposit struct {
	wire.Deposit
	mark catalog.Mark
	at   time.Time
}

// NewDeposits makes a place where nothing is kept yet.
func NewDeposits() *Deposits { return &Deposits{kept: map[string]deposit{}} }

// Put keeps what a server has left here, where it is newer than what is kept for that node. The error says why it does not: HeadRefused and
// StateCorrupt for what is not signed for a node of this cluster, or has expired, and those of catalog.
func (d *Deposits) Put(one wire.Deposit, node catalog.Node, chain *trust.Chain, now time.Time) error {
	doing := "keep a head for another host"
	if len(one.Head)+len(one.List) > wire.DepositMax {
		return &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: errors.New("it is too large")}
	}
	signed, h, err := catalog.DecodeHead(one.Head)
	if err != nil {
		return err
	}
	h, err = signed.Verify(chain.KeysOf(trust.RoleHeads, now), catalog.Node{Cluster: node.Cluster, Name: h.Node, UID: h.UID})
	if err != nil {
		return err
	}
	root, known := h.Root()
	switch {
	case h.UID == node.UID:
		return &reason.Error{Code: reason.HeadRefused, Doing: doing, Cause: errors.New("it is for this host itself")}
	case !known || catalog.ListRoot(one.List) != root:
		return &reason.Error{Code: reason.HeadRefused, Doing: doing, Cause: errors.New("the list is not that of the head")}
	case h.Expires <= chain.Time(now).Unix():
		return &reason.Error{Code: reason.HeadRefused, Doing: doing, Cause: errors.New("it has expired")}
	}
	next := deposit{Deposit: one, mark: catalog.Mark{Epoch: h.Epoch, Version: h.Version, Root: root, Issued: h.Issued, Expires: h.Expires}, at: now}
	d.mu.Lock()
	defer d.mu.Unlock()
	have, there := d.kept[h.UID]
	if there && !newer(next.mark, have.mark) {
		return nil
	}
	if !there && len(d.kept) >= depositsMax {
		d.dropOldestLocked()
	}
	d.kept[h.UID] = next
	return nil
}

// newer: of a later version, or of the same one issued later.
func newer(a, b catalog.Mark) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	if a.Version != b.Version {
		return a.Version > b.Version
	}
	return a.Issued > b.Issued
}

func (d *Deposits) dropOldestLocked() {
	var oldest string
	for uid := range d.kept {
		if oldest == "" || d.kept[uid].at.Before(d.kept[oldest].at) || d.kept[uid].at.Equal(d.kept[oldest].at) && uid < oldest {
			oldest = uid
		}
	}
	delete(d.kept, oldest)
}

// Len is for how many hosts something is kept.
func (d *Deposits) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept)
}

// of is what is kept for a node that has a mark and, where it says so, the list of it: a newer head with its list, or the list alone. What
// has expired is of no use to it.
func (d *Deposits) of(uid string, have catalog.Mark, hasList bool, now time.Time) (head, list []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, there := d.kept[uid]
	switch {
	case !there || kept.mark.Expires <= now.Unix():
		return nil, nil
	case newer(kept.mark, have):
		return bytes.Clone(kept.Head), bytes.Clone(kept.List)
	case !hasList && kept.mark.Root == have.Root:
		return nil, bytes.Clone(kept.List)
	}
	return nil, nil
}
