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
	heard   time.Time // anything but what is past, of anybody with this identity
	line    line      // the connection that counts
	waiting line      // the newest that was opened since, and has not shown yet that it counts; zero: none

	session  Session
	number   uint64
	accepted time.Time // the last report that was in order
	have     catalog.Mark
	high     catalog.Mark
	news     Report    // the last one that was news
	left     remnant   // what was heard last of a connection that may be over
	cloned   time.Time // when a second agent was seen last; zero: never

	shown steadiness
}

// line is one connection of a node.
type line struct {
	conn       uint64
	through    string    // name of the relay that it goes through; empty: none
	opened     time.Time // when
	counts     time.Time // since when it is the one that counts
	closed     time.Time // when it ended; zero: it did not
	dead       bool      // it was ended by TCP keepalive
	unanswered int       // heartbeats
	asked      time.Time // the last heartbeat
	spared     time.Time // heartbeats before need no answer
}

// remnant is what was past of a connection.
type remnant struct {
	conn   uint64
	number uint64    // of the first report that was
	since  time.Time // when that came
}

// How long what is over may still be heard of, in transit or from a connection that is not closed yet: 15 s, as long as a dead
// connection may take to end (TCP keepalive after 12 s, and some).
const lateMax = 15 * time.Second

// stillMax is how long a relay or server may stand still that goes on afterwards as if nothing had been: 150 s after it has said something the leader
// ends its stream.
const stillMax = 150*time.Second + lateMax

// clonedQuiet is how long no second agent must have been seen until it counts as gone: 10 minutes, in which either of the two
// reports at least twice: twice quietMax.
const clonedQuiet = 10 * time.Minute

// Opened is told of a new connection of the node, and of the relay that it goes through; empty: none. Connections are numbered as the leader hears of
// them, from 1 on, whatever server has them. While the one that counts is open, another counts from its first report on.
func (l *Life) Opened(conn uint64, through string, now time.Time) {
	if conn <= max(l.line.conn, l.waiting.conn) {
		return
	}
	l.waiting = line{conn: conn, through: through, opened: now}
	if l.line.conn == 0 || !l.line.closed.IsZero() {
		l.moveTo(conn, now)
	}
}

// Closed is told that a connection has ended; dead says that TCP keepalive has ended it.
func (l *Life) Closed(conn uint64, dead bool, now time.Time) {
	if conn == l.waiting.conn {
		l.waiting = line{}
	}
	if conn != l.line.conn || !l.line.closed.IsZero() {
		return
	}
	if l.line.closed, l.line.dead = now, dead; l.waiting.conn != 0 {
		l.moveTo(l.waiting.conn, now)
	}
}

// moveTo has another connection count.
func (l *Life) moveTo(conn uint64, now time.Time) {
	if l.line = (line{conn: conn, opened: now}); conn == l.waiting.conn {
		l.line = l.waiting
	}
	if l.line.counts = now; l.waiting.conn <= conn {
		l.waiting = line{}
	}
}

// Away says whether the connection that counts has ended, and not by the loss of host or link.
func (l *Life) Away() bool { return !l.line.closed.IsZero() && !l.line.dead }

// Through is the name of the relay that the connection goes through that counts; empty: none.
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

// Worth is what a report tells.
type Worth uint8

// The worths.
const (
	// Past is a report that was made before the connection that counts, and comes over another one: a relay or server that stood still has kept it.
	// Nobody has said anything now.
	Past Worth = iota
	// Old is one that was overtaken by another, or repeated.
	Old
	// News tells how the node is now.
	News
)

// Heard is told of a report, and says what it is worth.
func (l *Life) Heard(r Report, now time.Time) Worth {
	standing := l.judge(&r, now)
	switch standing {
	case past:
		if l.left.conn != r.Conn {
			l.left = remnant{conn: r.Conn, number: r.Number, since: now}
		}
		return Past
	case inOrder:
		l.accepted = now
		l.session, l.number, l.have = r.Session, r.Number, r.Have
		l.high = higher(l.high, r.Have)
	case second:
		l.cloned = now
	case repeated, late:
	}
	l.heard = now
	newer, left := r.Conn > l.line.conn, r.Conn != l.line.conn && !l.line.closed.IsZero()
	if newer && (standing == inOrder || standing == repeated) || left && (standing == inOrder || standing == second) {
		l.moveTo(r.Conn, now)
	}
	if r.Conn == l.line.conn {
		l.line.unanswered = 0
	}
	if standing == inOrder || standing == second && r.Conn == l.line.conn && l.tells(&r) {
		l.news = r
		return News
	}
	return Old
}

// tells says whether a report is newer than the last that was news, of which agent ever.
func (l *Life) tells(r *Report) bool {
	return r.Conn > l.news.Conn || r.Session != l.news.Session || r.Number > l.news.Number
}

// mayBePast says whether an old report over another connection than the one that counts is what a relay or server has kept that stood still, or was cut off:
// that comes within moments of when it tells of the connection anew, or else before the leader takes the whole of it for gone, and all of it at once. A
// second agent goes on.
func (l *Life) mayBePast(r *Report, now time.Time) bool {
	switch {
	case r.Conn == l.left.conn && r.Number > l.left.number && now.Sub(l.left.since) > lateMax:
		return false
	case r.Conn < l.line.conn:
		return now.Sub(l.line.counts) <= stillMax
	case r.Conn == l.waiting.conn:
		return now.Sub(l.waiting.opened) <= lateMax
	}
	return true
}

type standing uint8

const (
	inOrder standing = iota
	repeated
	late   // it was overtaken
	past   // as Past
	second // it is of a second agent
)

// judge says what a report is to the session that is known.
func (l *Life) judge(r *Report, now time.Time) standing {
	order := cmp.Or(cmp.Compare(r.Session.Start, l.session.Start), cmp.Compare(r.Number, l.number))
	elsewhere := r.Conn != l.line.conn
	switch {
	case l.accepted.IsZero():
		return inOrder
	case r.Conn >= l.line.conn && now.Sub(l.accepted) > clonedQuiet:
		return inOrder // there is one agent only; where it has started less often than the last one, its disk is an old one
	case r.Conn < l.line.conn && now.Sub(l.line.counts) <= lateMax:
		return late
	case r.Session.Start == l.session.Start && r.Session.ID != l.session.ID:
		return second
	case r.Conn < l.line.conn && l.line.closed.IsZero() && order >= 0:
		return second // an agent has one connection, and makes no report for one before
	case order > 0:
		return inOrder
	case order == 0:
		return repeated
	case elsewhere && l.mayBePast(r, now):
		return past
	case elsewhere, now.Sub(l.accepted) > lateMax && now.Sub(l.line.opened) > lateMax:
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
