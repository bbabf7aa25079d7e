package scale

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func ptr[T any](v T) *T { return &v }

// byCPU is a scale of 1 to 1000 instances that use 50 % of their processors.
func byCPU() *workload.Scale {
	return &workload.Scale{Max: 1000, Targets: []workload.ScaleTarget{{Name: "cpu", CPU: ptr(int32(50))}}}
}

// instances are n ready ones of revision r1 that use percent of one processor, measured at a time.
func instances(n int, percent int64, now time.Time) []Instance {
	var list []Instance
	for range n {
		list = append(list, Instance{Workload: "web", Revision: "r1", Ready: now.Add(-time.Hour), CPU: 1000, Memory: 1 << 30,
			Sample: Sample{At: now, Over: 15 * time.Second, CPU: percent * 10, Memory: 1 << 29}})
	}
	return list
}

// settled is a workload of n replicas that has been so for a long time.
func settled(n int, percent int64, now time.Time) View {
	return View{Spec: byCPU(), Declared: n, Workload: "web", Instances: instances(n, percent, now), Stable: "r1", Zone: time.LoadLocation,
		Was: Status{Decided: start.Add(-24 * time.Hour), Replicas: n, Declared: n}}
}

// after goes on for a while with the same view, deciding as a leader does, and returns the last decision.
func after(v View, from time.Time, d time.Duration) Decision {
	var last Decision
	v.Instances = slices.Clone(v.Instances)
	for now := from; !now.After(from.Add(d)); now = now.Add(Period) {
		for i := range v.Instances {
			if s := &v.Instances[i].Sample; !s.At.IsZero() {
				s.At = now
			}
		}
		for name, a := range v.Answers {
			v.Answers[name] = Answer{At: now, Value: a.Value}
		}
		last = Decide(v, now)
		v.Was = last.Status
	}
	return last
}

func TestUpAndDown(t *testing.T) {
	for _, c := range []struct {
		replicas int
		percent  int64
		want     int // after ten minutes in which nothing follows
	}{
		{10, 50, 10}, {10, 54, 10}, {10, 55, 10}, {10, 56, 12}, {10, 100, 20}, {10, 46, 10}, {10, 44, 9}, {10, 5, 1}, {1, 100, 2}, {1, 10, 1}, {3, 51, 3},
	} {
		v := settled(c.replicas, c.percent, start)
		v.Spec.Up.MaxChange = "1000"
		d := after(v, start, 10*time.Minute)
		if d.Replicas != c.want {
			t.Errorf("%d at %d%%: %d, want %d (%s)", c.replicas, c.percent, d.Replicas, c.want, d.Why)
		}
	}
}

func TestWords(t *testing.T) {
	d := Decide(settled(4, 90, start), start)
	if want := "cpu: 4 of 4 instances use processors as 7.2 would fully (50%), which needs 8"; d.Why != want {
		t.Errorf("%q, want %q", d.Why, want)
	}
	if d.WakeAt != start.Add(Period) {
		t.Errorf("looks again at %v", d.WakeAt)
	}
	d = Decide(settled(10, 20, start), start)
	if want := "4 it was asked for since 2030-01-01T00:00:00Z, and must be until 2030-01-01T00:05:00Z"; !strings.Contains(d.Why, want) {
		t.Errorf("%q, want %q in it", d.Why, want)
	}
}

