package core

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/transfer/wire"
)

var failed = &reason.Error{Code: reason.TaskNotStarted, Doing: "start it", Cause: errors.New("no space left")}

func TestWorkloadCase23_InPlaceOnItsNode(t *testing.T) {
	c := casetest.Start(t)
	h := newHost(t)
	one := wanted("u1", 0)
	one.Template.Tasks[0].Readiness = &workload.Probe{Period: "1s"}
	h.want(one)
	c.Check(!h.one("u1").Ready, "it is ready, and nobody has asked it")
	two := wanted("u1", 0)
	two.Revision = "web-2" // without the probe, and with a longer grace
	two.Template.TerminationGrace = "20s"
	h.want(two)
	c.Check(h.one("u1").Ready, "its probe is gone, and it is not ready")
	c.Equal(h.one("u1").Revision, "2", "the revision that it tells of")
	c.Equal(len(h.starts), 1, "starts")
	three := wanted("u1", 0)
	three.Revision, three.Template.Tasks[0].Command = "web-3", []string{"/bin/other"}
	h.want(three)
	c.Equal(len(h.starts), 1, "starts after a revision that would need a restart")
	c.Equal(h.one("u1").Code, reason.InstanceRefused, "what is told of that")
	c.Equal(h.one("u1").Revision, "2", "the revision that it tells of, where it did not take the newer one in")
	c.Check(h.one("u1").Ready, "it is not ready any more")
}

// TestProbeThatComesLater: what was ready stays so until its probe has said no, also over a restart of the agent, and nothing is started for it.
func TestProbeThatComesLater(t *testing.T) {
	h := newHost(t)
	h.want(wanted("u1", 0))
	is(t, h.one("u1").Ready, true, "ready without a probe")
	probed := wanted("u1", 0)
	probed.Revision = "web-2"
	probed.Template.Tasks[0].Readiness = &workload.Probe{Period: "10s", FailureThreshold: new(int32(2))}
	unread := probed
	unread.Template, unread.Unread = nil, failed
	h.machine.News()
	h.want(unread)
	is(t, h.one("u1").Revision, "1", "revision before its template can be read")
	h.machine.News()
	h.want(probed)
	is(t, h.one("u1").Revision, "2", "revision that is told")
	is(t, h.machine.News(), true, "a revision that was taken in is news")
	is(t, h.one("u1").Ready, true, "ready before anybody has asked")
	h.agent()
	h.want(probed)
	is(t, h.one("u1").Ready, true, "ready after a restart of the agent")
	is(t, h.one("u1").Revision, "2", "revision that is told after a restart of the agent")
	r, err := DecodeRecord("u1", h.disk["u1"])
	is(t, err, nil, "record")
	is(t, r.Instance.Revision, "web-2", "revision in the record")
	id := run.ID{Instance: "u1", Task: "main", Attempt: 1}
	for k, want := range []bool{true, false} {
		h.step(Answered{ID: id, Probe: life.Readiness, Number: uint32(k + 1), Words: "503"})
		is(t, h.one("u1").Ready, want, "ready after it has said no")
		h.pass(10 * time.Second)
	}
	is(t, h.one("u1").Code, reason.ProbeFailed, "code")
	is(t, len(h.starts), 1, "starts")
}

