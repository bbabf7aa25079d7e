package workload

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// judge moves the rollout on: it counts failures and progress, ends steps, and finds that it has come to its end, or has failed.
func (w *work) judge() {
	r := w.r
	w.broken, w.shut = "", ""
	if r.Over || w.deaf() {
		return
	}
	if r.Halt == nil {
		w.countFailures()
	}
	if w.Spec.Rollout.Pause || r.Halt != nil || w.wanted == 0 {
		r.Clock, r.Ended = time.Time{}, time.Time{}
		if w.wanted == 0 {
			r.Held = time.Time{}
		}
		return
	}
	w.progress()
	w.step()
	switch {
	case pace.Reached(r.Failures, w.maxFailures):
		w.fail(reason.RolloutFailed, fmt.Sprintf("%d instances of %s have failed; spec.rollout.maxFailures is %d", r.Failures, r.Goal, max(w.maxFailures, 1)))
	case w.broken != "":
		w.fail(reason.RolloutFailed, w.broken)
	case w.whole():
		w.end()
	default:
		r.Ended = time.Time{}
		w.late()
	}
}

// counts reports whether it is a failure, and not only how things stand.
func (f *Failure) counts() bool { return f != nil && !f.Passing }

// ofLease reports whether it was over because its host was not heard for too long, or could not tell: nothing has gone wrong with it that would come again at
// once, as a lease is longer than any host takes to be heard.
func (f *Failure) ofLease() bool { return f != nil && f.Code == reason.LeaseOver }

// countFailures counts each instance once, whatever becomes of it. What is the node's fault says nothing about the revision.
func (w *work) countFailures() {
	var seen, added []string
	for _, m := range w.members {
		bad := m.goal && m.Failure.counts() && !m.Failure.OfNode && m.standing != abandoned
		switch {
		case slices.Contains(w.r.Counted, m.UID):
			seen = append(seen, m.UID)
		case bad && w.r.Failures+len(added) < failuresMax:
			added = append(added, m.UID)
		}
	}
	if len(added) > 0 {
		w.r.Failures += len(added)
		w.r.Counted = append(seen, added...)
	}
}

// progress winds the clock up when it has never come so far, or stood still.
func (w *work) progress() {
	available, old := min(w.count(w.done), w.wanted), w.count(isOld)
	further := available > w.r.Best.Available || old < w.r.Best.Old
	if (further || w.r.Clock.IsZero()) && w.r.Clock.Before(w.now) {
		if w.r.Clock.IsZero() && w.r.Best == (Progress{}) {
			w.r.Best.Old = old
		}
		w.r.Clock = w.now
	}
	w.r.Best = Progress{max(available, w.r.Best.Available), min(old, w.r.Best.Old)}
}

// step ends the steps of a canary that are over, or lets the green half take over.
func (w *work) step() {
	strategy := w.strategy()
	if w.plain() || strategy != declared.Canary && (strategy != declared.BlueGreen || !w.r.Passed.IsZero()) {
		w.r.Held = time.Time{}
		return
	}
	switch strategy {
	case declared.Canary:
		for w.r.Step < len(w.Spec.Rollout.Steps) {
			at := &w.Spec.Rollout.Steps[w.r.Step]
			if !w.stepOver(w.stepWanted(), span(at.Pause, 0), orElse(at.Promotion, w.Spec.Rollout.Promotion)) {
				return
			}
			w.r.Step++
			w.r.Clock = w.now
		}
		w.r.Held = time.Time{}
	case declared.BlueGreen:
		if w.stepOver(w.wanted, 0, w.Spec.Rollout.Promotion) {
			w.r.Passed = w.now
			w.r.Clock = w.now.Add(w.keepOld)
		}
	}
}

// stepWanted is how many instances have the goal in the step that is under way.
func (w *work) stepWanted() int {
	return min(pace.Share(w.Spec.Rollout.Steps[w.r.Step].Replicas, w.wanted, pace.Up), w.wanted)
}

// stepOver reports whether what a step wants has been available for its pause, and whoever has to say so says that it goes on. What was
// once not available holds up nobody: it is looked at anew.
func (w *work) stepOver(wanted int, pause time.Duration, promotion declared.Promotion) bool {
	available := w.count(w.done)
	if !(pace.Wave{Members: wanted, Converged: available, Coming: max(wanted-available, 0)}).Over() {
		if !w.r.Held.IsZero() && promotion == declared.ManualPromotion {
			w.r.Clock = w.now // people may have taken longer than the deadline
		}
		w.r.Held = time.Time{}
		return false
	}
	if w.r.Held.IsZero() {
		w.r.Held = w.now
		w.r.Clock = later(w.r.Clock, w.now.Add(pause))
	}
	over := w.r.Held.Add(pause)
	w.broken, w.shut = w.gates(w.r.Held, over)
	if !w.alarm.Passed(over) || w.broken != "" || w.shut != "" || promotion == declared.ManualPromotion && !w.approved() {
		return false
	}
	w.r.Held = time.Time{}
	return true
}

