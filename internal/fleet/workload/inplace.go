package workload

import "slices"

// judgeInPlace judges, and gives the goal to what may have it in place, until neither leads to the other: a step that is over lets more have it, and
// a goal that has failed is another one.
func (w *work) judgeInPlace() {
	for range len(w.Spec.Rollout.Steps) + 2 {
		w.inPlace()
		goal, step := w.r.Goal, w.r.Step
		if w.judge(); w.r.Goal == goal && w.r.Step == step {
			return
		}
	}
	w.inPlace()
}

// inPlace gives the goal to instances whose processes are the same with it. Nothing is taken away by that, so no budget counts; the steps of a
// canary do, because a probe may be wrong. What has failed is made anew, or what it failed of would count against its next revision.
func (w *work) inPlace() {
	goal := w.revision(w.r.Goal)
	if goal == nil || w.frozen() || w.wanted == 0 {
		return
	}
	fresh := w.shares().fresh
	left := fresh - w.count(isFresh) - w.madeFresh()
	alike := w.of(func(m *member) bool {
		return m.standing < dropped && m.standing != leaving && m.Node != "" && m.Phase < Terminating && !m.goal && !m.Failure.counts() && w.alike(m.Revision, goal.Name)
	})
	slices.SortStableFunc(alike, func(a, b *member) int { return -compareBool(a.available, b.available) })
	for _, m := range alike {
		switch {
		case m.standing == abandoned && (fresh < w.wanted || !m.away()): // what is back is decided on already
			continue
		case m.standing == live && left <= 0:
			continue
		case m.standing == live:
			left--
		}
		m.goal = true
	}
}

// updates are those that are to stay and have the goal by inPlace alone.
func (w *work) updates() []Update {
	var all []Update
	for _, m := range w.members {
		if m.goal && m.Revision != w.r.Goal && (m.standing == live || m.standing == abandoned) {
			all = append(all, Update{Mark{m.Name, m.UID}, w.r.Goal})
		}
	}
	return all
}

// alike: a change from one of two revisions to the other restarts nothing.
func (w *work) alike(a, b string) bool {
	x, y := w.revision(a), w.revision(b)
	return x != nil && y != nil && x.Runs != "" && x.Runs == y.Runs
}
