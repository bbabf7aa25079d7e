package jobs

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time { return start.Add(time.Duration(minutes * float64(time.Minute))) }

func ptr[T any](v T) *T { return &v }

// hourly is a job at ten past each hour that was made at the beginning.
func hourly() ScheduleView {
	return ScheduleView{Spec: &workload.Schedule{Cron: "10 * * * *"}, Created: start, Zone: time.LoadLocation}
}

func TestSchedule(t *testing.T) {
	v := hourly()
	d := Schedule(v, at(5))
	if !d.Start.IsZero() || d.WakeAt != at(10) {
		t.Errorf("before its time: %+v", d)
	}
	v.Was = d.Status
	d = Schedule(v, at(10))
	if d.Start != at(10) || d.WakeAt != at(70) || d.Why != "the run of 2030-01-01T00:10:00Z begins" {
		t.Errorf("at its time: %+v", d)
	}
	// The leader is gone before it has stored that: the run itself says that it was begun.
	lost := v
	lost.Runs = []Run{{At: at(10)}}
	if d := Schedule(lost, at(11)); !d.Start.IsZero() || d.Status.Last != at(10) {
		t.Errorf("begun, not stored: %+v", d)
	}
	// The run is over and deleted, and the status says it.
	v.Was = d.Status
	if d := Schedule(v, at(11)); !d.Start.IsZero() {
		t.Errorf("stored, and gone: %+v", d)
	}
	// A leader whose clock is behind.
	if d := Schedule(v, at(9)); !d.Start.IsZero() {
		t.Errorf("with a clock that is behind: %+v", d)
	}
}

// TestAhead: what a server has done whose clock was ahead is not done again, and people are told why nothing begins. Where it was ahead by more than clocks
// that nobody has set are, the schedule goes on when somebody edits it.
func TestAhead(t *testing.T) {
	const hour, year = 60, 366 * 24 * 60
	v := hourly()
	stored := ScheduleStatus{Cron: v.Spec.Cron, TimeZone: "UTC"}
	edited := hourly()
	edited.Spec.Cron = "20 * * * *"
	for name, c := range map[string]struct {
		last      float64 // minutes
		runs      []Run
		why       string // part of it, as it stands
		edited    float64
		untouched bool // the schedule says nothing
	}{
		"on time":       {last: 10, untouched: true, edited: 3 * hour},
		"some hours":    {last: 5*hour + 10, why: "the run of 2030-01-01T05:10:00Z was begun or left out already", edited: 5*hour + 10},
		"a year":        {last: year + 10, why: "edit spec.schedule", edited: 3 * hour},
		"with its run":  {last: year + 10, runs: []Run{{At: at(year + 10), Over: true}}, why: "edit spec.schedule", edited: 3 * hour},
		"a run, hours":  {last: 10, runs: []Run{{At: at(5*hour + 10)}}, why: "2030-01-01T05:10:00Z was begun", edited: 5*hour + 10},
		"a run, a year": {last: 10, runs: []Run{{At: at(year + 10)}}, untouched: true, edited: 3 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			v.Was, v.Runs = stored, c.runs
			v.Was.Last = at(c.last)
			v.Spec.Concurrency = workload.Allow
			d := Schedule(v, at(3*hour))
			switch {
			case c.untouched:
				if d.Start != at(2*hour+10) {
					t.Errorf("%+v", d)
				}
			case !d.Start.IsZero() || !strings.Contains(d.Why, c.why) || d.WakeAt != at(3*hour+10):
				t.Errorf("%+v, want %q", d, c.why)
			}
			edited.Was, edited.Runs = v.Was, c.runs
			if d := Schedule(edited, at(3*hour)); d.Status.Last != at(c.edited) || !d.Start.IsZero() {
				t.Errorf("edited: %+v, want that it goes on at %v", d, at(c.edited))
			}
			edited.Was = Schedule(edited, at(3*hour)).Status
			edited.Spec.Concurrency = workload.Allow
			if d := Schedule(edited, at(3*hour+20)); c.edited == 3*hour && d.Start != at(3*hour+20) {
				t.Errorf("edited, and due: %+v", d)
			}
		})
	}
}

