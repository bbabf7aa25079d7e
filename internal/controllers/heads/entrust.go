package heads

import (
	"maps"
	"slices"

	"tako.dev/tako/internal/transfer/server"
)

// entrustLocked notes who keeps the head of a node while its host is away, in place of those before.
func (v *view) entrustLocked(name string, before, now *assigned) {
	if before != nil && before.content != nil {
		for _, uid := range before.content.Holders {
			if delete(v.entrusted[uid], name); len(v.entrusted[uid]) == 0 {
				delete(v.entrusted, uid)
			}
		}
	}
	if now == nil {
		return
	}
	for _, uid := range now.content.Holders {
		if v.entrusted[uid] == nil {
			v.entrusted[uid] = map[string]bool{}
		}
		v.entrusted[uid][name] = true
	}
}

// entrustedMax bounds for how many others one host keeps heads: lists are drawn evenly, so that it is three or so.
const entrustedMax = 16

// Entrusted are the nodes for whose hosts that of another one keeps what is signed while they are away: those that have it among the first of
// their peers, by name.
func (h *Heads) Entrusted(holder server.Identity) []server.Identity {
	v := h.view
	v.mu.Lock()
	defer v.mu.Unlock()
	var of []server.Identity
	for _, name := range slices.Sorted(maps.Keys(v.entrusted[holder.UID])) {
		if n := v.nodes[name]; n != nil && n.uid != "" && len(of) < entrustedMax {
			of = append(of, server.Identity{Name: name, UID: n.uid})
		}
	}
	return of
}
