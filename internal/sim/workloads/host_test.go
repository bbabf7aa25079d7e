package workloads

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// environment is the one that all hosts are in.
	environment = "prod"
	// restartMax is how long an agent is away that has died: systemd begins it again after a second.
	restartMax = 5 * time.Second
	// freezeMax is how long one stands still: its host is busy.
	freezeMax = 8 * time.Second
	// echoPause is after how long the next report goes where the answer to one is waited for.
	echoPause = 2 * time.Second
	// hangMax is how long one stands still that somebody has stopped; what it has started goes on.
	hangMax = 10 * time.Minute
	// throughRelay is how often one goes to a relay.
	throughRelay = 0.4
	// reconnectMax is how long an agent looks for a server.
	reconnectMax = 20 * time.Second
)

// host is a machine with an agent, or without one at the moment.
type host struct {
	w      *world
	name   string
	uid    types.UID
	offers wire.Offers

	up     bool
	linked bool // somebody can reach it
	key    int  // counts: who has lost its disk joins with another one
	boots  int
	booted time.Time
	procs  map[run.ID]*process

	// On its disk.
	records map[string][]byte
	have    desired
	starts  uint64

	session

	at   *server // that it is connected to; nil: to none
	via  *relay  // that it is connected to in place of a server
	conn uint64
}

// session is one run of its agent.
type session struct {
	agent   int // counts; its work ends with it
	running bool
	frozen  bool
	waiting []func() // until it goes on
	machine *core.Machine
	word    run.Moment // when the newest report was made that is known to have been heard
	number  uint64
	report  *wire.Report
	echoes  core.Echoes
	wake    run.Moment
	seeks   bool // for a server
	fetches bool // what is newer
	newest  uint64
	telling bool
	lazy    bool       // a report is due that is in no hurry
	quiet   run.Moment // until when none of those goes
	asked   int        // counts the times at which one is to go in any case
	sending bool       // the answer to one is waited for
	more    bool       // and the next one is due
}

// desired is what a host knows that it is to have.
type desired struct {
	version uint64
	list    []core.Wanted
}

func newHost(w *world, name string) *host {
	h := &host{w: w, name: name, procs: map[run.ID]*process{}, records: map[string][]byte{}, linked: true, key: 1,
		offers: wire.Offers{CPU: 4000, Memory: 8 << 30, Disk: 100 << 30, Arch: "amd64", Runtimes: []string{string(declared.Process)}}}
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: v1alpha1.NodeSpec{Environment: environment}}
	h.join(n)
	return h
}

// join makes the Node that the host has.
func (h *host) join(n *v1alpha1.Node) {
	h.must(h.w.store.create(n))
	n.Status.Identity = &v1alpha1.NodeIdentity{Key: "sha256:00", Joined: metav1.NewTime(h.w.now)}
	h.must(h.w.store.updateStatus(n))
	h.uid = n.UID
	h.w.byName[h.name], h.w.byUID[string(n.UID)] = h, h
}

// lose is that everything on the disk of the host is gone. A person has it join anew, for the same Node.
func (h *host) lose() {
	h.w.say("%s has lost its disk", h.name)
	h.records, h.have, h.starts = map[string][]byte{}, desired{}, 0
	h.key++
}

// replace has another machine of the same name in its place, for which there is another Node. What ran on the one before does not any more.
func (h *host) replace() {
	h.power()
	if h.up {
		return // the world has healed
	}
	h.w.say("%s is another machine", h.name)
	h.lose()
	clear(h.procs)
	old := h.w.store.node(h.name)
	h.must(h.w.store.delete(old, nil))
	h.join(&v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name, Labels: old.Labels}, Spec: *old.Spec.DeepCopy()})
}

func (h *host) must(err error) {
	if err != nil {
		panic(err)
	}
}

// moment is the time of its boot clock.
func (h *host) moment() run.Moment { return run.Moment(h.w.now.Sub(h.booted) + time.Minute) }

func (h *host) time() core.Now {
	return core.Now{Boot: fmt.Sprintf("%s/%d", h.name, h.boots), At: h.moment(), Wall: h.w.now, Heard: h.word}
}