// TestTargets: the one that asks for most decides, and one without an answer lets nothing shrink.
// TestCodes: what keeps the number from being the one that is needed has a code, and no change of the number leaves one for a moment.
func TestCodes(t *testing.T) {
	blind := settled(4, 0, start)
	for i := range blind.Instances {
		blind.Instances[i].Sample = Sample{}
	}
	fresh := blind
	fresh.Was = Status{}
	changed := blind
	changed.Was.Grown = []Step{{start.Add(-time.Minute), 1}}
	high := settled(4, 90, start)
	high.Spec.Max = 5
	asked := settled(4, 50, start)
	asked.Spec.Targets = append(asked.Spec.Targets, workload.ScaleTarget{Name: "queue", Prometheus: &workload.PrometheusTarget{PerInstance: "1"}})
	asked.Answers = map[string]Answer{"queue": {Missing: "main does not answer"}}
	for name, c := range map[string]struct {
		v    View
		code reason.Code
		want int
	}{
		"nothing is measured": {blind, reason.NoSamples, 4}, "just begun": {fresh, 0, 4}, "just changed": {changed, 0, 4}, "bounded": {high, reason.ScaleBounded, 5},
		"one target has no answer": {asked, reason.NoSamples, 4}, "all is well": {settled(4, 50, start), 0, 4},
	} {
		if d := Decide(c.v, start); d.Code != c.code || d.Replicas != c.want {
			t.Errorf("%s: %d, %v, %s; want %d, %v", name, d.Replicas, d.Code, d.Why, c.want, c.code)
		}
	}
	if d := Decide(asked, start); !strings.Contains(d.Why, "queue: main does not answer") {
		t.Errorf("it does not say why: %s", d.Why)
	}
}

func TestTargets(t *testing.T) {
	v := settled(4, 50, start)
	v.Spec.Targets = append(v.Spec.Targets, workload.ScaleTarget{Name: "memory", Memory: ptr(int32(25))}, // half of it is used
		workload.ScaleTarget{Name: "queue", Prometheus: &workload.PrometheusTarget{PerInstance: "0.5"}})
	v.Answers = map[string]Answer{"queue": {At: start, Value: 1}}
	if d := Decide(v, start); d.Replicas != 8 {
		t.Errorf("%d: %s", d.Replicas, d.Why)
	}
	v.Answers["queue"] = Answer{At: start, Value: 5}
	v.Spec.Up.MaxChange = "100"
	if d := Decide(v, start); d.Replicas != 10 {
		t.Errorf("%d: %s", d.Replicas, d.Why)
	}
	v.Spec.Targets = v.Spec.Targets[2:]
	v.Answers["queue"] = Answer{At: start, Value: 0.7}
	if d := after(v, start, 6*time.Minute); d.Replicas != 2 {
		t.Errorf("%d: %s", d.Replicas, d.Why)
	}
	for name, a := range map[string]Answer{"none": {}, "old": {At: start.Add(-2 * time.Minute)}, "no number": {At: start, Value: math.NaN()}, "endless": {At: start, Value: math.Inf(1)}, "negative": {At: start, Value: -1}} {
		v.Answers["queue"] = a
		v.Was.Down = Phase{Since: start.Add(-time.Hour), Asked: []Asked{{start.Add(-Period), 1}}}
		if d := Decide(v, start); d.Replicas != 4 || !strings.Contains(d.Why, "no") && !strings.Contains(d.Why, "old") {
			t.Errorf("%s: %d: %s", name, d.Replicas, d.Why)
		}
	}
	v.Spec.Min, v.Declared, v.Was, v.Instances = ptr(int32(0)), 0, Status{}, nil
	v.Answers["queue"] = Answer{At: start, Value: 0.1}
	if d := Decide(v, start); d.Replicas != 1 {
		t.Errorf("from 0: %d: %s", d.Replicas, d.Why)
	}
}

func TestLimits(t *testing.T) {
	v := settled(10, 100, start)
	v.Spec.Up = workload.ScaleBound{MaxChange: "3", Period: "1m"}
	d := Decide(v, start)
	if d.Replicas != 13 || !strings.Contains(d.Why, "up to 13 within 1m0s") {
		t.Errorf("%d: %s", d.Replicas, d.Why)
	}
	v.Was = d.Status
	if d = after(v, at(15), 30*time.Second); d.Replicas != 13 {
		t.Errorf("within the minute %d", d.Replicas)
	}
	v.Was, v.Instances = d.Status, instances(13, 100, at(60))
	if d = Decide(v, at(60)); d.Replicas != 16 {
		t.Errorf("after the minute %d: %s", d.Replicas, d.Why)
	}
	v = settled(100, 1, start)
	v.Spec.Down = workload.ScaleBound{MaxChange: "10%", Period: "1m", Stabilization: "1m"}
	if d = after(v, start, time.Minute); d.Replicas != 90 {
		t.Errorf("down to %d: %s", d.Replicas, d.Why)
	}
}

