package jobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 50

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// job is one run as it really is.
type job struct {
	at        time.Time
	view      RunView
	succeeded map[string]bool // what has happened, by UID, also of what is gone
	failed    map[string]bool
	result    Result
	gone      bool
}

func (j *job) active() (n int) {
	for _, i := range j.view.Instances {
		if i.Phase == Active {
			n++
		}
	}
	return n
}

// world is a scheduled job with all its runs.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	view  ScheduleView
	spec  workload.Job
	jobs  map[time.Time]*job // by scheduled time; those that are gone too
	made  int
	calm  bool
	down  bool      // nobody leads
	ever  bool      // it was down, edited or suspended at some time
	since time.Time // when a leader saw the schedule first, or that it goes on
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, now: start, jobs: map[time.Time]*job{}, since: start}
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	w.spec = workload.Job{Completions: ptr(int32(1 + rng.IntN(6))), Parallelism: ptr(int32(1 + rng.IntN(4))), BackoffLimit: ptr(int32(rng.IntN(4))), ActiveDeadline: pick("", "5m", "2h"), KeepFinished: pick("0s", "10m", "3h")}
	w.view = ScheduleView{Created: start, Zone: time.LoadLocation, Spec: &workload.Schedule{Cron: pick("*/10 * * * *", "@hourly", "5,6 * * * *"), Concurrency: workload.Concurrency(pick("", "Forbid", "Allow", "Replace")),
		MissedRun: workload.MissedRun(pick("", "RunOnce", "Skip")), StartingDeadline: pick("", "", "4m", "40m")}}
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%v: %s\n%+v", w.now, fmt.Sprintf(format, args...), w.view)
}

// step is what happens in the world.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(60)) * time.Second)
	if !w.calm {
		switch w.rng.IntN(80) {
		case 0:
			w.down, w.ever = !w.down, true
		case 1:
			w.view.Spec.Suspend, w.ever = !w.view.Spec.Suspend, true
		case 2:
			w.view.Spec.Cron, w.ever = []string{"*/10 * * * *", "*/15 * * * *"}[w.rng.IntN(2)], true
		}
	}
	for _, j := range w.sorted() {
		for i := range j.view.Instances {
			w.work(j, &j.view.Instances[i])
		}
	}
}

// sorted are the runs that there are.
func (w *world) sorted() []*job {
	var list []*job
	for _, j := range w.jobs {
		if !j.gone {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job) int { return a.at.Compare(b.at) })
	return list
}

// work is what becomes of an instance.
func (w *world) work(j *job, i *Instance) {
	switch k := w.rng.IntN(40); {
	case i.Phase != Active:
		return
	case i.Terminating && k < 10:
		i.Phase = []Phase{Lost, Failed, Succeeded}[w.rng.IntN(3)]
	case k < 4 || w.calm && k < 10:
		i.Phase = Succeeded
	case k < 5 && !w.calm:
		i.Phase = Failed
	case k < 6 && !w.calm:
		i.Phase = Lost
	case k < 7 && !w.calm:
		i.Restarts++
	}
	if i.Phase != Active {
		i.Ended = w.now
	}
	switch i.Phase {
	case Succeeded:
		j.succeeded[i.UID] = true
	case Failed:
		j.failed[i.UID] = true
	}
}

