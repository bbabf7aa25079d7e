package store

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// eventKind is what an event of the journal says. The numbers are on disk.
type eventKind uint8

const (
	notificationAdded eventKind = iota + 1
	notificationCleared
	changeVisible // all notifications of a source that have no stamp yet get one
	budgetSpent
	budgetCleared
	removalAdded
	removalOver // done or void
	originalKept
	originalDropped
	holdSet // in the place of the one of the same thing
	holdEnded
)

// event is one entry of the journal. Which fields count follows from the kind.
type event struct {
	Kind         eventKind     `cbor:"1,keyasint"`
	Key          converge.Key  `cbor:"2,keyasint,omitempty"` // the resource that it is about
	Seq          uint64        `cbor:"3,keyasint,omitempty"` // notificationCleared
	At           *host.Stamp   `cbor:"4,keyasint,omitempty"` // changeVisible
	Notification *notification `cbor:"5,keyasint,omitempty"`
	Budget       *budget       `cbor:"6,keyasint,omitempty"`
	Removal      *Removal      `cbor:"7,keyasint,omitempty"`
	Original     []byte        `cbor:"8,keyasint,omitempty"`
	Hold         *Hold         `cbor:"9,keyasint,omitempty"` // holdSet; holdEnded: what it is of
}

// promise reports whether somebody acts on the event because it is durable. Any other event is a fact: it is true whether
// it can be written down or not.
func (e *event) promise() bool {
	return e.Kind == notificationAdded || e.Kind == removalAdded || e.Kind == originalKept || e.Kind == holdSet
}

// complete reports whether what the kind needs is there.
func (e *event) complete() bool {
	switch e.Kind {
	case notificationAdded:
		return e.Notification != nil
	case changeVisible:
		return e.At != nil
	case budgetSpent:
		return e.Budget != nil
	case removalAdded:
		return e.Removal != nil
	case removalOver:
		_, ok := declare.ParseClaim(string(e.Key))
		return ok
	case holdSet, holdEnded:
		return e.Hold != nil
	case notificationCleared, budgetCleared, originalKept, originalDropped:
		return true
	}
	return false
}

// notification is one that has not been acted upon.
type notification struct {
	Target  converge.Key    `cbor:"1,keyasint"`
	Source  converge.Key    `cbor:"2,keyasint"`
	Cause   converge.Digest `cbor:"3,keyasint"`
	Seq     uint64          `cbor:"4,keyasint"`
	At      host.Stamp      `cbor:"5,keyasint"` // when it was announced, or, if Visible, when the change was there to be seen
	Visible bool            `cbor:"6,keyasint,omitempty"`
}

// budget is what a resource has used up, and when that was noted.
type budget struct {
	Digest   converge.Digest `cbor:"1,keyasint"`
	Attempts int             `cbor:"2,keyasint,omitempty"`
	Holds    int             `cbor:"3,keyasint,omitempty"`
	Wait     time.Duration   `cbor:"4,keyasint,omitempty"`
	At       int64           `cbor:"5,keyasint"` // nanoseconds since 1970
	Failure  *failure        `cbor:"6,keyasint,omitempty"`
}

// failure is what the last attempt came to, without the words of others: a program that was given a secret may have said it.
type failure struct {
	Code  reason.Code `cbor:"1,keyasint"`
	Doing string      `cbor:"2,keyasint,omitempty"`
	Since int64       `cbor:"3,keyasint"` // nanoseconds since 1970
}

// spent is a budget as it is kept.
func spent(b converge.Budget, now time.Time) *budget {
	out := &budget{Digest: b.Digest, Attempts: b.Attempts, Holds: b.Holds, Wait: b.Wait, At: now.UnixNano()}
	if e := b.Failure; e != nil {
		out.Failure = &failure{Code: e.Code, Doing: e.Doing, Since: b.Since.UnixNano()}
	}
	return out
}

