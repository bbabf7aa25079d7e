package assignments

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/peers"
	"tako.dev/tako/internal/fleet/rollout"
)

const (
	// drawWait is how long it is waited for more hosts before peers are drawn, and drawPause how long it is at least until they are drawn again:
	// hosts that join one after the other are drawn together, and nobody waits for peers.
	drawWait, drawPause = 10 * time.Second, 30 * time.Second
	// zoneLabel is the label of a node that says in which zone it is: the one that Kubernetes has for that.
	zoneLabel = "topology.kubernetes.io/zone"
)

// drawSoon has it looked at whose peers are to be drawn anew.
func (w *world) drawSoon(now time.Time) {
	at := now.Add(drawWait)
	if at.Before(w.mayDraw) {
		at = w.mayDraw
	}
	w.drawAt = earlier(w.drawAt, at)
}

// regroups tells whether nodes have come or gone, or may be of another environment or zone.
func (w *world) regroups(news map[string]*hostSpec) (other bool) {
	for name := range news {
		h, was := w.hosts[name], w.groups[name]
		switch {
		case h == nil:
			delete(w.groups, name)
			other = other || was != ""
		case was != h.group():
			w.groups[name], other = h.group(), true
		}
	}
	return other
}

// group is whom a host may have as its peers, with the UID of its node: another one is another host.
func (h *host) group() string {
	return h.environment + "|" + h.labels[zoneLabel] + "|" + string(h.uid)
}

// peerAddress is where a host answers others, as it was heard last; empty where it does not, or is not heard now.
func (h *host) peerAddress() string {
	if h.presence() != rollout.Heard || h.seen.Host == nil {
		return ""
	}
	return h.seen.Host.Peer
}

// peers are whom a host asks: what was decided last.
func (h *host) peers() []v1alpha1.NodePeer {
	switch {
	case h.drawn != nil:
		return *h.drawn
	case h.assigned != nil && h.assigned.Spec.Own != nil:
		return h.assigned.Spec.Own.Peers
	}
	return nil
}

// draw draws peers anew where that is due.
func (w *world) draw(now time.Time) {
	w.mayDraw = now.Add(drawPause)
	var nodes []peers.Node
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		h := w.hosts[name]
		if !h.joined {
			continue
		}
		n := peers.Node{Name: h.name, UID: string(h.uid), Group: h.environment + "|" + h.labels[zoneLabel], Address: h.peerAddress(), Silent: h.presence() != rollout.Heard || h.seen.Host == nil}
		for _, p := range h.peers() {
			n.Has = append(n.Has, peers.Peer{Name: p.Name, UID: string(p.UID), Address: p.Address})
		}
		nodes = append(nodes, n)
	}
	lists := peers.Draw(nodes)
	for _, h := range w.hosts {
		list, other := lists[string(h.uid)]
		if !other {
			continue
		}
		drawn := make([]v1alpha1.NodePeer, 0, len(list))
		for _, p := range list {
			drawn = append(drawn, v1alpha1.NodePeer{Name: p.Name, UID: types.UID(p.UID), Address: p.Address})
		}
		h.drawn = &drawn
		w.replan(h)
	}
}
