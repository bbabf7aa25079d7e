package events

import (
	"cmp"
	"container/heap"
	"fmt"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// Key is what is counted as one: a reason, given for one object.
type Key struct {
	Namespace string // of the event
	Kind      string
	Name      string
	UID       string // may be empty, as events have it
	Reason    string
}

// ID is the namespace and the name of an Event object.
type ID struct{ Namespace, Name string }

// Stored is what matters of an Event object: what it is about, how often and when it happened.
type Stored struct {
	ID          ID
	Key         Key
	Count       int
	First, Last time.Time
}

// Verdict says what becomes of an event that arrives.
type Verdict uint8

// The verdicts.
const (
	Create Verdict = iota + 1 // store it as a new object
	Merge                     // write Count, Last and the message into the object ID
	Defer                     // it is counted; Due will tell when to write it. To whoever sent it that is a success
	Refuse                    // not now: After says when to try again
)

// Decision is the answer to an event.
type Decision struct {
	Do          Verdict
	ID          ID   // the object that the event is in; of Refuse, none
	New         bool // of Create: there was no object of that name, as far as is known
	Count       int  // how often it happened, all in all
	First, Last time.Time
	After       time.Duration // of Refuse
	Why         string        // of Refuse, in words
}

// Evicted counts what was evicted, and says from when it was: the time of the oldest and of the newest.
type Evicted struct {
	Count    uint64
	From, To time.Time
}

// Options bound the events. The zero value takes the defaults.
type Options struct {
	// ObjectsMax is how many Event objects there may be. Default 50,000: some 50 MB in etcd.
	ObjectsMax int
	// WritesPerSecond is how many writes are admitted. Default 200: a tenth of what the server does with fsync.
	WritesPerSecond int
	// Burst is how many writes may come at once after a quiet time. Default one second's worth.
	Burst int
	// MergeEvery is how often one object is written at most, so that one thing that happens all the time does not take all
	// the writes. Default 1 s.
	MergeEvery time.Duration
}

// Eviction begins when 98 % of the objects are there and ends at 96 %: a thousand at a time rather than one by one, and the
// rest is room for what arrives meanwhile.
const (
	evictAbovePercent = 98
	evictToPercent    = 96
)

// refuseFull is how long to wait when all objects are there: the controller evicts within that.
const refuseFull = 5 * time.Second

func (o Options) withDefaults() Options {
	o.ObjectsMax = cmp.Or(o.ObjectsMax, 50_000)
	o.WritesPerSecond = cmp.Or(o.WritesPerSecond, 200)
	o.Burst = cmp.Or(o.Burst, o.WritesPerSecond)
	o.MergeEvery = cmp.Or(o.MergeEvery, time.Second)
	return o
}

func (o Options) validate() error {
	if o.ObjectsMax < 1 || o.WritesPerSecond < 1 || o.Burst < 1 || o.MergeEvery < 0 {
		return &reason.Error{Code: reason.InternalFault, Doing: "bound events",
			Cause: fmt.Errorf("%d objects, %d writes a second, %d at once, every %s: all must be positive", o.ObjectsMax, o.WritesPerSecond, o.Burst, o.MergeEvery)}
	}
	return nil
}

// entry is one Event object.
type entry struct {
	Stored
	written  time.Time // when its count was last written
	admitted time.Time // when Admit made it; zero once it was seen stored
	due      bool      // its count is not written
	queued   bool      // it is in the list of what is due
	evicting bool      // Evict has named it
	index    int       // in order
}

// Bounds knows the Event objects that there are. It may be used by many at once.
type Bounds struct {
	options Options

	mu      sync.Mutex // guards all below
	byID    map[ID]*entry
	byKey   map[Key]*entry // of several objects with one key, the newest
	order   oldestFirst    // all that are not being evicted
	due     []*entry       // first come, first served; may hold entries that are due no more
	tokens  float64
	filled  time.Time
	evicted Evicted
}

// New returns bounds that know of no object yet. The error is InternalFault, for options that make no sense.
func New(options Options) (*Bounds, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	return &Bounds{options: options, byID: map[ID]*entry{}, byKey: map[Key]*entry{}, tokens: float64(options.Burst)}, nil
}

// Admit decides about an event that arrives: e.ID is the name that it would have as an object of its own. A Count below 1 is
// taken as 1. When the object of a Create that is New is not stored after all, Forget says so.
func (b *Bounds) Admit(now time.Time, e Stored) Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.byKey[e.Key]; known != nil {
		known.Count += max(1, e.Count)
		b.move(known, now)
		if now.Sub(known.written) < b.options.MergeEvery || !b.spendLocked(now) {
			b.deferLocked(known)
			return known.decision(Defer)
		}
		known.written, known.due = now, false
		return known.decision(Merge)
	}
	if len(b.byID) >= b.options.ObjectsMax {
		return Decision{Do: Refuse, After: refuseFull, Why: fmt.Sprintf("there are %d events, and old ones are not evicted yet", len(b.byID))}
	}
	if !b.spendLocked(now) {
		return Decision{Do: Refuse, After: b.waitLocked(), Why: fmt.Sprintf("more than %d events a second are written", b.options.WritesPerSecond)}
	}
	e.Count, e.Last = max(1, e.Count), now
	if e.First.IsZero() || e.First.After(now) {
		e.First = now
	}
	known := &entry{Stored: e, written: now, admitted: now}
	d := known.decision(Create)
	if d.New = b.byID[e.ID] == nil; d.New {
		b.insertLocked(known)
	} // else something else has that name, and the store will say so
	return d
}

