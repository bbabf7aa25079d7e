package heads

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/internal/reason"
)

// What is fresh.
const (
	// freshFor is how old a view may be that new heads are signed from, as trust.md says.
	freshFor = 30 * time.Second
	// proveEvery makes a view stay fresh when one proof of two fails.
	proveEvery = 10 * time.Second
	// proveAgain is the pause after a proof that failed, because the server starts or etcd is away, and before one that somebody waits for.
	proveAgain = 200 * time.Millisecond
	// proveMax bounds one proof. The server's cache waits for at most 3 s until it has caught up.
	proveMax = 8 * time.Second
	// trustEvery is how often the trust documents are read. They change when a person says so.
	trustEvery = 5 * time.Second
)

// freshness is until when the view is proven fresh.
//
// A proof is: the store says its revision by a linearizable read; then the server's cache of each kind says, by a read that is answered
// at that revision or later only, that it is as far; and the watches from there to here were open all the time. What is still on the way
// in such a watch is in a channel of this process, which is drained within milliseconds or else is closed by the cache.
type freshness struct {
	mu    sync.Mutex // guards until
	until time.Time
}

func (f *freshness) is(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Before(f.until)
}

// extend reports whether it was not fresh before.
func (f *freshness) extend(until, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := now.Before(f.until)
	f.until = until
	return !before
}

// Fresh says whether the view is proven fresh, so that new heads may be signed.
func (h *Heads) Fresh(now time.Time) bool { return h.fresh.is(now) }

// Revision is that of the newest change in the store that the view takes in.
func (h *Heads) Revision() uint64 { return h.view.newestOfAll() }

func (h *Heads) freshValue() float64 {
	if h.Fresh(time.Now()) {
		return 1
	}
	return 0
}

// keepFresh proves the view's freshness again and again, follows the trust documents, and sweeps.
func (h *Heads) keepFresh(ctx context.Context) {
	var proof, documents <-chan time.Time = time.After(0), time.After(0)
	good, warned, soon := time.Now(), false, true
	for {
		select {
		case <-ctx.Done():
			return
		case <-documents:
			if err := h.readTrust(ctx); err != nil && ctx.Err() == nil {
				h.options.Log.Warn("the trust documents cannot be read, the last ones are used", "err", err)
			}
			documents = time.After(trustEvery)
		case <-h.asked:
			if !soon {
				proof, soon = time.After(proveAgain), true
			}
		case <-proof:
			err := h.prove(ctx)
			if err == nil {
				good, warned, soon = time.Now(), false, false
				h.apply(h.view.sweep(good))
				proof = time.After(proveEvery)
				break
			}
			back := reason.Of(err).Code == reason.RollbackSuspected
			if back {
				h.fresh.extend(time.Time{}, time.Now())
			}
			if !warned && (back || time.Since(good) > freshFor) && ctx.Err() == nil {
				warned = true
				h.options.Log.Error("what hosts are to have is not proven to be new, nothing is signed", "err", err)
			}
			proof, soon = time.After(proveAgain), true
		}
	}
}

// ask asks for a proof before its time: somebody waits for one.
func (h *Heads) ask() {
	select {
	case h.asked <- struct{}{}:
	default: // somebody has
	}
}

// prove proves that the view is fresh now.
func (h *Heads) prove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, proveMax)
	defer cancel()
	began := time.Now()
	sources := []*source{h.assignments, h.nodes}
	var watches [2]*openWatch
	for i, s := range sources {
		if watches[i] = s.following(); watches[i] == nil {
			return fmt.Errorf("the watch of %ss is not open", s.kind)
		}
	}
	if err := h.reach(ctx); err != nil {
		return err
	}
	for i, s := range sources {
		if s.following() != watches[i] {
			return fmt.Errorf("the watch of %ss was opened anew meanwhile", s.kind)
		}
	}
	h.view.settle(began, time.Now())
	if h.fresh.extend(began.Add(freshFor), time.Now()) {
		h.view.wakeStarved(false)
	}
	return nil
}

// reach waits until the caches are as far as the store is now.
func (h *Heads) reach(ctx context.Context) error {
	newest := h.view.newestOfAll() // before the store is asked: it goes on
	revision, err := h.options.Revision(ctx)
	if err != nil {
		return err
	}
	if newest > revision {
		return &reason.Error{Code: reason.RollbackSuspected, Doing: "compare the store with what it said before",
			Cause: fmt.Errorf("it is at revision %d, and has told of revision %d", revision, newest), Hint: "was etcd's data directory replaced? Restart the server once that is clear"}
	}
	for _, s := range []*source{h.assignments, h.nodes} {
		// One object that is not there: the cost does not depend on how many there are.
		_, err := s.versions.ListWithContext(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + nobody, ResourceVersion: strconv.FormatUint(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			return fmt.Errorf("read %ss: %w", s.kind, err)
		}
	}
	return nil
}

// nobody is a name for which an object is looked up that nobody has made. It would do no harm.
const nobody = "tako-freshness"

// readTrust reads the trust documents. With another epoch, or with other keys, every head is another one.
func (h *Heads) readTrust(ctx context.Context) error {
	chain, err := h.options.Chain(ctx)
	if err != nil {
		return err
	}
	current := chain.Current()
	for {
		before := h.trust.Load()
		if before != nil && before.number >= current.Number {
			return nil // of two who read at once, the one who had less comes last
		}
		if h.trust.CompareAndSwap(before, &trusted{chain, current.Epoch, current.Number}) {
			h.view.wakeStarved(true)
			return nil
		}
	}
}
