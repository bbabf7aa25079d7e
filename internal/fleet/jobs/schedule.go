package jobs

import (
	"fmt"
	"strconv"
	"time"

	"tako.dev/tako/declare/cron"
	"tako.dev/tako/declare/workload"
)

const (
	// onTime is how late a run may begin and still count as begun at its time: a change of leaders, with the times that they wait for each
	// other, takes less.
	onTime = 2 * time.Minute
	// farAhead is how far ahead a time may be that was dealt with, until whoever edits the schedule has it go on from now: servers whose clocks nobody has
	// set differ by hours, and what one of them has begun is not to begin again.
	farAhead = 24 * time.Hour
	// runsMax bounds the runs of one job that are not over, with concurrency Allow: ours, who needs more has made a mistake.
	runsMax = 100
	// missedMax bounds how far missed runs are counted.
	missedMax = 100
)

// ScheduleView is a scheduled job with its runs.
type ScheduleView struct {
	Spec    *workload.Schedule
	Created time.Time // when the workload was made
	Runs    []Run     // those that there are, in any order
	Was     ScheduleStatus
	// Zone finds a time zone by its name.
	Zone func(name string) (*time.Location, error)
}

// Run is one run of a scheduled job.
type Run struct {
	At   time.Time // its scheduled time
	Over bool
}