// boot starts the machine.
func (h *host) boot() {
	if h.up {
		return
	}
	h.up, h.boots, h.booted = true, h.boots+1, h.w.now
	h.w.say("%s boots", h.name)
	h.awake(h.w.within(3 * time.Second))
}

// power takes the power away from the machine.
func (h *host) power() {
	if !h.up || h.w.healed {
		return
	}
	h.w.say("%s has no power", h.name)
	h.up = false
	for _, id := range slices.SortedFunc(maps.Keys(h.procs), run.ID.Compare) {
		h.procs[id].end(run.Ending{Cause: run.Lost, Words: "the host was restarted"})
	}
	h.dies()
	h.cut()
}

// awake begins the agent after a while.
func (h *host) awake(d time.Duration) {
	boot := h.boots
	h.w.after(d, func() {
		if h.up && h.boots == boot && !h.running {
			h.begin()
		}
	})
}

// later is something that the agent does later, unless it dies before. While it is frozen nothing is done.
func (h *host) later(d time.Duration, do func()) {
	agent := h.agent
	var due func()
	due = func() {
		switch {
		case h.agent != agent || !h.running:
		case h.frozen:
			h.waiting = append(h.waiting, due)
		default:
			do()
		}
	}
	h.w.after(d, due)
}

// begin is the begin of an agent: it reads what is on the disk, and learns of the rest by and by.
func (h *host) begin() {
	h.agent++
	h.starts++
	h.running, h.frozen, h.waiting = true, false, nil
	h.machine, h.word, h.number, h.report, h.wake, h.newest, h.echoes = core.New(), 0, 0, nil, 0, 0, core.Echoes{}
	h.seeks, h.fetches, h.telling, h.lazy, h.quiet, h.sending, h.more = false, false, false, false, 0, false, false
	h.w.say("%s: its agent begins", h.name)
	agent := h.agent
	h.step(core.Node{Fit: fit.Node{Name: h.name, Architecture: h.offers.Arch, Runtimes: []declared.Runtime{declared.Process}, Capacity: fit.Amounts{CPU: h.offers.CPU, Memory: h.offers.Memory, Disk: h.offers.Disk}},
		Runtimes: []declared.Runtime{declared.Process}})
	var records []core.Record
	for _, uid := range slices.Sorted(maps.Keys(h.records)) {
		r, err := core.DecodeRecord(uid, h.records[uid])
		h.must(err)
		records = append(records, r)
	}
	if h.step(core.Restored{Records: records}); h.agent != agent {
		return
	}
	h.later(h.w.within(500*time.Millisecond), func() {
		if h.have.version > 0 { // before, nobody has said what is wanted
			h.want()
		}
		h.tell()
	})
	h.later(h.w.within(500*time.Millisecond), h.list)
	h.seek(h.w.within(2 * time.Second))
}

// dies is the end of an agent; what it has started goes on.
func (h *host) dies() {
	if !h.running {
		return
	}
	h.running, h.machine, h.waiting = false, nil, nil
	h.agent++
}

// crash is the end of an agent that systemd begins again.
func (h *host) crash() {
	if !h.running {
		return
	}
	h.w.say("%s: its agent dies", h.name)
	h.dies()
	if h.linked {
		h.close(false)
	} else {
		h.cut() // nobody is told that it is closed
	}
	h.awake(h.w.between(200*time.Millisecond, restartMax))
}

// freeze has the agent stand still for a while.
func (h *host) freeze(d time.Duration) {
	if !h.running || h.frozen {
		return
	}
	h.w.say("%s: its agent stands still for %s", h.name, d)
	h.frozen = true
	agent := h.agent
	h.w.after(d, func() {
		if h.agent != agent || !h.frozen {
			return
		}
		h.frozen = false
		waiting := h.waiting
		h.waiting = nil
		for _, do := range waiting {
			do() // each looks whether the agent is still there
		}
	})
}

// unlink has nobody reach the host, and link has it reached again.
func (h *host) unlink() {
	if !h.linked || h.w.healed {
		return
	}
	h.w.say("%s is cut off", h.name)
	h.linked = false
	h.cut()
}

