package workload

import (
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// The times that are nobody's to declare.
const (
	// fenceMargin is how much later than the agent's own clock a fence is taken for certain: 30 s for what was on its way when the node fell
	// silent (15 s until a dead connection ends, and its last heartbeat), and clockDrift for two clocks that do not run alike.
	fenceMargin = 30 * time.Second
	// clockDrift is a thousandth, ten times what clocks of computers are off by that nobody sets.
	clockDrift = 1000
	// lossesMax bounds how often the wait for a node that comes and goes is doubled, and lossWaitMax how long it gets by that: ours, an
	// hour between two replacements is no flapping any more.
	lossesMax   = 6
	lossWaitMax = time.Hour
	// backoffMin is the pause before something is created in the place of what has ended badly, from the second time on, and backoffMax what it
	// gets by doubling: as the restarts of a task on its node.
	backoffMin = time.Second
	backoffMax = 5 * time.Minute
	// spareMax is for how long instances that scaling has added to the old revision are not the first to go though they are not ready:
	// ours, about what a program takes to start.
	spareMax = time.Minute
)

// Bounds of one decision. What is left comes with the next, at once.
const (
	createMax = declared.GangMax // a gang is created by one
	// takeMax keeps Taken, and with it the stored status, below 10 KiB.
	takeMax   = 100
	failedMax = 10
	// failuresMax bounds UIDs of failed instances in the status: 7 KiB. So many end any rollout, whatever share they are.
	failuresMax = 200
)

// terms are what the spec says, in numbers, for so many instances.
type terms struct {
	wanted      int
	stick       declared.Stick // of data to its node; empty: there is none
	slots       bool           // data is a slot's, so that an instance of another slot cannot stand in
	exclusive   bool           // there are never two of one instance: nothing is started before what it replaces has ended
	surge       int            // instances beyond wanted
	unavailable int            // of wanted
	floor       int            // available instances that a rollout leaves
	evictFloor  int            // that drains, preemption and moves leave
	surgeFirst  bool
	maxFailures int
	minReady    time.Duration
	deadline    time.Duration // zero: none
	monitor     time.Duration
	keepOld     time.Duration
	unreachable declared.UnreachableAction
	after       time.Duration
	delay       time.Duration // of the stop signal
	grace       time.Duration // of ending
	history     int
}

func termsOf(s *declared.Spec, wanted int) terms { return termsWith(s, wanted, s.Template.Stick()) }

// termsWith are those with a bond to nodes that may be of instances which have another template.
func termsWith(s *declared.Spec, wanted int, stick declared.Stick) terms {
	perNode := s.Mode == declared.PerNode
	t := terms{
		wanted: wanted, maxFailures: 1, unreachable: declared.ReplaceUnreachable, history: 10,
		surge:       pace.Share(orElse(s.Rollout.MaxSurge, "25%"), wanted, pace.Up),
		unavailable: min(pace.Share(orElse(s.Rollout.MaxUnavailable, "25%"), wanted, pace.Down), wanted),
		minReady:    span(s.Rollout.MinReady, 0), deadline: span(s.Rollout.ProgressDeadline, 10*time.Minute),
		monitor: span(s.Rollout.Monitor, 0), keepOld: span(s.Rollout.KeepOld, 0),
		after: 5 * time.Minute, delay: span(s.Template.ShutdownDelay, 0), grace: span(s.Template.TerminationGrace, 30*time.Second),
	}
	if u := s.OnUnreachable; u != nil {
		t.unreachable, t.after = orElse(u.Action, declared.ReplaceUnreachable), span(u.After, t.after)
	}
	t.exclusive = t.unreachable == declared.FenceUnreachable
	if s.Mode != declared.RunToCompletion {
		t.stick, t.slots = stick, stick != "" && !perNode
	}
	if t.stick == declared.MustStick && !t.exclusive {
		t.unreachable = declared.KeepUnreachable // no other node has the data, so another copy could be placed nowhere
	}
	if t.exclusive || t.slots || perNode || wanted == 0 {
		t.surge = 0
	}
	if t.surge == 0 {
		t.unavailable = max(t.unavailable, 1) // or nothing would ever move: percentages of few are nothing
	}
	if s.Rollout.MaxFailures != "" {
		t.maxFailures = min(pace.Share(s.Rollout.MaxFailures, wanted, pace.Up), failuresMax)
	}
	if s.RevisionHistoryLimit != nil {
		t.history = int(*s.RevisionHistoryLimit)
	}
	t.floor = max(wanted-t.unavailable, 0)
	t.budget(s.DisruptionBudget, perNode)
	return t
}

// budget is how many must stay. One that is declared holds for rollouts too, so that whoever reads "at least three" need not read on;
// that of nobody is one at a time, and never the last one where another one can be started before it: two on one node are none.
func (t *terms) budget(b *declared.DisruptionBudget, perNode bool) {
	t.surgeFirst = !t.exclusive && !t.slots && !perNode && (b == nil || b.SurgeFirst == nil || *b.SurgeFirst)
	switch {
	case b != nil && b.MinAvailable != "":
		t.evictFloor = pace.Share(b.MinAvailable, t.wanted, pace.Up)
	case b != nil:
		t.evictFloor = t.wanted - pace.Share(b.MaxUnavailable, t.wanted, pace.Down)
	case t.surgeFirst:
		t.evictFloor = max(t.wanted-1, 1)
	default:
		t.evictFloor = t.wanted - 1
	}
	t.evictFloor = min(max(t.evictFloor, 0), t.wanted)
	if b != nil {
		t.floor = max(t.floor, t.evictFloor)
	}
}

// Lease is for how long after it has heard its servers last a host may run an instance, before its agent ends it by its own clock; 0: however
// long. FencedAt is about the same.
func Lease(s *declared.Spec) time.Duration {
	if t := termsOf(s, 1); t.exclusive {
		return t.after
	}
	return 0
}

// FencedAt is when an instance has ended for certain on a node that is gone since a moment, though nobody hears it: its agent ends it by
// its own clock when it has heard nobody for onUnreachable.after, within the grace that it has for that.
func FencedAt(s *declared.Spec, gone time.Time) time.Time {
	t := termsOf(s, 1)
	return t.fencedAt(gone)
}

func (t *terms) fencedAt(gone time.Time) time.Time {
	wait := t.after + t.grace
	return gone.Add(wait + wait/clockDrift + fenceMargin)
}

// replacedAt is when an instance is replaced whose node is gone. Each time that it was before doubles the wait, so that a node that comes and
// goes costs few replacements.
func (t *terms) replacedAt(gone time.Time, losses int) time.Time {
	if t.exclusive {
		return t.fencedAt(gone)
	}
	wait := t.after
	for range min(losses, lossesMax) {
		wait = max(wait, min(2*wait, lossWaitMax))
	}
	return gone.Add(wait)
}

func orElse[T comparable](value, other T) T {
	var none T
	if value == none {
		return other
	}
	return value
}

// span reads a duration. A text that is none counts as left out: validation lets none through.
func span(text string, other time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d
	}
	return other
}
