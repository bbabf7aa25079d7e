package systemd

import (
	"slices"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"pgregory.net/rapid"
)

func TestPendingCoalesces(t *testing.T) {
	p := newPending()
	p.addUnits(nil)
	select {
	case <-p.wake:
		t.Error("woken for nothing")
	default:
	}
	for range 100 {
		p.addUnits([]string{"b.service", "a.service"})
		p.addFiles()
	}
	<-p.wake
	events, renew := p.take()
	want := []Event{{Kind: FilesChanged}, {UnitChanged, "a.service"}, {UnitChanged, "b.service"}}
	if renew || !slices.Equal(events, want) {
		t.Errorf("got %v, %v", events, renew)
	}
	p.addUnits([]string{"a.service"})
	p.addRenew()
	if events, renew := p.take(); !renew || len(events) != 0 {
		t.Errorf("a renewal stands for everything; got %v, %v", events, renew)
	}
	if events, renew := p.take(); renew || len(events) != 0 {
		t.Errorf("not forgotten: %v, %v", events, renew)
	}
}

func TestRetryDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failures := rapid.IntRange(1, 1000).Draw(t, "failures")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		ceiling := retryDelayMax
		if failures < 7 {
			ceiling = retryDelayMin << (failures - 1)
		}
		if d := retryDelay(failures, random); d < 0 || d >= ceiling || d != time.Duration(random*float64(ceiling)) {
			t.Fatalf("after %d failures: %v, ceiling %v", failures, d, ceiling)
		}
	})
}

func TestStartedAfter(t *testing.T) {
	stamp := Stamp{Boot: "this", USec: 1000}
	tests := []struct {
		name string
		give UnitState
		want bool
	}{
		{"started later", UnitState{Boot: "this", ActiveState: "active", InactiveExit: 1001, ActiveEnter: 1002}, true},
		{"reloads now", UnitState{Boot: "this", ActiveState: "reloading", InactiveExit: 1001}, true},
		{"started at the same moment", UnitState{Boot: "this", ActiveState: "active", InactiveExit: 1000}, false},
		{"began before, was ready later", UnitState{Boot: "this", ActiveState: "active", InactiveExit: 999, ActiveEnter: 2000}, false},
		{"still on its way", UnitState{Boot: "this", ActiveState: "activating", InactiveExit: 1001}, false},
		{"failed later", UnitState{Boot: "this", ActiveState: "failed", InactiveExit: 1001}, false},
		{"down", UnitState{Boot: "this", ActiveState: "inactive", InactiveExit: 1001}, false},
		{"another boot", UnitState{Boot: "next", ActiveState: "active", InactiveExit: 5}, true},
		{"another boot, down", UnitState{Boot: "next", ActiveState: "inactive"}, false},
		{"never started", UnitState{Boot: "next", ActiveState: "active"}, false},
	}
	for _, tt := range tests {
		if got := StartedAfter(tt.give, stamp); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	a, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	if b := MonotonicNow(); len(a.Boot) != 36 || a.USec == 0 || b < a.USec {
		t.Errorf("now is %+v, then %d", a, b)
	}
}

func TestJobs(t *testing.T) {
	const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	expect := func(what string, ch chan string, want ...string) {
		t.Helper()
		var got []string
		for len(ch) > 0 {
			got = append(got, <-ch)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	j := newJobs()
	j.ended(job, "done")
	if j.any() || len(j.early) != 0 {
		t.Error("keeps the end of a job that nobody is about to wait for")
	}

	j.begin()
	j.ended(job, "failed")
	ch := j.queued(job)
	expect("ended before its path was known", ch, "failed")
	j.end(job, ch)

	j.begin()
	j.begin()
	one, two := j.queued(job), j.queued(job)
	j.recheck()
	j.recheck()
	j.ended(job, "done")
	j.ended(job, "failed")
	expect("first of a shared job", one, recheckJob, "done")
	expect("second of a shared job", two, recheckJob, "done")
	j.end(job, one)
	j.end(job, two)

	j.begin()
	late := j.queued(job)
	j.recheck()
	<-late // systemd is asked, and a second reload ends, and the job too
	j.recheck()
	j.ended(job, "done")
	if got := lastWord(late); got != "done" {
		t.Errorf("ended while systemd was asked: %q", got)
	}
	if got := lastWord(late); got != jobLost {
		t.Errorf("ended unheard: %q", got)
	}
	j.end(job, late)

	j.begin()
	gaveUp := j.queued(job)
	j.begin()
	waits := j.queued(job)
	j.end(job, gaveUp)
	j.ended(job, "canceled")
	expect("gave up", gaveUp)
	expect("still waits", waits, "canceled")
	j.end(job, waits)

	j.begin()
	none := j.queued("")
	j.end("", none)
	if j.any() || len(j.early)+len(j.waiting) != 0 || j.queuing != 0 {
		t.Errorf("something is left: %+v", j.waiting)
	}
}