func is[T comparable](t *testing.T, got, want T, what string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestWhatIsNotKnownIsLeftAlone(t *testing.T) {
	h := newHost(t)
	h.want(wanted("u1", 0))
	// The agent begins again, and its state is lost: nobody says what is wanted.
	h.machine = New()
	h.step(simNode)
	r, err := DecodeRecord("u1", h.disk["u1"])
	if err != nil {
		t.Fatal(err)
	}
	h.step(Restored{[]Record{r}})
	h.list()
	h.pass(time.Hour)
	is(t, h.running("u1"), 1, "processes")
	is(t, h.one("u1").Phase, wire.InstanceRunning, "phase")
	id := run.ID{Instance: "u1", Task: "main", Attempt: 1}
	h.step(h.over(id, run.Ending{Cause: run.Exited, At: h.now.At}))
	h.pass(time.Hour)
	is(t, len(h.starts), 1, "starts without a template")
	h.step(h.wants)
	h.pass(time.Minute)
	is(t, len(h.starts), 2, "starts when the template is known again")
}

func TestWhatIsToldSaysWhenItGoesOn(t *testing.T) {
	h := newHost(t)
	h.want(wanted("u1", 0))
	id := run.ID{Instance: "u1", Task: "main", Attempt: 1}
	h.step(h.over(id, run.Ending{Cause: run.OutOfMemory, At: h.now.At, Words: "its limit of 64 bytes of memory was reached"}))
	is(t, h.one("u1").Message, "task main: attempt 1 ran out of memory: its limit of 64 bytes of memory was reached; restart 1 comes 1s after that", "what is told of an end")
	i := h.machine.instances["u1"]
	i.tasks[0].state.Phase, i.tasks[0].state.Attempt = life.Starting, 2
	h.step(Awaited{ID: run.ID{Instance: "u1", Task: "main", Attempt: 2}, Number: i.tasks[0].starts, Err: &reason.Error{Code: reason.ObjectComing, Doing: "fetch it"}})
	is(t, h.one("u1").Code, reason.ObjectComing, "code of what a start waits for")
	is(t, h.one("u1").Phase, wire.InstanceStarting, "phase")
	h.step(NotStarted{ID: run.ID{Instance: "u1", Task: "main", Attempt: 2}, Number: i.tasks[0].starts, Err: failed})
	is(t, strings.HasSuffix(h.one("u1").Message, "no space left; restart 2 comes 2s after that"), true, "what is told of what was not started: "+h.one("u1").Message)
	h.pass(2 * time.Second)
	h.step(NotStarted{ID: run.ID{Instance: "u1", Task: "main", Attempt: i.tasks[0].state.Attempt}, Number: i.tasks[0].starts, Err: &reason.Error{Code: reason.VolumeGone, Doing: "mount it"}})
	is(t, h.one("u1").Code, reason.VolumeGone, "code of what has lost a volume")
	is(t, h.one("u1").OfNode, true, "whether that is its node's fault")
	is(t, strings.HasSuffix(h.one("u1").Message, "restart 3 comes 4s after that"), true, "when it is tried again: "+h.one("u1").Message)
	h.pass(4 * time.Second)
	h.step(NotStarted{ID: run.ID{Instance: "u1", Task: "main", Attempt: i.tasks[0].state.Attempt}, Number: i.tasks[0].starts, Err: &reason.Error{Code: reason.NetworkFailed, Doing: "make a network"}})
	is(t, h.one("u1").Code, reason.NetworkFailed, "code of what got no network")
	is(t, h.one("u1").OfNode, true, "whether that is its node's fault")
}

func TestOneTaskThatFailsEndsAJob(t *testing.T) {
	h := newHost(t)
	job := wanted("u1", 0)
	job.Job = true
	job.Template.Tasks = append(job.Template.Tasks, workload.Task{Name: "side", Command: []string{"/bin/side"}})
	h.want(job)
	is(t, h.running("u1"), 2, "processes")
	h.step(h.over(run.ID{Instance: "u1", Task: "main", Attempt: 1}, run.Ending{Cause: run.Exited, Code: 3, At: h.now.At}))
	n := h.one("u1")
	is(t, n.Phase, wire.InstanceFailed, "phase")
	is(t, n.Code, reason.TaskEnded, "code")
	is(t, h.running("u1"), 0, "processes")
	is(t, h.machine.ledger.Left().Amounts, simNode.Fit.Capacity.Placed(), "what is left of the host")
}

func TestRecordComesBack(t *testing.T) {
	s := life.State{Boot: "b", Phase: life.Running, Attempt: 3, StartUp: true, Ready: true}
	state, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r := Record{Instance: wanted("u1", 60).Instance, Attempt: 4, Failure: &Failure{reason.TaskEnded, "words", true}, Held: &Holding{Devices: map[string][]string{"gpu": {"g0"}}},
		Bound: true, Ports: map[string]int32{"http": 20001}, Runtime: workload.Process, Tasks: []TaskRecord{{"main", state, 15, int64(time.Second), int64(time.Minute)}}}
	data, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := DecodeRecord("u1", data); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := DecodeRecord("u2", data); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("the record of another instance: %v", err)
	}
	r.Schema = recordSchema + 1
	newer, err := encoding.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeRecord("u1", newer); !reason.Is(err, reason.StateNewer) {
		t.Errorf("the record of a later version: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	r := Record{Instance: wanted("u1", 60).Instance, Held: &Holding{}, Tasks: []TaskRecord{{Name: "main", Signal: 15}}}
	data, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{0xa0})
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord("u1", data)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeRecord("u1", again); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%+v, %v; want %+v", back, err, r)
		}
		// Whatever a record says, a machine takes it up and can end it.
		m := New()
		now := Now{Boot: "b", At: 1, Wall: time.Unix(1, 0)}
		m.Step(now, simNode)
		m.Step(now, Restored{[]Record{r}})
		m.Step(now, Found{Runtime: workload.Process})
		m.Step(now, Desired{})
		m.Step(now, nil)
	})
}

