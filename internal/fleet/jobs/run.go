package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare/workload"
)

const (
	// countMax bounds how many instances that were counted are still there: the status holds each until it is gone.
	countMax = 500
	// endedMax is how many instances that have ended are kept while a run goes on, for people to look at: those that failed before others.
	endedMax = 20
)

// Phase is how an instance of a run stands.
type Phase uint8

// The phases.
const (
	Active    Phase = iota // it runs, or is to
	Succeeded              // all its tasks have ended with exit code 0
	Failed
	Lost // it ended through no fault of its own: with its node, or displaced
)

// Instance is an instance of a run.
type Instance struct {
	UID         string
	Phase       Phase
	Terminating bool      // it is active, and was told to end
	Restarts    int       // how often its tasks have failed and were started again on its node
	Ended       time.Time // of those that have
}

// RunView is one run with its instances.
type RunView struct {
	Job     *workload.Job
	Restart workload.Restart
	Began   time.Time
	// Scheduled is the run's scheduled time, and Remembered the last one that the stored status of its schedule deals with; zero: it has none.
	Scheduled, Remembered time.Time
	// Replaced says that a later run of its schedule takes its place.
	Replaced  bool
	Instances []Instance // in any order
	Was       RunStatus
}

// Result is what became of a run.
type Result string

// The results.
const (
	Complete         Result = "Complete"
	FailedTooOften   Result = "FailedTooOften"
	DeadlineExceeded Result = "DeadlineExceeded"
	Replaced         Result = "Replaced"
)

