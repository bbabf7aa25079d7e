package converge

import (
	"cmp"
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
	verdict
	fight
	gate
	wait     time.Duration // on the engine's clock: not tried before; 0 where it is not waiting
	attempts int32
	phase    phase
	depth    Depth
	cause    Cause
	next     Cause // what again is for
	failedIn Verb  // what is tried again when the wait is over; what only a Check waits for, a look may bring forward
	drift    bool  // what the last check found differs although it had been converged before, and does not follow
	follows  bool  // something before it was changed because of the declaration since it was converged last
	dirty    bool  // must be checked
	again    bool  // was touched while an operation was in flight
	peek     bool  // look although it waits or is blocked; do not act on what only its turn allows
	inLine   bool  // counted in its lane's waiting
	atDoor   bool  // listed with its window's door
	proven   bool  // has been converged with this desire
}

// verdict is how a vertex stands.
type verdict struct {
	err       *reason.Error
	since     instant
	detail    reason.Detail
	outcome   reason.Outcome
	blockedBy ID
}

// instant is a time of the wall clock in nanoseconds since 1970; 0 is never.
type instant int64

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(cmp.Or(t.UnixNano(), 1))
}

func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i))
}

// gate is what a vertex has to do with its neighbours.
type gate struct {
	busyPreds int32 // vertices it is ordered after that have not settled
	badPreds  int32 // vertices it requires that are not converged
	calls     int32 // vertices that have failed and want it then
	busy      bool  // counted in busyPreds of what comes after it
	ok        bool  // not counted in badPreds of what requires it
	failed    bool  // counted in calls of what is wanted when it has failed
}

// fight is what tells drift from a fight with somebody who keeps changing a vertex back.
type fight struct {
	windowAt time.Duration // start of the window that repairs are counted in
	calmFrom time.Duration // when the last repair of drift was done or the last hold-off ends: calm is counted from there
	repairs  int32         // of drift, in the window
	holds    int16         // hold-offs in a row
}

// op is an operation in flight. After a Swap an id may be None: the vertex is gone, its key is not.
type op struct {
	verb Verb
	lane *lane
	ids  []ID
	keys []Key
	told [][]Key // for an apply: whom it may have to notify
	seen []Depth // how deep each vertex was to be looked at
}