// What is to end, or has failed, is not begun once more when its host has been restarted, or its agent in the moment of a start.
func TestEndingOverABoot(t *testing.T) {
	for name, restart := range map[string]func(*host){
		"the host": func(h *host) {
			h.now.Boot, h.now.At = "another", run.Moment(time.Minute)
			clear(h.procs)
		},
		"the agent": func(h *host) {},
	} {
		h := newHost(t)
		h.deaf = true
		h.want(wanted("u1", 0))
		stop := wanted("u1", 0)
		stop.Stop = true
		h.want(stop)
		restart(h)
		h.agent()
		h.pass(time.Minute)
		if len(h.starts) != 1 || h.running("u1") != 0 || h.one("u1").Phase != wire.InstanceDone {
			t.Errorf("%s was restarted while it was to end: starts %v, %+v", name, h.starts, h.one("u1"))
		}
	}
}

// What is to end, and has neither a record nor a template that can be read, is over when it is known what the runtimes have of it, and that has ended.
func TestEndOfWhatIsNotKnown(t *testing.T) {
	h := newHost(t)
	h.want(wanted("u1", 0))
	stop := wanted("u1", 0)
	stop.Stop, stop.Template = true, nil
	h.wants = Desired{[]Wanted{stop}}
	h.machine = New()
	h.step(simNode)
	h.step(h.wants)
	if one := h.one("u1"); h.running("u1") != 1 || one.Phase >= wire.InstanceFailed {
		t.Errorf("%d run, and %+v is told", h.running("u1"), one)
	}
	h.list()
	h.pass(time.Minute)
	if one := h.one("u1"); h.running("u1") != 0 || one.Phase != wire.InstanceDone {
		t.Errorf("%d run, and %+v is told", h.running("u1"), one)
	}
}

// What has a lease is over when its host has been restarted: in the meantime another copy may have been begun.
func TestLeaseOverABoot(t *testing.T) {
	h := newHost(t)
	h.heard()
	h.want(wanted("u1", 60))
	h.now.Boot, h.now.At = "another", run.Moment(time.Minute)
	clear(h.procs)
	h.agent()
	h.heard()
	h.step(h.wants)
	h.pass(time.Minute)
	if one := h.one("u1"); len(h.starts) != 1 || one.Phase != wire.InstanceFailed || one.Code != reason.LeaseOver || !one.OfNode {
		t.Errorf("starts %v, %+v", h.starts, one)
	}
}

// What an agent finds on its disk and has no record of may have been replaced since it was sent, whatever a server says before it sends what is newer.
func TestLeaseOfAnOldState(t *testing.T) {
	h := newHost(t)
	h.wants = Desired{[]Wanted{wanted("u1", 60), wanted("u2", 0)}}
	h.machine = New()
	h.step(simNode)
	h.list()
	h.heard()
	h.step(h.wants)
	h.heard()
	h.pass(time.Minute)
	if h.running("u1") != 0 || h.one("u1").Code != reason.LeaseOver || h.running("u2") != 1 {
		t.Errorf("%+v", h.machine.Told())
	}
}

// An instance that comes before it is known that the last report was heard begins when that is known; when only later reports are known to have been
// heard, or none, it never does.
func TestLeaseThatWaits(t *testing.T) {
	come := func() (*host, run.Moment) {
		h := newHost(t)
		h.pass(time.Minute)
		before := h.now.At
		h.pass(time.Second)
		h.want(wanted("u1", 60))
		h.pass(5 * time.Second)
		if one := h.one("u1"); len(h.starts) != 0 || one.Phase == wire.InstanceFailed || !h.machine.Hungry() {
			t.Errorf("starts %v, %+v, before anything is known of a report", h.starts, one)
		}
		return h, before
	}
	h, before := come()
	h.now.Heard = before
	h.step(nil)
	if h.running("u1") != 1 {
		t.Errorf("%+v, when the report of before was heard", h.one("u1"))
	}
	h.pass(53 * time.Second)
	if h.running("u1") != 1 {
		t.Errorf("%+v, 59 s after that report", h.one("u1"))
	}
	h.pass(2 * time.Second)
	if h.running("u1") != 0 {
		t.Errorf("%+v, 61 s after that report", h.one("u1"))
	}

	for _, after := range []time.Duration{20 * time.Second, 40 * time.Second} {
		h = newHost(t)
		h.heard()
		h.pass(65 * time.Second) // longer than its lease, and 25 s before a fence may be over
		h.want(wanted("u1", 60))
		h.pass(after)
		h.heard()
		h.pass(time.Second)
		if runs := h.running("u1") == 1; runs != (after < 25*time.Second) {
			t.Errorf("%v that it runs, when a report was heard that was made %s after it came", runs, after)
		}
	}

	h, _ = come()
	h.heard()
	h.pass(time.Second)
	if one := h.one("u1"); len(h.starts) != 0 || one.Phase != wire.InstanceFailed || one.Code != reason.LeaseOver {
		t.Errorf("starts %v, %+v, when only a report of afterwards was heard", h.starts, one)
	}

	h, _ = come()
	h.pass(time.Minute)
	if one := h.one("u1"); len(h.starts) != 0 || one.Phase != wire.InstanceFailed || one.Code != reason.LeaseOver {
		t.Errorf("starts %v, %+v, when nothing was heard", h.starts, one)
	}
}