func TestMissed(t *testing.T) {
	v := hourly()
	v.Was = ScheduleStatus{Last: at(10), Cron: v.Spec.Cron, TimeZone: "UTC"}
	d := Schedule(v, at(10*60))
	if d.Start != at(9*60+10) || !strings.HasSuffix(d.Why, "also for 8 that nobody could begin") {
		t.Errorf("nine are due: %+v", d)
	}
	v.Was = d.Status
	if d = Schedule(v, at(10*60)); !d.Start.IsZero() {
		t.Errorf("again: %+v", d)
	}
	v.Was.Last = at(10)
	v.Spec.StartingDeadline = "30m"
	if d = Schedule(v, at(10*60)); !d.Start.IsZero() || d.Status.Last != at(9*60+10) || !strings.Contains(d.Why, "it is 50m0s late, and may be 30m0s") {
		t.Errorf("past the deadline: %+v", d)
	}
	v.Was.Last = at(10)
	if d = Schedule(v, at(9*60+30)); d.Start != at(9*60+10) {
		t.Errorf("within the deadline: %+v", d)
	}
	v.Spec.StartingDeadline, v.Spec.MissedRun, v.Was.Last = "", workload.Skip, at(10)
	if d = Schedule(v, at(9*60+30)); !d.Start.IsZero() || !strings.Contains(d.Why, "nobody could begin it in time") {
		t.Errorf("skipped: %+v", d)
	}
	v.Was.Last = at(10)
	if d = Schedule(v, at(9*60+11)); d.Start != at(9*60+10) {
		t.Errorf("a minute late is no miss: %+v", d)
	}
}

// TestLongOutage: after years there is one run, and that is found at once.
func TestLongOutage(t *testing.T) {
	v := hourly()
	v.Spec.Cron = "* * * * *"
	v.Was = ScheduleStatus{Last: start, Cron: v.Spec.Cron, TimeZone: "UTC"}
	later := start.AddDate(20, 0, 0)
	if d := Schedule(v, later); d.Start != later || !strings.Contains(d.Why, "100") {
		t.Errorf("%+v", d)
	}
	v.Spec.Cron, v.Was.Cron = "0 0 29 2 *", "0 0 29 2 *"
	if d := Schedule(v, later); d.Start != time.Date(2048, 2, 29, 0, 0, 0, 0, time.UTC) {
		t.Errorf("%+v", d)
	}
}

func TestConcurrency(t *testing.T) {
	for policy, want := range map[workload.Concurrency]struct {
		start time.Time
		stop  int
		last  time.Time
	}{"": {time.Time{}, 0, at(70)}, workload.Forbid: {time.Time{}, 0, at(70)}, workload.Allow: {at(70), 0, at(70)}, workload.Replace: {time.Time{}, 1, at(10)}} {
		v := hourly()
		v.Spec.Concurrency = policy
		v.Was = ScheduleStatus{Last: at(10), Cron: v.Spec.Cron, TimeZone: "UTC"}
		v.Runs = []Run{{At: at(10)}}
		d := Schedule(v, at(70))
		if d.Start != want.start || len(d.Stop) != want.stop || d.Status.Last != want.last {
			t.Errorf("%s: %+v", policy, d)
		}
		if policy != workload.Replace {
			continue
		}
		v.Was, v.Runs[0].Over = d.Status, true
		v.Spec.MissedRun = workload.Skip
		if d = Schedule(v, at(75)); d.Start != at(70) {
			t.Errorf("when the old one has ended: %+v", d)
		}
	}
	v := hourly()
	v.Spec.Concurrency = workload.Allow
	for i := range runsMax {
		v.Runs = append(v.Runs, Run{At: at(float64(-60*i + 10))})
	}
	if d := Schedule(v, at(70)); !d.Start.IsZero() || !strings.Contains(d.Why, "100 runs are not over") {
		t.Errorf("%+v", d)
	}
}

// TestEdited: neither an edit of the schedule nor the end of a suspension makes up for what was before.
func TestEdited(t *testing.T) {
	v := hourly()
	v.Was = ScheduleStatus{Last: at(10), Cron: v.Spec.Cron, TimeZone: "UTC"}
	v.Spec.Cron = "20 * * * *"
	d := Schedule(v, at(30))
	if !d.Start.IsZero() || d.WakeAt != at(80) || d.Status.Cron != v.Spec.Cron {
		t.Errorf("edited: %+v", d)
	}
	v.Was, v.Spec.Suspend = d.Status, true
	d = Schedule(v, at(81))
	if !d.Start.IsZero() || !d.WakeAt.IsZero() || !strings.Contains(d.Why, "suspended") {
		t.Errorf("suspended: %+v", d)
	}
	v.Was, v.Spec.Suspend = d.Status, false
	resumed := v
	if d = Schedule(v, at(90)); !d.Start.IsZero() {
		t.Errorf("resumed: %+v", d)
	}
	if resumed.Was.Last = at(21); !Schedule(resumed, at(90)).Start.IsZero() { // nobody looked while it was due
		t.Errorf("resumed: %+v", Schedule(resumed, at(90)))
	}
	v.Spec.TimeZone = "Nowhere/Here"
	if d = Schedule(v, at(90)); !d.Start.IsZero() || !strings.Contains(d.Why, "Nowhere/Here is not known here") || !reflect.DeepEqual(d.Status, v.Was) {
		t.Errorf("in no zone: %+v", d)
	}
}

