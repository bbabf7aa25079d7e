package assignments

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// told is what is known of a host that answers others at an address; of one that says nothing of that, where it is empty.
func told(address string) presence.Seen {
	return presence.Seen{Presence: node.Here, Believed: true, Host: &wire.Host{Peer: address}}
}

// TestPeersAreDrawn: peers come into a host's own layer some seconds after they are known, together, and stay as they are stored, over another server's lead too, until
// a quarter of them is other.
func TestPeersAreDrawn(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := newWorld(now)
	for i := range 5 {
		h := &host{hostSpec: hostSpec{name: fmt.Sprint("web-", i), uid: types.UID(fmt.Sprint("uid-", i)), environment: "prod", joined: true, labels: map[string]string{zoneLabel: "a"}}}
		h.seen = told(fmt.Sprintf("192.0.2.%d:6445", i))
		w.hosts[h.name] = h
	}
	w.hosts["web-4"].labels[zoneLabel] = "b"
	news := map[string]*hostSpec{}
	for name, h := range w.hosts {
		news[name] = &h.hostSpec
	}
	if !w.regroups(news) {
		t.Error("that there are hosts is nothing new")
	}
	w.drawSoon(now)
	w.drawSoon(now.Add(time.Second))
	if !w.drawAt.Equal(now.Add(drawWait)) {
		t.Errorf("it is drawn at %s", w.drawAt)
	}
	now = w.drawAt
	if !due(&w.drawAt, now) {
		t.Error("it is not drawn")
	}
	w.draw(now)
	for name, h := range w.hosts {
		want := 3
		if name == "web-4" {
			want = 0
		}
		if len(h.peers()) != want || h.dirty != (want > 0) {
			t.Errorf("%s has the peers %v, and is to be planned: %v", name, h.peers(), h.dirty)
		}
		for _, p := range h.peers() {
			if p.Name == name || p.Name == "web-4" || w.hosts[p.Name].seen.Host.Peer != p.Address {
				t.Errorf("%s has the peer %+v", name, p)
			}
		}
	}
	w.drawSoon(now)
	if !w.drawAt.Equal(now.Add(drawPause)) {
		t.Errorf("it is drawn again at %s", w.drawAt)
	}

	// Another server leads: what is stored stays, also while nobody is heard yet.
	for _, h := range w.hosts {
		h.assigned = &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Own: &v1alpha1.OwnLayer{Peers: h.peers()}}}
		h.drawn, h.dirty, h.seen = nil, false, presence.Seen{Presence: node.Unheard}
	}
	w.hosts["web-0"].seen = told("192.0.2.0:6445")
	w.draw(now)
	for name, h := range w.hosts {
		if h.drawn != nil || h.dirty {
			t.Errorf("%s is drawn anew because of who leads: %v", name, h.peers())
		}
	}
	if w.regroups(news) {
		t.Error("that there are the same hosts is something new")
	}
	spec := *news["web-0"]
	spec.environment = "qa"
	w.hosts["web-0"].hostSpec = spec
	if !w.regroups(map[string]*hostSpec{"web-0": &spec}) {
		t.Error("that a host has moved is nothing new")
	}
	w.draw(now)
	if h := w.hosts["web-0"]; h.drawn == nil || len(h.peers()) != 0 || !h.dirty {
		t.Errorf("a host that has moved has the peers %v", h.peers())
	}
}
