package packages

import (
	"context"
	"maps"
	"time"

	"tako.dev/tako/internal/reason"
)

// question is what an answer of Backend.Offers is about: a package, and what is installed of it, which may be the candidate.
type question struct{ name, installed string }

// offers are the answers that are remembered: those for one state of the lists.
type offers struct {
	lists Lists
	known map[question]Offer
}

// view is what is known of the lists at one moment.
type view offers

// of returns what the lists have of a package; the zero Offer where that is not known.
func (v view) of(q question) Offer { return v.known[q] }

// offered returns what is known of the lists, after asking about packages of which it is not.
func (t *Type) offered(ctx context.Context, back Backend, asked []question) (view, error) {
	lists, err := back.Lists()
	if err != nil {
		return view{}, err
	}
	t.mu.Lock()
	if t.offers.lists != lists {
		t.offers = offers{lists: lists}
	}
	known := maps.Clone(t.offers.known)
	t.mu.Unlock()
	var names []string
	for _, q := range asked {
		if _, ok := known[q]; !ok {
			names = append(names, q.name)
		}
	}
	if len(names) == 0 {
		return view{lists, known}, nil
	}
	answers, err := back.Offers(ctx, names)
	if err != nil {
		return view{lists, known}, err
	}
	if known == nil {
		known = map[question]Offer{}
	}
	for _, q := range asked {
		if _, ok := known[q]; !ok {
			known[q] = answers[q.name]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offers.lists == lists {
		t.offers.known = maps.Clone(known)
	}
	return view{lists, known}, nil
}

// updateEvery bounds how often package lists are fetched for a package that no list has: a mistake in a declaration is tried
// again for ever, and repositories are other people's machines. Fetching that failed does not count, the engine's
// back-off spaces it.
const updateEvery = 10 * time.Minute

// recent reports whether the lists have been fetched of late, from the repositories that there are.
func (t *Type) recent(lists Lists) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.updated.IsZero() && time.Since(t.updated) < updateEvery && t.sources == lists.Sources
}

// update fetches the package lists. Unless forced it does so only if the sources have changed or the last time is long ago,
// and otherwise returns nil, because the lists are as new as they should be.
func (t *Type) update(ctx context.Context, back Backend, forced bool) error {
	const what = "fetch package lists"
	lists, err := back.Lists()
	if err != nil {
		return doing(what, err)
	}
	if t.recent(lists) && !forced {
		return nil
	}
	if err := back.Update(ctx); err != nil {
		return doing(what, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updated, t.sources = time.Now(), lists.Sources
	return nil
}

// ends reports whether there is no use in going on after an error: somebody else holds a lock, or the context or the time is over.
func ends(err error) bool {
	return reason.Is(err, reason.PackageLock) || reason.Is(err, reason.Interrupted) || reason.Is(err, reason.OperationTimeout)
}
