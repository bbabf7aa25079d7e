package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

// Options say what to serve, and how much of it. Handler is required.
type Options struct {
	// Handler serves calls. It sets the header of an answer before it writes any of it. http.ResponseController reaches the deadlines of a
	// call, and Flush; the request's context ends with the call and with the connection.
	Handler http.Handler
	// Context is what the context of a call is made of, by its connection. Default: the empty one.
	Context func(net.Conn) context.Context
	// Calls is how many a connection may have open at once; default 16.
	Calls int
	// Headers is how long the header of a call may be, as RFC 9113 counts it, in section 6.5.2; default 8 KiB.
	Headers int
	// HeadersRemembered is how many bytes of them a connection may refer to later; default 512. See RFC 7541, section 2.3.2.
	HeadersRemembered int
	// Idle is how long a connection may have no call; default 2 minutes.
	Idle time.Duration
	// Greeting is how long a connection may take until it has said that it speaks HTTP/2; default 10 s.
	Greeting time.Duration
	// Message is how long a caller may take to send its message, where the handler gives it no other time; default 30 s.
	Message time.Duration
	// Write is how long one piece of an answer may wait for the other end to take it; default 10 s.
	Write time.Duration
	// Log takes why connections end; default nowhere.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&o.Idle, 2*time.Minute)
	or(&o.Greeting, 10*time.Second)
	or(&o.Message, 30*time.Second)
	or(&o.Write, 10*time.Second)
	for n, otherwise := range map[*int]int{&o.Calls: 16, &o.Headers: 8 << 10, &o.HeadersRemembered: 512} {
		if *n == 0 {
			*n = otherwise
		}
	}
	if o.Context == nil {
		o.Context = func(net.Conn) context.Context { return context.Background() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	var cause error
	switch {
	case o.Handler == nil:
		cause = errors.New("there is nobody to serve calls")
	case o.Idle < 0 || o.Greeting < 0 || o.Message < 0 || o.Write < 0:
		cause = errors.New("a time is negative")
	case o.Calls < 1 || o.Headers < 1 || o.HeadersRemembered < 1 || o.Headers > headersMost:
		cause = errors.New("a bound makes no sense")
	default:
		return nil
	}
	return &reason.Error{Code: reason.InternalFault, Doing: "set up HTTP/2", Cause: cause}
}

// headersMost is above what any Headers may be: a header block is read as one.
const headersMost = 1 << 20

// Server serves connections. Use New.
type Server struct {
	opts    Options
	readers sync.Pool // of *reader
	writers sync.Pool // of *frames
	tasks   sync.WaitGroup
	closing chan struct{} // closed by Close

	mu       sync.Mutex // guards what follows
	listener net.Listener
	open     map[*conn]struct{}
	closed   bool
	running  int           // handlers
	ended    chan struct{} // made by Shutdown, closed with the last handler
}

// New checks the options, and starts nothing. The error is InternalFault.
func New(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, closing: make(chan struct{}), open: map[*conn]struct{}{}}
	s.readers.New = func() any { return newReader(opts.Headers) }
	s.writers.New = func() any { return newFrames() }
	return s, nil
}

// Pauses after a connection that could not be accepted, because too many files are open for instance: doubled each time.
const acceptAgainMin, acceptAgainMax = 5 * time.Millisecond, time.Second

// Serve serves the connections of a listener, which have shaken hands, until Close or an error of the listener. When it returns it has closed
// the listener and all connections, and no handler runs. It may be called once. After Close the error is net.ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	defer s.tasks.Wait()
	defer s.Close()
	s.mu.Lock()
	s.listener = l
	closed := s.closed
	s.mu.Unlock()
	if closed {
		_ = l.Close() // nobody has had a connection of it
		return net.ErrClosed
	}
	pause := acceptAgainMin
	for {
		raw, err := l.Accept()
		if err != nil {
			var may interface{ Temporary() bool }
			if errors.Is(err, net.ErrClosed) || !errors.As(err, &may) || !may.Temporary() {
				return err
			}
			s.opts.Log.Warn("accept a connection", "err", err)
			again := time.NewTimer(pause)
			select {
			case <-again.C:
			case <-s.closing:
				again.Stop()
			}
			pause = min(2*pause, acceptAgainMax)
			continue
		}
		pause = acceptAgainMin
		s.serve(raw)
	}
}

func (s *Server) serve(raw net.Conn) {
	c := newConn(s, raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = raw.Close() // it came too late
		return
	}
	s.open[c] = struct{}{}
	c.leaving = s.ended != nil
	s.tasks.Go(func() {
		err := c.run()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
		if err != nil {
			s.opts.Log.Debug("a connection has ended", "from", raw.RemoteAddr().String(), "err", err)
		}
	})
}

// Shutdown has all who are connected make their next calls elsewhere, waits until those that are open have ended, or the context, and closes.
// It is called once.
func (s *Server) Shutdown(ctx context.Context) {
	ended := make(chan struct{})
	all := s.connections(func() {
		if s.ended = ended; s.running == 0 {
			close(ended)
		}
	})
	for _, c := range all {
		s.tasks.Go(c.leave) // it writes, to some who do not read
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	s.Close()
}

// enter says whether another call may be served.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false
	}
	s.running++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.ended != nil {
		close(s.ended)
	}
}

// Close ends the listener and all connections, with the calls that are open.
func (s *Server) Close() {
	var l net.Listener
	all := s.connections(func() {
		if l = s.listener; !s.closed {
			s.closed = true
			close(s.closing)
		}
	})
	for _, c := range all {
		c.broken(net.ErrClosed)
	}
	if l != nil {
		_ = l.Close() // it may be closed already
	}
}

func (s *Server) connections(with func()) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	with()
	all := make([]*conn, 0, len(s.open))
	for c := range s.open {
		all = append(all, c)
	}
	return all
}

// secured is what a connection says of its other end; nil where it is no TLS.
func secured(raw net.Conn) *tls.ConnectionState {
	t, is := raw.(*tls.Conn)
	if !is {
		return nil
	}
	state := t.ConnectionState()
	return &state
}
