package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
)

// Now is the time: a moment, and the boot that it is of.
type Now struct {
	Boot string
	At   run.Moment
}

// Event is something that has happened: Found, Changed, Answered, Stop, Leased, or nil for time alone.
type Event interface{ isEvent() }

// Found is every attempt of the task that the runtime has. It is what an agent begins with, and begins with again when it has lost
// track of its runtime.
type Found struct{ Attempts []run.Status }

// Changed is an attempt as the runtime tells of it. One that could not be started has Ended, NotExecuted.
type Changed struct{ Status run.Status }

// Answered is the answer to a question, as the Ask had it.
type Answered struct {
	Probe   ProbeKind
	Attempt uint32
	Number  uint32
	Yes     bool
}

// Stop ends the task for good.
type Stop struct{}

// Leased says that the task may run until a moment, and is stopped then unless that is put off: for what may run in one place only, and must be
// over here when a host that nobody hears is given up.
type Leased struct{ Until run.Moment }

func (Found) isEvent()    {}
func (Changed) isEvent()  {}
func (Answered) isEvent() {}
func (Stop) isEvent()     {}
func (Leased) isEvent()   {}

// Action is what is to be done.
type Action uint8

// The actions. All but Ask are Runtime's, and idempotent.
const (
	StartIt  Action = iota + 1 // start the attempt
	StopIt                     // send it the signal
	KillIt                     // end everything of it
	RemoveIt                   // forget it; it has ended
	Ask                        // put the question to it, and come back with Answered
)

// Effect is one thing to be done.
type Effect struct {
	Action  Action
	Attempt uint32
	Signal  run.Signal // with StopIt
	Probe   ProbeKind  // with Ask
	Number  uint32     // with Ask
}

// stepper is one step.
type stepper struct {
	*State
	config  *Config
	now     Now
	effects []Effect
}

// Step is what follows from an event. The state that it is given is not changed.
func Step(config *Config, s State, e Event, now Now) (State, []Effect) {
	st := stepper{State: &s, config: config, now: now}
	st.rebooted()
	switch e := e.(type) {
	case Found:
		st.found(e.Attempts)
	case Changed:
		st.changed(e.Status)
	case Answered:
		st.answered(e)
	case Stop:
		st.Stopped = true
	case Leased:
		st.Lease = max(st.Lease, e.Until)
	}
	st.advance()
	return s, st.effects
}

func (st *stepper) do(e Effect) { st.effects = append(st.effects, e) }

// rebooted moves the state into the boot that is now: nothing that ran does, and the moments of before say nothing any more.
func (st *stepper) rebooted() {
	if st.Boot == st.now.Boot {
		return
	}
	before := st.Boot
	st.Boot = st.now.Boot
	if before == "" {
		return
	}
	st.StopAt = 0
	st.Lease = 0 // who holds it may have been given up meanwhile
	switch st.Phase {
	case Waiting:
		// How much of the pause is over is not known.
		st.StartAt = st.now.At.Add(time.Duration(st.Pause))
	case Starting, Running, Stopping:
		st.Began = st.now.At
		st.ended(run.Ending{Cause: run.Lost, At: st.now.At, Words: "the host was restarted"}, false)
	case Finished:
	}
}

// found compares what the runtime has with what is known.
func (st *stepper) found(attempts []run.Status) {
	for k := range st.asking {
		// What was asked is not answered any more, and what is kept says nothing about when.
		st.asking[k] = asking{number: st.asking[k].number, next: st.firstQuestion(ProbeKind(k))}
	}
	there := false
	for _, status := range newestFirst(attempts) {
		st.changed(status)
		there = there || status.ID.Attempt == st.Attempt
	}
	switch {
	case st.Phase == Starting && st.may() && !st.Stopped:
		st.do(Effect{Action: StartIt, Attempt: st.Attempt}) // it may have been cut short
	case there:
	case st.Phase == Starting || st.Phase == Running || st.Phase == Stopping:
		st.ended(run.Ending{Cause: run.Lost, At: st.now.At, Words: "the runtime does not have it"}, st.Phase == Running)
	}
	if st.Phase == Stopping {
		st.do(Effect{Action: StopIt, Attempt: st.Attempt, Signal: st.config.StopSignal})
		if st.Killed {
			st.do(Effect{Action: KillIt, Attempt: st.Attempt})
		}
	}
}

// newestFirst orders attempts so that what is newest is taken over, and what is older is measured by that.
func newestFirst(attempts []run.Status) []run.Status {
	return slices.SortedFunc(slices.Values(attempts), func(a, b run.Status) int { return cmp.Compare(b.ID.Attempt, a.ID.Attempt) })
}

