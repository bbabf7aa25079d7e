package workload

import (
	"cmp"
	"slices"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// Decide returns what is to be done for one workload now, and how it stands.
func Decide(v View, now time.Time) Decision {
	w := newWork(&v, now)
	w.sweep()
	switch {
	case v.Deleting:
		w.stopAll()
	case w.revise():
		w.unpin()
		w.unreachable()
		w.reunite()
		w.pace()
	}
	w.d.Create, w.d.Update = w.made, w.updates()
	w.conclude()
	w.d.WakeAt = w.alarm.At
	return w.d
}

// sweep drops what has ended, but of jobs, whose counting needs it, and repeats what was taken away and does not look so yet.
func (w *work) sweep() {
	failed := false
	for _, m := range w.members {
		switch {
		case m.standing == dropped && w.unstored(m):
			m.standing, w.alarm.At = leaving, w.now
		case m.standing == dropped && (w.Spec.Mode != declared.RunToCompletion || w.Deleting || !m.Phase.Ended()):
			w.d.Drop = append(w.d.Drop, Mark{m.Name, m.UID})
			failed = failed || m.Phase == Failed && !m.Failure.ofLease()
			continue
		case m.standing == leaving && m.Phase != Terminating:
			w.d.Stop = append(w.d.Stop, Stop{Mark{m.Name, m.UID}, w.taken[m.UID]})
		}
		w.busy[m.Slot] = true
	}
	if failed {
		w.s.Backoff = w.s.Backoff.next(w.now)
	}
}

// next is the pause after something more has ended badly. The first is replaced at once.
func (b Backoff) next(now time.Time) Backoff {
	b.Failed++
	b.Until = now.Add(b.pause())
	return b
}

// pause is how long it is after so many failures.
func (b Backoff) pause() time.Duration {
	if b.Failed <= 1 {
		return 0
	}
	return min(backoffMin<<min(b.Failed-2, 16), backoffMax)
}

// stopAll is the end of the workload. What was abandoned is stopped like the others, when its node is back.
func (w *work) stopAll() {
	for _, m := range w.members {
		if m.standing == live || m.standing == abandoned && m.Phase != Terminating {
			m.available = false // nothing needs to be left of it, so nothing is counted
			w.stop(m, reason.WorkloadDeleted)
		}
	}
}

// revise finds the revision that the spec declares. It is false while there is none: it has to be made first.
func (w *work) revise() bool {
	target := w.declared()
	if target == nil {
		return false
	}
	w.s.ObservedGeneration = w.Generation
	if target.Name != w.r.Target {
		*w.r = Rollout{Target: target.Name, Goal: target.Name}
	}
	if w.r.Goal != w.r.Target && w.revision(w.r.Goal) == nil {
		w.r.Goal = w.r.Target // there is nothing left to be rolled back to
	}
	for _, m := range w.members {
		m.goal = m.Revision == w.r.Goal
	}
	if w.wanted != w.s.Wanted {
		w.r.Scaled = w.now
		w.r.Best.Available = min(w.r.Best.Available, w.wanted)
	}
	w.forget()
	return true
}

// declared is the revision with the template of the spec. While the workload is paused it stays the one that was the target.
func (w *work) declared() *Revision {
	if was := w.revision(w.Was.Rollout.Target); w.Spec.Rollout.Pause && was != nil {
		return was
	}
	var same *Revision
	newest, collides := 0, false
	for i := range w.Revisions {
		r := &w.Revisions[i]
		newest = max(newest, r.Number)
		collides = collides || r.Hash == w.Hash && !r.Same
		if r.Same && (same == nil || r.Number > same.Number) {
			same = r
		}
	}
	switch {
	case same != nil && same.Number < newest:
		w.d.Renumber = &Revision{Name: same.Name, Number: newest + 1, Hash: same.Hash, Same: true}
	case same == nil && collides:
		w.s.Collisions++
		w.alarm.At = w.now
	case same == nil:
		w.d.Make = &Revision{Name: w.Name + "-" + w.Hash, Number: newest + 1, Hash: w.Hash, Same: true}
	}
	return same
}

// forget drops the oldest of the revisions that nobody has or may go back to but people, beyond the history.
func (w *work) forget() {
	var old []Revision
	for _, r := range w.Revisions {
		used := func(m *member) bool { return m.Revision == r.Name }
		if r.Name != w.r.Target && r.Name != w.r.Goal && r.Name != w.s.Stable.Of && !slices.ContainsFunc(w.members, used) {
			old = append(old, r)
		}
	}
	slices.SortFunc(old, func(a, b Revision) int { return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name)) })
	for _, r := range old[:max(len(old)-w.history, 0)] {
		w.d.Forget = append(w.d.Forget, r.Name)
	}
}