// left returns the budget at a later moment. A clock that went backwards leaves the wait whole.
func (b *budget) left(now time.Time) converge.Budget {
	elapsed := max(now.Sub(time.Unix(0, b.At)), 0)
	out := converge.Budget{Digest: b.Digest, Attempts: b.Attempts, Holds: b.Holds, Wait: max(b.Wait-elapsed, 0)}
	if f := b.Failure; f != nil {
		out.Failure, out.Since = &reason.Error{Code: f.Code, Doing: f.Doing}, time.Unix(0, f.Since)
	}
	return out
}

// Removal is a resource that is not declared any more and has still to be undone.
type Removal struct {
	Claim    declare.Claim    `cbor:"1,keyasint"`
	Title    string           `cbor:"2,keyasint,omitempty"`
	Config   string           `cbor:"3,keyasint,omitempty"`
	Digest   converge.Digest  `cbor:"4,keyasint"`
	OnRemove declare.OnRemove `cbor:"5,keyasint,omitempty"`
	Body     []byte           `cbor:"6,keyasint,omitempty"` // as in Entry
	After    []declare.Claim  `cbor:"7,keyasint,omitempty"` // as in Entry
	Since    time.Time        `cbor:"8,keyasint"`           // when it left the declaration
}

// Hold is what a person keeps on this host as it is, beside what the host's cluster holds.
type Hold struct {
	Config string `cbor:"1,keyasint,omitempty"` // as catalog.ConfigName says; empty: all
	Claim  string `cbor:"2,keyasint,omitempty"` // text form; empty: all
	Reason string `cbor:"3,keyasint,omitempty"` // for whoever finds it
	Owner  string `cbor:"4,keyasint,omitempty"`
	Until  int64  `cbor:"5,keyasint,omitempty"` // seconds since 1970; it ends then by itself
}

// thing is what a hold is of: there is one of each.
func (h *Hold) thing() string { return h.Config + "|" + h.Claim }

// numbered is a removal with its place in the order of adding.
type numbered struct {
	Removal
	number uint64
}

// ledger is what the events of a journal come to. It does no I/O.
type ledger struct {
	notifications map[uint64]notification   // by number
	unseen        map[converge.Key][]uint64 // by source: notifications that are not visible yet
	budgets       map[converge.Key]budget
	originals     map[converge.Key][]byte
	removals      map[declare.Claim]numbered
	holds         map[string]Hold // by thing
	lastRemoval   uint64
}

func newLedger() ledger {
	return ledger{
		notifications: map[uint64]notification{}, unseen: map[converge.Key][]uint64{}, budgets: map[converge.Key]budget{},
		originals: map[converge.Key][]byte{}, removals: map[declare.Claim]numbered{}, holds: map[string]Hold{},
	}
}

// apply takes in one complete event. What clears something that is not there changes nothing.
func (l *ledger) apply(e *event) {
	switch e.Kind {
	case notificationAdded:
		n := *e.Notification
		if was, ok := l.notifications[n.Seq]; ok {
			l.seen(was.Source, n.Seq)
		}
		l.notifications[n.Seq] = n
		if !n.Visible {
			l.unseen[n.Source] = append(l.unseen[n.Source], n.Seq)
		}
	case notificationCleared:
		if n, ok := l.notifications[e.Seq]; ok && n.Target == e.Key {
			delete(l.notifications, e.Seq)
			l.seen(n.Source, e.Seq)
		}
	case changeVisible:
		for _, seq := range l.unseen[e.Key] {
			n := l.notifications[seq]
			n.At, n.Visible = *e.At, true
			l.notifications[seq] = n
		}
		delete(l.unseen, e.Key)
	case budgetSpent:
		l.budgets[e.Key] = *e.Budget
	case budgetCleared:
		delete(l.budgets, e.Key)
	case removalAdded:
		l.lastRemoval++
		l.removals[e.Removal.Claim] = numbered{*e.Removal, l.lastRemoval}
	case removalOver:
		claim, _ := declare.ParseClaim(string(e.Key))
		delete(l.removals, claim)
	case originalKept:
		l.originals[e.Key] = e.Original
	case originalDropped:
		delete(l.originals, e.Key)
	case holdSet:
		l.holds[e.Hold.thing()] = *e.Hold
	case holdEnded:
		delete(l.holds, e.Hold.thing())
	}
}

