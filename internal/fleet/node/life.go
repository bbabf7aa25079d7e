package node

import (
	"cmp"
	"time"

	"tako.dev/tako/internal/catalog"
)

// Session is one run of an agent.
type Session struct {
	ID    string // random, of this run
	Start uint64 // how often this agent has started; on its disk
}

// Report is what was heard from a node, as far as it matters here. The first comes with the connection.
type Report struct {
	Session Session
	Number  uint64       // of the report in its session; a repeated one has the same
	Conn    uint64       // connection that it came over, as Opened has it
	Have    catalog.Mark // what the agent enforces; zero: nothing yet
}

// Life is what the leader remembers of one node. The zero Life is that of a node that this leader has not heard.
type Life struct {
	heard  time.Time // anything, of anybody with this identity
	line   line      // the newest connection
	before line      // the one before that; zero: there was none

	session  Session
	number   uint64
	over     uint64    // the highest number of the session that was heard over a connection that is over, and counts as newer
	accepted time.Time // the last report that was in order
	have     catalog.Mark
	high     catalog.Mark
	cloned   time.Time // when a second agent was seen last; zero: never

	shown steadiness
}

// line is one connection of a node.
type line struct {
	conn       uint64
	through    string    // name of the relay that it goes through; empty: none
	opened     time.Time // when
	closed     time.Time // when it ended; zero: it did not
	dead       bool      // it was ended by TCP keepalive
	told       bool      // a report came over it
	unanswered int       // heartbeats
	asked      time.Time // the last heartbeat
	spared     time.Time // heartbeats before need no answer
}

// How long what is over may still be heard of, in transit or from a connection that is not closed yet: 15 s, as long as a dead
// connection may take to end (TCP keepalive after 12 s, and some).
const lateMax = 15 * time.Second

// clonedQuiet is how long no second agent must have been seen until it counts as gone: 10 minutes, in which either of the two
// reports at least twice: twice quietMax.
const clonedQuiet = 10 * time.Minute

// Opened is told of a new connection of the node, and of the relay that it goes through; empty: none. Connections are numbered as they are heard of, from
// 1 on, whatever server has them.
func (l *Life) Opened(conn uint64, through string, now time.Time) {
	if conn <= l.line.conn {
		return
	}
	l.before, l.line = l.line, line{conn: conn, through: through, opened: now}
}

// Closed is told that a connection has ended; dead says that TCP keepalive has ended it.
func (l *Life) Closed(conn uint64, dead bool, now time.Time) {
	for _, one := range []*line{&l.line, &l.before} {
		if conn == one.conn && one.closed.IsZero() {
			one.closed, one.dead = now, dead
		}
	}
}

// Away says whether the newest connection has ended, and not by the loss of host or link.
func (l *Life) Away() bool { return !l.line.closed.IsZero() && !l.line.dead }

// Through is the name of the relay that the newest connection goes through; empty: none.
func (l *Life) Through() string { return l.line.through }

// Spared is told that the agent was asked not to report before a moment, unless something changes. An earlier moment does not end a later
// one: which of two answers came to the agent last is not known.
func (l *Life) Spared(until time.Time) {
	if until.After(l.line.spared) {
		l.line.spared = until
	}
}

// Asked is told that a heartbeat was written to a connection.
func (l *Life) Asked(conn uint64, now time.Time) {
	if conn == l.line.conn && !now.Before(l.line.spared) {
		l.line.unanswered++
		l.line.asked = now
	}
}

// Heard is told of a report. It says whether that one tells how the node is now: one that was overtaken, or comes over a connection that is over, tells of
// the past.
func (l *Life) Heard(r Report, now time.Time) bool {
	l.heard = now
	standing := l.judge(&r, now)
	switch standing {
	case inOrder, resumed:
		if l.accepted = now; r.Conn > l.line.conn {
			l.over = r.Number
		} else if r.Session != l.session {
			l.over = 0
		}
		l.session, l.number, l.have = r.Session, r.Number, r.Have
		l.high = higher(l.high, r.Have)
		if standing == resumed || r.Conn > l.line.conn {
			l.backTo(r.Conn, now)
		}
	case second:
		l.cloned = now
		l.backTo(r.Conn, now) // the agent that came last has gone, and this one is left
	case past:
		l.line, l.over = l.before, max(l.over, r.Number)
		return false
	case repeated, late:
	}
	news := standing == inOrder || standing == resumed
	if r.Conn == l.line.conn {
		news = news || !l.line.told || r.Session != l.session
		l.line.told, l.line.unanswered = true, 0
	}
	return news
}

// backTo notes that an agent goes on over another connection than the newest one, where that has ended.
func (l *Life) backTo(conn uint64, now time.Time) {
	switch {
	case conn == l.line.conn || l.line.closed.IsZero():
	case conn == l.before.conn && l.before.closed.IsZero():
		l.line = l.before
	default:
		l.line = line{conn: conn, opened: now}
	}
}

type standing uint8

const (
	inOrder standing = iota
	resumed          // it is in order, and the newest connection is over, which was an old one
	repeated
	late   // it was overtaken
	past   // it is what is left of a connection that was over before the newest report was made
	second // it is of a second agent
)

// judge says what a report is to the session that is known.
func (l *Life) judge(r *Report, now time.Time) standing {
	order := cmp.Or(cmp.Compare(r.Session.Start, l.session.Start), cmp.Compare(r.Number, l.number))
	switch {
	case l.accepted.IsZero():
		return inOrder
	case r.Conn == l.line.conn && !l.line.told && r.Session == l.session && order < 0 && l.before.conn != 0:
		// An agent begins a connection with a report that it makes for it, and here is one from before the last that was heard. So the connection is an
		// old one, of which only now is told: by a relay or server that stood still, or was cut off, and does not know yet that its host has gone.
		return past
	case r.Conn == l.line.conn && now.Sub(l.accepted) > clonedQuiet:
		return inOrder // there is one agent only; where it has started less often than the last one, its disk is an old one
	case r.Conn < l.line.conn && !l.line.closed.IsZero() && r.Session == l.session && order > 0:
		return resumed
	case r.Conn < l.line.conn && now.Sub(l.line.opened) > lateMax:
		return second
	case r.Conn < l.line.conn:
		return late
	case r.Session.Start == l.session.Start && r.Session.ID != l.session.ID:
		return second
	case order > 0:
		return inOrder
	case r.Conn > l.line.conn && r.Number > l.over:
		return second // over a connection that was taken for what is left of one somebody goes on
	case order == 0:
		return repeated
	case now.Sub(l.accepted) > lateMax:
		return second
	}
	return late
}

func compareMarks(a, b catalog.Mark) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Version, b.Version))
}

// higher keeps the first of two that are equal: another root under one version is no progress.
func higher(a, b catalog.Mark) catalog.Mark {
	if compareMarks(b, a) > 0 {
		return b
	}
	return a
}
