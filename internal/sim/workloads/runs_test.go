package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

// schedules are the jobs that are declared with one.
var schedules = []string{"nightly", "hourly", "report"}

const (
	// lateMax is how late a run counts as begun at its time, as in fleet/jobs.
	lateMax = 2 * time.Minute
	// suspendAfter is when, after the world has healed, people suspend what is scheduled: what has begun by then is over at the end.
	suspendAfter = 16 * time.Minute
	// healedAfter is when, after that, nothing of what went wrong holds a run up any more, and beginMax how late one is begun then: those before have to end
	// first where it replaces them.
	healedAfter, beginMax = 8 * time.Minute, 30 * time.Second
)

// plan is what is declared of a schedule, as the invariants need it.
type plan struct {
	every     int // minutes
	deadline  time.Duration
	spec      declared.Schedule
	suspended time.Time       // since when it is, in truth; zero: it is not
	begun     map[string]bool // names of runs
}

// schedule declares a job with a schedule.
func (w *world) schedule(name string) {
	p := &plan{every: one(w, []int{1, 2, 3, 5}), begun: map[string]bool{}, spec: declared.Schedule{
		Concurrency: one(w, []declared.Concurrency{"", declared.Forbid, declared.Allow, declared.Replace}), MissedRun: one(w, []declared.MissedRun{"", declared.RunOnce, declared.Skip}),
	}}
	p.spec.Cron = fmt.Sprintf("*/%d * * * *", p.every)
	if w.chance(0.3) {
		p.deadline = one(w, []time.Duration{20 * time.Second, 90 * time.Second})
		p.spec.StartingDeadline = p.deadline.String()
	}
	spec := w.jobSpec(one(w, []quality{ending, doubtful}))
	spec.Job.Completions, spec.Job.Parallelism, spec.Job.KeepFinished = new(int32(1+w.random.IntN(3))), new(int32(2)), "1m"
	spec.Schedule = &p.spec
	if w.create(name, spec); w.truth.plans[w.store.workload(name).UID] == nil {
		w.did("schedule")
		w.truth.plans[w.store.workload(name).UID] = p
	}
}

// suspend has a schedule begin nothing, or go on.
func (w *world) suspend(name string, is bool) {
	o := w.store.workload(name)
	if o == nil || o.DeletionTimestamp != nil || o.Spec.Schedule.Suspend == is {
		return
	}
	w.say("people: %s is suspended: %v", name, is)
	w.did("suspended")
	w.declare(name, func(s *declared.Spec) { s.Schedule.Suspend = is })
	if p := w.truth.plans[o.UID]; is {
		p.suspended = w.now
	} else {
		p.suspended = time.Time{}
	}
}

// dueOf is the time that a run is of.
func (w *world) dueOf(name, schedule string) time.Time {
	minutes, err := strconv.ParseInt(strings.TrimPrefix(name, schedule+"-"), 10, 64)
	if err != nil {
		w.broken("J1", "%s is no run of %s", name, schedule)
	}
	return time.Unix(60*minutes, 0)
}

// lastDue is the last time of a plan that has come.
func (p *plan) lastDue(now time.Time) time.Time {
	due := now.Truncate(time.Minute)
	for due.Minute()%p.every != 0 {
		due = due.Add(-time.Minute)
	}
	return due
}

// checkRun: a run is begun once for its time, by the clock of whoever leads, and as its policies say.
func (w *world) checkRun(s *server, made *v1alpha1.Workload) {
	owner := metav1.GetControllerOf(made)
	p := w.truth.plans[owner.UID]
	due := w.dueOf(made.Name, owner.Name)
	late := s.now().Sub(due)
	w.did("run begun")
	w.say("%s begins %s of %s, %s late", s.name, made.Name, due.UTC().Format(time.TimeOnly), late)
	if late > lateMax {
		w.did("run made up for")
	}
	if p.begun[made.Name] {
		w.broken("J1", "%s begins %s a second time", s.name, made.Name)
	}
	p.begun[made.Name] = true
	const moment = time.Second // what is decided and what is written are of one round
	switch {
	case late < 0, due.Minute()%p.every != 0:
		w.broken("J1", "%s begins %s at %s, and it is to be begun every %d minutes", s.name, made.Name, s.now(), p.every)
	case !p.suspended.IsZero() && w.now.Sub(p.suspended) > lagMax+moment && !w.now.Before(w.truth.twice):
		w.broken("J1", "%s begins %s, and it is suspended", s.name, made.Name)
	case due.Before(p.lastDue(s.now().Add(-moment))):
		w.broken("J3", "%s begins %s, and a later one is due", s.name, made.Name)
	case p.deadline > 0 && late > p.deadline+moment:
		w.broken("J3", "%s begins %s %s late, and it may be %s", s.name, made.Name, late, p.deadline)
	case p.spec.MissedRun == declared.Skip && p.spec.Concurrency != declared.Replace && late > lateMax+moment:
		w.broken("J3", "%s begins %s %s late, and what was missed is not made up for", s.name, made.Name, late)
	}
	if p.spec.Concurrency == declared.Allow || w.now.Before(w.truth.twice) {
		return
	}
	for _, other := range w.runsOf(owner.UID) {
		if other.UID != made.UID && (other.Status.Job == nil || other.Status.Job.Over == nil) {
			w.broken("J2", "%s begins %s, and %s is not over", s.name, made.Name, other.Name)
		}
	}
}

// runsOf are the runs of a schedule that there are.
func (w *world) runsOf(schedule types.UID) []*v1alpha1.Workload {
	return slices.DeleteFunc(listed[*v1alpha1.Workload](w.store), func(o *v1alpha1.Workload) bool {
		owner := metav1.GetControllerOf(o)
		return owner == nil || owner.UID != schedule
	})
}

// checkSchedules: once nothing goes wrong any more, whatever was due has been dealt with.
func (w *world) checkSchedules() {
	for _, s := range w.servers {
		for _, name := range schedules {
			o := w.store.workload(name)
			if !s.leads() || o == nil || o.DeletionTimestamp != nil {
				continue
			}
			due := w.truth.plans[o.UID].lastDue(s.now().Add(-beginMax))
			if last := o.Status.Schedule; due.After(o.CreationTimestamp.Time) && (last == nil || last.Last == nil || last.Last.Time.Before(due)) {
				w.broken("I9", "%s was due at %s by the clock of %s: %s", name, due, s.name, words(o.Status))
			}
		}
	}
}

// dueSoon has the leader change at the moment at which something is due by its clock.
func (w *world) dueSoon() {
	for _, s := range w.servers {
		if s.leads() {
			due := s.now().Truncate(time.Minute).Add(time.Minute)
			w.after(due.Sub(s.now())-100*time.Millisecond+w.within(300*time.Millisecond), func() {
				if !w.healed {
					w.elect()
				}
			})
			return
		}
	}
}