// A copy does not begin with the rest of a lease that may be over before it is known that the next report was heard: it begins with that one.
func TestLeaseThatIsAlmostOver(t *testing.T) {
	h := newHost(t)
	h.heard()
	h.pass(55 * time.Second)
	h.want(wanted("u1", 60))
	h.pass(time.Second)
	if one := h.one("u1"); len(h.starts) != 0 || one.Phase == wire.InstanceFailed || !h.machine.Hungry() {
		t.Errorf("starts %v, %+v, with four seconds left", h.starts, one)
	}
	h.heard()
	h.pass(50 * time.Second)
	if h.running("u1") != 1 {
		t.Errorf("%+v, when the next report was heard", h.one("u1"))
	}
}

// A lease that is declared later begins with the word of a server that was heard last, and one that is renewed while a task waits for its next start
// is renewed.
func TestLeaseDeclaredLater(t *testing.T) {
	h := newHost(t)
	h.want(wanted("u1", 0))
	h.heard()
	h.want(wanted("u1", 60))
	if h.running("u1") != 1 {
		t.Errorf("%+v", h.one("u1"))
	}
	for range 10 {
		for id := range h.procs {
			if h.procs[id].Phase == run.Running {
				h.step(h.over(id, run.Ending{Cause: run.Exited, Code: 1, At: h.now.At}))
			}
		}
		for range 10 {
			h.pass(40 * time.Second)
			h.heard()
		}
	}
	if h.running("u1") != 1 || len(h.starts) != 11 {
		t.Errorf("starts %v, %+v", h.starts, h.one("u1"))
	}
}

// TestWhatIsRefusedHasNotBegun: servers take an instance with an attempt for one that has left data on its host.
func TestWhatIsRefusedHasNotBegun(t *testing.T) {
	h := newHost(t)
	large, unfit := wanted("u1", 0), wanted("u2", 0)
	large.Template.Tasks[0].Resources.Requests.CPU = "100"
	unfit.Template.Runtime = "Other"
	h.want(large, unfit, wanted("u3", 0))
	for uid, code := range map[string]reason.Code{"u1": reason.InstanceRefused, "u2": reason.RuntimeUnfit} {
		is(t, h.one(uid).Code, code, "why "+uid+" is over")
		is(t, h.one(uid).Phase, wire.InstanceFailed, "phase of "+uid)
		is(t, h.one(uid).Attempt, 0, "attempts of "+uid)
	}
	is(t, h.one("u3").Attempt, 1, "attempts of what was taken")
}

// TestOneOfASlotAtATime: what has the data of one that has not ended begins when that has, also where the agent was restarted meanwhile.
func TestOneOfASlotAtATime(t *testing.T) {
	withData := func(uid string, slot int) Wanted {
		w := wanted(uid, 0)
		w.Slot = slot
		w.Template.Volumes = []workload.Volume{{Name: "data", Data: &workload.DataVolume{}}}
		return w
	}
	end := run.ID{Instance: "u2", Task: "main", Attempt: 1}
	for name, list := range map[string]func(old Wanted) []Wanted{
		"it is to end":              func(old Wanted) []Wanted { old.Stop = true; return []Wanted{withData("u1", 0), old, withData("u3", 1)} },
		"it is not wanted any more": func(Wanted) []Wanted { return []Wanted{withData("u1", 0), withData("u3", 1)} },
	} {
		h := newHost(t)
		h.want(withData("u2", 0))
		is(t, h.running("u2"), 1, name+": processes of the one before")
		h.deaf = true // it takes its time to end
		h.want(list(withData("u2", 0))...)
		is(t, h.running("u3"), 1, name+": processes of another slot")
		is(t, h.running("u1"), 0, name+": processes of the next while the one before ends")
		is(t, h.one("u1").Phase, wire.InstancePlaced, name+": phase of the next")
		h.agent()
		is(t, h.running("u1"), 0, name+": processes of the next after a restart of the agent")
		h.step(h.over(end, run.Ending{Cause: run.Exited, At: h.now.At}))
		is(t, h.running("u1"), 1, name+": processes of the next when the one before has ended")
		is(t, h.running("u2"), 0, name+": processes of the one before then")
		h.agent()
		is(t, h.running("u1"), 1, name+": processes of the next after another restart")
	}
}