// changed takes in what the runtime says of an attempt.
func (st *stepper) changed(status run.Status) {
	if status.Boot != st.now.Boot && status.Phase != run.Ended {
		status.Phase, status.Ending = run.Ended, run.Ending{Cause: run.Lost, At: st.now.At, Words: "the host was restarted"}
	}
	attempt := status.ID.Attempt
	switch {
	case attempt < st.Attempt && status.Phase != run.Ended:
		st.do(Effect{Action: KillIt, Attempt: attempt}) // there is a newer one
		return
	case attempt < st.Attempt && attempt+1 < st.Attempt:
		st.do(Effect{Action: RemoveIt, Attempt: attempt}) // of the one before people may want to see what it printed
		return
	case attempt < st.Attempt:
		return
	case attempt > st.Attempt:
		st.adopt(attempt)
	}
	switch {
	case st.Phase == Waiting || st.Phase == Finished: // it is over, and what comes late does not bring it back
	case status.Phase == run.Ended:
		st.ended(status.Ending, true)
	case status.Phase == run.Running && st.Phase == Starting:
		st.Phase, st.Began = Running, status.Started
		st.StartUp = st.config.Probes[Startup] == nil
		st.Ready = st.StartUp && st.config.Probes[Readiness] == nil
		for k := range st.asking {
			st.asking[k] = asking{number: st.asking[k].number, next: st.firstQuestion(ProbeKind(k))}
		}
	}
}

// adopt takes over an attempt that is newer than what is known: the state was lost, or is an older copy of itself.
func (st *stepper) adopt(attempt uint32) {
	st.Attempt, st.Phase, st.Began = attempt, Starting, st.now.At
	st.StartUp, st.Ready, st.Why, st.Killed = false, false, ByItself, false
	if st.Stopped && st.now.At >= st.StopAt {
		st.stop(Wanted)
	}
}

// ended takes in that the present attempt is over, and decides what comes next. ofItself is false where it is no fault of the task.
func (st *stepper) ended(e run.Ending, ofItself bool) {
	ran := e.At.Sub(st.Began)
	if st.Phase == Starting {
		ran = 0
	}
	good := st.StartUp && ran >= st.config.ResetAfter
	why := st.Why
	st.remember(e, ran)
	st.StartUp, st.Ready, st.Why, st.Killed, st.KillAt = false, false, ByItself, false, 0
	switch {
	case st.Stopped, st.config.Policy == workload.RestartNever && ofItself && why != LeaseOver,
		st.config.Policy == workload.RestartOnFailure && e.Well() && (why == ByItself):
		st.Phase = Finished
		return
	case !ofItself || why == LeaseOver:
		st.Phase, st.StartAt = Waiting, st.now.At
		return
	case good || st.Pause == 0:
		st.Pause = int64(st.config.Backoff)
	default:
		st.Pause = int64(min(st.config.BackoffMax, 2*time.Duration(min(st.Pause, int64(st.config.BackoffMax)))))
	}
	// From now, not from the end: what ended while no agent was there must not pile up into starts without pauses.
	st.Phase, st.StartAt = Waiting, st.now.At.Add(time.Duration(st.Pause))
	if st.Restarts++; st.Restarts == 0 {
		st.Restarts-- // it stays at the largest
	}
}

// advance does what is due.
func (st *stepper) advance() {
	if st.Phase == Starting || st.Phase == Running {
		switch {
		case st.Stopped && st.now.At >= st.StopAt:
			st.stop(Wanted)
		case !st.may():
			st.stop(LeaseOver)
		}
	}
	switch st.Phase {
	case Waiting:
		switch {
		case st.Stopped:
			st.Phase = Finished
		case st.may() && st.now.At >= st.StartAt:
			st.start()
		}
	case Running:
		st.probe()
	case Stopping:
		if !st.Killed && st.now.At >= st.KillAt {
			st.Killed = true
			st.do(Effect{Action: KillIt, Attempt: st.Attempt})
		}
	case Starting, Finished:
	}
}

// may reports whether the task may run now.
func (st *stepper) may() bool { return !st.config.Leased || st.now.At < st.Lease }

// start begins the next attempt.
func (st *stepper) start() {
	if st.Attempt+1 == 0 {
		st.Phase = Finished // after four thousand million attempts
		return
	}
	st.Attempt++
	st.Phase, st.Began, st.StartAt = Starting, st.now.At, 0
	if st.Attempt > 2 {
		st.do(Effect{Action: RemoveIt, Attempt: st.Attempt - 2})
	}
	st.do(Effect{Action: StartIt, Attempt: st.Attempt})
}

// stop asks the present attempt to end, and sets the time for that.
func (st *stepper) stop(why Why) {
	st.Phase, st.Why, st.Ready, st.Killed = Stopping, why, false, false
	st.KillAt = st.now.At.Add(st.config.Grace)
	st.do(Effect{Action: StopIt, Attempt: st.Attempt, Signal: st.config.StopSignal})
}

// clip bounds words, at the end of a sign.
func clip(words string) string {
	if len(words) > wordsMax {
		words = words[:wordsMax]
	}
	return strings.ToValidUTF8(words, "")
}
