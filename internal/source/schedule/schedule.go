// Package schedule decides when a source looks at its repository, and what stands in the way. It is pure: the loop hands in what it
// knows and the time, and gets back whether to look now, and when to ask again.
//
//	in the way   suspended, or a source that it depends on is not ready: nothing is looked at
//	at once      a new spec, a request, a call of the forge, drift, a dependency that has become ready, the first look of a process
//	soon         after a failure, when the rights of somebody, or a Secret that the source names, have changed
//	in time      every interval, give or take a tenth; after a failure sooner, later with every failure
//
// A call of the forge says that it is time to look, and nothing else: one that is lost costs an interval, and one that is forged or
// doubled costs one question to the repository, at most one in callPause.
package schedule

import (
	"fmt"
	"time"
)

const (
	// callPause is how far apart looks are that a forge calls for: a push of twenty branches makes twenty calls.
	callPause = time.Second
	// retryMin is the pause after the first failure; each one more doubles it, up to the interval.
	retryMin = 5 * time.Second
	// driftPause is how far apart looks for drift are, at first; each one more in a row doubles it, up to the interval, so that two who
	// want different things do not chase one another.
	driftPause = 100 * time.Millisecond
	// spread is the part of an interval by which looks differ, so that the sources of one forge do not ask together.
	spread = 10
)

// Trigger is why a source looks at its repository.
type Trigger string

// The triggers, in the order in which they count.
const (
	Start      Trigger = "start"      // the first look of this process
	Spec       Trigger = "spec"       // the declaration has changed
	Request    Trigger = "request"    // somebody has asked for it
	Call       Trigger = "call"       // the forge has called
	Dependency Trigger = "dependency" // a source that this one waited for is ready
	Drift      Trigger = "drift"      // others have changed what it declares
	Retry      Trigger = "retry"      // the last look has failed
	Interval   Trigger = "interval"   // it is time
)

// Obstacle is what keeps a source from looking.
type Obstacle string

// The obstacles.
const (
	None      Obstacle = ""
	Suspended Obstacle = "Suspended"
	Waiting   Obstacle = "DependencyNotReady"
)

// View is what is known of a source.
type View struct {
	Now      time.Time
	Interval time.Duration // must be positive
	// SuspendedUntil is when a suspension ends; zero for none.
	SuspendedUntil time.Time
	// NotReady names the first source that this one depends on and that is not ready; empty for none.
	NotReady string

	Generation, Looked int64  // of the spec as it is, and as it was looked at last; 0 for never in this process
	Requested, Handled string // the request as it stands, and the one that was acted upon last
	CalledAt           time.Time
	DriftedAt          time.Time

	LookedAt time.Time // when the last look began; zero for never in this process
	// RevertedAt is when drift was taken back last. That needs no look at the repository.
	RevertedAt time.Time
	Waited     bool // the last time, there was an obstacle
	// HelpedAt is when something changed that may end a failure: rights, or what the source names.
	HelpedAt time.Time
	Left     bool // what was to be deleted is not, for want of a right or because somebody holds it
	Failures int  // of looks in a row
	Drifts   int  // times in a row that drift was taken back
	// Chance is drawn once for each look, from 0 up to 1: it spreads the next ones over time.
	Chance float64
}

// Decision is what to do with a source.
type Decision struct {
	// Look is why to look now; empty for not now.
	Look Trigger
	// Obstacle is what is in the way; Words says it to a person.
	Obstacle Obstacle
	Words    string
	// WakeAt is when to ask again, if nothing happens before; zero for never.
	WakeAt time.Time
}

// Decide says what to do.
func Decide(v View) Decision {
	if v.Now.Before(v.SuspendedUntil) {
		return Decision{Obstacle: Suspended, Words: "suspended until " + v.SuspendedUntil.UTC().Format(time.RFC3339), WakeAt: v.SuspendedUntil}
	}
	if v.NotReady != "" {
		return Decision{Obstacle: Waiting, Words: fmt.Sprintf("source %s, which it depends on, is not ready", v.NotReady)}
	}
	if t := v.atOnce(); t != "" {
		return Decision{Look: t}
	}
	due, trigger := v.due()
	if !v.Now.Before(due) {
		return Decision{Look: trigger}
	}
	if called := v.LookedAt.Add(callPause); v.CalledAt.After(v.LookedAt) && called.Before(due) {
		due = called
	}
	if drifted := v.driftDue(); v.drifted() && drifted.Before(due) {
		due = drifted
	}
	return Decision{WakeAt: due}
}

// atOnce is what does not wait for its time; empty for nothing.
func (v *View) atOnce() Trigger {
	switch {
	case v.LookedAt.IsZero():
		return Start
	case v.Generation != v.Looked:
		return Spec
	case v.Requested != v.Handled:
		return Request
	case v.CalledAt.After(v.LookedAt) && !v.Now.Before(v.LookedAt.Add(callPause)):
		return Call
	case v.Waited:
		return Dependency
	case v.drifted() && !v.Now.Before(v.driftDue()):
		return Drift
	}
	return ""
}

// drifted says whether there is drift that nobody has looked at. It is taken back whether or not the repository can be reached.
func (v *View) drifted() bool { return v.DriftedAt.After(v.seenAt()) }

func (v *View) driftDue() time.Time {
	return v.seenAt().Add(min(driftPause<<min(v.Drifts, 20), v.Interval))
}

// seenAt is when what is applied was compared last.
func (v *View) seenAt() time.Time {
	if v.RevertedAt.After(v.LookedAt) {
		return v.RevertedAt
	}
	return v.LookedAt
}

// due is when the next look is, and why.
func (v *View) due() (time.Time, Trigger) {
	due, trigger := v.LookedAt.Add(v.jittered(v.Interval)), Interval
	if v.Failures > 0 {
		due, trigger = v.LookedAt.Add(v.jittered(Pause(v.Failures, v.Interval))), Retry
	}
	helped := Helped(v.HelpedAt, v.LookedAt)
	if (v.Failures > 0 || v.Left) && !helped.IsZero() && helped.Before(due) {
		return helped, Retry
	}
	return due, trigger
}

// Pause is how long after a failure it is tried again: longer with every failure in a row, up to the interval.
func Pause(failures int, interval time.Duration) time.Duration {
	return min(retryMin<<min(max(failures, 1)-1, 20), interval)
}

// Helped is when it is tried again after something has changed that may end a failure; zero where nothing has since the last time. It is a
// moment later, so that all who decide about rights know of it, and not sooner after the last time than the first retry, however often
// such things change.
func Helped(at, tried time.Time) time.Time {
	if !at.After(tried) {
		return time.Time{}
	}
	if soon, least := at.Add(callPause), tried.Add(retryMin); least.Before(soon) {
		return soon
	}
	return tried.Add(retryMin)
}

// jittered is a time give or take its tenth.
func (v *View) jittered(d time.Duration) time.Duration {
	return d - d/spread + time.Duration(v.Chance*float64(2*d/spread))
}
