package workloads

import (
	"slices"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/controllers/workloads"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// heartbeatMin and heartbeatMax are as the product has them.
	heartbeatMin, heartbeatMax = 45 * time.Second, 60 * time.Second
	// lagMax is how late a watch is on a bad day, and answerMax how long a call between a host and a server takes.
	lagMax    = 5 * time.Second
	answerMax = 300 * time.Millisecond
	// deadAfter is when a connection ends whose host is not there any more.
	deadAfter = 12 * time.Second
	// deposedMax is how long one that does not lead any more may take itself for the leader.
	deposedMax = 15 * time.Second
	// silentMax is more than hosts are silent: node.Quiet.
	silentMax = 6 * time.Minute
	// thinkMax is how long after something has happened a server decides at the latest.
	thinkMax = 100 * time.Millisecond
)

// server is one that may lead.
type server struct {
	w    *world
	name string
	skew time.Duration // of its clock
	lag  map[string]time.Duration

	c      *workloads.Workloads // nil: it does not lead
	lead   *workloads.Lead
	run    int // how often it has begun to lead
	began  time.Time
	cursor map[string]int
	sights map[types.UID]*sight
	states map[types.UID]*state
	budget int  // writes until it dies; 0: it does not
	killed bool // nothing that it writes is done
	// deposed: by its clock it leads no more, and has not noticed.
	deposed bool
	due     bool // a round is coming
	wake    time.Time
}

// sight is what a server that leads knows of a node.
type sight struct {
	name string
	key  int // of the host that has connected last; 0: none has
	life node.Life
	seen presence.Seen
	wake time.Time
}

// state is what a host is to have, as a server has derived it.
type state struct {
	version uint64
	wanted  map[types.UID]*v1alpha1.Instance
}

func newServer(w *world, name string) *server {
	s := &server{w: w, name: name, lag: map[string]time.Duration{}, sights: map[types.UID]*sight{}}
	// Some clocks are set by the network, and some by nobody.
	s.skew = one(w, []time.Duration{0, 0, time.Duration(w.random.Int64N(int64(time.Second))), 10 * time.Minute, -10 * time.Minute, 70 * time.Minute, -70 * time.Minute})
	return s
}

func (s *server) now() time.Time { return s.w.now.Add(s.skew) }

func (s *server) leads() bool { return s.lead != nil }

// later is after, as long as it goes on to lead.
func (s *server) later(d time.Duration, do func()) {
	run := s.run
	s.w.after(d, func() {
		if s.run == run && s.leads() {
			do()
		}
	})
}

// nobody takes no Events.
type nobody struct{}

// Since says of every node that it may have changed.
func (*server) Since(uint64) (names []string, all bool, now uint64) { return nil, true, 0 }

func (nobody) Tell(core.ObjectReference, string, string, string) {}

// begin is that it takes itself for the leader from now on: it knows what is stored, and has heard nobody.
func (s *server) begin() {
	s.w.say("%s leads, its clock is ahead by %s", s.name, s.skew)
	c, err := workloads.New(workloads.Options{Objects: client{s}, Presence: s, Recorder: nobody{}, Writers: 1})
	if err != nil {
		panic(err)
	}
	s.run++
	s.c, s.began, s.lead = c, s.now(), c.Lead(s.now())
	s.budget, s.killed, s.deposed, s.due, s.wake = 0, false, false, false, time.Time{}
	s.sights, s.states, s.cursor = map[types.UID]*sight{}, map[types.UID]*state{}, map[string]int{}
	for _, kind := range kinds {
		s.lag[kind] = s.w.within(100 * time.Millisecond)
		s.cursor[kind] = len(s.w.store.log[kind])
	}
	for _, n := range listed[*v1alpha1.Node](s.w.store) {
		s.sights[n.UID] = &sight{name: n.Name, seen: presence.Seen{Believed: true}}
		s.decide(n.UID)
	}
	for _, in := range listed[*v1alpha1.Instance](s.w.store) {
		s.state(in.Spec.NodeUID).wanted[in.UID] = in
	}
	for kind, list := range map[string][]object{
		v1alpha1.KindNode: objects(listed[*v1alpha1.Node](s.w.store)), v1alpha1.KindWorkload: objects(listed[*v1alpha1.Workload](s.w.store)),
		v1alpha1.KindRevision: objects(listed[*v1alpha1.Revision](s.w.store)), v1alpha1.KindInstance: objects(listed[*v1alpha1.Instance](s.w.store)),
	} {
		all := make([]any, len(list))
		for i, o := range list {
			all[i] = o
		}
		_ = s.c.Inbox(kind).Replace(all, "") // never fails
	}
	s.nudge()
	s.later(s.w.between(heartbeatMin, heartbeatMax), s.beat)
}

