package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/transfer/wire"
)

// host is one whose runtime does at once what it is told.
type host struct {
	t       testing.TB
	now     Now
	machine *Machine
	disk    map[string][]byte
	procs   map[run.ID]run.Status
	starts  []run.ID
	killed  map[run.ID]run.Moment
	asked   map[run.ID]run.Moment // when they got their stop signal first
	deaf    bool
	wants   Desired
}

func newHost(t testing.TB) *host {
	h := &host{t: t, disk: map[string][]byte{}, procs: map[run.ID]run.Status{}, killed: map[run.ID]run.Moment{}, asked: map[run.ID]run.Moment{}}
	h.now = Now{Boot: "b", At: run.Moment(time.Hour), Wall: time.Unix(1_700_000_000, 0)}
	h.agent()
	return h
}

// agent begins an agent, with what is on the disk.
func (h *host) agent() {
	h.machine = New()
	h.now.Heard = 0
	h.step(simNode)
	var records []Record
	for uid, data := range h.disk {
		r, err := DecodeRecord(uid, data)
		if err != nil {
			h.t.Fatal(err)
		}
		records = append(records, r)
	}
	h.step(Restored{records})
	h.list()
	h.step(h.wants)
}

func (h *host) list() {
	f := Found{Runtime: workload.Process}
	for _, s := range h.procs {
		f.Attempts = append(f.Attempts, s)
	}
	h.step(f)
}

func (h *host) step(e Event) {
	for queue := []Event{e}; len(queue) > 0; queue = queue[1:] {
		for _, f := range h.machine.Step(h.now, queue[0]) {
			switch f := f.(type) {
			case Save:
				h.disk[f.UID] = f.Data
			case Drop:
				delete(h.disk, f.UID)
				for _, id := range f.Attempts {
					delete(h.procs, id)
				}
			case Bind:
				b := Bound{UID: f.UID, Ports: map[string]int32{}}
				for k, p := range f.Ports {
					b.Ports[p.Name] = int32(20000 + k)
				}
				queue = append(queue, b)
			case Start:
				h.starts = append(h.starts, f.ID)
				s := run.Status{ID: f.ID, Phase: run.Running, Boot: h.now.Boot, PID: 1, Started: h.now.At}
				h.procs[f.ID] = s
				queue = append(queue, Changed{f.Runtime, s})
			case Signal:
				if _, again := h.asked[f.ID]; !again {
					h.asked[f.ID] = h.now.At
				}
				if !h.deaf {
					queue = append(queue, h.over(f.ID, run.Ending{Cause: run.Exited, At: h.now.At}))
				}
			case Kill:
				h.killed[f.ID] = h.now.At
				queue = append(queue, h.over(f.ID, run.Ending{Cause: run.Signaled, Signal: 9, At: h.now.At}))
			case Remove:
				delete(h.procs, f.ID)
			}
		}
	}
}

func (h *host) over(id run.ID, e run.Ending) Event {
	s := h.procs[id]
	s.ID, s.Phase, s.Boot, s.Ending = id, run.Ended, h.now.Boot, e
	h.procs[id] = s
	return Changed{workload.Process, s}
}

// pass lets time go by; the agent is stepped when it wants to be, and no oftener.
func (h *host) pass(d time.Duration) {
	for until := h.now.At.Add(d); h.now.At < until; {
		next := until
		if at, ok := h.machine.WakeAt(); ok && at < next {
			next = max(at, h.now.At)
		}
		h.now.Wall = h.now.Wall.Add(next.Sub(h.now.At))
		h.now.At = next
		h.step(nil)
	}
}

func (h *host) heard() {
	h.now.Heard = h.now.At
	if h.machine.Hungry() {
		h.step(nil)
	}
}

func (h *host) want(list ...Wanted) {
	h.wants = Desired{list}
	h.step(h.wants)
}

func (h *host) one(uid string) wire.Instance {
	for _, n := range h.machine.Told() {
		if n.UID == uid {
			return n
		}
	}
	return wire.Instance{}
}

// running counts the processes of an instance.
func (h *host) running(uid string) (n int) {
	for id, s := range h.procs {
		if id.Instance == uid && s.Phase == run.Running {
			n++
		}
	}
	return n
}

func wanted(uid string, lease int) Wanted {
	return Wanted{Instance: catalog.Instance{UID: uid, Namespace: "ns", Name: "web-0", Workload: "web", Revision: "web-1", Lease: lease},
		Template: &workload.Template{Runtime: workload.Process, TerminationGrace: "10s", Tasks: []workload.Task{{Name: "main", Command: []string{"/bin/web"}}}}}
}