// ScheduleStatus is what must be remembered.
type ScheduleStatus struct {
	// Last is the scheduled time that was dealt with last, or when the schedule was declared.
	Last time.Time `json:"last,omitzero"`
	// Cron and TimeZone are the schedule that Last is of.
	Cron     string `json:"cron,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
	// Suspended says that it was, when this was decided.
	Suspended bool `json:"suspended,omitempty"`
}

// ScheduleDecision is what to do.
type ScheduleDecision struct {
	// Start is the scheduled time of a run to begin; zero: none. It is begun before the status is stored.
	Start time.Time
	// Stop are the scheduled times of runs to end.
	Stop   []time.Time
	Why    string // for people
	Status ScheduleStatus
	WakeAt time.Time // zero: not by itself
}

// RunName is the name of a run: beginning one twice is refused by its name.
func RunName(workload string, scheduled time.Time) string {
	const second = 60
	return workload + "-" + strconv.FormatInt(scheduled.Unix()/second, 10)
}

// Schedule says which run of a scheduled job begins now, and which end for it.
func Schedule(v ScheduleView, now time.Time) ScheduleDecision {
	d := ScheduleDecision{Status: v.Was}
	expression, err := cron.Parse(v.Spec.Cron)
	if err != nil {
		d.Why = fmt.Sprintf("the schedule cannot be read: %v", err)
		return d
	}
	zone, err := v.Zone(v.Spec.TimeZoneOrDefault())
	if err != nil {
		d.Why = fmt.Sprintf("time zone %s is not known here: %v", v.Spec.TimeZoneOrDefault(), err)
		return d
	}
	p := planner{ScheduleView: &v, ScheduleDecision: d, now: now, next: func(t time.Time) (time.Time, bool) { return expression.Next(t, zone) }}
	p.begin()
	p.plan()
	if at, ok := p.next(now); ok && !v.Spec.Suspend && (p.WakeAt.IsZero() || at.Before(p.WakeAt)) {
		p.WakeAt = at
	}
	return p.ScheduleDecision
}

type planner struct {
	*ScheduleView
	ScheduleDecision
	now  time.Time
	next func(time.Time) (time.Time, bool)
}

// begin finds out what was dealt with. A run that is there was begun, whatever the status says.
func (p *planner) begin() {
	s := &p.Status
	declared := ScheduleStatus{s.Last, p.Spec.Cron, p.Spec.TimeZoneOrDefault(), p.Spec.Suspend}
	switch {
	case s.Cron == "":
		declared.Last = p.Created
	case *s != declared && s.Last.After(p.now.Add(farAhead)):
		declared.Last = p.now // the clock of a server was wrong, and nothing would begin for as long
	case *s != declared:
		declared.Last = later(s.Last, p.now) // it was edited, or goes on: what it says of the past was never due
	}
	*s = declared
	for i := range p.Runs {
		if at := p.Runs[i].At; !at.After(p.now.Add(farAhead)) || !s.Last.Before(p.now.Add(farAhead)) {
			s.Last = later(s.Last, at)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *planner) plan() {
	if p.Spec.Suspend {
		p.Why = "suspended"
		return
	}
	due, missed := p.due()
	if due.IsZero() {
		p.ahead()
		return
	}
	late := p.now.Sub(due)
	deadline := p.Spec.StartingDeadlineOrZero()
	var running []time.Time
	for i := range p.Runs {
		if !p.Runs[i].Over {
			running = append(running, p.Runs[i].At)
		}
	}
	name := due.UTC().Format(time.RFC3339)
	leaveOut := func(format string, args ...any) {
		p.Status.Last, p.Why = due, "the run of "+name+" is left out: "+fmt.Sprintf(format, args...)
	}
	switch {
	case deadline > 0 && late > deadline:
		leaveOut("it is %s late, and may be %s", late.Round(time.Second), deadline)
		return
	case late > onTime && p.Spec.MissedRunOrDefault() == workload.Skip && !p.waited(due):
		leaveOut("nobody could begin it in time, it is %s late", late.Round(time.Second))
		return
	}
	switch policy := p.Spec.ConcurrencyOrDefault(); {
	case len(running) == 0:
	case policy == workload.Forbid:
		leaveOut("the run of %s is not over", running[0].UTC().Format(time.RFC3339))
		return
	case policy == workload.Replace:
		p.Stop, p.Why = running, "the run of "+name+" begins when those before have ended"
		if deadline > 0 {
			p.WakeAt = due.Add(deadline + 1)
		}
		return
	case len(running) >= runsMax:
		leaveOut("%d runs are not over", len(running))
		return
	}
	p.Start, p.Status.Last, p.Why = due, due, "the run of "+name+" begins"
	if missed > 0 {
		p.Why += fmt.Sprintf(", also for %d that nobody could begin", missed)
	}
}

// ahead says why nothing begins for long.
func (p *planner) ahead() {
	if !p.Status.Last.After(p.now.Add(onTime)) {
		return
	}
	p.Why = fmt.Sprintf("the run of %s was begun or left out already, by a server whose clock was ahead or before this one's was set back: nothing begins before that",
		p.Status.Last.UTC().Format(time.RFC3339))
	if p.Status.Last.After(p.now.Add(farAhead)) {
		p.Why += "; to have it go on from now, edit spec.schedule, or suspend it and let it go on"
	}
}

// waited reports whether a run is late because it waits for the ones that it replaces.
func (p *planner) waited(due time.Time) bool {
	if p.Spec.ConcurrencyOrDefault() != workload.Replace {
		return false
	}
	for i := range p.Runs {
		if p.Runs[i].At.Before(due) {
			return true
		}
	}
	return false
}

// due returns the last scheduled time that has come and was not dealt with, and how many there are before it; zero: there is none. It looks
// back in steps that double, because after a long outage there may be more than anybody would want to go through.
func (p *planner) due() (last time.Time, before int) {
	for back := time.Minute; ; back *= 2 {
		from := later(p.Status.Last, p.now.Add(-back))
		at, ok := p.next(from)
		if ok && !at.After(p.now) {
			for ; ok && !at.After(p.now); at, ok = p.next(at) {
				last = at
			}
			break
		}
		if from.Equal(p.Status.Last) || back > 100*366*24*time.Hour {
			return time.Time{}, 0
		}
	}
	for at, ok := p.next(p.Status.Last); ok && at.Before(last) && before < missedMax; at, ok = p.next(at) {
		before++
	}
	return last, before
}
