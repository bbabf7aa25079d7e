package node

import (
	"fmt"
	"time"

	"tako.dev/tako/internal/catalog"
)

// Presence is whether a node is there.
type Presence uint8

// The presences.
const (
	Unheard Presence = iota // not yet, by this leader
	Here
	Silent // the host is there, the agent does not answer
	Gone   // host or link are lost
)

var presenceNames = [...]string{"unheard", "here", "silent", "gone"}

// String is the presence's name.
func (p Presence) String() string {
	if int(p) < len(presenceNames) {
		return presenceNames[p]
	}
	return fmt.Sprintf("presence(%d)", uint8(p))
}

// ConditionStatus is True, False or Unknown, as in Kubernetes.
type ConditionStatus string

// The statuses.
const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown"
)

// The conditions of a node. All but Ready are bad when they are True.
const (
	Ready             = "Ready"
	Stale             = "Stale"
	Cloned            = "Cloned"
	RollbackSuspected = "RollbackSuspected"
)

// The reasons of conditions that are no condition themselves.
const (
	ReasonAnswering   = "Answering"
	ReasonAgentSilent = "AgentSilent"
	ReasonHostGone    = "HostGone"
	ReasonNeverHeard  = "NeverHeard"
	ReasonHeadValid   = "HeadValid"
	ReasonHeadExpired = "HeadExpired"
	ReasonClockAhead  = "ClockAhead"
	ReasonNoHead      = "NoHead"
	ReasonOneSession  = "OneSession"
	ReasonTwoSessions = "TwoSessions"
	ReasonInOrder     = "InOrder"
	ReasonWentBack    = "WentBack"
	ReasonStoreBehind = "StoreBehind"
)

// Condition is one of a node's status.
type Condition struct {
	Type    string
	Status  ConditionStatus
	Reason  string
	Message string    // for people
	Since   time.Time // of the status
}

// View is what is stored of a node, and since when the leader leads.
type View struct {
	Began   time.Time    // when this leader began
	Created time.Time    // when the node was made
	High    catalog.Mark // the highest mark stored; zero: none
	Was     []Condition  // the conditions stored
	// Judged says that the highest state which the host says it has accepted was compared with the store; Suspected is what is wrong
	// with that: the store does not know it. Empty: nothing.
	Judged    bool
	Suspected string
	// Expired is what the host says of the highest state that it has accepted, and Ahead how far its clock was before ours when it did.
	Expired bool
	Ahead   time.Duration
	// Herd is until when a node whose connection was closed is expected, with many others that come back; zero: it is not.
	Herd time.Time
}

// Decision is what is to be said of a node.
type Decision struct {
	Presence Presence
	// Believed is false while two agents have this identity: what one says need not be so on the other's host.
	Believed bool
	// Cordon keeps new instances away. What runs there stays, whatever the node's presence.
	Cordon     bool
	Conditions []Condition // Ready, Stale, Cloned, RollbackSuspected
	High       catalog.Mark
	// Store says that a status or a reason differs from what is stored, or that High has a later epoch or version.
	Store  bool
	WakeAt time.Time // when to decide again though nothing has happened; zero: not by itself
}

// The times of a node's life.
const (
	// UnheardMax is how long after a leader began a node may not have been heard: an agent finds a server again within its longest
	// back-off, 60 s, and half as much for the herd.
	UnheardMax = 90 * time.Second
	// closeGrace is how long a node may be away whose connection was closed, unless it is one of a herd: so that, like one whose host is lost,
	// it is told within 15 s.
	closeGrace = 10 * time.Second
	// unansweredMax is how many heartbeats may be unanswered.
	unansweredMax = 2
	// answerMax is how long the last of them waits for its answer: ours, long for a busy host and short against the 30 s between two.
	answerMax = 10 * time.Second
	// skewMax is how far two clocks may be apart that are set by the network, with the way of a report between them: above it is why a host
	// takes for expired what is not.
	skewMax = 2 * time.Minute
)

// Decide says what follows from what is known now. The Life is to be kept for the next decision, with what happens meanwhile told to it.
func Decide(l Life, v View, now time.Time) (Life, Decision) {
	alarm := alarms{now: now}
	raw := l.presence(&v, &alarm)
	d := Decision{High: higher(v.High, l.high)}
	d.Presence = l.shown.steady(raw, &alarm)
	cloned := l.clonedNow(&v, &alarm)
	d.Conditions = []Condition{l.ready(&v, d.Presence, cloned), l.stale(&v, &alarm), cloned, l.regressed(&v, d.High)}
	d.Believed = cloned.Status != True
	d.Cordon = !d.Believed || d.Presence == Silent || d.Presence == Gone
	d.Store = compareMarks(d.High, v.High) > 0
	for i := range d.Conditions {
		c, was := &d.Conditions[i], conditionOf(v.Was, d.Conditions[i].Type)
		d.Store = d.Store || c.Status != was.Status || c.Reason != was.Reason
		c.Since = now
		if c.Status == was.Status {
			c.Since = was.Since
		}
	}
	d.WakeAt = alarm.at
	return l, d
}

// alarms finds the next moment at which time alone changes something.
type alarms struct{ now, at time.Time }

// passed reports whether a moment is over; when not, it is one to wake up at.
func (a *alarms) passed(t time.Time) bool {
	if !t.After(a.now) {
		return true
	}
	if a.at.IsZero() || t.Before(a.at) {
		a.at = t
	}
	return false
}