// TestDaylightSaving: a run of a time that clocks leave out begins after the gap; one that they show twice begins once.
func TestDaylightSaving(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("needs the zone database: %v", err)
	}
	for day, want := range map[string]string{"2030-03-31": "[03:00 CEST]", "2030-10-27": "[02:30 CEST]", "2030-06-01": "[02:30 CEST]"} {
		now, err := time.ParseInLocation(time.DateOnly, day, berlin)
		if err != nil {
			t.Fatal(err)
		}
		v := ScheduleView{Spec: &workload.Schedule{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, Created: now, Zone: time.LoadLocation}
		var began []string
		for end := now.Add(20 * time.Hour); now.Before(end); now = now.Add(time.Minute) {
			d := Schedule(v, now)
			if v.Was = d.Status; !d.Start.IsZero() {
				began = append(began, d.Start.In(berlin).Format("15:04 MST"))
			}
		}
		if fmt.Sprint(began) != want {
			t.Errorf("%s: %v, want %s", day, began, want)
		}
	}
}

func TestRunName(t *testing.T) {
	if name := RunName("backup", at(70)); name != "backup-31557670" {
		t.Errorf("%s", name)
	}
}

// run is a run of three instances, two at once.
func run(instances ...Instance) RunView {
	for i := range instances {
		instances[i].UID = fmt.Sprint("u", i)
	}
	return RunView{Job: &workload.Job{Completions: ptr(int32(3)), Parallelism: ptr(int32(2)), BackoffLimit: ptr(int32(2)), ActiveDeadline: "1h", KeepFinished: "10m"}, Began: start, Instances: instances}
}

func TestWanted(t *testing.T) {
	ok, bad, on := Instance{Phase: Succeeded, Ended: start}, Instance{Phase: Failed, Ended: start}, Instance{}
	replaced, complete := run(on), run(ok, ok, ok)
	replaced.Replaced, complete.Replaced = true, true
	for _, c := range []struct {
		view   RunView
		wanted int
		result Result
	}{
		{run(), 2, ""}, {run(on, on), 2, ""}, {run(ok, on), 2, ""}, {run(ok, ok), 1, ""}, {run(ok, ok, on), 1, ""}, {run(ok, ok, ok), 0, Complete}, {run(ok, ok, ok, on), 0, Complete},
		{run(bad), 0, ""}, {run(bad, on), 1, ""}, {run(bad, bad, bad), 0, FailedTooOften}, {run(ok, ok, ok, bad, bad, bad), 0, Complete}, {run(Instance{Restarts: 3}), 0, FailedTooOften},
		{run(Instance{Phase: Lost, Ended: start}), 2, ""}, {run(Instance{Terminating: true}, on), 2, ""},
		{replaced, 0, Replaced}, {complete, 0, Complete},
	} {
		d := Decide(c.view, start)
		if d.Wanted != c.wanted || d.Status.Result != c.result || d.Why == "" {
			t.Errorf("%+v\n%+v, want %d %q", c.view.Instances, d, c.wanted, c.result)
		}
	}
}

// TestPause: after a failure nothing new begins for a while, which doubles, and a success ends that.
func TestPause(t *testing.T) {
	v := run(Instance{Phase: Failed, Ended: start})
	v.Restart.Backoff = "10s"
	d := Decide(v, start)
	if d.Wanted != 0 || d.WakeAt != start.Add(10*time.Second) {
		t.Errorf("%+v", d)
	}
	if d = Decide(v, start.Add(10*time.Second)); d.Wanted != 2 {
		t.Errorf("%+v", d)
	}
	v = run(Instance{Phase: Failed, Ended: start}, Instance{Phase: Failed, Ended: start})
	v.Restart.Backoff = "10s"
	if d = Decide(v, start); d.WakeAt != start.Add(20*time.Second) {
		t.Errorf("%+v", d)
	}
	v.Instances = append(v.Instances, Instance{UID: "later", Phase: Succeeded, Ended: start.Add(time.Second)})
	if d = Decide(v, start.Add(time.Second)); d.Wanted != 2 {
		t.Errorf("%+v", d)
	}
}

