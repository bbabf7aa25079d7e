package scheduler

import (
	"cmp"
	"container/heap"
	"time"
)

// The times of groups that could not be placed.
const (
	// retryMin is how long a group rests that could not be placed, although something has changed by then: a group that is looked at again for
	// each instance that ends would keep the others waiting.
	retryMin = time.Second
	// retryMax is the longest, after failures in a row, each of which doubles it.
	retryMax = time.Minute
)

// Queue holds the groups that are to be placed: those whose turn it is in order of priority and age, those that rest, and those that wait
// for a change that could help them. One goroutine owns it.
type Queue struct {
	groups  map[string]*queued
	ready   order
	resting order
	waiting map[mask]*waiting
	timed   map[string]*queued // those among the waiting that time alone may help
	added   uint64
}

// waiting are the groups that the same changes could help.
type waiting struct {
	groups map[string]*queued
	looked uint64 // the last change at which they were looked at
}

// queued is one group in the queue.
type queued struct {
	group    Group
	priority int32
	number   uint64 // in order of their coming
	in       *order // nil: it waits, or was taken
	at       int
	failures int
	until    time.Time // when it has rested
	retryAt  time.Time // when time alone may help it
	mask     mask      // what it waits for
	seen     uint64    // the last change that its last decision knew
}

// NewQueue is an empty queue.
func NewQueue() *Queue {
	q := &Queue{groups: map[string]*queued{}, waiting: map[mask]*waiting{}, timed: map[string]*queued{}}
	q.ready.before = func(a, b *queued) bool {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.number, b.number)) < 0
	}
	q.resting.before = func(a, b *queued) bool {
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.number, b.number)) < 0
	}
	return q
}

// Put adds a group, or changes the one of its name: its turn comes at once, however often it has failed before.
func (q *Queue) Put(g Group, priority int32) {
	e := q.groups[g.Name]
	if e == nil {
		q.added++
		e = &queued{number: q.added}
		q.groups[g.Name] = e
	}
	q.withdraw(e)
	e.group, e.priority, e.failures = g, priority, 0
	heap.Push(&q.ready, e)
}

// Remove takes a group out.
func (q *Queue) Remove(name string) {
	if e := q.groups[name]; e != nil {
		q.withdraw(e)
		delete(q.groups, name)
	}
}

// Len is how many groups there are.
func (q *Queue) Len() int { return len(q.groups) }

// withdraw takes a group from where it stands.
func (q *Queue) withdraw(e *queued) {
	if e.in != nil {
		heap.Remove(e.in, e.at)
		return
	}
	delete(q.timed, e.group.Name)
	if w := q.waiting[e.mask]; w != nil {
		if delete(w.groups, e.group.Name); len(w.groups) == 0 {
			delete(q.waiting, e.mask)
		}
	}
}

// Next takes the group whose turn it is. Whoever takes it puts it back with Back when it has not been placed as a whole, and removes it
// otherwise.
func (q *Queue) Next(s *Snapshot, now time.Time) (Group, bool) {
	q.wake(s, now)
	if len(q.ready.list) == 0 {
		return Group{}, false
	}
	return heap.Pop(&q.ready).(*queued).group, true
}

// wake moves what may be tried again. The groups that the same changes could help are looked at only when there was one.
func (q *Queue) wake(s *Snapshot, now time.Time) {
	for m, w := range q.waiting {
		if !s.changes.since(w.looked, m) {
			continue
		}
		w.looked = s.changes.number
		for _, e := range w.groups {
			if s.changes.since(e.seen, m) {
				q.withdraw(e)
				heap.Push(&q.resting, e)
			}
		}
	}
	for _, e := range q.timed {
		if !e.retryAt.After(now) {
			q.withdraw(e)
			heap.Push(&q.resting, e)
		}
	}
	for len(q.resting.list) > 0 && !q.resting.list[0].until.After(now) {
		heap.Push(&q.ready, heap.Pop(&q.resting))
	}
}

// Back puts back a group of which something is missing. What has happened since its decision counts, not what will happen from now on: a
// change in between would be lost otherwise.
func (q *Queue) Back(s *Snapshot, g Group, d Decision, now time.Time) {
	e := q.groups[g.Name]
	if e == nil || e.in != nil {
		return // it was removed or changed meanwhile, and its turn comes anyhow
	}
	e.group, e.seen, e.retryAt = g, d.Seen, d.RetryAt
	e.failures++
	if len(d.Bindings) > 0 {
		e.failures = 1
	}
	e.until = now.Add(backoff(e.failures, retryMin, retryMax))
	if e.mask = everything; d.Explanation != nil {
		e.mask = d.Explanation.reasons
	}
	if s.changes.since(e.seen, e.mask) {
		heap.Push(&q.resting, e)
		return
	}
	if q.waiting[e.mask] == nil {
		q.waiting[e.mask] = &waiting{groups: map[string]*queued{}, looked: s.changes.number}
	}
	q.waiting[e.mask].groups[g.Name] = e
	if !e.retryAt.IsZero() {
		q.timed[g.Name] = e
	}
}

// WakeAt is when to ask again though nothing has happened; zero: not by itself.
func (q *Queue) WakeAt() time.Time {
	var at time.Time
	if len(q.resting.list) > 0 {
		at = q.resting.list[0].until
	}
	for _, e := range q.timed {
		if at.IsZero() || e.retryAt.Before(at) {
			at = e.retryAt
		}
	}
	return at
}

// order is a heap of groups.
type order struct {
	list   []*queued
	before func(a, b *queued) bool
}

// Len is for container/heap.
func (o *order) Len() int { return len(o.list) }

// Less is for container/heap.
func (o *order) Less(i, j int) bool { return o.before(o.list[i], o.list[j]) }

// Swap is for container/heap.
func (o *order) Swap(i, j int) {
	o.list[i], o.list[j] = o.list[j], o.list[i]
	o.list[i].at, o.list[j].at = i, j
}

// Push is for container/heap.
func (o *order) Push(x any) {
	e := x.(*queued)
	e.in, e.at = o, len(o.list)
	o.list = append(o.list, e)
}

// Pop is for container/heap.
func (o *order) Pop() any {
	last := len(o.list) - 1
	e := o.list[last]
	o.list[last] = nil
	o.list, e.in = o.list[:last], nil
	return e
}
