package supply

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// fetchTime is how long one server may take for one thing: a gigabyte over a line of 300 kB/s. It is taken up again where it was.
	fetchTime = time.Hour
	// forgetEvery is how often it is looked whether something is not asked for any more.
	forgetEvery = time.Minute
)

// Taker stores what comes of a source, and verifies all of it before it counts as here.
type Taker func(ctx context.Context, d content.Digest, from content.Source) error

// Options are what a Supply works with. All but Dial are required.
type Options struct {
	// Objects and Bundles store what comes.
	Objects, Bundles Taker
	// Others are the addresses for hosts of the other servers that run, and a channel that is closed when they may be others.
	Others func() (addresses []string, changed <-chan struct{})
	// Named says whether a config, or a revision, names a bundle.
	Named func(ctx context.Context, bundle content.Digest) (bool, error)
	// Identity is who this server is to the others.
	Identity client.Credential
	Log      *slog.Logger
	Dial     client.Dial // default: TCP
}

// Supply gets what this server lacks. Use New.
type Supply struct {
	options Options
	nudge   chan struct{} // holds one: there may be something to do

	mu     sync.Mutex // guards what follows
	core   core
	random *rand.Rand
}

// New checks the options, and starts nothing. The error is InternalFault.
func New(o Options) (*Supply, error) {
	if o.Objects == nil || o.Bundles == nil || o.Others == nil || o.Named == nil || o.Identity == nil || o.Log == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "make what fetches from other servers", Cause: errors.New("a part is missing")}
	}
	return &Supply{options: o, nudge: make(chan struct{}, 1), core: core{wants: map[item]*want{}}, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}, nil
}

// Ask has something fetched that is not here, and says how that stands: ObjectComing while it is on its way; ObjectMissing or BundleMissing where no
// other server has it, or none that is reached; ObjectUnstored where there is no room for it; TransferBusy. It does not block.
func (s *Supply) Ask(kind Kind, d content.Digest) error {
	servers, _ := s.options.Others()
	s.mu.Lock()
	err := s.core.ask(item{kind, d}, time.Now(), servers)
	s.mu.Unlock()
	s.wake()
	return err
}

func (s *Supply) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// Run fetches what is asked for, until the context ends.
func (s *Supply) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for ctx.Err() == nil {
		servers, changed := s.options.Others()
		now := time.Now()
		s.mu.Lock()
		todo, at := s.core.next(now, servers)
		s.mu.Unlock()
		for _, f := range todo {
			all.Go(func() { s.fetch(ctx, f) })
		}
		if latest := now.Add(forgetEvery); at.IsZero() || at.After(latest) {
			at = latest
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
		case <-changed:
		case <-s.nudge:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// fetch asks one server for one thing, and tells the core what has come of it.
func (s *Supply) fetch(ctx context.Context, f fetch) {
	defer s.wake()
	if f.doubt {
		if named, err := s.options.Named(ctx, f.digest); err == nil && !named {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.core.drop(f.item)
			return
		}
	}
	began := time.Now()
	err := s.take(ctx, f)
	if ctx.Err() != nil {
		return
	}
	servers, _ := s.options.Others()
	s.mu.Lock()
	verdict := s.core.ended(f, err, time.Now(), servers, s.random)
	s.mu.Unlock()
	switch {
	case err == nil:
		s.options.Log.Info("fetched from another server", "what", f.kind.String(), "digest", f.digest.String(), "server", f.server, "took", time.Since(began))
	case verdict != nil:
		s.options.Log.Warn("fetch from other servers", "what", f.kind.String(), "digest", f.digest.String(), "err", verdict)
	}
}

func (s *Supply) take(ctx context.Context, f fetch) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	dial := s.options.Dial
	if dial == nil {
		dial = client.TCP
	}
	server := client.NewUpstream(dial, f.server, s.options.Identity)
	defer server.Close()
	take, path := s.options.Objects, wire.PathObject
	if f.kind == Bundle {
		take, path = s.options.Bundles, wire.PathBundle
	}
	return take(ctx, f.digest, func(ctx context.Context, from int64) (int64, io.ReadCloser, error) {
		return server.Stored(ctx, path+f.digest.String(), from)
	})
}
