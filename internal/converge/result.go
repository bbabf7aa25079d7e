package converge

import "tako.dev/tako/internal/reason"

// soonMax is how often in a row a lost race is tried again at once before it backs off like any failure.
const soonMax = 3

// done takes the results of an operation.
func (e *Engine) done(d Done) {
	o, known := e.ops[d.Token]
	if !known {
		return // a driver's double report changes nothing
	}
	delete(e.ops, d.Token)
	o.lane.inFlight--
	if o.verb == Check {
		o.lane.checking--
	}
	for i, id := range o.ids {
		r := Result{Err: &reason.Error{Code: reason.InternalFault, Doing: o.verb.String(), Hint: "the driver returned too few results"}}
		if i < len(d.Results) {
			r = d.Results[i]
		}
		if o.verb == Apply {
			e.conclude(o.told[i], o.keys[i], r.Changed)
		}
		if id == None {
			continue
		}
		s := &e.states[id]
		was := s.phase
		s.phase = idle
		if o.verb != Refresh && (was == stale || r.Err != nil || o.verb == Check && !r.InSync) {
			s.depth = max(s.depth, o.seen[i]) // a shallow look might not find again what a deep one did
		}
		switch {
		case was == stale:
			s.again = false
			s.dirty = !e.graph.Vertices[id].NotApplicable
			e.work = append(e.work, id)
		case o.verb == Check:
			e.checked(id, r)
		case o.verb == Apply:
			e.applied(id, r)
		case o.verb == Refresh:
			e.refreshed(id, r)
		}
	}
}

// checked takes a check's result.
func (e *Engine) checked(id ID, r Result) {
	s := &e.states[id]
	peek := s.peek
	s.peek = false
	switch {
	case r.Err != nil && peek && s.outcome == reason.Failed:
		s.err = r.Err // it still fails; its turn has not come
		e.rest(id)
	case r.Err != nil:
		e.fail(id, Check, r.Err)
	case r.InSync && peek && s.wait > e.now && e.owes(id):
		e.rest(id) // a refresh failed; its turn has not come
	case r.InSync:
		e.inSync(id, r.Recognised)
	case peek && s.wait > e.now && (s.inLine || s.failedIn != Check):
		e.rest(id)
	case s.badPreds > 0:
		e.block(id)
	default:
		s.wait = 0
		e.differs(id)
	}
}

// rest puts a dirty vertex back to waiting. A touch during the look that ends here asks for another.
func (e *Engine) rest(id ID) {
	s := &e.states[id]
	s.peek = s.again && s.outcome != reason.Contended
	s.again = false
	e.work = append(e.work, id)
}

// inSync settles a vertex that is as desired, or goes on to what it still owes.
func (e *Engine) inSync(id ID, recognised bool) {
	s := &e.states[id]
	e.proved(id)
	// A repair stays visible until a later look finds the vertex still in order; recognising our own work is no such look.
	if !(recognised && s.outcome == reason.Repaired) && !(s.outcome == reason.Kept) && !e.owes(id) {
		e.settle(id, reason.Kept, "", nil)
	}
	e.finish(id)
}

// proved notes that a vertex is converged and has nothing to wait for.
func (e *Engine) proved(id ID) {
	s := &e.states[id]
	s.proven, s.wait = true, 0
	if s.attempts > 0 && !e.owes(id) {
		s.attempts = 0
		e.budget(id)
	}
}

// differs plans an apply, unless a brake holds it.
func (e *Engine) differs(id ID) {
	s := &e.states[id]
	s.drift = s.proven
	if s.drift {
		if e.fighting(id) {
			e.hold(id)
			return
		}
		if !e.pay(id) {
			return
		}
	}
	s.phase = queuedApply
	l := e.lane(id)
	l.applies = append(l.applies, id)
}

// applied takes an apply's result.
func (e *Engine) applied(id ID, r Result) {
	s := &e.states[id]
	if r.Changed {
		for _, a := range e.graph.out[id] {
			e.look(a.to, CauseOrder, Shallow)
		}
	}
	if r.Err != nil {
		e.fail(id, Apply, r.Err)
		return
	}
	e.proved(id)
	if r.Changed {
		detail := reason.Change
		if s.drift {
			detail = reason.Drift
			s.repairs++
			s.calmFrom = e.now
		}
		e.settle(id, reason.Repaired, detail, nil)
	} else {
		e.settle(id, reason.Kept, "", nil)
	}
	e.finish(id)
}

// finish ends a successful pass: a refresh is due, or a touch meanwhile needs another look, or the vertex rests.
func (e *Engine) finish(id ID) {
	s := &e.states[id]
	s.dirty = s.again
	if s.again {
		s.again = false
		s.cause = CauseTouched
	} else if e.owes(id) {
		e.refresh(id)
		return
	}
	e.work = append(e.work, id)
}

// refresh queues what a vertex owes its notifiers.
func (e *Engine) refresh(id ID) {
	s := &e.states[id]
	s.dirty = true // until it has been done
	l := e.lane(id)
	if s.badPreds > 0 {
		e.block(id)
		return
	}
	if !e.pay(id) {
		return
	}
	s.phase = queuedRefresh
	l.refreshes = append(l.refreshes, id)
}

// refreshed takes a refresh's result.
func (e *Engine) refreshed(id ID, r Result) {
	s := &e.states[id]
	if r.Err != nil {
		e.fail(id, Refresh, r.Err)
		return
	}
	e.acquit(id)
	e.proved(id)
	switch {
	case r.Changed:
		e.settle(id, reason.Repaired, reason.Change, nil)
	case s.outcome != reason.Kept && s.outcome != reason.Repaired:
		e.settle(id, reason.Kept, "", nil)
	}
	e.finish(id)
}

// fail settles a vertex that could not be checked, applied or refreshed, and says when to try again.
func (e *Engine) fail(id ID, in Verb, err *reason.Error) {
	s := &e.states[id]
	s.failedIn, s.dirty = in, true
	s.again = s.again && in == Check // what we touched ourselves while failing is no news
	row := err.Entry()
	outcome, detail := row.Outcome, row.Detail
	if outcome.Converged() {
		outcome, detail = reason.Failed, reason.DetailError
	}
	switch {
	case row.Retry == reason.Never:
		s.dirty = s.again
		s.wait = 0
	case row.Retry == reason.WaitThen && err.After > 0:
		e.delay(id, err.After)
	case row.Retry == reason.Soon && s.attempts < soonMax:
		s.attempts++
		e.delay(id, 0)
	default:
		s.attempts++
		e.delay(id, e.backOff(int(s.attempts)))
		e.budget(id)
	}
	s.peek = s.again && s.wait > 0
	s.again = false
	e.settle(id, outcome, detail, err)
	e.work = append(e.work, id)
}