// TestUpStabilization: the lowest number of the while counts.
func TestUpStabilization(t *testing.T) {
	v := settled(10, 100, start)
	v.Spec.Up = workload.ScaleBound{Stabilization: "1m", MaxChange: "100"}
	d := Decide(v, start)
	v.Was, v.Instances = d.Status, instances(10, 60, at(15))
	d = Decide(v, at(15))
	v.Was, v.Instances = d.Status, instances(10, 90, at(60))
	if d.Replicas != 10 {
		t.Errorf("at once %d", d.Replicas)
	}
	if d = Decide(v, at(60)); d.Replicas != 12 {
		t.Errorf("after the while %d: %s", d.Replicas, d.Why)
	}
}

// The autoscaler is not misled: by what is not its own, by rollouts, by what is missing, by people, by clocks, and by its own successor.
func TestWorkloadCase69_Autoscaler(t *testing.T) {
	c := casetest.Start(t)
	t.Run("OtherWorkloads", func(t *testing.T) { otherWorkloads(c.Sub(t)) })
	t.Run("SurgeAndUnready", func(t *testing.T) { surgeAndUnready(c.Sub(t)) })
	t.Run("RolloutDoesNotFeedItself", func(t *testing.T) { noFeedback(c.Sub(t)) })
	t.Run("BrokenRollout", func(t *testing.T) { brokenRollout(c.Sub(t)) })
	t.Run("MissingMetrics", func(t *testing.T) { missingMetrics(c.Sub(t)) })
	t.Run("BoundsAndEdits", func(t *testing.T) { boundsAndEdits(c.Sub(t)) })
	t.Run("NoFlip", func(t *testing.T) { noFlip(c.Sub(t)) })
	t.Run("DaylightSaving", func(t *testing.T) { daylightSaving(t, c.Sub(t)) })
	t.Run("DoubleRun", func(t *testing.T) { doubleRun(c.Sub(t)) })
}

// otherWorkloads: instances of another workload that has the same labels, or had the same name, count nothing.
func otherWorkloads(c *casetest.Case) {
	v := settled(4, 50, start)
	others := instances(40, 400, start)
	for i := range others {
		others[i].Workload = fmt.Sprint("web of before ", i%2)
	}
	v.Instances = append(v.Instances, others...)
	c.Equal(after(v, start, 10*time.Minute).Replicas, 4, "beside 40 busy ones of others")
	v.Instances = append(instances(4, 100, start), others...)
	for i := range others {
		v.Instances[4+i].Sample.CPU = 0
	}
	c.Equal(Decide(v, start).Replicas, 8, "beside 40 idle ones of others")
}

// surgeAndUnready: neither instances beyond the replicas nor those that start make the number grow, whatever they use.
func surgeAndUnready(c *casetest.Case) {
	v := settled(10, 50, start)
	v.Rollout = Rolling
	surge := instances(5, 50, start)
	v.Instances = append(v.Instances, surge...)
	c.Equal(after(v, start, 10*time.Minute).Replicas, 10, "five beyond, as busy as the others")
	for i := range surge {
		v.Instances[10+i].Ready, v.Instances[10+i].Sample.CPU = time.Time{}, 4000
	}
	c.Equal(after(v, start, 10*time.Minute).Replicas, 10, "five that start with all they can get")
	for i := range surge {
		v.Instances[10+i].Ready = start.Add(-5 * time.Second) // the sample is of before, for the most part
	}
	c.Equal(Decide(v, start).Replicas, 10, "five that have just started")
	for i := range 3 {
		v.Instances[i].Terminating, v.Instances[i].Sample.CPU = true, 4000
	}
	c.Equal(Decide(v, start).Replicas, 10, "three that end")
	v = settled(10, 62, start)
	v.Rollout, v.Instances = Rolling, v.Instances[:8] // the eight have the load of ten
	c.Equal(Decide(v, start).Replicas, 10, "two that are replaced, and whose load the others have")
	v = settled(10, 90, start)
	v.Rollout, v.Instances = Rolling, append(v.Instances, instances(3, 90, start)...)
	c.Equal(Decide(v, start).Replicas, 18, "a load that is there also grows it during a rollout")
}

