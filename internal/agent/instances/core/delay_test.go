package core

import (
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/transfer/wire"
)

// delayed is an instance of two tasks that goes on for 5 seconds after it was withdrawn, and how it is when it is to end.
func delayed(lease int) (runs, ends Wanted) {
	runs = wanted("u1", lease)
	runs.Template.ShutdownDelay = "5s"
	runs.Template.Tasks = append(runs.Template.Tasks, workload.Task{Name: "side", Command: []string{"/bin/side"}})
	ends = runs
	ends.Stop = true
	return runs, ends
}

var mainTask, sideTask = run.ID{Instance: "u1", Task: "main", Attempt: 1}, run.ID{Instance: "u1", Task: "side", Attempt: 1}

// TestShutdownDelay: what was ready is withdrawn at once, and asked to end when its delay is over, whatever becomes of its agent meanwhile; its grace
// begins then.
func TestShutdownDelay(t *testing.T) {
	for name, restart := range map[string]func(*host){
		"nothing":   func(*host) {},
		"its agent": func(h *host) { h.agent() },
		"its agent, which has no template": func(h *host) {
			h.wants.Instances[0].Template, h.wants.Instances[0].Unread = nil, failed
			h.agent()
		},
		"its agent, and it is not wanted": func(h *host) {
			h.wants = Desired{}
			h.agent()
		},
	} {
		h := newHost(t)
		h.deaf = true
		runs, ends := delayed(0)
		h.want(runs)
		is(t, h.one("u1").Ready, true, "ready")
		h.want(ends)
		begin := h.now.At
		is(t, h.one("u1").Phase, wire.InstanceTerminating, "phase")
		is(t, h.one("u1").Ready, false, "ready when it is to end")
		h.pass(2 * time.Second)
		restart(h)
		h.pass(2900 * time.Millisecond)
		is(t, len(h.asked), 0, name+" is restarted: signals before the delay is over")
		h.pass(time.Minute)
		for _, id := range []run.ID{mainTask, sideTask} {
			is(t, h.asked[id].Sub(begin), 5*time.Second, name+" is restarted: the signal of "+id.Task)
			is(t, h.killed[id].Sub(begin), 15*time.Second, name+" is restarted: the kill of "+id.Task)
		}
		is(t, len(h.starts), 2, "starts")
	}
}

// TestShutdownDelayBeforeARestartIsKnown: an agent that begins again learns that an instance is to end before it knows what its runtime has.
func TestShutdownDelayBeforeARestartIsKnown(t *testing.T) {
	h := newHost(t)
	runs, ends := delayed(0)
	h.want(runs)
	r, err := DecodeRecord("u1", h.disk["u1"])
	is(t, err, nil, "record")
	h.machine = New()
	h.step(simNode)
	h.step(Restored{[]Record{r}})
	h.want(ends)
	begin := h.now.At
	h.pass(time.Second)
	h.list()
	h.pass(time.Minute)
	is(t, h.asked[mainTask].Sub(begin), 5*time.Second, "the signal")
	is(t, h.one("u1").Phase, wire.InstanceDone, "phase")
}

// TestShutdownDelayIsSkipped: nobody waits for what nobody uses.
func TestShutdownDelayIsSkipped(t *testing.T) {
	h := newHost(t)
	runs, ends := delayed(0)
	for _, w := range []*Wanted{&runs, &ends} {
		w.Template.Tasks[1].Readiness = &workload.Probe{Period: "1s"} // which never says yes
	}
	h.want(runs)
	h.pass(time.Minute)
	h.want(ends)
	is(t, h.asked[mainTask], h.now.At, "the signal to what was never ready")
	is(t, h.one("u1").Phase, wire.InstanceDone, "phase")

	h = newHost(t)
	runs, ends = delayed(0)
	h.want(runs)
	h.want(ends)
	begin := h.now.At
	h.pass(time.Second)
	h.step(h.over(mainTask, run.Ending{Cause: run.Exited, Code: 3, At: h.now.At}))
	h.pass(2 * time.Second)
	is(t, h.running("u1"), 1, "processes when one has ended by itself")
	h.step(h.over(sideTask, run.Ending{Cause: run.Exited, At: h.now.At}))
	is(t, h.one("u1").Phase, wire.InstanceDone, "phase when both have")
	is(t, h.now.At.Sub(begin), 3*time.Second, "when it is over")
	is(t, len(h.starts), 2, "starts")

	h = newHost(t)
	runs, ends = delayed(0)
	h.want(runs)
	h.want(ends)
	h.now.Boot, h.now.At = "another", run.Moment(time.Minute)
	clear(h.procs)
	h.agent()
	is(t, h.one("u1").Phase, wire.InstanceDone, "phase after the host was restarted")
	is(t, len(h.starts), 2, "starts after the host was restarted")
}

// TestShutdownDelayEndsWithTheLease: another copy may be begun when the lease is over, however long it would have gone on.
func TestShutdownDelayEndsWithTheLease(t *testing.T) {
	h := newHost(t)
	h.deaf = true
	h.heard()
	runs, ends := delayed(60)
	h.want(runs)
	h.pass(58 * time.Second)
	h.want(ends)
	begin := h.now.At
	h.pass(time.Minute)
	is(t, h.asked[mainTask].Sub(begin), 2*time.Second, "the signal")
	is(t, h.killed[mainTask].Sub(begin), 12*time.Second, "the kill")
	is(t, h.one("u1").Phase, wire.InstanceDone, "phase")
}
