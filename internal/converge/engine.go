package converge

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"tako.dev/tako/internal/reason"
)

// phase is where a vertex is on its way.
type phase uint8

const (
	idle phase = iota
	queuedCheck
	checking
	queuedApply
	applying
	queuedRefresh
	refreshing
	stale // an operation that an earlier graph started is still in flight: its result only says that it is over
)

// state is what the engine knows of one vertex. It is kept small: there may be 100,000.
type state struct {
	err       *reason.Error
	since     time.Time
	wait      time.Duration // on the engine's clock: not tried before; 0 where it is not waiting
	windowAt  time.Duration // start of the window that repairs are counted in
	fixedAt   time.Duration // last repair of drift
	blockedBy ID
	busyPreds int32 // vertices it is ordered after that have not settled
	badPreds  int32 // vertices it requires that are not converged
	attempts  int32
	repairs   int16 // of drift, in the window
	holds     int16 // hold-offs in a row
	outcome   reason.Outcome
	phase     phase
	depth     Depth
	cause     Cause
	failedIn  Verb
	drift     bool // what the last check found differs although it had been converged before
	dirty     bool // must be checked
	again     bool // was touched while an operation was in flight
	peek      bool // look although it is waiting; do not act
	busy      bool // counted in busyPreds of what comes after it
	ok        bool // not counted in badPreds of what requires it
	proven    bool // has been converged with this desire
	detail    reason.Detail
}

// op is an operation in flight. After a Swap an id may be None: the vertex is gone, its key is not.
type op struct {
	verb Verb
	lane *lane
	ids  []ID
	keys []Key
	upto []uint64
}

// Engine converges one Graph. It is not safe for concurrent use.
type Engine struct {
	graph     *Graph
	opts      Options
	rand      *rand.Rand
	clock     clock
	now       time.Duration
	wall      time.Time
	states    []state
	lanes     map[string]*lane
	laneOrder []*lane
	ops       map[Token]*op
	pending   map[ID]*owed
	timers    timers
	work      []ID // vertices to evaluate
	busy      int  // vertices with busy set
	lastToken Token
	lastSeq   uint64
	out       Effects
}

// Pending is a notification that an earlier process left behind.
type Pending struct {
	Seq            uint64
	Target, Source Key
}

// Resume is what the driver remembered over a restart.
type Resume struct {
	Converged map[Key]Digest // desires that were once met: what differs from one now has drifted
	Pending   []Pending
	Budgets   map[Key]Budget
}

// New makes an engine over a graph; every vertex is due for its first check. Nothing happens before the first Step. Every
// vertex's lane must be among the options. rand decides jitter only.
func New(g *Graph, o Options, rnd *rand.Rand, r Resume) (*Engine, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := &Engine{opts: o, rand: rnd, ops: map[Token]*op{}, pending: map[ID]*owed{}, lanes: map[string]*lane{}}
	for _, l := range e.opts.Lanes {
		made := &lane{Lane: l}
		e.lanes[l.Name] = made
		e.laneOrder = append(e.laneOrder, made)
	}
	if err := e.knowsLanes(g); err != nil {
		return nil, err
	}
	e.adopt(g)
	for i := range e.states {
		s, v := &e.states[i], &g.Vertices[i]
		if d, ok := r.Converged[v.Key]; ok && d == v.Digest {
			s.proven = true
		}
		if b, ok := r.Budgets[v.Key]; ok && b.Digest == v.Digest && !v.NotApplicable {
			s.attempts, s.holds = int32(b.Attempts), int16(b.Holds)
			if b.Holds > 0 {
				s.repairs = int16(e.opts.ContendedAfter) - 1
			}
			// The clock may have leapt while nobody ran, so the wait is trusted only as far as a wait can be.
			e.delay(ID(i), min(b.Wait, e.opts.HoldOffMax))
		}
	}
	for _, p := range r.Pending {
		e.lastSeq = max(e.lastSeq, p.Seq)
		if id := g.ID(p.Target); id != None {
			if e.pending[id] == nil {
				e.pending[id] = &owed{}
			}
			e.pending[id].confirmed = append(e.pending[id].confirmed, notification{p.Seq, p.Source})
		}
	}
	return e, nil
}

func (e *Engine) knowsLanes(g *Graph) error {
	for i := range g.Vertices {
		if v := &g.Vertices[i]; e.lanes[v.Lane] == nil {
			return fmt.Errorf("converge: vertex %s: no lane %q in the options", v.Title, v.Lane)
		}
	}
	return nil
}