// noFeedback: 383 replicas became 664 elsewhere, because each round counted the surge of the one before.
func noFeedback(c *casetest.Case) {
	v := settled(383, 52, start)
	v.Rollout = Rolling
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(Period) {
		n := v.Was.Replicas
		v.Instances = instances(n, 52, now)                           // what each does by itself, however many there are
		v.Instances = append(v.Instances, instances(n/4, 95, now)...) // and a quarter beyond that has just come
		for i := range n / 4 {
			v.Instances[n+i].Ready = now.Add(-10 * time.Second)
		}
		v.Was = Decide(v, now).Status
	}
	c.Equal(v.Was.Replicas, 383, "after an hour of rollouts")
}

// brokenRollout: what does not work makes no number grow, and load on what works does.
func brokenRollout(c *casetest.Case) {
	v := settled(10, 50, start)
	v.Rollout = Broken
	v.Instances = instances(8, 62, start)
	bad := instances(4, 400, start)
	for i := range bad {
		bad[i].Revision = "r2"
	}
	v.Instances = append(v.Instances, bad...)
	c.Equal(after(v, start, time.Hour).Replicas, 10, "eight that work, four that burn processors, for an hour")
	for i := range 8 {
		v.Instances[i].Sample.CPU = 1250
	}
	c.Equal(Decide(v, start).Replicas, 20, "the eight have twice the load")
}

// missingMetrics: what is not measured lets nothing shrink by more than it could use.
func missingMetrics(c *casetest.Case) {
	v := settled(10, 50, start)
	for i := range v.Instances {
		v.Instances[i].Sample = Sample{}
	}
	c.Equal(after(v, start, time.Hour).Replicas, 10, "nothing measured for an hour")
	v.Instances = instances(10, 50, start)
	stale := v
	for s := 0.0; s < 1800; s += Period.Seconds() {
		d := Decide(stale, at(s))
		c.Check(d.Replicas == 10, "%d with measures of %v before: %s", d.Replicas, time.Duration(s)*time.Second, d.Why)
		stale.Was = d.Status
	}
	v.Instances = append(instances(5, 10, start), instances(5, 10, start)...)
	for i := range 5 {
		v.Instances[i].Sample = Sample{}
	}
	c.Equal(after(v, start, 10*time.Minute).Replicas, 6, "half is idle, and half may be fully used")
	v.Instances[9].Sample.CPU = 10_000
	v.Spec.Up.MaxChange = "100"
	c.Equal(after(v, start, 10*time.Minute).Replicas, 21, "and what is measured needs more")
	v = settled(10, 10, start)
	v.Spec.Targets = append(v.Spec.Targets, workload.ScaleTarget{Name: "queue", Prometheus: &workload.PrometheusTarget{PerInstance: "1"}})
	c.Equal(after(v, start, time.Hour).Replicas, 10, "one of two measures is missing for an hour")
}

