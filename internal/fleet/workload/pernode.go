package workload

import (
	"slices"

	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// perNode keeps one instance on each eligible node, and lets the goal take over in the order that is the same each time. A node gives
// its instance up before it gets another one. As where configs are rolled out, one that is not heard takes up room.
func (w *work) perNode() {
	w.onlyEligible()
	w.judgeInPlace()
	if !w.deaf() {
		w.evict()
		w.inPlace()
	}
	w.extra = [2]int{} // two on one node would be no help
	s := w.shares()
	fresh, base := w.count(isFresh), w.base()
	going := fresh // nodes that have the goal, or will
	unavailable := 0
	order := w.nodesInOrder()
	for _, n := range order {
		if n.live == nil || !n.live.available {
			unavailable++
		}
		if n.here && n.live == nil && (!w.frozen() || n.leaving != nil) {
			going++
		}
	}
	for _, n := range order {
		switch {
		case !n.here || n.leaving != nil:
		case n.live == nil && (fresh < s.fresh || base == "" && !w.pausedAtFirst()):
			fresh++
			w.create(w.r.Goal, n.name)
		case n.live == nil && base != "":
			going--
			w.create(base, n.name)
		case n.live == nil || n.live.goal || w.frozen() || w.deaf() || going >= s.fresh:
		case !n.live.available:
			going++
			w.stop(n.live, reason.Replaced)
		case unavailable < w.terms.unavailable && w.count(isAvailable) > w.floorOfBudget():
			going++
			unavailable++
			w.stop(n.live, reason.Replaced)
		}
	}
}

// pausedAtFirst: nothing has ever worked, and people do not want it to begin.
func (w *work) pausedAtFirst() bool { return w.Spec.Rollout.Pause && !w.r.Over }

// floorOfBudget is how many a declared budget wants to stay; without one, maxUnavailable is all there is.
func (w *work) floorOfBudget() int {
	if w.Spec.DisruptionBudget == nil {
		return 0
	}
	return w.evictFloor
}

// eligibleNode is a node with what is there of this workload.
type eligibleNode struct {
	name    string
	place   pace.Place
	here    bool
	live    *member
	leaving *member
}

func (w *work) nodesInOrder() []*eligibleNode {
	byName := make(map[string]*eligibleNode, len(w.Eligible))
	all := make([]*eligibleNode, 0, len(w.Eligible))
	for _, name := range w.Eligible {
		n := &eligibleNode{name: name, place: pace.PlaceOf(w.UID, name, 0), here: w.Nodes[name].Presence == node.Here && !w.Nodes[name].Lost}
		byName[name] = n
		all = append(all, n)
	}
	for _, m := range w.members {
		n := byName[m.Node]
		switch {
		case n == nil:
		case m.standing == live:
			n.live = m
		case m.standing == leaving:
			n.leaving = m
		}
	}
	slices.SortFunc(all, func(a, b *eligibleNode) int { return a.place.Compare(b.place) })
	return all
}

// onlyEligible stops what is on nodes that are not eligible any more, and a second one on one node.
func (w *work) onlyEligible() {
	if w.deaf() {
		return
	}
	kept := map[string]*member{}
	for _, name := range w.Eligible {
		kept[name] = nil
	}
	for _, m := range w.of(isLive) {
		other, eligible := kept[m.Node]
		switch {
		case !eligible:
			w.stop(m, reason.PlacementChanged)
		case other == nil:
			kept[m.Node] = m
		case m.goal && !other.goal:
			kept[m.Node] = m
			w.stop(other, superseded)
		default:
			w.stop(m, superseded)
		}
	}
}

// wholeNodes: every node that is heard has the goal, available, and at least one does. The others get it when they are back.
func (w *work) wholeNodes() bool {
	any := false
	for _, n := range w.nodesInOrder() {
		has := n.live != nil && w.done(n.live)
		if n.here && !has {
			return false
		}
		any = any || has
	}
	return any
}
