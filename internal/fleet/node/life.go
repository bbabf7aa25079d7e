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
	heard      time.Time // anything, of anybody with this identity
	conn       uint64    // newest connection
	opened     time.Time // when
	closed     time.Time // when it ended; zero: it did not
	dead       bool      // it was ended by TCP keepalive
	unanswered int       // heartbeats
	asked      time.Time // the last heartbeat
	spared     time.Time // heartbeats before need no answer

	session  Session
	number   uint64
	accepted time.Time // the last report that was in order
	have     catalog.Mark
	high     catalog.Mark
	cloned   time.Time // when a second agent was seen last; zero: never

	shown steadiness
}

// How long what is over may still be heard of, in transit or from a connection that is not closed yet: 15 s, as long as a dead
// connection may take to end (TCP keepalive after 12 s, and some).
const lateMax = 15 * time.Second

// clonedQuiet is how long no second agent must have been seen until it counts as gone: 10 minutes, in which either of the two
// reports at least twice: twice quietMax.
const clonedQuiet = 10 * time.Minute

// Opened is told of a new connection of the node. Connections are numbered as they are opened, from 1 on, whatever server has them.
func (l *Life) Opened(conn uint64, now time.Time) {
	if conn <= l.conn {
		return
	}
	l.conn, l.opened, l.closed, l.dead, l.unanswered, l.spared = conn, now, time.Time{}, false, 0, time.Time{}
}

// Closed is told that a connection has ended; dead says that TCP keepalive has ended it.
func (l *Life) Closed(conn uint64, dead bool, now time.Time) {
	if conn == l.conn && l.closed.IsZero() {
		l.closed, l.dead = now, dead
	}
}

// Away says whether the newest connection has ended, and not by the loss of host or link.
func (l *Life) Away() bool { return !l.closed.IsZero() && !l.dead }

// Spared is told that the agent was asked not to report before a moment, unless something changes. An earlier moment does not end a later
// one: which of two answers came to the agent last is not known.
func (l *Life) Spared(until time.Time) {
	if until.After(l.spared) {
		l.spared = until
	}
}

// Asked is told that a heartbeat was written to a connection.
func (l *Life) Asked(conn uint64, now time.Time) {
	if conn == l.conn && !now.Before(l.spared) {
		l.unanswered++
		l.asked = now
	}
}

// Heard is told of a report.
func (l *Life) Heard(r Report, now time.Time) {
	l.heard = now
	switch l.judge(&r, now) {
	case inOrder:
		l.accepted = now
		l.session, l.number, l.have = r.Session, r.Number, r.Have
		l.high = higher(l.high, r.Have)
	case second:
		l.cloned = now
		if r.Conn < l.conn && !l.closed.IsZero() {
			// The agent that came last has gone, and this one is left.
			l.conn, l.opened, l.closed, l.dead = r.Conn, now, time.Time{}, false
		}
	case repeated, late:
	}
	if r.Conn == l.conn {
		l.unanswered = 0
	}
}

type standing uint8

const (
	inOrder standing = iota
	repeated
	late   // it was overtaken
	second // it is of a second agent
)

// judge says what a report is to the session that is known.
func (l *Life) judge(r *Report, now time.Time) standing {
	order := cmp.Or(cmp.Compare(r.Session.Start, l.session.Start), cmp.Compare(r.Number, l.number))
	switch {
	case l.accepted.IsZero():
		return inOrder
	case r.Conn == l.conn && now.Sub(l.accepted) > clonedQuiet:
		return inOrder // there is one agent only; where it has started less often than the last one, its disk is an old one
	case r.Conn < l.conn && now.Sub(l.opened) > lateMax:
		return second
	case r.Conn < l.conn:
		return late
	case r.Session.Start == l.session.Start && r.Session.ID != l.session.ID:
		return second
	case order > 0:
		return inOrder
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
