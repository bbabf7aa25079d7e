package workload

import (
	"cmp"
	"slices"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// shares are how many instances there are to be with the goal and with what was before, and how many at most in all.
type shares struct {
	fresh int // with the goal
	old   int // with something else, made anew where they are missing
	keep  int // with something else, that stay as long as they are there
	most  int // terminating ones included: what has not ended still takes up room
}

func (w *work) shares() shares {
	s := shares{fresh: w.wanted, most: w.wanted + w.surge}
	halves := w.strategy() == declared.BlueGreen && !w.plain()
	switch {
	case halves && w.r.Passed.IsZero():
		s.old, s.most = w.wanted, 2*w.wanted
	case halves && !w.alarm.Passed(w.r.Passed.Add(w.keepOld)):
		s.keep, s.most = w.wanted, 2*w.wanted
	case w.strategy() == declared.Canary && !w.plain() && w.r.Step < len(w.Spec.Rollout.Steps):
		s.fresh = w.stepWanted()
		s.old = w.wanted - s.fresh
	}
	if w.frozen() {
		w.freeze(&s, halves)
	}
	return s
}

// freeze keeps what is there, and makes up for what is lost with what is known to work. Where there is nothing of the kind, the goal is
// all there is, but not while people pause it.
func (w *work) freeze(s *shares, halves bool) {
	fresh, old := w.count(isFresh), w.count(isOld)
	switch {
	case w.r.Goal == w.s.Stable.Of:
		s.fresh = max(w.wanted-old, 0)
	case w.base() == "" && !w.Spec.Rollout.Pause:
		s.fresh = w.wanted
	case halves:
		s.fresh = fresh
	default:
		s.fresh, s.old = fresh, max(w.wanted-fresh, 0)
	}
}

// replicas takes away and creates.
func (w *work) replicas() {
	if !w.deaf() {
		w.evict()
		w.inPlace() // in the place of one that has gone
	}
	if w.slots {
		w.shrink(w.wanted) // whoever takes others away than the last slots would leave some that nobody comes back to
	}
	s := w.shares()
	w.grow(s)
	if !w.frozen() && !w.deaf() {
		w.stopOld(s)
		w.stopSurplus(s)
	}
	if w.count(isOld) > 0 {
		w.shrink(s.most)
	}
	if w.count(isOld) == 0 {
		w.shrink(w.wanted)
	}
	w.inPlace()
	w.spareRest()
}

// stopOld takes old ones away, as far as what is available allows: first what does not work, because nobody misses it, and of what works
// first what somebody wants away. As in Kubernetes not even what does not work is taken when with all that is to come yet there would be
// too few.
func (w *work) stopOld(s shares) {
	old, madeFresh := w.of(isOld), w.madeFresh()
	left := len(old) + len(w.made) - madeFresh - max(s.old, s.keep) - w.extra[0]
	coming := w.count(isFresh) + madeFresh - w.count(isFreshAvailable)
	room := w.count(isLive) + len(w.made) - w.floor - coming
	if left <= 0 {
		return
	}
	base := ""
	if s.old+s.keep > 0 {
		base = w.base() // what stays is of that, so it goes last
	}
	slices.SortStableFunc(old, func(a, b *member) int {
		return cmp.Or(compareBool(a.Revision == base, b.Revision == base), compareBool(a.available, b.available), compareBool(w.spared(a), w.spared(b)), -compareBool(a.Leave != nil, b.Leave != nil),
			cmp.Compare(w.number(a.Revision), w.number(b.Revision)), -cmp.Compare(a.Slot, b.Slot))
	})
	spare := w.count(isAvailable) - w.floor
	for _, m := range old {
		was := m.available
		switch {
		case left <= 0:
			return
		case room <= 0 && !(w.slots && m.Phase == Pending): // which runs nothing, and may wait for what its successor does not need
			continue
		case was && spare <= 0, !was && w.spared(m):
			continue
		case !w.stop(m, reason.Replaced):
			return
		case was:
			spare--
		}
		room--
		left -= 1 - w.release(m)
	}
}

// madeFresh is how many are created with the goal.
func (w *work) madeFresh() int {
	n := 0
	for _, c := range w.made {
		if c.Revision == w.r.Goal {
			n++
		}
	}
	return n
}

// spared: scaling has just made it, and it had no time yet to become ready.
func (w *work) spared(m *member) bool {
	return m.Phase < Running && !m.Failure.counts() && m.Revision == w.s.Stable.Of && !w.r.Scaled.IsZero() && !w.alarm.Passed(w.r.Scaled.Add(spareMax))
}

// stopSurplus takes away what has the goal beyond what the step allows.
func (w *work) stopSurplus(s shares) {
	left := w.count(isFresh) - s.fresh - w.extra[1]
	if left <= 0 {
		return
	}
	fresh := w.of(isFresh)
	spare := w.count(isAvailable) - w.floor
	slices.SortStableFunc(fresh, compareSurplus)
	for _, m := range fresh {
		was := m.available
		if left <= 0 || was && spare <= 0 || !w.stop(m, reason.ScaledDown) {
			return
		}
		if was {
			spare--
		}
		left -= 1 - w.release(m)
	}
}

// grow creates what is missing, as far as there is room.
func (w *work) grow(s shares) {
	room := s.most + w.extra[0] + w.extra[1] - w.count(isLive) - w.count(isLeaving)
	fresh, old := s.fresh+w.extra[1]-w.count(isFresh), s.old+w.extra[0]-w.count(isOld)
	if w.wanted == 0 {
		return
	}
	if !w.frozen() && s.old == 0 && s.keep == 0 {
		room -= w.scaleOld(room)
	}
	for ; fresh > 0 && room > 0 && w.create(w.r.Goal, ""); fresh-- {
		room--
	}
	if base := w.base(); base != "" {
		for ; old > 0 && room > 0 && w.create(base, ""); old-- {
			room--
		}
	}
}

// scaleOld lets the last stable revision have its part of what scaling adds in the middle of a rollout: whether the new one works is not
// known yet. How many were wanted before is remembered for this alone; when it is lost, everything that is missing gets the goal.
func (w *work) scaleOld(room int) int {
	grown, stable := min(w.wanted-w.Was.Wanted, room), w.s.Stable.Of
	if w.Was.Wanted == 0 || grown <= 0 || w.plain() || w.revision(stable) == nil {
		return 0
	}
	old := w.count(func(m *member) bool { return isOld(m) && m.Revision == stable })
	made := 0
	for range pace.Proportion(grown, []int{old, w.count(isLive) - old})[0] {
		if w.create(stable, "") {
			made++
		}
	}
	return made
}

// evict lets those go that somebody wants away, as far as the budget allows. What does not work holds nobody up; what is to stand in and
// does not work yet does, because it is not available. Where one has to stay, another is started first.
func (w *work) evict() {
	asked := w.of(func(m *member) bool { return isLive(m) && m.Leave != nil })
	slices.SortStableFunc(asked, func(a, b *member) int { return a.Leave.Since.Compare(b.Leave.Since) })
	hold := w.Spec.DisruptionBudget != nil && w.Spec.DisruptionBudget.UnhealthyHoldUp
	available := w.count(isAvailable)
	for _, m := range asked {
		was := m.available
		enough := available > w.evictFloor || !m.available && available == w.evictFloor
		switch {
		case !m.Leave.Force.IsZero() && w.alarm.Passed(m.Leave.Force.Add(-w.delay)), // so that its signal does not come later
			!m.away() && (enough || !m.available && !hold):
			if w.stop(m, m.Leave.Why) && was {
				available--
			}
		case m.away(): // it cannot be asked; onUnreachable is what counts
		default:
			w.held[m] = -1
		}
	}
	for _, m := range asked {
		if !w.surgeFirst || w.extra[0]+w.extra[1] >= max(w.wanted-w.evictFloor, 1) {
			return
		}
		if _, held := w.held[m]; !held {
			continue
		}
		if side := w.sideOf(m); side >= 0 {
			w.extra[side]++
			w.held[m] = side
		}
	}
}

// release is told that a member goes after all, whose leaving was held up: nothing needs to be started before. It returns how many fewer
// there are to be by that.
func (w *work) release(m *member) int {
	side, held := w.held[m]
	delete(w.held, m)
	if !held || side < 0 {
		return 0
	}
	w.extra[side]--
	return 1
}

// sideOf is which kind is started before a member leaves, as index of extra; -1: none, because it would be what is paused, or because the
// rollout replaces the member anyway.
func (w *work) sideOf(m *member) int {
	s := w.shares()
	stays := !w.frozen() || w.r.Goal == w.s.Stable.Of
	switch {
	case stays && !m.goal && !w.frozen() && s.old+s.keep == 0:
		return -1
	case stays && (m.goal || s.old == 0), w.base() == "" && !w.Spec.Rollout.Pause:
		return 1
	case w.base() == "":
		return -1
	}
	return 0
}
