package converge

import (
	"time"

	"tako.dev/tako/internal/reason"
)

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
			e.conclude(id, o.keys[i], r.Changed)
		}
		if id == None {
			continue
		}
		s := &e.states[id]
		was := s.phase
		s.phase = idle
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
			e.refreshed(id, o.upto[i], r)
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
	case s.badPreds > 0:
		e.block(id)
	case peek && s.wait > e.now && s.failedIn != Check:
		e.rest(id)
	default:
		s.wait = 0
		e.differs(id)
	}
}

// rest puts a dirty vertex back to waiting.
func (e *Engine) rest(id ID) { e.work = append(e.work, id) }

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
		if wait, ok := e.lane(id).bucket.take(e.lane(id).Lane, e.now); !ok {
			e.deferRate(id, wait)
			return
		}
	}
	s.phase = queuedApply
	l := e.lane(id)
	l.applies = append(l.applies, id)
}

// fighting reports whether the drift just found is one too many.
func (e *Engine) fighting(id ID) bool {
	s := &e.states[id]
	if s.holds > 0 && e.now-s.fixedAt > max(e.opts.ContendedWithin, e.holdOff(s.holds)) {
		s.holds, s.repairs = 0, 0
		e.budget(id)
	}
	if s.holds == 0 && e.now-s.windowAt > e.opts.ContendedWithin {
		s.windowAt, s.repairs = e.now, 0
	}
	return int(s.repairs) >= e.opts.ContendedAfter
}

func (e *Engine) holdOff(holds int16) time.Duration {
	return doubled(e.opts.HoldOffMin, e.opts.HoldOffMax, int(holds))
}

// hold leaves a contended vertex alone for a while. After it, one repair is tried.
func (e *Engine) hold(id ID) {
	s := &e.states[id]
	s.holds++
	s.repairs = int16(e.opts.ContendedAfter) - 1
	e.delay(id, e.holdOff(s.holds))
	e.budget(id)
	title := e.graph.Vertices[id].Title
	e.settle(id, reason.Contended, "", &reason.Error{Code: reason.RepairContended, Doing: "keep " + title,
		Hint: "find who changes it and stop that, or stop declaring it"})
	e.rest(id)
}

func (e *Engine) deferRate(id ID, wait time.Duration) {
	e.delay(id, wait)
	e.states[id].failedIn = Check // a cure from outside, or a token, lets it go on
	e.settle(id, reason.Deferred, reason.Rate, &reason.Error{Code: reason.RateLimited, Doing: "repair " + e.graph.Vertices[id].Title, After: wait})
	e.rest(id)
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
			s.fixedAt = e.now
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
	if wait, ok := l.bucket.take(l.Lane, e.now); !ok {
		e.deferRate(id, wait)
		return
	}
	s.phase = queuedRefresh
	l.refreshes = append(l.refreshes, id)
}

// refreshed takes a refresh's result.
func (e *Engine) refreshed(id ID, upto uint64, r Result) {
	s := &e.states[id]
	if r.Err != nil {
		e.fail(id, Refresh, r.Err)
		return
	}
	e.acquit(id, upto)
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

// backOff is the delay after n failed attempts in a row: half of it fixed, half drawn.
func (e *Engine) backOff(n int) time.Duration {
	d := doubled(e.opts.BackOffMin, e.opts.BackOffMax, n)
	return d/2 + time.Duration(e.rand.Int64N(int64(d/2)+1))
}

// doubled is least, doubled n-1 times, at most most.
func doubled(least, most time.Duration, n int) time.Duration {
	d := least
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// budget records what a vertex has used up.
func (e *Engine) budget(id ID) {
	s, v := &e.states[id], &e.graph.Vertices[id]
	if s.attempts == 0 && s.holds == 0 {
		e.out.Persist = append(e.out.Persist, Record{Kind: BudgetCleared, Target: v.Key})
		return
	}
	e.out.Persist = append(e.out.Persist, Record{Kind: BudgetSpent, Target: v.Key,
		Budget: Budget{Digest: v.Digest, Attempts: int(s.attempts), Holds: int(s.holds), Wait: max(s.wait-e.now, 0)}})
}