// seen takes a notification off the list of those without a stamp.
func (l *ledger) seen(source converge.Key, seq uint64) {
	rest := slices.DeleteFunc(l.unseen[source], func(s uint64) bool { return s == seq })
	if len(rest) == 0 {
		delete(l.unseen, source)
		return
	}
	l.unseen[source] = rest
}

// events yields what makes an empty ledger into this one, in an order that depends on nothing else. An event is valid until
// the next one.
func (l *ledger) events() iter.Seq[*event] {
	return func(yield func(*event) bool) {
		for _, seq := range slices.Sorted(maps.Keys(l.notifications)) {
			n := l.notifications[seq]
			if !yield(&event{Kind: notificationAdded, Notification: &n}) {
				return
			}
		}
		for _, key := range slices.Sorted(maps.Keys(l.budgets)) {
			b := l.budgets[key]
			if !yield(&event{Kind: budgetSpent, Key: key, Budget: &b}) {
				return
			}
		}
		for _, key := range slices.Sorted(maps.Keys(l.originals)) {
			if !yield(&event{Kind: originalKept, Key: key, Original: l.originals[key]}) {
				return
			}
		}
		for _, r := range l.inOrder() {
			if !yield(&event{Kind: removalAdded, Removal: &r.Removal}) {
				return
			}
		}
		for _, thing := range slices.Sorted(maps.Keys(l.holds)) {
			h := l.holds[thing]
			if !yield(&event{Kind: holdSet, Hold: &h}) {
				return
			}
		}
	}
}

func (l *ledger) inOrder() []numbered {
	return slices.SortedFunc(maps.Values(l.removals), func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
}

// since returns the latest stamp of what a target is owed, up to a number. A moment of this boot is later than all of
// earlier boots, and among those any will do: every start that can still be seen is later.
func (l *ledger) since(target converge.Key, upto uint64, boot string) host.Stamp {
	var last host.Stamp
	for _, n := range l.notifications {
		if n.Target != target || n.Seq > upto {
			continue
		}
		if n.At.Boot == boot && (last.Boot != boot || n.At.USec > last.USec) || last.Boot == "" {
			last = n.At
		}
	}
	return last
}

// reckon decides what a crash left open: a change that may have become visible is taken to have done so just now if it was
// announced in this boot, and otherwise when it was announced, because every later start is in a later boot.
func (l *ledger) reckon(now host.Stamp) []event {
	var found []event
	for _, seqs := range l.unseen {
		for _, seq := range seqs {
			n := l.notifications[seq]
			if n.At.Boot == now.Boot {
				n.At = now
			}
			n.Visible = true
			found = append(found, event{Kind: notificationAdded, Notification: &n})
		}
	}
	return found
}

// owners returns the claims that the ledger knows something of besides a removal.
func (l *ledger) owners() map[declare.Claim]bool {
	found := map[declare.Claim]bool{}
	add := func(key converge.Key) {
		claim, _ := declare.ParseClaim(string(key))
		found[claim] = true
	}
	for _, n := range l.notifications {
		add(n.Target)
	}
	for key := range l.budgets {
		add(key)
	}
	for key := range l.originals {
		add(key)
	}
	return found
}

// forget returns the events that take off the ledger what it knows of some claims, removals apart.
func (l *ledger) forget(claims map[declare.Claim]bool) []event {
	var gone []event
	concerned := func(key converge.Key) bool {
		claim, _ := declare.ParseClaim(string(key))
		return claims[claim]
	}
	for seq, n := range l.notifications {
		if concerned(n.Target) {
			gone = append(gone, event{Kind: notificationCleared, Key: n.Target, Seq: seq})
		}
	}
	for key := range l.budgets {
		if concerned(key) {
			gone = append(gone, event{Kind: budgetCleared, Key: key})
		}
	}
	for key := range l.originals {
		if concerned(key) {
			gone = append(gone, event{Kind: originalDropped, Key: key})
		}
	}
	return gone
}