// adopt makes fresh states for a graph: everything dirty, nothing known.
func (e *Engine) adopt(g *Graph) {
	e.graph = g
	e.states = make([]state, g.Len())
	e.timers, e.work, e.busy = nil, nil, 0
	for _, l := range e.laneOrder {
		l.urgent, l.checks, l.applies, l.refreshes = nil, nil, nil, nil
	}
	for i := range e.states {
		s := &e.states[i]
		s.blockedBy = None
		s.busy = true
		s.dirty = true
		s.cause = CauseDesired
		if g.Vertices[i].NotApplicable {
			s.outcome, s.ok, s.dirty = reason.NotApplicable, true, false
		}
		e.busy++
		e.work = append(e.work, ID(i))
	}
	for i := range e.states {
		for _, a := range g.out[i] {
			e.states[a.to].busyPreds++
			if a.kind != Notify && !e.states[i].ok {
				e.states[a.to].badPreds++
			}
		}
	}
}

// Step takes one event and returns what to do about it. now may leap either way; see clock.
func (e *Engine) Step(now time.Time, ev Event) Effects {
	e.now, e.wall = e.clock.advance(now), now
	e.out = Effects{}
	switch ev := ev.(type) {
	case Touched:
		for _, id := range ev.IDs {
			e.look(id, CauseTouched, Shallow)
		}
	case Examine:
		e.examine(ev)
	case Done:
		e.done(ev)
	case Tick:
	}
	e.run()
	return e.out
}

// run does everything that is due now.
func (e *Engine) run() {
	e.expire()
	for e.evaluate(); ; e.evaluate() {
		for _, l := range e.laneOrder {
			e.dispatch(l)
		}
		// Dispatching may send a queued vertex back because something before it has become busy again.
		if len(e.work) == 0 {
			break
		}
	}
	e.out.Wake = e.wake()
}

// Quiet reports whether nothing is due or in flight: everything is settled, or waits for time or an event.
func (e *Engine) Quiet() bool { return e.busy == 0 && len(e.ops) == 0 && len(e.work) == 0 }

// Graph returns the graph that the engine converges.
func (e *Engine) Graph() *Graph { return e.graph }

// Status returns what is known of a vertex.
func (e *Engine) Status(id ID) Status {
	s := &e.states[id]
	st := Status{Outcome: s.outcome, Detail: s.detail, Err: s.err, BlockedBy: s.blockedBy, Since: s.since, Attempts: int(s.attempts)}
	if s.wait > e.now && s.dirty {
		st.RetryAt = e.wall.Add(s.wait - e.now)
	}
	return st
}

// Proven reports whether the vertex has been converged with its present desire, now or in an earlier process.
func (e *Engine) Proven(id ID) bool { return e.states[id].proven }

// Owes reports whether id has notifications that it has not acted upon yet.
func (e *Engine) Owes(id ID) bool { return e.owes(id) }

// Owed returns the sources of the notifications that id has not acted upon yet.
func (e *Engine) Owed(id ID) []Key {
	var keys []Key
	if o := e.pending[id]; o != nil {
		for _, n := range o.confirmed {
			keys = append(keys, n.source)
		}
	}
	return keys
}

func (e *Engine) examine(ev Examine) {
	if ev.IDs != nil {
		for _, id := range ev.IDs {
			e.look(id, CauseExamined, ev.Depth)
		}
		return
	}
	for i := range e.states {
		e.look(ID(i), CauseExamined, ev.Depth)
	}
}

// look makes a vertex due for a check. One that waits is looked at without being acted upon, so that a cure from outside is
// noticed at once and a fight is not fed.
func (e *Engine) look(id ID, why Cause, depth Depth) {
	s := &e.states[id]
	if e.graph.Vertices[id].NotApplicable {
		return
	}
	s.depth = max(s.depth, depth)
	switch s.phase {
	case checking, applying, refreshing, stale, queuedApply, queuedRefresh:
		s.again = true
		return
	case idle, queuedCheck:
	}
	if s.wait > e.now {
		if s.outcome == reason.Contended {
			return
		}
		s.peek = true
	}
	s.soil(why)
	e.work = append(e.work, id)
}

// soil marks a vertex dirty for a cause; the strongest cause stays.
func (s *state) soil(why Cause) {
	if !s.dirty {
		s.cause = why
	}
	s.dirty, s.cause = true, max(s.cause, why)
}

