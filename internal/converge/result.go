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
		// What an operation without a result has changed is not known, so it counts as a change.
		r := Result{Changed: true, Err: &reason.Error{Code: reason.InternalFault, Doing: o.verb.String(), Hint: "the driver returned too few results"}}
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
		case o.verb == Refresh && (r.Err != nil || r.Owed):
			e.uncover(id)
		case o.verb == Refresh && was == stale:
			e.acquit(id) // what it was told has been acted upon, whatever is desired of it now
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
	peek := s.peek && s.wait > e.now && s.wait != untilOpen // its turn has not come
	s.peek = false
	switch {
	case r.Err != nil && peek:
		e.stillFails(id, r.Err)
	case r.Err != nil:
		e.fail(id, Check, r.Err)
	case r.InSync && peek && (s.inLine || s.failedIn != Check) && e.owes(id):
		e.rest(id)
	case r.InSync:
		e.inSync(id, r.Recognised)
	case peek && (s.inLine || s.failedIn != Check):
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
	if s.again && s.outcome != reason.Contended {
		s.peek, s.cause = true, max(s.cause, s.next)
	}
	s.again = false
	e.work = append(e.work, id)
}

// stillFails notes what a look at a vertex that waits has come to. It is no attempt.
func (e *Engine) stillFails(id ID, err *reason.Error) {
	s := &e.states[id]
	if o, d := classify(err); s.outcome != o || s.detail != d {
		e.settle(id, o, d, err)
	}
	s.err = err
	e.rest(id)
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
	s.follows = s.follows && s.again // what changes while it is being looked at is for the next look
	if s.attempts > 0 && !e.owes(id) {
		s.attempts = 0
		e.budget(id)
	}
}

// differs plans an apply, unless a brake holds it.
func (e *Engine) differs(id ID) {
	s := &e.states[id]
	s.drift = s.proven && !s.follows
	if s.drift && e.graph.Vertices[id].Observe {
		e.leave(id)
		return
	}
	if e.shut(id, Apply) {
		e.awaitWindow(id, Apply)
		return
	}
	if s.proven {
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

// leave tells of a vertex that has drifted, and leaves it as it is. It has been converged, so a look that finds it in order ends that.
func (e *Engine) leave(id ID) {
	s := &e.states[id]
	s.dirty = s.again
	if s.again {
		s.again, s.cause = false, s.next
	}
	e.settle(id, reason.Deferred, reason.Told, &reason.Error{Code: reason.DriftTold, Doing: "watch " + e.graph.Vertices[id].Title})
	e.work = append(e.work, id)
}

// applied takes an apply's result.
func (e *Engine) applied(id ID, r Result) {
	s := &e.states[id]
	if r.Changed {
		for _, a := range e.graph.after(id) {
			if a.kind == Rescue {
				continue
			}
			// What a change of the declaration makes differ, as a unit does whose file was written, has not drifted.
			e.states[a.to].follows = e.states[a.to].follows || !s.drift
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
		s.cause = s.next
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
	if !e.shut(id, Refresh) && !e.pay(id) {
		return
	}
	s.phase = queuedRefresh
	l.refreshes = append(l.refreshes, id)
}

// refreshed takes a refresh's result.
func (e *Engine) refreshed(id ID, r Result) {
	s := &e.states[id]
	switch {
	case r.Err != nil:
		e.fail(id, Refresh, r.Err)
		return
	case r.Owed && e.shut(id, Refresh):
		e.awaitWindow(id, Refresh)
		return
	case r.Owed: // the window has opened meanwhile
		s.dirty, s.cause = true, max(s.cause, CauseRetry)
		e.rest(id)
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

// classify says what becomes of a vertex that ends with an error.
func classify(err *reason.Error) (reason.Outcome, reason.Detail) {
	row := err.Entry()
	if row.Outcome.Converged() {
		return reason.Failed, reason.DetailError
	}
	return row.Outcome, row.Detail
}

// fail settles a vertex that could not be checked, applied or refreshed, and says when to try again. What is not tried again
// by itself keeps to its back-off too when an event asks for it: the event may be our own attempt's.
func (e *Engine) fail(id ID, in Verb, err *reason.Error) {
	s := &e.states[id]
	row := err.Entry()
	s.failedIn, s.dirty = in, s.again || row.Retry != reason.Never
	outcome, detail := classify(err)
	spent := false
	switch {
	case row.Retry == reason.WaitThen && err.After > 0:
		e.delay(id, max(err.After, e.opts.BackOffMin))
	case row.Retry == reason.Soon && s.attempts < soonMax:
		s.attempts++
		e.delay(id, 0)
	default:
		s.attempts++
		e.delay(id, e.backOff(int(s.attempts)))
		spent = true
	}
	if s.again {
		s.peek, s.cause = true, max(s.cause, s.next)
	}
	s.again = false
	e.settle(id, outcome, detail, err)
	if spent {
		e.budget(id)
	}
	e.work = append(e.work, id)
}
