package converge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
)

// Engine converges one Graph. It is not safe for concurrent use.
type Engine struct {
	graph *Graph
	opts  Options
	rand  *rand.Rand
	clock
	states    []state
	lanes     map[string]*lane
	laneOrder []*lane
	ops       map[Token]*op
	pending   map[ID]*owed
	timers    timers
	doors     map[Window]*door
	doorOrder []*door
	free      map[ID]bool // vertices for which windows do not count until nothing is due any more
	freed     bool        // they do not for any
	work      []ID        // vertices to evaluate
	busy      int         // vertices with busy set
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
	}
	e.resumeBudgets(r.Budgets)
	e.resumePending(r.Pending)
	return e, nil
}

// resumeBudgets takes over what vertices have used up; the first Step forgets what nobody has any more.
func (e *Engine) resumeBudgets(budgets map[Key]Budget) {
	for _, k := range sortedKeys(budgets) {
		b, id := budgets[k], e.graph.ID(k)
		if id == None || e.graph.Vertices[id].NotApplicable || e.graph.Vertices[id].Digest != b.Digest {
			e.out.Persist = append(e.out.Persist, Record{Kind: BudgetCleared, Target: k})
			continue
		}
		s := &e.states[id]
		s.attempts, s.holds = int32(b.Attempts), int16(min(b.Holds, math.MaxInt16))
		if b.Holds > 0 {
			s.repairs = int32(e.opts.ContendedAfter) - 1
		}
		// The clock may have leapt while nobody ran, so the wait is trusted only as far as a wait can be.
		wait := min(b.Wait, e.opts.HoldOffMax)
		s.calmFrom = wait
		s.failedIn = Apply // it is not known in what; an event before its turn must not act
		if s.holds > 0 && s.attempts == 0 {
			s.outcome, s.err = reason.Contended, e.contended(id)
		}
		if b.Failure != nil {
			s.outcome, s.detail = classify(b.Failure)
			s.err, s.since = b.Failure, instantOf(b.Since)
			e.setFailed(id, s.outcome == reason.Failed)
		}
		e.delay(id, wait)
		s.peek = true // a cure while nobody ran is noticed at once
	}
}

// resumePending takes over what is owed. Whether the applies of an earlier process changed anything is not known, so
// everything that they announced counts. The first Step clears what nobody can act upon.
func (e *Engine) resumePending(left []Pending) {
	for _, p := range left {
		e.lastSeq = max(e.lastSeq, p.Seq)
		id := e.graph.ID(p.Target)
		if id == None || e.graph.Vertices[id].NotApplicable {
			e.out.Persist = append(e.out.Persist, Record{Kind: NotificationCleared, Target: p.Target, Seq: p.Seq})
			continue
		}
		if e.pending[id] == nil {
			e.pending[id] = &owed{}
		}
		e.pending[id].confirmed = append(e.pending[id].confirmed, notification{seq: p.Seq, source: p.Source})
	}
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
	e.doors, e.doorOrder, e.free = nil, nil, nil
	for _, l := range e.laneOrder {
		l.urgent, l.checks, l.applies, l.refreshes, l.waiting = nil, nil, nil, nil, 0
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
		for _, a := range g.after(ID(i)) {
			e.states[a.to].busyPreds++
			if a.kind.needs() && !e.states[i].ok {
				e.states[a.to].badPreds++
			}
		}
	}
}

// Step takes one event and returns what to do about it. now may leap either way; see clock.
func (e *Engine) Step(now time.Time, ev Event) Effects {
	e.advance(now)
	switch ev := ev.(type) {
	case Touched:
		for _, id := range ev.IDs {
			e.look(id, CauseTouched, Shallow)
		}
	case Examine:
		e.examine(ev)
	case Done:
		e.done(ev)
	case Unheld:
		e.unhold(ev.IDs)
	case Release:
		e.release(ev.IDs)
	case Tick:
	}
	return e.run()
}

// run does everything that is due now, and hands out the effects gathered since it was called last.
func (e *Engine) run() Effects {
	e.expire()
	e.openDoors()
	for e.evaluate(); ; e.evaluate() {
		for _, l := range e.laneOrder {
			e.dispatch(l)
		}
		// Dispatching may send a queued vertex back because something before it has become busy again.
		if len(e.work) == 0 {
			break
		}
	}
	if e.Quiet() {
		e.free, e.freed = nil, false
	}
	out := e.out
	out.Wake, out.Opens = e.wake(), e.opens()
	e.out = Effects{}
	return out
}

// Quiet reports whether nothing is due or in flight: everything is settled, or waits for time or an event.
func (e *Engine) Quiet() bool { return e.busy == 0 && len(e.ops) == 0 && len(e.work) == 0 }

// Graph returns the graph that the engine converges.
func (e *Engine) Graph() *Graph { return e.graph }

// Status returns what is known of a vertex.
func (e *Engine) Status(id ID) Status {
	s := &e.states[id]
	st := Status{Outcome: s.outcome, Detail: s.detail, Err: s.err, BlockedBy: s.blockedBy, Since: s.since.time(), Attempts: int(s.attempts)}
	switch {
	case s.wait == untilOpen:
		st.RetryAt = e.doorOf(e.graph.Vertices[id].Window).next
	case s.wait > e.now && s.dirty:
		st.RetryAt = e.wall.Add(s.wait - e.now)
	}
	return st
}

