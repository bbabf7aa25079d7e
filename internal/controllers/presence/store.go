package presence

import (
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
}

// spread tells nodes apart, for waits that are not to end together. The seed is the process's.
var spread = maphash.MakeSeed()

// want says that something is to be stored: conditions soon, a mark alone later.
func (s *saving) want(conditions, first bool, uid types.UID, now time.Time) {
	at := now.Add(markDelay + time.Duration(maphash.String(spread, string(uid))%uint64(markDelay)))
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
	for e := range r.stores {
		switch {
		case e.saving.due.After(now):
			next = earlier(next, e.saving.due)
		case len(batch) < batchMax:
			batch = append(batch, task{e, e.saving.wanted})
		}
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
	if err := r.options.Objects.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
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
		switch {
		case x.err == nil || apierrors.IsNotFound(x.err):
			s.retries, s.stored = 0, now
			s.often.note(writing(), now)
			s.due = s.soonest(now)
			if s.wanted == x.wanted {
				s.due = time.Time{}
				delete(r.stores, x.entry)
			}
		case apierrors.IsConflict(x.err):
			s.due = now.Add(retryMin) // somebody was faster
		default:
			s.due = now.Add(min(retryMin<<min(s.retries, 10), retryMax))
			s.retries++
			r.options.Log.Warn("status of a node is not stored", "node", x.entry.name, "err", x.err)
		}
	}
}
