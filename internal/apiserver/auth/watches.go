package auth

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// checkPause is how often the open watches are gone through: soon enough for "revoked at once", and for a thousand watches
// a few milliseconds of work while roles stay as they are.
const checkPause = time.Second

// Watches ends watches that nobody would be let begin any more: what their client was admitted by was revoked or has expired, or
// roles do not allow them now. A client begins anew where he was, and is answered as for any other request.
type Watches struct {
	authorizer authorizer.Authorizer
	changes    func() uint64

	mu   sync.Mutex // guards open
	open map[*openWatch]struct{}
}

// openWatch is a watch that goes on.
type openWatch struct {
	*note
	end context.CancelFunc
	// allowedAt is the count of changes up to which it is known to be allowed, once known says so. Run alone uses both.
	allowedAt uint64
	known     bool
}

// NewWatches makes it; it ends nothing before Run. changes counts what may change an answer of the authorizer, see RBAC.Changes.
func NewWatches(a authorizer.Authorizer, changes func() uint64) *Watches {
	return &Watches{authorizer: a, changes: changes, open: map[*openWatch]struct{}{}}
}

// Handler notes the watches that go through it. It is to be within the authorization of requests.
func (w *Watches) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if info, known := request.RequestInfoFrom(r.Context()); !known || !info.IsResourceRequest || info.Verb != "watch" {
			next.ServeHTTP(rw, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		o := &openWatch{note: noteOf(ctx), end: end}
		w.mu.Lock()
		w.open[o] = struct{}{}
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.open, o)
		}()
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// Run ends watches until the context ends.
func (w *Watches) Run(ctx context.Context) {
	tick := time.NewTicker(checkPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.check(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// check goes through the open watches once.
func (w *Watches) check(ctx context.Context) {
	w.mu.Lock()
	open := make([]*openWatch, 0, len(w.open))
	for o := range w.open {
		open = append(open, o)
	}
	w.mu.Unlock()
	changes := w.changes() // before any question: what changes after is asked about the next time
	for _, o := range open {
		if o.holds != nil && !o.holds() {
			o.end()
			continue
		}
		if o.known && o.allowedAt == changes {
			continue
		}
		if slices.ContainsFunc(o.allowed, func(a authorizer.Attributes) bool { return !w.allows(ctx, a) }) {
			o.end()
			continue
		}
		o.allowedAt, o.known = changes, true
	}
}

func (w *Watches) allows(ctx context.Context, a authorizer.Attributes) bool {
	decision, _, err := w.authorizer.Authorize(ctx, a)
	return err == nil && decision == authorizer.DecisionAllow
}