func (h *host) link() {
	if h.linked {
		return
	}
	h.w.say("%s is reached again", h.name)
	h.linked = true
	if h.running && !h.connected() {
		h.seek(h.w.within(5 * time.Second))
	}
}

func (h *host) connected() bool { return h.at != nil || h.via != nil }

// cut is that a connection is gone, which its server or relay finds out by and by.
func (h *host) cut() { h.leave(h.w.between(deadAfter-time.Second, deadAfter+3*time.Second), true) }

// close ends the connection.
func (h *host) close(dead bool) { h.leave(h.w.within(answerMax), dead) }

// leave is the end of a connection, of which the other end knows after a while.
func (h *host) leave(noticed time.Duration, dead bool) {
	s, r, conn := h.at, h.via, h.conn
	switch {
	case s != nil:
		s.later(noticed, func() { s.closed(h, conn, dead) })
	case r != nil:
		h.w.after(noticed, func() { r.closed(conn, dead) })
	default:
		return
	}
	h.at, h.via, h.sending, h.more = nil, nil, false, false
	h.seek(h.w.between(time.Second, reconnectMax))
}

// seek looks for a server, until there is one.
func (h *host) seek(d time.Duration) {
	if !h.running || h.seeks {
		return
	}
	h.seeks = true
	h.later(d, func() {
		h.seeks = false
		var leads []*server
		for _, s := range h.w.servers {
			if s.leads() && !s.killed {
				leads = append(leads, s)
			}
		}
		if h.connected() {
			return
		}
		if r := one(h.w, h.w.relays); h.linked && h.w.chance(throughRelay) {
			h.w.conns++
			if r.opened(h, h.w.conns) {
				h.via, h.conn = r, h.w.conns
				r.show(h)
				h.send()
				return
			}
		}
		if !h.linked || len(leads) == 0 {
			h.seek(h.w.between(time.Second, reconnectMax))
			return
		}
		h.w.conns++
		h.at, h.conn = one(h.w, leads), h.w.conns
		h.at.opened(h, h.key, h.conn)
		h.at.frame(h)
		h.send()
	})
}

// frame is a word of a server on the watch: what its newest state is.
func (h *host) frame(version uint64) {
	h.later(0, func() {
		h.newest = version
		h.fetch()
		h.idle()
	})
}

// heard is that a server which leads has heard the report with an echo.
func (h *host) heard(echo uint64) {
	if at, known := h.echoes.Of(echo); known {
		h.word = max(h.word, at)
	}
	if h.machine.Hungry() {
		h.step(nil)
	}
}

// fetch gets what is newer, and takes it up when it is on the disk.
func (h *host) fetch() {
	if h.fetches || !h.connected() || h.newest <= h.have.version {
		return
	}
	h.fetches = true
	conn := h.conn
	h.later(h.w.within(2*answerMax), func() {
		h.fetches = false
		s := h.source()
		if s == nil || h.conn != conn || !h.linked || h.w.chance(h.w.faults) {
			h.later(h.w.within(5*time.Second), h.fetch)
			return
		}
		if s.version <= h.have.version {
			return
		}
		h.have = desired{version: s.version}
		for _, uid := range slices.Sorted(maps.Keys(s.wanted)) {
			in := s.wanted[uid]
			h.have.list = append(h.have.list, core.Wanted{Instance: catalog.Instance{
				UID: string(uid), Namespace: in.Namespace, Name: in.Name, Workload: in.Spec.Workload, Revision: in.Spec.Revision, Slot: int(in.Spec.Slot), Job: in.Spec.Job,
				Stop: in.Spec.Stop != nil || in.Status.Phase == v1alpha1.InstanceDone || in.Status.Phase == v1alpha1.InstanceFailed, Lease: int(in.Spec.LeaseSeconds),
			}, Template: h.w.truth.templates[in.Spec.Revision]})
		}
		if h.w.chance(h.w.faults / 2) {
			h.crash() // before anything follows from it
			return
		}
		h.want()
		h.fetch()
	})
}

// source is what it is to have, as it is known where it is connected; nil: it is not.
func (h *host) source() *state {
	switch {
	case h.via != nil:
		return h.via.states[h.uid]
	case h.at != nil && h.at.leads():
		return h.at.state(h.uid)
	}
	return nil
}