// end is that it does not lead any more, and knows that.
func (s *server) end() {
	if !s.leads() {
		return
	}
	s.w.say("%s does not lead any more", s.name)
	s.run++
	s.c, s.lead, s.states = nil, nil, nil
	s.sights = map[types.UID]*sight{}
	for _, h := range s.w.hosts {
		if h.at == s {
			h.cut()
		}
	}
	for _, r := range s.w.relays {
		if r.to == s {
			r.lost()
		}
	}
}

// told is that the store has something of a kind.
func (s *server) told(kind string) {
	if s.leads() {
		s.later(s.lag[kind], func() { s.feed(kind) })
	}
}

// feed takes in what watches of a kind have told by now.
func (s *server) feed(kind string) {
	log := s.w.store.log[kind]
	for s.cursor[kind] < len(log) && !log[s.cursor[kind]].at.Add(s.lag[kind]).After(s.w.now) {
		e := log[s.cursor[kind]]
		s.cursor[kind]++
		box := s.c.Inbox(kind)
		if e.gone {
			_ = box.Delete(e.o) // neither fails
		} else {
			_ = box.Update(e.o)
		}
		switch o := e.o.(type) {
		case *v1alpha1.Instance:
			s.derive(o, e.gone)
		case *v1alpha1.Node:
			if e.gone {
				delete(s.sights, o.UID)
			} else if s.sights[o.UID] == nil {
				s.sights[o.UID] = &sight{name: o.Name, seen: presence.Seen{Believed: true}}
				s.decide(o.UID)
			}
		}
		s.nudge()
	}
}

func (s *server) state(uid types.UID) *state {
	if s.states[uid] == nil {
		s.states[uid] = &state{version: uint64(s.w.store.version), wanted: map[types.UID]*v1alpha1.Instance{}}
	}
	return s.states[uid]
}

