package assignments

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
)

// planWindow says over which time hosts spread fetching this: the longest that a config says of which the host gets something else than before.
// For any other reason nobody waits. What has the root of the version before it has its window too: hosts that wait still are to go on waiting
// when what they try is confirmed.
func (p *planner) planWindow(next *plan, to catalog.Digest) {
	switch {
	case p.host.assigned == nil:
		return
	case p.hadRoot(to):
		next.spec.FetchWindowSeconds = p.was.FetchWindowSeconds
		return
	case !sameAwaited(next.spec.Own, p.was.Own):
		return
	}
	for _, l := range next.spec.Layers {
		if old := layerOf(p.was.Layers, l.Config); old == nil || !sameLayer(*old, l) {
			next.spec.FetchWindowSeconds = max(next.spec.FetchWindowSeconds, windowOf(p.configs[l.Config]))
		}
	}
}

// hadRoot reports whether what is stored makes a catalog with a root.
func (p *planner) hadRoot(is catalog.Digest) bool {
	list, err := layers.ListOf(p.was.Layers, ownRoot(p.was.Own))
	if err != nil {
		return false
	}
	was, err := root(list)
	return err == nil && was == is
}

// sameAwaited reports whether two own layers have the same of what somebody waits for on this very node: its instances and its holds.
func sameAwaited(a, b *v1alpha1.OwnLayer) bool {
	var none v1alpha1.OwnLayer
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return equality.Semantic.DeepEqual(a.Instances, b.Instances) && equality.Semantic.DeepEqual(a.Holds, b.Holds)
}

// windowOf is what a config says, in seconds. From what has failed hosts go back at once.
func windowOf(c *config) int32 {
	if c == nil || c.goal() != c.newest {
		return 0
	}
	return int32(c.rollout.FetchWindowOrZero() / time.Second)
}

// window is how long the host may wait before it fetches what is assigned. Until then nothing is late.
func (h *host) window() time.Duration {
	return time.Duration(h.assigned.Spec.FetchWindowSeconds) * time.Second
}