// approved: an approval of another revision, or of an earlier step, counts nothing.
func (w *work) approved() bool {
	return w.Approval.Revision == w.r.Goal && w.Approval.Step >= w.r.Step
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// whole: everything has the goal, and of as many as are wanted it is heard, and they are available; there may be another one, in the place of one that is to leave.
// With one instance per node that is so of the nodes that are heard.
func (w *work) whole() bool {
	if w.Spec.Mode == declared.PerNode {
		return w.wholeNodes()
	}
	return w.count(isOld) == 0 && w.count(w.done) >= w.wanted
}

// end is the end of the rollout, when failures have counted for long enough. A revision that has got so far is stable.
func (w *work) end() {
	r := w.r
	if r.Ended.IsZero() {
		r.Ended = w.now
		if w.Was.Rollout.Best != r.Best { // what had been whole before, and is again, has not come further
			r.Clock = w.now.Add(w.monitor)
		}
	}
	over := r.Ended.Add(w.monitor)
	if w.broken, w.shut = w.gates(r.Ended, over); w.broken != "" {
		w.fail(reason.RolloutFailed, w.broken)
		return
	}
	if w.alarm.Passed(over) && w.shut == "" {
		r.Over, r.Clock, r.Held = true, time.Time{}, time.Time{}
		if w.s.Stable.Of != r.Goal {
			w.s.Stable = pace.Proven[string]{Of: r.Goal, At: w.now}
		}
	}
}

// late finds that nothing has gone on for too long. Whatever people wait for is no reason, and neither is a node that nobody hears.
func (w *work) late() {
	switch {
	case !w.r.Held.IsZero():
	case w.lost():
		w.r.Clock = time.Time{}
	case w.deadline > 0 && w.alarm.Passed(pace.Deadline(w.deadline, w.r.Clock, w.Quiet)):
		w.fail(reason.RolloutStuck, fmt.Sprintf("nothing has gone on for %s with %s; %d of %d instances that have it are available", w.deadline, w.r.Goal,
			w.count(w.done), w.count(isFresh))+w.hemmed("; "))
	}
}

// hemmed says, after a separator, that nothing old can be taken away; empty: something can, or nothing is old.
func (w *work) hemmed(separator string) string {
	if w.surge > 0 || w.floor < w.wanted || w.count(isOld) == 0 || w.Spec.Mode == declared.PerNode {
		return ""
	}
	return separator + "spec.disruptionBudget lets nothing be taken away, and there can be none beyond the replicas"
}

// example is what is known of one instance that has the goal and does not work, to be said after what became of all: it goes with its revision.
func (w *work) example() string {
	for _, m := range w.bad() {
		if m.goal && m.Failure != nil {
			return fmt.Sprintf("; %s on %s: %s", m.Name, m.Node, m.Failure.Message)
		}
	}
	return ""
}

// lost: all that is missing is on nodes that are not heard, or waits for the place of what is told to end there, or for the node that has its data.
func (w *work) lost() bool {
	if w.count(func(m *member) bool { return isFresh(m) && !w.done(m) && !m.away() && !w.waits(m) }) > 0 {
		return false
	}
	if w.Spec.Mode == declared.PerNode {
		return slices.ContainsFunc(w.Eligible, func(name string) bool { return w.Nodes[name].Presence != node.Here })
	}
	kept := w.count(w.isKeptAway)
	return kept > 0 && w.count(isFresh)+w.count(isOld)+w.count(func(m *member) bool { return m.standing == leaving && m.away() }) >= w.wanted
}

// isKeptAway: it takes up a place, and nobody hears of it, or it waits for the node that has its data.
func (w *work) isKeptAway(m *member) bool {
	return (m.standing == live || m.standing == leaving) && (m.away() || w.waits(m))
}

// fail goes back to what was stable, or stays.
func (w *work) fail(code reason.Code, why string) {
	r := w.r
	f := FailedRevision{r.Goal, code, why + w.example(), w.now}
	w.s.Failed = append(slices.Clone(w.s.Failed), f)
	w.s.Failed = w.s.Failed[max(len(w.s.Failed)-failedMax, 0):]
	stable := w.s.Stable.Of
	back := w.Spec.Rollout.OnFailure != declare.Halt && w.base() != "" // of what was rolled back to there is none: it is tried once
	if !back {
		r.Halt, r.Clock, r.Ended = &f, time.Time{}, time.Time{}
		return
	}
	*r = Rollout{Target: r.Target, Goal: stable, Clock: w.now, Scaled: r.Scaled}
	for _, m := range w.members {
		m.goal = m.Revision == stable
	}
	r.Best = Progress{w.count(w.done), w.count(isOld)}
}