// Spend takes account of a write to an Event that Admit did not decide about: an update that somebody makes himself. When there
// have been too many it is false, and says after what time to try again.
func (b *Bounds) Spend(now time.Time) (ok bool, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spendLocked(now) {
		return true, 0
	}
	return false, b.waitLocked()
}

// Due returns what is to be written into objects now, at most as many as may be: those that were counted and not written. The
// writes are updates, of which each calls Spend. One that did not work is told by Defer.
func (b *Bounds) Due(now time.Time) []Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fillLocked(now)
	var writes []Decision
	waiting := b.due[:0:0]
	for _, e := range b.due {
		switch {
		case !e.due:
			e.queued = false
		case float64(len(writes)) > b.tokens-1 || now.Sub(e.written) < b.options.MergeEvery:
			waiting = append(waiting, e)
		default:
			e.due, e.queued, e.written = false, false, now
			writes = append(writes, e.decision(Merge))
		}
	}
	b.due = waiting
	return writes
}

// Defer tells that a write which Due asked for was not made, and is still due.
func (b *Bounds) Defer(id ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byID[id]; e != nil && !e.evicting {
		b.deferLocked(e)
	}
}

// Evict returns the objects that are to be deleted, the oldest first; none while there is room. Each is named once: whoever
// deletes them tries until they are gone.
func (b *Bounds) Evict() []Stored {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.order)*100 <= b.options.ObjectsMax*evictAbovePercent {
		return nil
	}
	var oldest []Stored
	for len(b.order)*100 > b.options.ObjectsMax*evictToPercent {
		e := heap.Pop(&b.order).(*entry)
		e.evicting, e.due = true, false
		if b.byKey[e.Key] == e {
			delete(b.byKey, e.Key)
		}
		oldest = append(oldest, e.Stored)
		b.evicted.add(e.Last)
	}
	return oldest
}

func (e *Evicted) add(last time.Time) {
	if e.Count == 0 || last.Before(e.From) {
		e.From = last
	}
	if last.After(e.To) {
		e.To = last
	}
	e.Count++
}

// Evicted returns what was evicted so far.
func (b *Bounds) Evicted() Evicted {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evicted
}

