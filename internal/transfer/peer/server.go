package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Server answers other hosts. Use New.
type Server struct {
	opts    Options
	callers *callers
	places  map[string]chan struct{} // by path: has something for each place that is taken
	ran     atomic.Bool

	sending sync.Mutex // guards sent
	sent    bucket     // of bytes

	answered, refused, shut atomic.Uint64
	told                    atomic.Int64 // when something was said in the log of what was refused, nanoseconds since 1970
}

// Counts say what a Server has done since it was made.
type Counts struct {
	Answered uint64 // calls
	Refused  uint64 // the same: not allowed, malformed, or too many
	Shut     uint64 // connections that were not admitted
}

// New checks the options, and starts nothing.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	l := opts.Limits
	return &Server{opts: opts, callers: newCallers(l.Calls), places: map[string]chan struct{}{
		wire.PathNews: make(chan struct{}, l.News), wire.PathSync: make(chan struct{}, l.Syncs), wire.PathNodes: make(chan struct{}, l.Nodes),
	}}, nil
}

// Counts says what it has done.
func (s *Server) Counts() Counts {
	return Counts{Answered: s.answered.Load(), Refused: s.refused.Load(), Shut: s.shut.Load()}
}

const (
	// handshakeMax is how long a handshake, and the beginning of a call, may take.
	handshakeMax = 10 * time.Second
	// idleMax is how long a connection without a call stays open: callers come back after some seconds, or not soon.
	idleMax = 30 * time.Second
	// Bounds of a connection: as those of a server, and of as few calls at once as one host makes.
	headersMax = 8 << 10
	streamsMax = 4
	receiveMax = 64 << 10
	frameMax   = 16 << 10
)

// Run serves a listener until the context ends, and closes it. It may be called once. The error is SystemCallFailed.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if !s.ran.CompareAndSwap(false, true) {
		return &reason.Error{Code: reason.InternalFault, Doing: "answer other hosts", Cause: errors.New("it is run twice")}
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	h := &http.Server{
		Handler: s, Protocols: &protocols, IdleTimeout: idleMax, ReadHeaderTimeout: handshakeMax, MaxHeaderBytes: headersMax, TLSConfig: s.tlsConfig(),
		// What it says of connections that break is for who debugs.
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsMax, MaxReceiveBufferPerConnection: receiveMax, MaxReceiveBufferPerStream: receiveMax, MaxReadFrameSize: frameMax,
			WriteByteTimeout: s.opts.Limits.Write,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { served <- h.ServeTLS(newGate(l, s.opts.Limits, func() { s.shut.Add(1) }), "", "") })
	defer serving.Wait()
	select {
	case err := <-served:
		_ = h.Close()
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "answer other hosts on " + l.Addr().String(), Cause: err}
	case <-ctx.Done():
		_ = h.Close() // whoever asks goes on where it was, with another one
		return nil
	}
}

func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.opts.Identity.Certificate() },
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := trust.VerifyNode(state.PeerCertificates, s.opts.Identity.Trust(), s.opts.Identity.Node().Cluster, time.Now())
			return err
		},
	}
}
