package presence

import (
	"container/heap"
	"context"
	"hash/maphash"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
)

const (
	// firstDelay is how long the first conditions of a new Node wait: its host mostly comes within that time, and then it is one write.
	firstDelay = 2 * time.Second
	// A mark that is higher, and nothing else, waits that long and up to as much again, spread over the nodes: a change that goes to all
	// hosts at once must not cost a write for each in the same second. A server that ends meanwhile knows a lower mark, which only
	// means that a host which goes back by these few states is not suspected.
	markDelay = 5 * time.Second
	// markEach is how much longer they wait for each node that there is: a write takes about a millisecond of a processor, so that those of all
	// nodes together take a third of one, while the hosts have that change to fetch and to report.
	markEach = 3 * time.Millisecond
	// conditionPause is the shortest between two writes of one Node: what changes faster is written together.
	conditionPause = time.Second
	// The pause after a failed write, doubled each time.
	retryMin = 200 * time.Millisecond
	retryMax = time.Minute
	// batchMax is how many Nodes are written before it is decided again which: a second's worth.
	batchMax = 256
	// writesMax is how many are written at once: they wait for the disk of the store, which writes them together.
	writesMax = 16
	// callMax bounds one read and write.
	callMax = 60 * time.Second
)

// saving is what an entry has to store.
type saving struct {
	due     time.Time // zero: nothing
	wanted  uint64    // counts what was wanted
	stored  time.Time // the last time that a write went well
	retries int
	often   calm // writes
	place   int  // in saves; -1: not in it
	open    bool // it is being stored
}

// saves is a heap of entries by when they are to be stored: a report of one host must not cost a look at all others that have something to
// store, which after a change of what all have is every host.
type saves []*entry

var _ heap.Interface = (*saves)(nil)

// Len is how many there are.
func (s saves) Len() int { return len(s) }

// Less compares two.
func (s saves) Less(i, j int) bool { return s[i].saving.due.Before(s[j].saving.due) }

// Swap exchanges two.
func (s saves) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].saving.place, s[j].saving.place = i, j
}

// Push adds one at the end.
func (s *saves) Push(x any) {
	e := x.(*entry)
	e.saving.place = len(*s)
	*s = append(*s, e)
}

// Pop takes the last one.
func (s *saves) Pop() any {
	last := len(*s) - 1
	e := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	e.saving.place = -1
	return e
}

// saveLocked puts an entry where its time says; what is being stored comes back with what became of it.
func (r *Register) saveLocked(e *entry) {
	s := &e.saving
	waits := !s.due.IsZero() && !s.open
	switch {
	case waits && s.place >= 0:
		heap.Fix(&r.saves, s.place)
	case waits:
		heap.Push(&r.saves, e)
	case s.place >= 0:
		heap.Remove(&r.saves, s.place)
	}
}

// spread tells nodes apart, for waits that are not to end together. The seed is the process's.
var spread = maphash.MakeSeed()

// markWait is how long a higher mark of one of so many nodes waits.
func markWait(uid types.UID, nodes int) time.Duration {
	least := max(markDelay, time.Duration(nodes)*markEach)
	return least + time.Duration(maphash.String(spread, string(uid))%uint64(least))
}

// want says that something is to be stored: conditions soon, a mark alone later, of one of so many nodes.
func (s *saving) want(conditions, first bool, uid types.UID, nodes int, now time.Time) {
	at := now.Add(markWait(uid, nodes))
	switch {
	case conditions && first:
		at = now.Add(firstDelay)
	case conditions:
		at = now
	}
	at = later(at, s.soonest(now))
	s.wanted++
	s.due = earlier(s.due, at)
}

// soonest is when the next write may come.
func (s *saving) soonest(now time.Time) time.Time {
	return later(s.stored.Add(conditionPause), now.Add(s.often.wait(writing(), now)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// task is one Node to write.
type task struct {
	entry  *entry
	wanted uint64
}

// result is what became of it.
type result struct {
	task
	err error
}

// toStore returns what is due, and when the next is.
func (r *Register) toStore(now time.Time) (batch []task, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.saves) > 0 && len(batch) < batchMax && !r.saves[0].saving.due.After(now) {
		e := heap.Pop(&r.saves).(*entry)
		e.saving.open = true
		batch = append(batch, task{e, e.saving.wanted})
	}
	// What is due and has no room in this batch goes with the next one, which follows the results of this.
	if len(r.saves) > 0 && r.saves[0].saving.due.After(now) {
		next = r.saves[0].saving.due
	}
	return batch, next
}

// storeAll writes Nodes.
func (r *Register) storeAll(ctx context.Context, batch []task) []result {
	results := make([]result, len(batch))
	var group errgroup.Group
	group.SetLimit(writesMax)
	for i, t := range batch {
		group.Go(func() error {
			results[i] = result{t, r.store(ctx, t.entry.name, t.entry.uid)}
			return nil
		})
	}
	_ = group.Wait() // the errors are in the results
	return results
}

// store writes what is known of a Node into its status.
func (r *Register) store(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	n := &v1alpha1.Node{}
	if err := r.options.Objects.Cached(ctx, types.NamespacedName{Name: name}, n); err != nil {
		return err
	}
	if n.UID != uid {
		return nil // the one that this was about has gone
	}
	r.Decorate(n)
	n.Status.AssignedHead = nil // it follows from what else is stored
	return r.options.Objects.UpdateStatus(ctx, n)
}

// wasStored notes what became of writes.
func (r *Register) wasStored(results []result, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range results {
		s := &x.entry.saving
		s.open = false
		if r.nodes[x.entry.uid] != x.entry {
			continue // it was forgotten meanwhile
		}
		switch {
		case x.err == nil || apierrors.IsNotFound(x.err):
			s.retries, s.stored = 0, now
			s.often.note(writing(), now)
			s.due = s.soonest(now)
			if s.wanted == x.wanted {
				s.due = time.Time{}
			}
		case apierrors.IsConflict(x.err):
			s.due = now.Add(retryMin) // somebody was faster
		default:
			s.due = now.Add(min(retryMin<<min(s.retries, 10), retryMax))
			s.retries++
			r.options.Log.Warn("status of a node is not stored", "node", x.entry.name, "err", x.err)
		}
		r.saveLocked(x.entry)
	}
}