// presence is what is to be seen now, however it was before.
func (l *Life) presence(v *View, alarm *alarms) Presence {
	switch {
	case l.heard.IsZero():
		began := v.Began
		if v.Created.After(began) {
			began = v.Created
		}
		if alarm.passed(began.Add(UnheardMax)) {
			return Gone
		}
		return Unheard
	case !l.line.closed.IsZero() && (l.line.dead || alarm.passed(l.expected(v))):
		return Gone
	case l.line.closed.IsZero() && l.line.unanswered >= unansweredMax && alarm.passed(l.line.asked.Add(answerMax)):
		return Silent
	}
	return Here
}

// expected is until when a node is waited for whose connection was closed.
func (l *Life) expected(v *View) time.Time {
	until, most := l.line.closed.Add(closeGrace), l.line.closed.Add(UnheardMax)
	switch {
	case v.Herd.After(most):
		return most
	case v.Herd.After(until):
		return v.Herd
	}
	return until
}

func conditionOf(all []Condition, kind string) Condition {
	for _, c := range all {
		if c.Type == kind {
			return c
		}
	}
	return Condition{Type: kind}
}

// ready is Unknown where nobody knows, and False where somebody should look.
func (l *Life) ready(v *View, p Presence, cloned Condition) Condition {
	c := conditionOf(v.Was, Ready)
	last := "it was never heard"
	switch {
	case !l.heard.IsZero():
		last = "it was last heard at " + l.heard.UTC().Format(time.RFC3339)
	case c.Status != "" && c.Reason != ReasonNeverHeard:
		last = "it was not heard since this server began to lead at " + v.Began.UTC().Format(time.RFC3339)
	}
	switch {
	case p == Unheard && c.Status != "":
		return c
	case p == Unheard, p == Gone && l.heard.IsZero() && (c.Status == "" || c.Reason == ReasonNeverHeard):
		c.Status, c.Reason, c.Message = Unknown, ReasonNeverHeard, last
	case p == Gone:
		c.Status, c.Reason, c.Message = Unknown, ReasonHostGone, last+l.lossText(p)
	case p == Silent:
		c.Status, c.Reason, c.Message = Unknown, ReasonAgentSilent, last+l.lossText(p)
	case cloned.Status == True:
		c.Status, c.Reason, c.Message = False, Cloned, cloned.Message
	default:
		c.Status, c.Reason, c.Message = True, ReasonAnswering, "the agent answers"
	}
	return c
}

// lossText goes on after when a node was heard last: which end of it has gone, or that it only has to prove that it stays.
func (l *Life) lossText(p Presence) string {
	switch {
	case l.heard.IsZero():
		return ""
	case l.shown.raw == Here:
		return fmt.Sprintf("; it is connected again, but was lost %d times shortly after one another, and counts as there if it stays until %s",
			l.shown.losses, l.shown.back.Add(l.shown.hold()).UTC().Format(time.RFC3339))
	case p == Silent:
		return fmt.Sprintf("; the host answers, and its agent left %d heartbeats unanswered", unansweredMax)
	case l.line.dead:
		return "; host or link are lost"
	}
	return "; its agent has ended the connection and opened no other"
}

// stale is about the highest head that the node has taken up. Before that is known the stored condition stays.
func (l *Life) stale(v *View, alarm *alarms) Condition {
	c := conditionOf(v.Was, Stale)
	switch {
	case l.accepted.IsZero() && c.Status != "":
	case l.have.Version == 0:
		c.Status, c.Reason, c.Message = Unknown, ReasonNoHead, "no signed state was reported yet"
	case alarm.passed(time.Unix(l.have.Expires, 0).UTC()):
		c.Status, c.Reason, c.Message = True, ReasonHeadExpired, "its signed state has expired; it is enforced all the same, and nothing new is begun with"
	case v.Expired && v.Ahead > skewMax:
		c.Status, c.Reason = True, ReasonClockAhead
		c.Message = fmt.Sprintf("its clock is ahead by %s, and by that its signed state has expired; it is enforced all the same, and nothing new is begun with until the clock is set", v.Ahead.Round(time.Minute))
	default:
		c.Status, c.Reason, c.Message = False, ReasonHeadValid, "its signed state is valid"
	}
	return c
}

// clonedNow keeps what an earlier leader has seen for as long as that would take to be seen again.
func (l *Life) clonedNow(v *View, alarm *alarms) Condition {
	c := conditionOf(v.Was, Cloned)
	seen := !l.cloned.IsZero() && !alarm.passed(l.cloned.Add(clonedQuiet))
	if seen || c.Status == True && !alarm.passed(v.Began.Add(clonedQuiet)) {
		c.Status, c.Reason = True, ReasonTwoSessions
		c.Message = "two agents have the identity of this node: one of them is a copy, and has to join under its own name"
		return c
	}
	c.Status, c.Reason, c.Message = False, ReasonOneSession, "one agent has this identity"
	return c
}

func (l *Life) regressed(v *View, high catalog.Mark) Condition {
	c := conditionOf(v.Was, RollbackSuspected)
	switch order := compareMarks(l.have, high); {
	case v.Suspected != "":
		c.Status, c.Reason, c.Message = True, ReasonStoreBehind, v.Suspected
	case !v.Judged && c.Status == True && c.Reason == ReasonStoreBehind: // a host says that before it is compared
	case l.accepted.IsZero() && c.Status != "":
	case !l.accepted.IsZero() && (order < 0 || l.have.Root != high.Root):
		c.Status, c.Reason = True, ReasonWentBack
		c.Message = fmt.Sprintf("it had taken up version %d of epoch %d, and reports less or another root: its disk is an older one, or another", high.Version, high.Epoch)
	default:
		c.Status, c.Reason, c.Message = False, ReasonInOrder, "it has gone forward only"
	}
	return c
}