// pace takes away and creates, as the mode says.
func (w *work) pace() {
	switch w.Spec.Mode {
	case declared.RunToCompletion:
		w.run()
	case declared.PerNode:
		w.withdraw()
		w.perNode()
	default:
		w.withdraw()
		w.judgeInPlace()
		w.replicas()
	}
}

// withdraw takes back what has the goal and no node yet while people pause the rollout: as soon as there was room it would begin all the same. Another leader
// would not know of it either.
func (w *work) withdraw() {
	if !w.Spec.Rollout.Pause || w.r.Over || w.r.Goal == w.s.Stable.Of {
		return
	}
	for _, m := range w.of(isFresh) {
		if m.Phase == Pending {
			w.stop(m, reason.Replaced)
		}
	}
}

// run keeps as many instances of a job running as are wanted. Each ends with the revision that it began with.
func (w *work) run() {
	for _, m := range w.of(isLive) {
		if m.Leave != nil && !w.deaf() {
			m.available = false // what a job has done is not undone by being available
			w.stop(m, m.Leave.Why)
		}
	}
	w.shrink(w.wanted)
	for range w.wanted - w.count(isLive) - w.count(isLeaving) {
		if !w.create(w.r.Goal, "") {
			break
		}
	}
}

// shrink stops instances until so many are left: first what has no node, is not ready, or is wanted away; of those alike the old, and the
// last slots.
func (w *work) shrink(to int) {
	if w.deaf() {
		return
	}
	left := w.count(isLive) - to - w.extra[0] - w.extra[1]
	if left <= 0 {
		return
	}
	surplus := w.of(isLive)
	slices.SortStableFunc(surplus, func(a, b *member) int {
		if w.slots { // of data the first slots stay, so that it is known whose that is
			return -cmp.Compare(a.Slot, b.Slot)
		}
		return compareSurplus(a, b)
	})
	for _, m := range surplus {
		if left <= 0 || !w.stop(m, reason.ScaledDown) {
			return
		}
		w.spare(m)
		left -= 1 - w.release(m)
	}
}

// compareSurplus orders by who goes first.
func compareSurplus(a, b *member) int {
	return cmp.Or(-compareBool(a.Node == "", b.Node == ""), compareBool(a.available, b.available), -compareBool(a.Leave != nil, b.Leave != nil),
		compareBool(a.goal, b.goal), -cmp.Compare(a.Slot, b.Slot))
}

// compareBool orders what is not before what is.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// base is the revision that instances have which are not to have the goal yet. Empty: none was ever stable, or the goal is what was.
func (w *work) base() string {
	if s := w.s.Stable.Of; s != w.r.Goal && w.revision(s) != nil {
		return s
	}
	return ""
}

// frozen: nothing of the rollout goes on.
func (w *work) frozen() bool {
	return !w.r.Over && (w.Spec.Rollout.Pause || w.deaf() || w.r.Halt != nil)
}

// plain: the goal takes over without steps, because it has worked before, or because there is nothing to compare it with.
func (w *work) plain() bool {
	return w.r.Over || w.r.Goal != w.r.Target || w.base() == "" || w.wanted == 0
}

// strategy is that of the spec, as far as it can be. Two halves would be two of each, and there are none where nothing is started.
func (w *work) strategy() declared.RolloutStrategy {
	if s := w.Spec.Rollout.Strategy; s != declared.BlueGreen || !w.exclusive && !w.slots && w.Spec.Mode != declared.PerNode && !w.alike(w.s.Stable.Of, w.r.Goal) {
		return s
	}
	return declared.Rolling
}

// phaseIs reports whether it stood like that, with the target of now.
func (w *work) phaseIs(p pace.Phase) bool {
	return w.Was.Phase == p && w.Was.Rollout.Target == w.r.Target
}