// boundsAndEdits: neither undoes the other time and again.
func boundsAndEdits(c *casetest.Case) {
	v := settled(10, 50, start)
	v.Spec.Max = 6
	d := Decide(v, start)
	c.Check(d.Replicas == 6, "above the bounds: %d", d.Replicas)
	v.Was, v.Instances = d.Status, instances(6, 84, at(15))
	d = after(v, at(15), time.Hour)
	c.Check(d.Replicas == 6 && len(d.Status.Shrunk) == 1 && len(d.Status.Grown) == 0, "the load needs 10: %+v", d.Status)

	v = settled(4, 100, start)
	d = Decide(v, start)
	c.Equal(d.Replicas, 8, "by load")
	v.Was, v.Instances = d.Status, instances(8, 50, at(15))
	c.Equal(after(v, at(15), time.Hour).Replicas, 8, "4 is still declared, and applied again")
	v.Declared = 12
	d = Decide(v, at(30))
	c.Equal([]int{d.Replicas, d.Status.Declared}, []int{12, 12}, "edited")
	v.Was, v.Instances = d.Status, instances(12, 33, at(45))
	c.Equal(after(v, at(45), 4*time.Minute).Replicas, 12, "an edit stands for as long as a number is stabilised")
	c.Equal(after(v, at(45), 6*time.Minute).Replicas, 8, "and then the load decides")
	v.Declared = 5000
	c.Equal(Decide(v, at(60)).Replicas, 1000, "edited beyond the bounds")
	v.Declared = 0
	d = Decide(v, at(60))
	v.Was, v.Instances = d.Status, nil
	c.Equal(after(v, at(60), time.Hour).Replicas, 0, "off")
	v.Declared = 3
	c.Equal(Decide(v, at(4000)).Replicas, 3, "on again")

	v = settled(4, 50, start)
	v.Spec.Scheduled = []workload.ScheduledBounds{{Name: "night", Window: declare.Window{Opens: "01:00", Duration: "1h"}, Min: ptr(int32(0)), Max: ptr(int32(0))}}
	d = Decide(v, at(3600))
	c.Equal(d.Replicas, 0, "nothing at night")
	v.Was, v.Instances = d.Status, nil
	c.Equal(Decide(v, at(7200)).Replicas, 1, "what the bounds have taken away they bring back")
	v.Declared, v.Spec.Min = 0, ptr(int32(0))
	v.Spec.Targets = []workload.ScaleTarget{{Name: "queue", Prometheus: &workload.PrometheusTarget{PerInstance: "1"}}}
	v.Answers = map[string]Answer{"queue": {At: at(3000), Value: 3}}
	v.Was = Status{}
	v.Was = Decide(v, at(3000)).Status
	c.Equal(v.Was.Replicas, 3, "begun at 0, and grown")
	v.Was = Decide(v, at(3600)).Status
	v.Spec.Min = ptr(int32(2))
	c.Equal([]int{v.Was.Replicas, Decide(v, at(7200)).Replicas}, []int{0, 2}, "0 at night is not off")

	v = View{Declared: 0, Workload: "web", Zone: time.LoadLocation, Spec: &workload.Scale{Min: ptr(int32(0)), Max: 4, Scheduled: []workload.ScheduledBounds{
		{Name: "rush", Window: declare.Window{Opens: "01:00", Duration: "1h"}, Min: ptr(int32(2))}}}}
	v.Was = Decide(v, at(3000)).Status
	c.Equal([]int{v.Was.Replicas, Decide(v, at(3600)).Replicas}, []int{0, 2}, "0 within the bounds is not off when a window asks for more")
}

// noFlip: a number that has just grown does not shrink, however the load turns.
func noFlip(c *casetest.Case) {
	v := settled(10, 50, start)
	v.Spec.Up.Stabilization = "1m"
	var grown, shrunk time.Time
	last := 10
	for i := range 8 * 60 {
		now := at(float64(i) * 15)
		percent := int64(90)
		if i/12%2 == 1 { // three minutes each
			percent = 20
		}
		v.Instances = instances(v.Was.Replicas, percent*10/int64(v.Was.Replicas), now)
		d := Decide(v, now)
		switch {
		case d.Replicas > last:
			c.Check(now.Sub(shrunk) >= time.Minute, "%v: it grows %v after it has shrunk", now, now.Sub(shrunk))
			grown = now
		case d.Replicas < last:
			c.Check(now.Sub(grown) >= 5*time.Minute, "%v: it shrinks %v after it has grown", now, now.Sub(grown))
			shrunk = now
		}
		last, v.Was = d.Replicas, d.Status
	}
	c.Check(!grown.IsZero() && last == 18, "it ends at %d", last)

	v = settled(10, 30, start)
	d := after(v, start, 285*time.Second)
	v.Was, v.Instances = d.Status, instances(10, 80, at(300))
	d = Decide(v, at(300))
	c.Equal(d.Replicas, 16, "a peak after almost five quiet minutes")
	v.Was, v.Instances = d.Status, instances(16, 19, at(315))
	c.Equal(after(v, at(315), 285*time.Second).Replicas, 16, "it is quiet again: that begins anew")
	c.Equal(after(v, at(315), 300*time.Second).Replicas, 7, "and counts after five minutes")
}