// TestOver: a run with a result is over when nothing of it runs, keeps its result, and is deleted in the end.
func TestOver(t *testing.T) {
	v := run(Instance{}, Instance{Phase: Succeeded, Ended: start})
	d := Decide(v, at(60))
	if d.Status.Result != DeadlineExceeded || d.Wanted != 0 || !d.Status.Over.IsZero() || !strings.Contains(d.Why, "1 have still to end") {
		t.Errorf("at the deadline: %+v", d)
	}
	v.Was = d.Status
	v.Instances = []Instance{{UID: "u0", Phase: Succeeded, Ended: at(61)}, {UID: "u1", Phase: Succeeded, Ended: start}, {UID: "u2", Phase: Succeeded, Ended: at(61)}}
	d = Decide(v, at(61))
	if d.Status.Result != DeadlineExceeded || d.Status.Over != at(61) || d.Delete || d.Status.Succeeded != 3 {
		t.Errorf("when it has ended: %+v", d)
	}
	v.Was = d.Status
	if d = Decide(v, at(62)); d.Delete || d.WakeAt != at(71) {
		t.Errorf("kept: %+v", d)
	}
	v.Scheduled, v.Remembered = start, start.Add(-time.Minute)
	if d = Decide(v, at(71)); d.Delete {
		t.Errorf("deleted before its scheduled time is remembered: %+v", d)
	}
	v.Remembered = start
	if d = Decide(v, at(71)); !d.Delete {
		t.Errorf("not deleted: %+v", d)
	}
}

// TestRemove: instances go only when the stored status has counted them, and the last failures stay.
func TestRemove(t *testing.T) {
	var list []Instance
	for i := range 40 {
		phase := Succeeded
		if i%2 == 0 {
			phase = Failed
		}
		list = append(list, Instance{Phase: phase, Ended: at(float64(i))})
	}
	v := run(list...)
	v.Job.Completions, v.Job.BackoffLimit = ptr(int32(1000)), ptr(int32(1000))
	d := Decide(v, at(50))
	if len(d.Remove) != 0 || d.Status.Succeeded != 20 || d.Status.Failed != 20 || len(d.Status.Counted) != 40 {
		t.Errorf("before it is stored: %+v", d)
	}
	v.Was = d.Status
	d = Decide(v, at(50))
	if len(d.Remove) != 20 || d.Status.Succeeded != 20 || d.Status.Failed != 20 {
		t.Errorf("when it is stored: %+v", d)
	}
	for _, uid := range d.Remove {
		v.Instances = deleted(v.Instances, uid)
	}
	if d = Decide(v, at(50)); len(d.Status.Counted) != 20 || d.Status.Succeeded != 20 || d.Status.Failed != 20 {
		t.Errorf("when they are gone: %+v", d)
	}
	for _, i := range v.Instances {
		if i.Phase != Failed {
			t.Errorf("%+v is kept, and failures are gone", i)
		}
	}
}

func deleted(list []Instance, uid string) []Instance {
	var kept []Instance
	for _, i := range list {
		if i.UID != uid {
			kept = append(kept, i)
		}
	}
	return kept
}

// TestCountBound: many that end at once are counted in several decisions.
func TestCountBound(t *testing.T) {
	v := run(make([]Instance, 1200)...)
	for i := range v.Instances {
		v.Instances[i].Phase, v.Instances[i].Ended = Succeeded, start
	}
	v.Job.Completions = ptr(int32(1200))
	rounds := 0
	for v.Was.Result == "" {
		d := Decide(v, start)
		if v.Was = d.Status; len(d.Status.Counted) > countMax {
			t.Fatalf("%d are remembered at once", len(d.Status.Counted))
		}
		for _, uid := range d.Remove {
			v.Instances = deleted(v.Instances, uid)
		}
		if rounds++; rounds > 10 {
			t.Fatal("it never ends")
		}
	}
	if v.Was.Succeeded != 1200 {
		t.Errorf("%d have succeeded", v.Was.Succeeded)
	}
}

// A pause after a failure that a leader has written whose clock was ahead is no longer under the next one than it is long.
func TestFailureOfAClockAhead(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	v := RunView{Job: &workload.Job{}, Began: now.Add(-time.Hour), Was: RunStatus{Failed: 1, InARow: 1, LastFailure: now.Add(time.Hour)}}
	d := Decide(v, now)
	if d.Wanted != 0 || d.WakeAt.Sub(now) != v.Restart.BackoffOrDefault() {
		t.Errorf("%d are wanted, and it wakes after %s", d.Wanted, d.WakeAt.Sub(now))
	}
	v.Was = d.Status
	if d = Decide(v, d.WakeAt); d.Wanted != 1 {
		t.Errorf("after its pause: %+v", d)
	}
	over := RunStatus{Succeeded: 1, Result: Complete, Over: now.Add(time.Hour)}
	if d = Decide(RunView{Job: &workload.Job{}, Began: now, Was: over}, now); d.Status.Over.After(now) {
		t.Errorf("it was over at %s, and it is %s", d.Status.Over, now)
	}
}