// derive brings an instance into what its host is to have.
func (s *server) derive(in *v1alpha1.Instance, gone bool) {
	to := s.state(in.Spec.NodeUID)
	version, err := strconv.ParseUint(in.ResourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	if version <= to.version && to.wanted[in.UID] == in {
		return
	}
	if to.version = max(to.version, version); gone {
		delete(to.wanted, in.UID)
	} else {
		to.wanted[in.UID] = in
	}
	switch h := s.w.byUID[string(in.Spec.NodeUID)]; {
	case h == nil:
	case h.at == s:
		s.frame(h)
	case h.via != nil && h.via.to == s:
		h.via.bring(h)
	}
}

// frame says to a host on its watch what its newest state is.
func (s *server) frame(h *host) {
	conn, version := h.conn, s.state(h.uid).version
	s.w.after(s.w.within(answerMax), func() {
		if h.conn == conn && h.at != nil && h.linked {
			h.frame(version)
		}
	})
}

// beat asks all hosts whether they are there.
func (s *server) beat() {
	for _, h := range s.w.hosts {
		if h.at == s {
			s.asked(h, h.conn)
			s.frame(h)
		}
	}
	s.later(s.w.between(heartbeatMin, heartbeatMax), s.beat)
}

// asked is that a heartbeat was written to a host.
func (s *server) asked(h *host, conn uint64) {
	if n := s.sights[h.uid]; n != nil {
		n.life.Asked(conn, s.now())
		s.decide(h.uid)
	}
}

// opened is a connection of a host, with the key that it had when it was made.
func (s *server) opened(h *host, key int, conn uint64) {
	if n := s.sights[h.uid]; n != nil {
		if n.key != key {
			n.key, n.life, n.seen.Report = key, node.Life{}, nil
		}
		n.life.Opened(conn, "", s.now())
		s.decide(h.uid)
	}
}

// closed is the end of one; dead: the host does not answer.
func (s *server) closed(h *host, conn uint64, dead bool) {
	if n := s.sights[h.uid]; n != nil {
		n.life.Closed(conn, dead, s.now())
		s.decide(h.uid)
	}
}

// heard is a report of a host. Who leads, and does not count it as gone, says so.
func (s *server) heard(h *host, conn uint64, r *wire.Report) (reply wire.StatusReply) {
	n := s.sights[h.uid]
	if n == nil {
		return reply
	}
	if n.seen.Presence != node.Gone && s.leads() && !s.deposed {
		reply.Echo = r.Echo
	}
	if least, most := node.Quiet(s.w.crowd); most > 0 {
		quiet := s.w.between(least, most).Truncate(time.Second)
		reply.RetryAfter = uint32(quiet / time.Second)
		n.life.Spared(s.now().Add(quiet))
	}
	if s.leads() {
		reply.UsageEvery = uint32(node.ReportEvery(s.c.Lease(environment)) / time.Second)
	}
	n.life.Heard(node.Report{Session: node.Session{ID: r.Session.ID, Start: r.Session.Start}, Number: r.Number, Conn: conn, Have: r.Have}, s.now())
	n.seen.Report, n.seen.Heard = r, s.now()
	s.w.checkLeases(h, r)
	s.decide(h.uid)
	s.nudge()
	return reply
}

// decide finds out how a node stands, and has that stored.
func (s *server) decide(uid types.UID) {
	n := s.sights[uid]
	if n == nil {
		return
	}
	stored := s.w.store.node(n.name)
	if stored == nil || stored.UID != uid {
		return
	}
	v := node.View{Began: s.began, Created: stored.CreationTimestamp.Time}
	for _, c := range stored.Status.Conditions {
		v.Was = append(v.Was, node.Condition{Type: c.Type, Status: node.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
	}
	life, d := node.Decide(n.life, v, s.now())
	n.life = life
	if n.seen.Presence != d.Presence || n.seen.Believed != d.Believed {
		s.w.did(d.Presence.String())
		if n.seen.Presence != d.Presence {
			n.seen.Since = s.now()
		}
		n.seen.Presence, n.seen.Believed = d.Presence, d.Believed
		s.nudge()
	}
	ready := d.Conditions[slices.IndexFunc(d.Conditions, func(c node.Condition) bool { return c.Type == node.Ready })]
	was := meta.FindStatusCondition(stored.Status.Conditions, node.Ready)
	if was == nil || was.Reason != ready.Reason || string(was.Status) != string(ready.Status) {
		s.later(s.w.within(time.Second), func() { s.store(uid, ready) })
	}
	if !d.WakeAt.IsZero() && !d.WakeAt.Equal(n.wake) {
		n.wake = d.WakeAt
		s.later(d.WakeAt.Sub(s.now()), func() {
			if n.wake.Equal(d.WakeAt) {
				n.wake = time.Time{}
			}
			s.decide(uid)
		})
	}
}

// store writes how a node stands, by the clock of this server.
func (s *server) store(uid types.UID, c node.Condition) {
	n := s.sights[uid]
	if n == nil {
		return
	}
	stored := s.w.store.node(n.name)
	if stored == nil || stored.UID != uid || s.killed || s.w.store.busy {
		return
	}
	o := copied(stored)
	if !meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.NewTime(s.now().Truncate(time.Second))}) {
		return
	}
	if err := s.w.store.updateStatus(o); err != nil {
		panic(err)
	}
}

// Of is what is known of a node: s is the Presence of the loop.
func (s *server) Of(uid types.UID) (presence.Seen, bool) {
	n := s.sights[uid]
	if n == nil {
		return presence.Seen{}, false
	}
	return n.seen, true
}

// Tell is not needed: the world says when there is a round.
func (s *server) Tell(chan struct{}) func() { return func() {} }

// nudge has it decide soon.
func (s *server) nudge() {
	if s.due {
		return
	}
	s.due = true
	s.later(s.w.within(thinkMax), s.round)
}

// round is one of the loop.
func (s *server) round() {
	s.due = false
	next, _ := s.lead.Round(s.w.ctx, s.now())
	s.w.did("rounds")
	if s.w.caught != nil {
		panic(s.w.caught)
	}
	s.w.checkGangs(s)
	if s.killed {
		s.end()
		return
	}
	if next.IsZero() || next.Equal(s.wake) {
		return
	}
	s.wake = next
	s.later(max(next.Sub(s.now()), time.Millisecond), func() {
		if s.wake.Equal(next) {
			s.wake = time.Time{}
			s.nudge()
		}
	})
}

// mark is how far a host is.
func mark(version uint64) catalog.Mark { return catalog.Mark{Epoch: 1, Version: version} }
