package server

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
	"tako.dev/tako/internal/transfer/h2"
	"tako.dev/tako/internal/transfer/handshake"
	"tako.dev/tako/internal/transfer/wire"
)

// Server serves hosts. Use New.
type Server struct {
	opts       Options
	metrics    *metrics
	calls      map[string]call // by path
	desk       *desk
	budgets    budgets
	allowances *allowances
	numbers    atomic.Uint64 // of watches
	began      time.Time
	ran        atomic.Bool

	auditing sync.Mutex      // guards audited
	audited  *bucket.Sources // of refusals

	stopping chan struct{} // closed when the server begins to stop
}

// New checks the options, and starts nothing.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := newMetrics()
	s := &Server{
		opts: opts, began: time.Now(), metrics: m, desk: newDesk(m), stopping: make(chan struct{}), audited: bucket.NewSources(auditRate()), allowances: newAllowances(opts.Limits),
		budgets: newBudgets(opts.Limits, m),
	}
	s.calls = s.routes()
	return s, nil
}

// idleMax is how long a connection without any call stays open: longer than the longest wait of a host between two watches.
const idleMax = 2 * time.Minute

// Run serves a listener until the context ends, then tells the watches to go on elsewhere and lets the calls in flight finish. It closes
// the listener. It may be called once. The error is SystemCallFailed, or that of the metrics.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if !s.ran.CompareAndSwap(false, true) {
		return &reason.Error{Code: reason.InternalFault, Doing: "serve hosts", Cause: errors.New("it is run twice")}
	}
	if err := s.metrics.register(s.opts.Metrics); err != nil {
		return errors.Join(err, l.Close())
	}
	gate := newListener(l, s.opts.Limits, s.allowances, s.metrics)
	h, err := h2.New(h2.Options{
		Handler: s, Context: withConn, Calls: callsMax, Headers: headersMax, HeadersRemembered: readHeadersMax,
		Idle: idleMax, Greeting: s.opts.Times.Handshake, Message: messageTime, Write: s.opts.Times.Write, Log: s.opts.Log,
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { s.sweep(sweeping, gate) })
	hands := handshake.New(gate, s.tlsConfig(), s.opts.Times.Handshake, s.opts.Log)
	all.Go(hands.Run)
	served := make(chan error, 1)
	all.Go(func() { served <- h.Serve(hands) })
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	close(s.stopping)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Times.Stop)
	h.Shutdown(ending)
	cancel()
	stopSweeping()
	all.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "serve hosts on " + l.Addr().String(), Cause: err}
	}
	return nil
}

// Bounds of a connection. Only tako-agent and relays speak to it: a few calls at once, with few and short headers.
const (
	headersMax = 8 << 10
	callsMax   = 16
	// readHeadersMax is what a connection remembers of headers that are sent to it short (RFC 7541): what is the same each time, and no more. The
	// 4 KiB of who says nothing would fill with lengths, of which no two are the same.
	readHeadersMax = 512 // a host sends whom it calls, three paths, and what it is
)

// alpn is the only protocol that is spoken here, as TLS names it.
const alpn = "h2"

func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{alpn},
		// The certificate of a host is verified by each call that needs one, since some do without.
		ClientAuth: tls.RequestClientCert,
		// Hosts connect seldom, and would show an old certificate with an old session.
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.opts.Certificate() },
	}
}

// sweep closes connections of nodes that are gone, of hosts that are lost, and of those who do not say who they are.
func (s *Server) sweep(ctx context.Context, l *listener) {
	tick := time.NewTicker(s.opts.Times.Sweep)
	defer tick.Stop()
	seen, known := uint64(0), false // the changes among the members up to which all that are connected were found to be some
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, changes := time.Now(), s.opts.Members.Changes()
		same := known && changes == seen
		known, seen = true, changes
		for _, c := range l.connections() {
			lost := c.silent() >= silentMax
			if lost {
				c.dead.Store(true)
			}
			stays, sure := s.mayStay(c, now, same)
			known = known && sure
			if lost || !stays {
				_ = c.Close()
			}
		}
	}
}

// mayStay says whether a connection may stay open. That of a host which was a member at the last look, since when the members are the same, is
// looked at for its time only. It is not sure where that could not be found out, which is no refusal.
func (s *Server) mayStay(c *conn, now time.Time, same bool) (stays, sure bool) {
	if c.stranger() {
		return now.Sub(c.since) < s.opts.Times.Stranger, true
	}
	seen := c.shown.Load()
	leaf := seen.leaf
	if c.since.After(leaf.NotAfter) {
		return now.Sub(c.since) < s.opts.Times.Stranger, true // it had expired before: to be renewed is all that it can be here for
	}
	if now.After(leaf.NotAfter) {
		return false, true
	}
	who := seen.name.Load()
	if same && !who.Relay {
		return true, true
	}
	err := s.opts.Members.Remains(*who)
	unknown := err != nil && reason.Of(err).Entry().HTTP >= http.StatusInternalServerError
	return err == nil || unknown, !unknown
}

// connKey is where the context of a call has its connection.
type connKey struct{}

func withConn(c net.Conn) context.Context {
	t, is := c.(*tls.Conn)
	if !is {
		return context.Background()
	}
	return context.WithValue(context.Background(), connKey{}, t.NetConn())
}

// draw draws a time.
func (b Between) draw() time.Duration {
	if b.Max == b.Min {
		return b.Min
	}
	return b.Min + rand.N(b.Max-b.Min)
}

// again is the frame that ends a watch.
func (s *Server) again() wire.Frame {
	ms := uint32(s.opts.Times.Again.draw() / time.Millisecond)
	return wire.Frame{Again: &ms}
}
