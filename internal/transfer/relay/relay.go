package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// Relay serves hosts from servers. Use New, then Run once.
type Relay struct {
	opts    Options
	metrics *metrics
	server  *server.Server
	agents  *agents
	servers *upstreams
	cache   *cache
	flights *flights
	asking  chan struct{}  // holds one for each question that is on its way
	tasks   sync.WaitGroup // all goroutines of Run but those of the server
	trusted chan struct{}  // holds one: there may be later trust documents
	drawing sync.Mutex     // guards opts.Random
	packer  wire.Packer    // of what comes from servers, and is kept
	names   *edition.Store
}

// New checks the options, and starts nothing. It reads what the cache directory has.
func New(opts Options) (*Relay, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := newMetrics()
	r := &Relay{
		opts: opts, metrics: m, agents: newAgents(m), servers: newUpstreams(opts), flights: newFlights(),
		asking: make(chan struct{}, questionsMax), trusted: make(chan struct{}, 1),
	}
	r.names = edition.New(edition.Options{Cluster: opts.Identity.Cluster(), Keys: heads{r}.HeadKeys})
	var err error
	if r.cache, err = openCache(opts.CacheDir, core.NewShelf(opts.CacheBytes), m, opts.Log); err != nil {
		return nil, err
	}
	r.server, err = server.New(server.Options{
		Cluster: opts.Identity.Cluster(), Heads: heads{r}, Content: contents{r}, Members: members{r}, Presence: r.agents, Audit: refusals{opts.Log},
		Certificate: func() (*tls.Certificate, error) { return opts.Identity.Certificate() },
		Authorities: func() *x509.CertPool { return opts.Identity.Trust().Pool() },
		Names:       r.names.Feed, Limits: opts.Limits, Times: opts.Times, Metrics: opts.Metrics, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Run serves hosts on a listener until the context ends. It closes the listener. The error is of the listener, or InternalFault.
func (r *Relay) Run(ctx context.Context, l net.Listener) error {
	if err := r.metrics.register(r.opts.Metrics); err != nil {
		_ = l.Close()
		return err
	}
	// Streams and fetches end when the calls that they are for have ended.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer r.servers.close()
	defer r.tasks.Wait()
	defer stop()
	r.flights.begin(working, &r.tasks)
	streams, upkeep, names := r.random(), r.random(), r.random()
	r.tasks.Go(func() { r.follow(working, names) })
	r.tasks.Go(func() { r.stream(working, streams) })
	r.tasks.Go(func() { r.keepUp(working, upkeep) })
	return r.server.Run(ctx, l)
}

// follow takes over what servers tell of names. Hosts verify it by themselves; here it is so that nothing is passed on that they would refuse.
func (r *Relay) follow(ctx context.Context, random *rand.Rand) {
	client.FollowNames(ctx, random, func(ctx context.Context, anew bool) error {
		return r.servers.current().Names(ctx, client.NamesOf(r.names), anew)
	}, func(err error) { r.opts.Log.Warn("take the names", "err", err, "hint", reason.Of(err).Hint) })
}

// random is another source for another goroutine.
func (r *Relay) random() *rand.Rand {
	r.drawing.Lock()
	defer r.drawing.Unlock()
	return rand.New(rand.NewPCG(r.opts.Random.Uint64(), r.opts.Random.Uint64()))
}

// pause waits for a while; false when the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// poke leaves something in a channel that has room for one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
