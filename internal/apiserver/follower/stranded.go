package follower

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// strandedEvery is how often it is looked whether this server is cut off.
	strandedEvery = 5 * time.Second
	// readyMax bounds one question to another server whether it is ready.
	readyMax = 2 * time.Second
	// strandedAgain is when hosts may come again that have no other server.
	strandedAgain = time.Minute
)

// StrandedOptions are what a Stranded works with; all are required.
type StrandedOptions struct {
	// Fresh says whether what this server knows is proven to be new.
	Fresh func(now time.Time) bool
	// Others are where the other servers serve people, as far as this one knows.
	Others func() []string
	// Proxy has the way to them.
	Proxy *Proxy
}

// Stranded finds out whether this server is cut off from etcd while another one is not: hosts are better with that one then. While all are cut
// off, hosts stay: what is there is served as before, and nobody would do better. Use NewStranded.
type Stranded struct {
	options StrandedOptions
	cut     atomic.Bool
}

// NewStranded takes it that all is well.
func NewStranded(o StrandedOptions) *Stranded { return &Stranded{options: o} }

// Serving is why hosts are better with another server; nil when they are not.
func (s *Stranded) Serving() error {
	if !s.cut.Load() {
		return nil
	}
	return &reason.Error{Code: reason.StoreUnreachable, Doing: "serve hosts", Cause: errors.New("this server is cut off from etcd, and another one is not"),
		Hint: "a host goes to another server by itself, where it knows one", After: strandedAgain}
}

// Run looks every few seconds, until the context ends.
func (s *Stranded) Run(ctx context.Context) {
	tick := time.NewTicker(strandedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.look(ctx, time.Now())
	}
}

func (s *Stranded) look(ctx context.Context, now time.Time) {
	s.cut.Store(!s.options.Fresh(now) && s.anotherIsReady(ctx))
}

// anotherIsReady asks all others at once.
func (s *Stranded) anotherIsReady(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	var any atomic.Bool
	var all sync.WaitGroup
	for _, api := range s.options.Others() {
		all.Go(func() {
			if s.options.Proxy.ready(ctx, api) {
				any.Store(true)
				cancel() // one is enough
			}
		})
	}
	all.Wait()
	return any.Load()
}

// ready asks a server whether it is ready, which it is not without etcd.
func (p *Proxy) ready(ctx context.Context, api string) bool {
	resp, err := p.get(ctx, api, "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing more is wanted of it
	return resp.StatusCode == http.StatusOK
}
