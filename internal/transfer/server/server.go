package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
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
	ran        atomic.Bool

	auditing sync.Mutex      // guards audited
	audited  *bucket.Sources // of refusals

	stopping chan struct{} // closed when the server begins to stop
	handlers handlers
}

// New checks the options, and starts nothing.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := newMetrics()
	s := &Server{
		opts: opts, metrics: m, desk: newDesk(m), stopping: make(chan struct{}), audited: bucket.NewSources(auditRate()), allowances: newAllowances(opts.Limits),
		budgets: budgets{snapshots: newBudget("snapshots", opts.Limits.Snapshots, m), deltas: newBudget("deltas", opts.Limits.Deltas, m), objects: newBudget("objects", opts.Limits.Objects, m)},
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
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	h := &http.Server{
		Handler: s, Protocols: &protocols, IdleTimeout: idleMax, ReadHeaderTimeout: s.opts.Times.Handshake, ReadTimeout: messageTime, MaxHeaderBytes: headersMax,
		TLSConfig: s.tlsConfig(), ConnContext: withConn, ErrorLog: quiet(s.opts.Log),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsMax, MaxReceiveBufferPerConnection: receiveMax, MaxReceiveBufferPerStream: receiveMax,
			MaxReadFrameSize: frameMax, WriteByteTimeout: s.opts.Times.Write,
			MaxEncoderHeaderTableSize: sentHeadersMax, MaxDecoderHeaderTableSize: readHeadersMax,
		},
	}
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { s.sweep(sweeping, gate) })
	// Not the configuration of h, which Serve adds to while hands are shaken.
	hands := handshake.New(gate, s.tlsConfig(), s.opts.Times.Handshake, s.opts.Log)
	all.Go(hands.Run)
	served := make(chan error, 1)
	all.Go(func() { served <- h.Serve(hands) })
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	close(s.stopping)
	s.stop(ctx, h)
	stopSweeping()
	all.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "serve hosts on " + l.Addr().String(), Cause: err}
	}
	return nil
}

// Bounds of a connection. Only tako-agent and relays speak to it: a few calls at once, with few and short headers.
const (
	headersMax = 8 << 10
	streamsMax = 16
	// receiveMax is what a connection may have sent and nobody has read: the least that HTTP/2 allows.
	receiveMax = 64 << 10
	// frameMax is the longest frame: the least that HTTP/2 allows. A connection keeps the room for the longest one that it has read.
	frameMax = 16 << 10
	// sentHeadersMax and readHeadersMax are what a connection remembers of headers, to send them short (RFC 7541): what is the same each time, and no
	// more. The 4 KiB of who says nothing would fill with dates and lengths, of which no two are the same, and take three times as much here.
	sentHeadersMax = 64  // the type of the content is 60 there; a date is 65
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

// settle is how long the last bytes of calls that have ended may take to their connections: net/http does not say when they have gone.
const settle = 20 * time.Millisecond

// stop ends the calls: those that are short in their time, the others in the middle. When it returns there is none.
func (s *Server) stop(ctx context.Context, h *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Times.Stop)
	defer cancel()
	ended := s.handlers.end()
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-ended:
			timer := time.NewTimer(settle)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		cancel()
	})
	// By itself it would wait for a second for each connection, whether there are calls or not.
	if h.Shutdown(ctx) != nil {
		_ = h.Close() // it closes connections: what it could say about them nobody can use
	}
	all.Wait()
	<-ended
}

// quiet is the log for what net/http says about connections that break: that is for who debugs.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// sweep closes connections of nodes that are gone, of hosts that are lost, and of those who do not say who they are.
func (s *Server) sweep(ctx context.Context, l *listener) {
	tick := time.NewTicker(s.opts.Times.Sweep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		for _, c := range l.connections() {
			lost := silent(c.Conn) >= silentMax
			if lost {
				c.dead.Store(true)
			}
			if lost || !s.mayStay(c, now) {
				_ = c.Close()
			}
		}
	}
}

func (s *Server) mayStay(c *conn, now time.Time) bool {
	if c.stranger() {
		return now.Sub(c.since) < s.opts.Times.Stranger
	}
	seen := c.shown.Load()
	leaf := seen.leaf
	if c.since.After(leaf.NotAfter) {
		return now.Sub(c.since) < s.opts.Times.Stranger // it had expired before: to be renewed is all that it can be here for
	}
	if now.After(leaf.NotAfter) {
		return false
	}
	err := s.opts.Members.Remains(*seen.name.Load())
	// That it cannot be found out now is no refusal.
	return err == nil || reason.Of(err).Entry().HTTP >= http.StatusInternalServerError
}

// handlers counts the calls in flight.
type handlers struct {
	mu      sync.Mutex // guards all below
	running int
	ended   chan struct{} // made by end, closed by the last call
}

func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return false
	}
	h.running++
	return true
}

func (h *handlers) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.running == 0 && h.ended != nil {
		close(h.ended)
	}
}

// end lets no call in any more. The channel is closed when those in flight have ended. It is called once.
func (h *handlers) end() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = make(chan struct{})
	if h.running == 0 {
		close(h.ended)
	}
	return h.ended
}

// connKey is where the context of a call has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	t, is := c.(*tls.Conn)
	if !is {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, t.NetConn())
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