// Proven reports whether the vertex has been converged with its present desire, now or in an earlier process.
func (e *Engine) Proven(id ID) bool { return e.states[id].proven }

// Owes reports whether id has notifications that it has not acted upon yet.
func (e *Engine) Owes(id ID) bool { return e.owes(id) }

// Owed returns the sources of the notifications that id has not acted upon yet, each once.
func (e *Engine) Owed(id ID) []Key {
	var keys []Key
	if o := e.pending[id]; o != nil {
		for _, n := range o.confirmed {
			if !slices.Contains(keys, n.source) {
				keys = append(keys, n.source)
			}
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

// look makes a vertex due for a check. One that waits or is blocked is looked at without being acted upon, so that a cure
// from outside is noticed at once. A fight is not fed: while it lasts, its events are not even looked at.
func (e *Engine) look(id ID, why Cause, depth Depth) {
	s := &e.states[id]
	if e.graph.Vertices[id].NotApplicable || e.standsBy(id) && s.outcome == reason.NotApplicable && !s.dirty {
		return
	}
	s.depth = max(s.depth, depth)
	switch s.phase {
	case checking, applying, refreshing, stale, queuedApply, queuedRefresh:
		if s.again {
			why = max(s.next, why)
		}
		s.again, s.next = true, why
		return
	case idle, queuedCheck:
	}
	if s.wait > e.now || s.outcome == reason.Blocked {
		if s.outcome == reason.Contended && why != CauseExamined {
			return
		}
		s.peek = true
	}
	e.soil(id, why)
	e.work = append(e.work, id)
}

// soil marks a vertex dirty for a cause; the strongest cause stays.
func (e *Engine) soil(id ID, why Cause) {
	s := &e.states[id]
	if s.dirty {
		s.cause = max(s.cause, why)
		return
	}
	s.dirty, s.cause = true, why
	if s.wait > e.now {
		e.arm(id)
	}
}

// evaluate decides for each vertex on the work list whether it is due, waits or is blocked, until nothing changes. First come,
// first served: what nobody orders is done in the order of the graph.
func (e *Engine) evaluate() {
	for next := 0; next < len(e.work); next++ {
		id := e.work[next]
		s := &e.states[id]
		switch {
		case s.phase != idle:
		case s.outcome == reason.NotApplicable && s.since == 0:
			e.settle(id, reason.NotApplicable, "", nil)
			e.setBusy(id, false)
		case e.standsBy(id) && (s.busyPreds == 0 || !s.dirty):
			e.standDown(id)
		case !s.dirty, s.wait > e.now && !s.peek:
			e.setBusy(id, false)
		case s.busyPreds > 0:
			e.setBusy(id, true)
		case s.badPreds > 0 && !s.proven && s.wait > e.now:
			s.peek = false // why it waits is told; what blocks it is told when its turn comes
			e.setBusy(id, false)
		case s.badPreds > 0 && (!s.proven || s.outcome == reason.Blocked && !s.peek):
			e.block(id)
		default:
			s.phase = queuedCheck
			e.setBusy(id, true)
			e.lane(id).queueCheck(id, s.cause == CauseTouched)
		}
	}
	e.work = e.work[:0]
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
	for _, a := range e.graph.after(id) {
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
	for _, a := range e.graph.after(id) {
		if !a.kind.needs() {
			continue
		}
		after := &e.states[a.to]
		after.badPreds += step
		if after.dirty && (after.badPreds == 0 || ok && after.blockedBy == id) {
			e.work = append(e.work, a.to)
		}
	}
}

// settle writes a vertex's outcome and lets what comes after it go on.
func (e *Engine) settle(id ID, o reason.Outcome, d reason.Detail, err *reason.Error) {
	s := &e.states[id]
	changed := s.outcome != o || s.detail != d || s.since == 0
	if changed {
		s.since = instantOf(e.wall)
	}
	s.outcome, s.detail, s.err = o, d, err
	if o != reason.Blocked {
		s.blockedBy = None
	}
	if d != reason.Rate {
		e.leaveLine(id)
	}
	if changed || o == reason.Repaired || o == reason.Failed {
		e.out.Reports = append(e.out.Reports, Report{ID: id, Cause: s.cause, Status: e.Status(id)})
	}
	e.setOK(id, o.Converged())
	e.setFailed(id, o == reason.Failed)
}

// block settles a vertex that must not be touched because something it requires is not converged. It stays dirty.
func (e *Engine) block(id ID) {
	s := &e.states[id]
	s.peek, s.wait = false, 0
	by := None
	for _, edge := range e.graph.Before(id) {
		if edge.Kind.needs() && !e.states[edge.From].ok {
			by = edge.From
			break
		}
	}
	if s.outcome != reason.Blocked || s.blockedBy != by {
		s.blockedBy = by
		s.since = 0 // blocked by something else is news
		e.settle(id, reason.Blocked, "", nil)
	}
	e.setBusy(id, false)
	if s.again {
		e.rest(id)
	}
}