// RunStatus is what must be remembered.
type RunStatus struct {
	Succeeded int `json:"succeeded,omitempty"`
	Failed    int `json:"failed,omitempty"`
	// Counted are the UIDs of instances that are in the two numbers, or were lost, and are still there.
	Counted []string `json:"counted,omitempty"`
	// InARow is how many have failed since one has succeeded, and LastFailure when the last of them did.
	InARow      int       `json:"inARow,omitempty"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
	// Result is what became of it; empty: it goes on.
	Result Result `json:"result,omitempty"`
	// Over is when nothing of it ran any more after that.
	Over time.Time `json:"over,omitzero"`
}

// RunDecision is what to do.
type RunDecision struct {
	// Wanted is how many instances are to be active: more are created, the ones too many are ended.
	Wanted int
	// Remove are UIDs of instances that have ended and that nobody needs any more.
	Remove []string
	// Delete says that the run itself is kept no longer.
	Delete bool
	Why    string // for people
	Status RunStatus
	WakeAt time.Time // zero: not by itself
}

// Decide says how many instances of a run are wanted now, and what became of it.
func Decide(v RunView, now time.Time) RunDecision {
	r := runner{RunView: &v, now: now}
	r.Status = v.Was
	r.count()
	r.judge()
	r.want()
	r.clear()
	return r.RunDecision
}

type runner struct {
	*RunView
	RunDecision
	now              time.Time
	active, restarts int
	running          int // active, and not told to end
}

func (r *runner) wake(at time.Time) {
	if at.After(r.now) && (r.WakeAt.IsZero() || at.Before(r.WakeAt)) {
		r.WakeAt = at
	}
}

// count takes those that have ended into the numbers, each once.
func (r *runner) count() {
	s := &r.Status
	here := make(map[string]bool, len(r.Instances))
	var ended []*Instance
	counted := make(map[string]bool, len(s.Counted))
	for _, uid := range s.Counted {
		counted[uid] = true
	}
	for i := range r.Instances {
		instance := &r.Instances[i]
		here[instance.UID] = true
		switch {
		case instance.Phase == Active:
			r.active++
			r.restarts += instance.Restarts
			if !instance.Terminating {
				r.running++
			}
		case !counted[instance.UID]:
			ended = append(ended, instance)
		}
	}
	slices.SortFunc(ended, func(a, b *Instance) int { return cmp.Or(a.Ended.Compare(b.Ended), cmp.Compare(a.UID, b.UID)) })
	var kept []string
	for _, uid := range s.Counted {
		if here[uid] {
			kept = append(kept, uid)
		}
	}
	room := max(0, countMax-len(kept))
	for _, instance := range ended[:min(len(ended), room)] {
		kept = append(kept, instance.UID)
		switch instance.Phase {
		case Succeeded:
			s.Succeeded++
			s.InARow = 0
		case Failed:
			s.Failed++
			s.InARow++
			s.LastFailure = later(s.LastFailure, instance.Ended)
		}
	}
	if len(ended) > room {
		r.wake(r.now.Add(time.Second)) // the rest, when these are stored and gone
	}
	slices.Sort(kept)
	s.Counted = kept
	// The clock of the leader that has written a time may have been ahead, and the pause after it would be longer by as much.
	for _, at := range []*time.Time{&s.LastFailure, &s.Over} {
		if at.After(r.now) {
			*at = r.now
		}
	}
}

// judge finds the result. One that there is stays, whatever comes after it.
func (r *runner) judge() {
	s := &r.Status
	limit, wanted := r.Job.BackoffLimitOrDefault(), r.Job.CompletionsOrDefault()
	deadline := r.Job.ActiveDeadlineOrZero()
	switch {
	case s.Result != "":
	case s.Succeeded >= wanted:
		s.Result = Complete
	case s.Failed+r.restarts > limit:
		s.Result = FailedTooOften
	case deadline > 0 && !r.now.Before(r.Began.Add(deadline)):
		s.Result = DeadlineExceeded
	case r.RunView.Replaced:
		s.Result = Replaced
	}
	switch s.Result {
	case Complete:
		r.Why = fmt.Sprintf("%d of %d have ended well", s.Succeeded, wanted)
	case FailedTooOften:
		r.Why = fmt.Sprintf("it has failed %d times, and may %d times", s.Failed+r.restarts, limit)
	case DeadlineExceeded:
		r.Why = fmt.Sprintf("it was not over within %s; %d of %d have ended well", deadline, s.Succeeded, wanted)
	case Replaced:
		r.Why = fmt.Sprintf("a later run takes its place; %d of %d have ended well", s.Succeeded, wanted)
	default:
		r.Why = fmt.Sprintf("%d of %d have ended well, %d run", s.Succeeded, wanted, r.running)
		if deadline > 0 {
			r.wake(r.Began.Add(deadline))
		}
		return
	}
	switch {
	case r.active > 0:
		r.Why += fmt.Sprintf("; %d have still to end", r.active)
	case s.Over.IsZero():
		s.Over = r.now
	}
}

// want says how many are to be active. One that ends still has its place: what takes its place may need what it has.
func (r *runner) want() {
	if r.Status.Result != "" {
		return
	}
	missing := r.Job.CompletionsOrDefault() - r.Status.Succeeded
	r.Wanted = min(r.Job.ParallelismOrDefault(), missing)
	if r.Wanted <= r.running || r.Status.InARow == 0 {
		return
	}
	if at := r.Status.LastFailure.Add(r.pause()); at.After(r.now) {
		r.Wanted = r.running
		r.Why += fmt.Sprintf("; %d in a row have failed, the next one begins at %s", r.Status.InARow, at.UTC().Format(time.RFC3339))
		r.wake(at)
	}
}

// pause is how long after a failure no new one begins.
func (r *runner) pause() time.Duration {
	pause, most := r.Restart.BackoffOrDefault(), r.Restart.BackoffMaxOrDefault()
	for i := 1; i < r.Status.InARow && pause < most; i++ {
		pause *= 2
	}
	return min(pause, most)
}

// clear removes what has ended: instances beyond those that are kept, and the run itself when it was kept for long enough. It touches only
// what the stored status has counted, or nobody would know of it any more.
func (r *runner) clear() {
	stored := make(map[string]bool, len(r.Was.Counted))
	for _, uid := range r.Was.Counted {
		stored[uid] = true
	}
	var ended []*Instance
	for i := range r.Instances {
		if instance := &r.Instances[i]; instance.Phase != Active {
			ended = append(ended, instance)
		}
	}
	slices.SortFunc(ended, func(a, b *Instance) int { // those that are looked at first
		failed := func(i *Instance) int {
			if i.Phase == Failed {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(failed(a), failed(b)), b.Ended.Compare(a.Ended), cmp.Compare(a.UID, b.UID))
	})
	for _, instance := range ended[min(len(ended), endedMax):] {
		if stored[instance.UID] {
			r.Remove = append(r.Remove, instance.UID)
		}
	}
	if r.Was.Over.IsZero() {
		return // also when it has just got over: that is stored first
	}
	if at := r.Was.Over.Add(r.Job.KeepFinishedOrDefault()); at.After(r.now) {
		r.wake(at)
	} else {
		r.Delete = !r.Scheduled.After(r.Remembered) // or it would be begun again
	}
}
