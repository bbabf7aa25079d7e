package sim

import (
	"bytes"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// liar is what a relay does that somebody else has taken over. It has no key of the cluster.
type liar struct {
	w     *world
	key   *trust.SigningKey // its own
	first map[string][]byte // the first head of each node: one that it may repeat for ever
	lists [][]byte          // that it has passed on, at most listsKept
}

// listsKept is how many lists a liar has to choose from.
const listsKept = 20

func newLiar(w *world) *liar {
	return &liar{w: w, key: w.by.key(), first: map[string][]byte{}}
}

// head is what it shows in the place of the newest head of a node.
func (l *liar) head(node string, honest []byte) []byte {
	if honest == nil {
		return nil
	}
	old := l.first[node]
	if old == nil {
		l.first[node], old = honest, honest
	}
	_, h, err := catalog.DecodeHead(honest)
	must(0, err)
	switch l.w.random.IntN(8) {
	case 0, 1:
		return old
	case 2: // a bit is another one
		forged := slices.Clone(honest)
		forged[l.w.random.IntN(len(forged))] ^= 1 << l.w.random.IntN(8)
		return forged
	case 3: // of its own making: a later version
		h.Version += 1 + l.w.random.Uint64N(100)
		h.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.KeyOf("forged")}}
		return signHead(h, l.key)
	case 4: // two roots under one version
		h.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.KeyOf("another")}}
		return signHead(h, l.key)
	case 5: // that of another node
		return l.first[one(l.w, sortedKeys(l.first))]
	}
	return honest
}

// parts is what it makes of an answer.
func (l *liar) parts(q wire.SyncRequest, honest []wire.SyncPart) []wire.SyncPart {
	if len(honest) == 0 || l.w.chance(0.3) {
		return honest
	}
	if l.w.chance(0.05) {
		return flood(q)
	}
	parts := make([]wire.SyncPart, len(honest))
	for i, p := range honest { // what is kept is shared
		parts[i] = p
		parts[i].Changes = slices.Clone(p.Changes)
	}
	p := &parts[l.w.random.IntN(len(parts))]
	if len(p.Changes) == 0 {
		p.Changes = []wire.Change{{Key: q.Target, Body: []byte("invented")}}
		return parts
	}
	c := &p.Changes[l.w.random.IntN(len(p.Changes))]
	switch l.w.random.IntN(6) {
	case 0:
		c.Body, c.Deleted = []byte("forged"), false
	case 1:
		p.Changes = p.Changes[1:]
	case 2:
		c.Deleted, c.Body = true, nil
	case 3:
		c.Key[31]++
	case 4:
		parts[len(parts)-1].Last = false // it has no end
	case 5:
		p.Kind = wire.SyncDelta + wire.SyncSnapshot - p.Kind
	}
	return parts
}

// floodBody is of each row that nobody has declared: as large as there may be.
var floodBody = bytes.Repeat([]byte("x"), declare.BodyBytesMax)

// flood is the beginning of an answer that has no end: rows in order, each as a layer may have it.
func flood(q wire.SyncRequest) (parts []wire.SyncPart) {
	kind := wire.SyncDelta
	if q.Base == (catalog.Digest{}) {
		kind = wire.SyncSnapshot
	}
	for key := q.Cursor; len(parts) < 3; {
		for i := len(key) - 1; i >= 0; i-- {
			if key[i]++; key[i] != 0 {
				break
			}
		}
		parts = append(parts, wire.SyncPart{Kind: kind, Changes: []wire.Change{{Key: key, Body: floodBody}}})
	}
	return parts
}

// items is what it makes of nodes and bodies.
func (l *liar) items(q wire.NodesRequest, honest wire.NodesReply) wire.NodesReply {
	if q.Layer == wire.CatalogLayer && len(honest.Items) == 1 && len(honest.Items[0]) > 0 {
		if len(l.lists) < listsKept {
			l.lists = append(l.lists, honest.Items[0])
		}
		if l.w.chance(0.5) {
			return wire.NodesReply{Items: [][]byte{one(l.w, l.lists)}} // perhaps that of another version
		}
	}
	if len(honest.Items) == 0 || l.w.chance(0.3) {
		return honest
	}
	items := slices.Clone(honest.Items)
	i := l.w.random.IntN(len(items))
	switch l.w.random.IntN(4) {
	case 0:
		items[i] = []byte("forged")
	case 1:
		items[i] = nil
	case 2:
		items = items[:i]
	case 3:
		items = append(items, []byte("more"))
	}
	return wire.NodesReply{Items: items}
}