func TestWorkloadCase50_FencedByTheHostsOwnClock(t *testing.T) {
	c := casetest.Start(t)
	h := newHost(t)
	h.want(wanted("u0", 60))
	c.Equal(len(h.starts), 0, "starts of what came while no server was heard")
	h.pass(time.Second)
	h.heard()
	c.Equal(len(h.starts), 0, "starts of it when one was heard: it may have been replaced meanwhile")
	c.Equal(h.one("u0").Code, reason.LeaseOver, "why it does not run")
	h.want(wanted("u1", 60))
	c.Equal(h.running("u1"), 1, "processes when a server was heard")
	for range 30 { // it is heard as long as the network is there
		h.pass(10 * time.Second)
		h.heard()
	}
	c.Equal(len(h.starts), 1, "starts while servers are heard")
	last := h.now.At
	// From now on nobody is. The agent is restarted again and again, somebody sets the clock of the host, and the lease is neither ignored nor put off.
	for h.running("u1") > 0 {
		h.pass(7 * time.Second)
		h.now.Wall = h.now.Wall.Add(-10 * time.Minute)
		if h.running("u1") > 0 {
			h.agent()
		}
		if !c.Check(h.now.At.Sub(last) < 75*time.Second, "it still runs %v after the last word of a server", h.now.At.Sub(last)) {
			return
		}
	}
	for _, s := range h.procs {
		c.Check(s.Ending.At.Sub(last) <= 60*time.Second+time.Millisecond, "it has ended %v after the last word", s.Ending.At.Sub(last))
		c.Check(s.Ending.At.Sub(last) >= 30*time.Second, "it has ended already %v after the last word", s.Ending.At.Sub(last))
	}
	h.pass(time.Hour)
	c.Equal(h.running("u1"), 0, "processes an hour later")
	h.agent()
	h.pass(time.Hour)
	c.Equal(h.running("u1"), 0, "processes after a restart of the agent")
	h.heard()
	h.step(h.wants)
	c.Equal(h.running("u1"), 0, "processes when a server is heard again: another copy may run by now")
	c.Equal(h.one("u1"), wire.Instance{UID: "u1", Phase: wire.InstanceFailed, Attempt: 1, Code: reason.LeaseOver, Message: h.one("u1").Message, Since: h.one("u1").Since, OfNode: true, Revision: "1"}, "what servers are told of it")
	h.want(wanted("u2", 60))
	c.Equal(h.running("u2"), 1, "processes of what a server sends then")
}

func TestWorkloadCase54_ClocksThatAreWrong(t *testing.T) {
	c := casetest.Start(t)
	script := func(skew func(step int) time.Duration) string {
		h := newHost(t)
		h.deaf = true
		probed := wanted("u1", 60)
		probed.Template.Tasks[0].Liveness = &workload.Probe{Period: "5s"}
		h.heard()
		h.want(probed, wanted("u2", 0))
		for step := range 40 {
			h.now.Wall = h.now.Wall.Add(skew(step))
			h.pass(4 * time.Second)
			if step < 30 {
				h.heard()
			}
			if step == 20 {
				h.agent()
				h.heard()
			}
		}
		var b strings.Builder
		fmt.Fprintln(&b, h.starts)
		for id, s := range h.procs {
			fmt.Fprintln(&b, id.Instance, s.Phase, s.Ending.At)
		}
		for _, n := range h.machine.Told() {
			fmt.Fprintln(&b, n.UID, n.Phase, n.Ready, n.Attempt, n.Code)
		}
		lines := strings.Split(b.String(), "\n")
		return strings.Join(lines[:1], "") + fmt.Sprint(len(lines)) + fmt.Sprint(h.killed)
	}
	right := script(func(int) time.Duration { return 0 })
	for name, skew := range map[string]func(int) time.Duration{
		"ten minutes ahead": func(step int) time.Duration { return map[bool]time.Duration{true: 10 * time.Minute}[step == 3] },
		"back and forth":    func(step int) time.Duration { return time.Duration(step%2*2-1) * 10 * time.Minute },
		"back to 1970": func(step int) time.Duration {
			return map[bool]time.Duration{true: -50 * 365 * 24 * time.Hour}[step == 10]
		},
	} {
		c.Equal(script(skew), right, "what is done with a clock that is "+name)
	}
}

func TestWorkloadCase58_LateWordOfAServer(t *testing.T) {
	c := casetest.Start(t)
	h := newHost(t)
	probed := wanted("u1", 60)
	probed.Template.Tasks[0].Readiness = &workload.Probe{Period: "10s"}
	h.heard()
	h.want(probed)
	for range 20 { // a loaded network: a word every 50 s, and the lease is 60
		h.pass(50 * time.Second)
		c.Equal(h.running("u1"), 1, "processes just before the word comes")
		h.heard()
	}
	c.Equal(h.starts, []run.ID{{Instance: "u1", Task: "main", Attempt: 1}}, "starts")
	c.Equal(h.one("u1").Restarts, uint32(0), "restarts")
}

func TestWorkloadCase59_NodeMadeAnew(t *testing.T) {
	c := casetest.Start(t)
	h := newHost(t)
	h.deaf = true
	h.want(wanted("u1", 0), wanted("u2", 0))
	c.Equal(h.running("u1")+h.running("u2"), 2, "processes")
	// The Node is deleted and joins again: its layer has other instances of the same names, and nothing of the old ones.
	h.want(wanted("n1", 0), wanted("n2", 0))
	c.Equal(h.one("u1").Phase, wire.InstanceTerminating, "an instance of the Node before")
	c.Equal(h.running("n1")+h.running("n2"), 2, "processes of the new one")
	h.agent() // and the agent is restarted while they end
	h.pass(11 * time.Second)
	c.Equal(h.running("u1")+h.running("u2"), 0, "processes of the Node before, after their grace")
	c.Equal(len(h.machine.Told()), 2, "instances that are told of")
	c.Equal(len(h.disk), 2, "records")
	for id := range h.procs {
		c.Check(id.Instance == "n1" || id.Instance == "n2", "%v is left of the Node before", id)
	}
}

func TestWorkloadCase63_GraceOfAnInstanceOverARestart(t *testing.T) {
	c := casetest.Start(t)
	h := newHost(t)
	h.deaf = true
	h.want(wanted("u1", 0))
	stop := wanted("u1", 0)
	stop.Stop = true
	h.want(stop)
	asked := h.now.At
	h.pass(6 * time.Second)
	h.wants = Desired{} // and the agent that begins again knows nothing of its template
	h.agent()
	h.pass(3900 * time.Millisecond)
	c.Equal(h.running("u1"), 1, "processes before its grace is over")
	h.pass(200 * time.Millisecond)
	for id, at := range h.killed {
		c.Equal(at.Sub(asked), 10*time.Second, fmt.Sprintf("when %v was killed", id))
	}
	c.Equal(len(h.killed), 1, "kills")
}
