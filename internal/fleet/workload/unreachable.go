package workload

import (
	"slices"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
)

// unreachable gives those up whose nodes were not heard for as long as the spec says. A host that is gone is not dead: what ran there may
// run on, so what is given up is only not counted any more, and is decided on when the node is back. A fence is another matter: there the
// instance has ended, and its slot is free, also where the host answers and only its agent does not.
func (w *work) unreachable() {
	if w.Spec.Mode == declared.PerNode || w.terms.unreachable == declared.KeepUnreachable || w.deaf() {
		return
	}
	for _, m := range w.members {
		gone, away := w.Nodes[m.Node].Gone, m.presence == node.Gone
		if w.exclusive {
			gone = w.Nodes[m.Node].Missed // an earlier leader's clock may have been behind, and another copy would be begun too soon by that
			away = away || m.presence == node.Silent
		}
		if m.standing > leaving || !away || gone.IsZero() || !w.alarm.Passed(w.replacedAt(gone, m.Losses)) {
			continue // since when a node is gone must be known: nobody is given up before
		}
		switch {
		case w.Brake != "":
			w.stalled = append(w.stalled, m)
		case w.exclusive:
			w.drop(m)
		default:
			w.d.Abandon = append(w.d.Abandon, Mark{m.Name, m.UID})
			m.standing, m.available = abandoned, false
		}
	}
}

func (w *work) drop(m *member) {
	w.settle(m) // it may have begun, and nobody has heard so
	w.d.Drop = append(w.d.Drop, Mark{m.Name, m.UID})
	m.standing, m.available = dropped, false
	delete(w.busy, m.Slot)
}

// reunite decides which copy stays where a node is back with an instance that somebody stands in for.
func (w *work) reunite() {
	if w.deaf() {
		return
	}
	lacking := w.wanted - w.count(isLive) - w.count(isLeaving)
	for _, m := range w.members {
		if m.standing != abandoned || m.Phase == Terminating || m.away() {
			continue
		}
		other := w.standIn(m)
		switch {
		case other == nil && lacking > 0 && (m.goal || w.plain() && w.r.Over):
			lacking--
			w.reclaim(m)
		case other != nil && w.stays(m, other):
			w.reclaim(m)
			w.spare(other)
			w.stop(other, superseded)
		default:
			w.spare(m)
			w.stop(m, superseded)
		}
	}
}

func (w *work) reclaim(m *member) {
	w.d.Reclaim = append(w.d.Reclaim, Mark{m.Name, m.UID})
	m.standing = live
	m.available = m.Phase == Running && !m.ReadySince.IsZero() && w.alarm.Passed(m.ReadySince.Add(w.minReady))
}

// standIn is who stands in for an abandoned instance now: its replacement, or that one's where it was lost too.
func (w *work) standIn(m *member) *member {
	for range w.members {
		at := slices.IndexFunc(w.members, func(o *member) bool { return o.Replaces == m.UID && o.standing != dropped })
		if at < 0 {
			return nil
		}
		if m = w.members[at]; m.standing == live {
			return m
		}
	}
	return nil
}

// stays reports whether the original stays, and not who stands in for it. What has the goal does, then the newer revision; of two that have
// one revision the declared one, but none that is not ready while the other is.
func (w *work) stays(original, other *member) bool {
	up := original.Phase == Running && !original.ReadySince.IsZero()
	switch {
	case original.Leave != nil && other.Leave == nil:
		return false // it would have to go at once
	case original.goal != other.goal:
		return original.goal
	case original.Revision != other.Revision:
		return w.number(original.Revision) > w.number(other.Revision)
	case up != other.available:
		return up
	case w.Spec.OnUnreachable == nil:
		return true
	}
	switch w.Spec.OnUnreachable.Reconnect {
	case declared.KeepReplacement:
		return false
	case declared.KeepLongestReady:
		return up && original.ReadySince.Before(other.ReadySince)
	}
	return true
}
