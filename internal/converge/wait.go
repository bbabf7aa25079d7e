package converge

import (
	"container/heap"
	"math"
	"time"

	"tako.dev/tako/internal/reason"
)

// fighting reports whether the drift just found is one too many.
func (e *Engine) fighting(id ID) bool {
	s := &e.states[id]
	if s.holds > 0 && e.now-s.calmFrom > max(e.opts.ContendedWithin, e.holdOff(s.holds)) {
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
	if s.holds < math.MaxInt16 {
		s.holds++
	}
	s.repairs = int32(e.opts.ContendedAfter) - 1
	s.failedIn = Apply
	e.delay(id, e.holdOff(s.holds))
	s.calmFrom = s.wait
	e.budget(id)
	e.settle(id, reason.Contended, "", e.contended(id))
	e.rest(id)
}

func (e *Engine) contended(id ID) *reason.Error {
	return &reason.Error{Code: reason.RepairContended, Doing: "keep " + e.graph.Vertices[id].Title,
		Hint: "find who changes it and stop that, or stop declaring it"}
}

// pay takes a token of the vertex's lane, or puts the vertex in line for one. There is one line, and nobody looks before its
// turn: a crowd would look again with every token.
func (e *Engine) pay(id ID) bool {
	l := e.lane(id)
	if l.Burst == 0 {
		return true
	}
	turn := e.states[id].inLine
	e.leaveLine(id)
	wait := l.bucket.fill(l.Lane, e.now)
	if wait == 0 && (turn || l.waiting == 0) {
		l.bucket.tokens--
		return true
	}
	wait += time.Duration(l.waiting) * l.Every
	e.states[id].inLine = true
	l.waiting++
	e.delay(id, wait)
	e.settle(id, reason.Deferred, reason.Rate, &reason.Error{Code: reason.RateLimited, Doing: "repair " + e.graph.Vertices[id].Title, After: wait})
	e.rest(id)
	return false
}

func (e *Engine) leaveLine(id ID) {
	if s := &e.states[id]; s.inLine {
		s.inLine = false
		e.lane(id).waiting--
	}
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
	b := Budget{Digest: v.Digest, Attempts: int(s.attempts), Holds: int(s.holds), Wait: max(s.wait-e.now, 0)}
	if s.attempts > 0 && s.outcome != reason.Contended {
		b.Failure, b.Since = s.err, s.since.time()
	}
	e.out.Persist = append(e.out.Persist, Record{Kind: BudgetSpent, Target: v.Key, Budget: b})
}

// delay keeps a vertex waiting. One that is clean is not woken when the wait is over: it has an event to wait for, and must
// not act upon that before.
func (e *Engine) delay(id ID, d time.Duration) {
	s := &e.states[id]
	if d <= 0 {
		s.wait = 0
		e.work = append(e.work, id)
		return
	}
	s.wait = e.now + d
	if s.dirty {
		e.arm(id)
	}
}

// arm has a vertex woken when its wait is over.
func (e *Engine) arm(id ID) { heap.Push(&e.timers, timer{e.states[id].wait, id}) }

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