// want has the machine know what is on the disk.
func (h *host) want() { h.step(core.Desired{Instances: slices.Clone(h.have.list)}) }

// wants is how an instance is wanted, as the host knows; nil: it is not.
func (h *host) wants(uid string) *core.Wanted {
	for i := range h.have.list {
		if h.have.list[i].UID == uid {
			return &h.have.list[i]
		}
	}
	return nil
}

// list has the machine know what the runtime has.
func (h *host) list() {
	f := core.Found{Runtime: declared.Process}
	for _, id := range slices.SortedFunc(maps.Keys(h.procs), run.ID.Compare) {
		f.Attempts = append(f.Attempts, h.procs[id].status)
	}
	h.step(f)
}

// step steps the machine, and carries out what it wants; now and then the agent is killed on the way.
func (h *host) step(e core.Event) {
	agent := h.agent
	effects := h.machine.Step(h.time(), e)
	for _, f := range effects {
		if h.w.chance(h.w.faults / 16) {
			h.w.did("killed between effects")
			h.crash()
			return
		}
		if save, is := f.(core.Save); is {
			h.records[save.UID] = save.Data
			continue
		}
		if h.carry(f); h.agent != agent {
			return
		}
	}
	if h.machine.News() {
		h.report = nil
		h.tell()
	}
	h.plan()
}

// plan has the machine stepped when time alone changes something.
func (h *host) plan() {
	at, some := h.machine.WakeAt()
	if !some || h.wake != 0 && h.wake <= at && h.wake >= h.moment() {
		return
	}
	h.wake = max(at, h.moment())
	h.later(h.wake.Sub(h.moment()), func() {
		if h.wake != 0 && h.wake <= h.moment() {
			h.wake = 0
			h.step(nil)
		}
	})
}

// tell has a report sent soon.
func (h *host) tell() {
	if h.telling {
		return
	}
	h.telling = true
	h.later(h.w.between(50*time.Millisecond, 500*time.Millisecond), func() {
		h.telling = false
		h.send()
	})
}

// idle has a report sent when nobody has asked for silence: a word of a server is a question whether the host is there.
func (h *host) idle() {
	if h.lazy {
		return
	}
	h.lazy = true
	h.later(max(h.quiet.Sub(h.moment()), 250*time.Millisecond), func() {
		h.lazy = false
		h.send()
	})
}

// paced is how often the server that has answered wants to be told.
func (h *host) paced(reply wire.StatusReply) {
	h.quiet = h.moment().Add(time.Duration(reply.RetryAfter) * time.Second)
	if h.asked++; reply.UsageEvery > 0 {
		asked := h.asked
		h.later(time.Duration(reply.UsageEvery)*time.Second, func() {
			if h.asked == asked {
				h.send()
			}
		})
	}
}

// send sends a report, one after the other; the answer says whether it was heard.
func (h *host) send() {
	to, via, conn := h.at, h.via, h.conn
	if h.more = h.sending; !h.connected() || h.sending {
		return
	}
	h.sending = true
	h.number++
	if h.report == nil {
		offers := h.offers
		h.report = &wire.Report{Offers: &offers, Instances: h.machine.Told()}
	}
	r := *h.report
	r.Echo = h.echoes.Next(h.moment(), h.w.random.Uint64())
	r.Session, r.Number, r.Have = wire.Session{ID: fmt.Sprint(h.name, "/", h.starts), Start: h.starts}, h.number, mark(h.have.version)
	h.w.after(h.w.within(answerMax), func() {
		if h.at != to || h.via != via || h.conn != conn || !h.linked || to != nil && !to.leads() {
			return
		}
		var reply wire.StatusReply
		if to != nil {
			reply = to.heard(h, conn, &r)
		} else {
			reply = via.heard(conn, &r)
		}
		h.later(h.w.within(answerMax), func() {
			if !h.connected() || h.conn != conn || !h.linked {
				return
			}
			if h.sending = false; h.more {
				h.send()
			}
			h.paced(reply)
			if h.heard(reply.Echo); h.running && reply.Echo != r.Echo && h.machine.Hungry() { // it may have died of that
				h.later(echoPause, h.tell)
			}
		})
	})
}
