package converge

import (
	"errors"
	"math"
	"time"

	"tako.dev/tako/internal/reason"
)

// Window says when a vertex may be acted upon. Vertices that have the same one share one value, which can be compared.
type Window interface {
	// Open reports whether the window is open at a time, which is in the host's zone, and when it opens next; zero is never again. It is
	// asked anew whenever clocks were set.
	Open(now time.Time) (open bool, next time.Time)
}

// untilOpen is the wait of a vertex that waits for its window, and not for a time: how long that is depends on how clocks are set.
const untilOpen = time.Duration(math.MaxInt64)

var errNeverAgain = errors.New("none of its windows opens again")

// opensAt says when a window opens.
type opensAt time.Time

func (t opensAt) Error() string { return "it opens at " + time.Time(t).Format(time.RFC3339) }

// door is a window that somebody waits for, or was asked about in this step.
type door struct {
	window  Window
	waiting []ID // some of them may wait for something else by now
	asked   time.Time
	open    bool
	next    time.Time
}

// look asks the window, unless the last answer still holds.
func (d *door) look(now time.Time) {
	now = now.Round(0) // what clocks show, without the count of what has passed: that never goes back, and would go before it in comparing
	same := !d.asked.IsZero() && d.asked.Location() == now.Location() && !now.Before(d.asked)
	if same && (now.Equal(d.asked) || !d.open && (d.next.IsZero() || now.Before(d.next))) {
		return
	}
	d.open, d.next = d.window.Open(now)
	d.asked = now
}

// doorOf returns the door of a window, as it is now.
func (e *Engine) doorOf(w Window) *door {
	d := e.doors[w]
	if d == nil {
		d = &door{window: w}
		if e.doors == nil {
			e.doors = map[Window]*door{}
		}
		e.doors[w] = d
		e.doorOrder = append(e.doorOrder, d)
	}
	d.look(e.wall)
	return d
}

// shut reports whether a vertex may not be acted upon so, because it is outside of its window.
func (e *Engine) shut(id ID, verb Verb) bool {
	v := &e.graph.Vertices[id]
	if v.Window == nil || verb == Check || verb == Apply && !v.Frozen || e.freed || e.free[id] {
		return false
	}
	return !e.doorOf(v.Window).open
}

// awaitWindow settles a vertex that has to be acted upon, and may not be before its window opens. It stays dirty.
func (e *Engine) awaitWindow(id ID, verb Verb) {
	s, v := &e.states[id], &e.graph.Vertices[id]
	d := e.doorOf(v.Window)
	s.failedIn, s.dirty = verb, true
	s.wait = untilOpen
	if !s.atDoor {
		s.atDoor = true
		d.waiting = append(d.waiting, id)
	}
	why := &reason.Error{Code: reason.WindowShut, Doing: "change " + v.Title}
	if verb == Refresh {
		why.Doing = "refresh " + v.Title
	}
	if d.next.IsZero() {
		why.Cause, why.Hint = errNeverAgain, "declare a window that will open"
	} else {
		why.After, why.Cause = d.next.Sub(e.wall), opensAt(d.next)
	}
	e.settle(id, reason.Deferred, reason.Window, why)
	e.rest(id)
}

// openDoors lets go on what has waited for a window that is open now.
func (e *Engine) openDoors() {
	for _, d := range e.doorOrder {
		if len(d.waiting) == 0 {
			continue
		}
		if d.look(e.wall); d.open {
			e.letGo(d, func(ID) bool { return true })
		}
	}
}

// letGo ends the wait of those before a door that go.
func (e *Engine) letGo(d *door, goes func(ID) bool) {
	stay := d.waiting[:0]
	for _, id := range d.waiting {
		s := &e.states[id]
		if s.wait == untilOpen && !goes(id) {
			stay = append(stay, id)
			continue
		}
		s.atDoor = false
		if s.wait == untilOpen {
			s.wait = 0
			s.cause = max(s.cause, CauseRetry)
			e.work = append(e.work, id)
		}
	}
	d.waiting = stay
}

// release lets vertices go on without their window.
func (e *Engine) release(ids []ID) {
	if ids == nil {
		e.freed = true
	}
	for _, id := range ids {
		if e.free == nil {
			e.free = map[ID]bool{}
		}
		e.free[id] = true
	}
	for _, d := range e.doorOrder {
		e.letGo(d, func(id ID) bool { return e.freed || e.free[id] })
	}
}

// opens is when the first of the windows opens that somebody waits for.
func (e *Engine) opens() (first time.Time) {
	for _, d := range e.doorOrder {
		waits := false
		for _, id := range d.waiting {
			waits = waits || e.states[id].wait == untilOpen
		}
		if waits && !d.next.IsZero() && (first.IsZero() || d.next.Before(first)) {
			first = d.next
		}
	}
	return first
}

// unhold makes due what was deferred because somebody held it.
func (e *Engine) unhold(ids []ID) {
	for _, id := range ids {
		s := &e.states[id]
		if s.detail != reason.Held || s.wait <= e.now {
			continue
		}
		s.wait = 0
		e.soil(id, CauseRetry)
		e.work = append(e.work, id)
	}
}
