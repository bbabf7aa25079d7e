package workload

import (
	"fmt"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// heldUp says why somebody who is wanted away stays for now, and whether that may change by itself.
func (w *work) heldUp(m *member) Culprit {
	c := Culprit{m.Name, m.Node, reason.DisruptionHeld, "", m.Leave.Since}
	why, _ := reason.Lookup(m.Leave.Why) // one that is not known has no words
	c.Why = fmt.Sprintf("%s: %d of %d instances are available, and the disruption budget wants %d; ", why.Title, w.s.Counts.Available, w.wanted, w.evictFloor)
	switch coming := w.coming(); {
	case coming != nil:
		c.Why += "it goes when " + coming.Name + " is available"
	case !w.stuck():
		c.Why += "it goes when another one is available"
	default:
		c.Code = reason.DisruptionStuck
		c.Why += "none may be started beside them, and none is on its way"
	}
	return c
}

// coming is an instance that is not available and may become so by itself; nil: there is none.
func (w *work) coming() *member {
	for _, m := range w.members {
		if _, held := w.held[m]; m.standing == live && !m.available && !held && !m.away() && !m.Failure.counts() {
			return m
		}
	}
	return nil
}

// stuck: who is held up stays until somebody changes something. What fails is started again, and what is away may come back, so these are
// waited for; so is a rollout, which replaces whoever is held up anyway.
func (w *work) stuck() bool {
	if !w.r.Over && !w.frozen() || w.deaf() || len(w.made) > 0 || w.extra != [2]int{} || w.count(isLeaving) > 0 {
		return false
	}
	return w.count(func(m *member) bool {
		_, held := w.held[m]
		return m.standing == live && !m.available && !held && (!m.away() || w.terms.unreachable != declared.KeepUnreachable)
	}) == 0
}