// evaluate decides for each vertex on the work list whether it is due, waits or is blocked, until nothing changes.
func (e *Engine) evaluate() {
	for len(e.work) > 0 {
		id := e.work[len(e.work)-1]
		e.work = e.work[:len(e.work)-1]
		s := &e.states[id]
		switch {
		case s.phase != idle:
		case !s.dirty, s.wait > e.now && !s.peek:
			e.setBusy(id, false)
		case s.busyPreds > 0:
			e.setBusy(id, true)
		case s.badPreds > 0 && !s.proven:
			e.block(id)
		default:
			s.phase = queuedCheck
			e.setBusy(id, true)
			e.lane(id).queueCheck(id, s.cause == CauseTouched)
		}
	}
}

func (e *Engine) lane(id ID) *lane { return e.lanes[e.graph.Vertices[id].Lane] }

// setBusy tells what comes after id whether it has to wait for it.
func (e *Engine) setBusy(id ID, busy bool) {
	s := &e.states[id]
	if s.busy == busy {
		return
	}
	s.busy = busy
	step := int32(1)
	if !busy {
		step = -1
	}
	e.busy += int(step)
	for _, a := range e.graph.out[id] {
		after := &e.states[a.to]
		after.busyPreds += step
		if after.busyPreds == 0 && after.dirty {
			e.work = append(e.work, a.to)
		}
	}
}

// setOK tells what requires id whether it is converged.
func (e *Engine) setOK(id ID, ok bool) {
	s := &e.states[id]
	if s.ok == ok {
		return
	}
	s.ok = ok
	step := int32(1)
	if ok {
		step = -1
	}
	for _, a := range e.graph.out[id] {
		if a.kind == Notify {
			continue
		}
		after := &e.states[a.to]
		after.badPreds += step
		if after.badPreds == 0 && after.dirty {
			e.work = append(e.work, a.to)
		}
	}
}

// settle writes a vertex's outcome and lets what comes after it go on.
func (e *Engine) settle(id ID, o reason.Outcome, d reason.Detail, err *reason.Error) {
	s := &e.states[id]
	changed := s.outcome != o || s.detail != d || s.since.IsZero()
	if changed {
		s.since = e.wall
	}
	s.outcome, s.detail, s.err = o, d, err
	if o != reason.Blocked {
		s.blockedBy = None
	}
	if changed || o == reason.Repaired || o == reason.Failed {
		e.out.Reports = append(e.out.Reports, Report{ID: id, Cause: s.cause, Status: e.Status(id)})
	}
	e.setOK(id, o.Converged())
}

// block settles a vertex that must not be touched because something it requires is not converged. It stays dirty.
func (e *Engine) block(id ID) {
	s := &e.states[id]
	s.peek = false
	by := None
	for _, edge := range e.graph.Before(id) {
		if edge.Kind != Notify && !e.states[edge.From].ok {
			by = edge.From
			break
		}
	}
	if s.outcome != reason.Blocked || s.blockedBy != by {
		s.blockedBy = by
		s.since = time.Time{} // blocked by something else is news
		e.settle(id, reason.Blocked, "", nil)
	}
	e.setBusy(id, false)
}

// delay keeps a dirty vertex waiting.
func (e *Engine) delay(id ID, d time.Duration) {
	s := &e.states[id]
	if d <= 0 {
		s.wait = 0
		e.work = append(e.work, id)
		return
	}
	s.wait = e.now + d
	heap.Push(&e.timers, timer{s.wait, id})
}

// expire makes due what has waited long enough.
func (e *Engine) expire() {
	for len(e.timers) > 0 && e.timers[0].at <= e.now {
		t := heap.Pop(&e.timers).(timer)
		s := &e.states[t.id]
		if s.wait != t.at {
			continue // it waits for something else by now
		}
		s.wait = 0
		if s.dirty {
			s.cause = max(s.cause, CauseRetry)
			e.work = append(e.work, t.id)
		}
	}
}

func (e *Engine) wake() time.Duration {
	for len(e.timers) > 0 {
		t := e.timers[0]
		if e.states[t.id].wait == t.at && e.states[t.id].dirty {
			return t.at - e.now
		}
		heap.Pop(&e.timers)
	}
	return 0
}

// timer is when a vertex's wait is over. One whose vertex waits for another moment by now is void.
type timer struct {
	at time.Duration
	id ID
}

type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}