// daylightSaving: bounds from 02:30 to 04:30 on the clock of a place where there is no 02:30, or two.
func daylightSaving(t *testing.T, c *casetest.Case) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("needs the zone database: %v", err)
	}
	const layout = "2006-01-02 15:04 MST"
	for _, row := range []struct {
		from, until string   // the hours that are looked at, minute by minute
		changes     []string // when the number becomes 8, and 2
	}{
		{"2026-03-27 22:00 CET", "2026-03-28 12:00 CET", []string{"2026-03-28 02:30 CET", "2026-03-28 04:30 CET"}},
		{"2026-03-28 22:00 CET", "2026-03-29 12:00 CEST", nil},                                                       // no 02:30: systemd.time leaves it out
		{"2026-10-24 22:00 CEST", "2026-10-25 12:00 CET", []string{"2026-10-25 02:30 CEST", "2026-10-25 03:30 CET"}}, // the first 02:30, for two hours
	} {
		from, _ := time.ParseInLocation(layout, row.from, berlin)
		until, _ := time.ParseInLocation(layout, row.until, berlin)
		v := View{Declared: 2, Workload: "web", Zone: time.LoadLocation, Spec: &workload.Scale{Min: ptr(int32(2)), Max: 2, Scheduled: []workload.ScheduledBounds{
			{Name: "backup", Window: declare.Window{Opens: "02:30 Europe/Berlin", Duration: "2h"}, Min: ptr(int32(8)), Max: ptr(int32(8))}}}}
		v.Was = Status{Decided: from, Replicas: 2, Declared: 2}
		var changes []string
		wake := time.Time{}
		for now := from; now.Before(until); now = now.Add(time.Minute) {
			d := Decide(v, now)
			if d.Replicas != v.Was.Replicas {
				changes = append(changes, now.In(berlin).Format(layout))
				c.Check(wake.Equal(now), "it woke for %v, and changed at %v", wake, now)
			}
			if wake = d.WakeAt; wake.IsZero() {
				c.Check(false, "%v: it never wakes", now)
			}
			v.Was = d.Status
		}
		c.Equal(changes, row.changes, row.from)
	}
	v := settled(4, 50, start)
	v.Spec.Scheduled = []workload.ScheduledBounds{{Name: "far", Window: declare.Window{Opens: "daily Nowhere/Here", Duration: "24h"}, Max: ptr(int32(1))}}
	d := Decide(v, start)
	c.Check(d.Replicas == 4 && strings.Contains(d.Why, "scheduled far is left out"), "an unknown zone: %d, %s", d.Replicas, d.Why)
}

// doubleRun: two leaders that decide on the same, and one that decides on what the other has stored, come to the same number.
func doubleRun(c *casetest.Case) {
	for _, percent := range []int64{10, 50, 100, 900} {
		v := settled(10, percent, start)
		v.Spec.Up = workload.ScaleBound{MaxChange: "4", Period: "1m"}
		v.Was.Down = Phase{Since: start.Add(-time.Hour), Asked: []Asked{{start.Add(-Period), 3}}}
		first, second := Decide(v, start), Decide(v, start)
		c.Check(reflect.DeepEqual(first, second), "%d%%: %+v and %+v", percent, first, second)
		v.Was = first.Status
		again := Decide(v, start)
		c.Check(again.Replicas == first.Replicas && reflect.DeepEqual(again.Status, first.Status), "%d%%: again\n%+v\nafter\n%+v", percent, again, first)
		soon := Decide(v, at(1))
		c.Check(soon.Replicas == first.Replicas, "%d%%: a second later %d, not %d", percent, soon.Replicas, first.Replicas)
	}
	// A leader whose clock is an hour ahead has grown it; the next one's limits and phases do not wait for that hour.
	v := settled(10, 100, at(3600))
	v.Was = Decide(v, at(3600)).Status
	v.Instances = instances(20, 25, start)
	d := after(v, start, 6*time.Minute)
	c.Check(d.Replicas == 10, "after the clock went back: %d, %s", d.Replicas, d.Why)
}