// stored is a status as it comes back from the store.
func stored[T any](t *testing.T, status T) T {
	t.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// decide is what a leader does. It may be gone at any place; another one does the same again.
func (w *world) decide() {
	if w.down && !w.calm {
		return
	}
	w.view.Runs = nil
	for _, j := range w.sorted() {
		w.view.Runs = append(w.view.Runs, Run{j.at, !j.view.Was.Over.IsZero()})
	}
	was := w.view.Was
	d := Schedule(w.view, w.now)
	if was.Cron != "" && was.Cron != w.view.Spec.Cron || was.Suspended && !w.view.Spec.Suspend {
		w.since = w.now // it was edited, or goes on, and the leader sees it now
	}
	if !d.Start.IsZero() {
		w.begin(d.Start)
	}
	for _, at := range d.Stop {
		w.jobs[at].view.Replaced = true
	}
	if (w.calm || !w.oneIn(10)) && d.Status != was {
		w.view.Was = stored(w.t, d.Status)
		w.account(was.Last, d)
	}
	for _, j := range w.sorted() {
		w.run(j)
	}
}

// account notes which scheduled times were dealt with.
func (w *world) account(last time.Time, d ScheduleDecision) {
	if d.Status.Last.Before(last) {
		w.fail("what was dealt with goes back from %v to %v", last, d.Status.Last)
	}
	if d.Start.IsZero() && d.Status.Last != last && d.Why == "" && w.jobs[d.Status.Last] == nil && d.Status.Last != w.view.Created && !w.ever {
		w.fail("a run is left out without a word: %+v", d)
	}
}

// begin checks that a run may begin, and lets it.
func (w *world) begin(at time.Time) {
	deadline := w.view.Spec.StartingDeadlineOrZero()
	switch {
	case at.After(w.now):
		w.fail("%v begins before its time", at)
	case w.view.Spec.Suspend:
		w.fail("%v begins while suspended", at)
	case deadline > 0 && w.now.Sub(at) > deadline:
		w.fail("%v begins after its deadline", at)
	case !at.After(w.since):
		w.fail("%v begins by a schedule that was declared at %v", at, w.since)
	}
	if j := w.jobs[at]; j != nil {
		w.fail("%v begins twice; it is gone: %t", at, j.gone)
	}
	for _, j := range w.sorted() {
		if j.view.Was.Over.IsZero() && w.view.Spec.ConcurrencyOrDefault() != workload.Allow {
			w.fail("%v begins beside %v", at, j.at)
		}
	}
	spec := w.spec
	w.jobs[at] = &job{at: at, view: RunView{Job: &spec, Began: w.now, Scheduled: at}, succeeded: map[string]bool{}, failed: map[string]bool{}}
}

// run decides on one run, and carries it out.
func (w *world) run(j *job) {
	j.view.Remembered = w.view.Was.Last
	d := Decide(j.view, w.now)
	w.check(j, d)
	if w.oneIn(8) && !w.calm {
		return // the leader is gone
	}
	if d.Delete {
		j.gone = true
		return
	}
	running := 0
	for i := range j.view.Instances {
		x := &j.view.Instances[i]
		if x.Phase != Active || x.Terminating {
			continue
		}
		if running++; running > d.Wanted {
			x.Terminating = true
		}
	}
	for ; running < d.Wanted; running++ {
		w.made++
		j.view.Instances = append(j.view.Instances, Instance{UID: fmt.Sprint("u", w.made)})
	}
	for _, uid := range d.Remove {
		j.view.Instances = deleted(j.view.Instances, uid)
	}
	if (w.calm || !w.oneIn(8)) && !reflect.DeepEqual(d.Status, j.view.Was) {
		j.view.Was = stored(w.t, d.Status)
	}
}

func (w *world) check(j *job, d RunDecision) {
	s := d.Status
	if s.Succeeded != len(j.succeeded) || s.Failed != len(j.failed) {
		w.fail("%v has %d and %d counted, and %d and %d have ended: %+v", j.at, s.Succeeded, s.Failed, len(j.succeeded), len(j.failed), d)
	}
	if j.result != "" && s.Result != j.result {
		w.fail("%v was %s, and is %s", j.at, j.result, s.Result)
	}
	if s.Result != "" && d.Wanted > 0 || !s.Over.IsZero() && j.active() > 0 || d.Delete && s.Over.IsZero() {
		w.fail("%v is %s, and %d run: %+v", j.at, s.Result, j.active(), d)
	}
	if d.Wanted > j.view.Job.ParallelismOrDefault() || s.Result == "" && d.Wanted+s.Succeeded > j.view.Job.CompletionsOrDefault() {
		w.fail("%v wants too many: %+v", j.at, d)
	}
	if j.view.Was.Result != "" {
		j.result = j.view.Was.Result
	}
	if !w.oneIn(4) {
		return
	}
	if again := Decide(j.view, w.now); again.Wanted != d.Wanted || again.Status.Result != s.Result {
		w.fail("%v decided again: %+v, not %+v", j.at, again, d)
	}
}

// settle is a world in which nothing goes wrong: each scheduled time is dealt with, and every run gets over and goes.
func (w *world) settle() {
	w.calm, w.down = true, false
	w.view.Spec.Suspend = false
	for range 250 {
		w.step()
		w.decide()
	}
	began := 0
	end := w.now.Add(3 * time.Hour)
	for w.now.Before(end) {
		last := w.view.Was.Last
		w.step()
		w.decide()
		if w.view.Was.Last != last {
			began++
		}
	}
	if began < 2 {
		w.fail("in three quiet hours %d scheduled times were dealt with", began)
	}
	w.view.Spec.Suspend = true
	for range 700 {
		w.step()
		w.decide()
	}
	if left := w.sorted(); len(left) > 0 {
		w.fail("%d runs are left, of them %v: %+v", len(left), left[0].at, left[0].view)
	}
}

func TestSimulation(t *testing.T) {
	first, last := uint64(1), number("TAKO_SEEDS", simSeeds)
	if seed := number("TAKO_SEED", 0); seed > 0 {
		first, last = seed, seed
	}
	for seed := first; seed <= last; seed++ {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 8)))
			for range 500 {
				w.step()
				w.decide()
			}
			w.settle()
		})
		if !ok {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
}