// Len is how many Event objects there are.
func (b *Bounds) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byID)
}

// Observe tells of an object that is stored. A time after now is not believed: it would be evicted last.
func (b *Bounds) Observe(now time.Time, s Stored) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observeLocked(now, s)
}

// Forget tells that an object is not stored, or not any more.
func (b *Bounds) Forget(id ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.byID[id]; e != nil {
		b.removeLocked(e)
	}
}

// unseenMax is for how long an object that was admitted may be missing in a listing, which may have begun before it was stored. A
// listing takes seconds.
const unseenMax = time.Minute

// Sync tells of all objects that are stored: there are no others, but those that Admit made a moment ago.
func (b *Bounds) Sync(now time.Time, all []Stored) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[ID]bool, len(all))
	for _, s := range all {
		there[s.ID] = true
		b.observeLocked(now, s)
	}
	for id, e := range b.byID {
		if !there[id] && now.Sub(e.admitted) >= unseenMax {
			b.removeLocked(e)
		}
	}
}

func (b *Bounds) observeLocked(now time.Time, s Stored) {
	future := s.Last.After(now)
	e := b.byID[s.ID]
	if e == nil {
		if future {
			s.Last = now
		}
		b.insertLocked(&entry{Stored: s, written: s.Last})
		return
	}
	e.admitted = time.Time{}
	// What is counted here and not written yet is more than what is stored.
	e.Count = max(e.Count, s.Count)
	if !e.evicting && !future {
		b.move(e, s.Last)
	}
}

func (b *Bounds) insertLocked(e *entry) {
	b.byID[e.ID] = e
	heap.Push(&b.order, e)
	if other := b.byKey[e.Key]; other == nil || !e.Last.Before(other.Last) {
		b.byKey[e.Key] = e
	}
}

func (b *Bounds) removeLocked(e *entry) {
	delete(b.byID, e.ID)
	e.due = false
	if b.byKey[e.Key] == e {
		delete(b.byKey, e.Key)
	}
	if !e.evicting {
		heap.Remove(&b.order, e.index)
	}
}

func (b *Bounds) deferLocked(e *entry) {
	if !e.queued {
		b.due = append(b.due, e)
	}
	e.due, e.queued = true, true
}

// move gives an entry a later time.
func (b *Bounds) move(e *entry, last time.Time) {
	if last.After(e.Last) {
		e.Last = last
		heap.Fix(&b.order, e.index)
	}
}

func (b *Bounds) fillLocked(now time.Time) {
	if passed := now.Sub(b.filled); passed > 0 {
		b.tokens = min(float64(b.options.Burst), b.tokens+passed.Seconds()*float64(b.options.WritesPerSecond))
		b.filled = now
	}
}

func (b *Bounds) spendLocked(now time.Time) bool {
	b.fillLocked(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// waitLocked is how long it takes until there is a write to spend, rounded up, so that it is there when the wait is over.
func (b *Bounds) waitLocked() time.Duration {
	return time.Duration((1-b.tokens)/float64(b.options.WritesPerSecond)*float64(time.Second)) + 1
}

func (e *entry) decision(do Verdict) Decision {
	return Decision{Do: do, ID: e.ID, Count: e.Count, First: e.First, Last: e.Last}
}

// oldestFirst is a heap by the time of last happening, then by name, so that the order is one.
type oldestFirst []*entry

// Len is that of heap.Interface, as are the others.
func (h oldestFirst) Len() int { return len(h) }

func (h oldestFirst) Less(i, j int) bool {
	return cmp.Or(h[i].Last.Compare(h[j].Last), cmp.Compare(h[i].ID.Namespace, h[j].ID.Namespace), cmp.Compare(h[i].ID.Name, h[j].ID.Name)) < 0
}

func (h oldestFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds an entry at the end.
func (h *oldestFirst) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop takes the entry at the end.
func (h *oldestFirst) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
