package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
)

// Bounds and deadlines.
const (
	udpWorkers    = 4    // of each address: an answer takes microseconds and waits for nothing, so more would only take turns
	queryBytesMax = 4096 // a question with all that clients add to it has a few hundred
	connsMax      = 128
	connsOfOne    = 16 // where there is a rate: so that one client leaves room to others
	idleMax       = 10 * time.Second
	queryMax      = 5 * time.Second // for the rest of a question whose length has come, and for taking an answer
	sendMax       = time.Second     // for the kernel to take a packet
	// listenPause is how long after an address could not be listened at that is tried again: somebody may have to end there.
	listenPause = 10 * time.Second
)

// PublicRate is what a client may ask at an address that others reach. A resolver that keeps answers for their second asks for each name once in that, for
// all who ask it; and whoever asks by UDP in somebody else's name has at most 1.2 MB/s sent there.
func PublicRate() bucket.Rate { return bucket.Rate{Burst: 2000, Second: 1000} }

// Options are how a Server answers.
type Options struct {
	// Rate bounds how many questions one client has answered, by UDP and by TCP each: its address, of IPv6 its network of 64 bits. The rest are left without an answer,
	// because whoever is said to ask by UDP may be somebody else. Default no bound, which is for local addresses only.
	Rate bucket.Rate
	// Home says that the rate is not for programs of this machine which ask from a local address (127.0.0.0/8, ::1): those come from nowhere else, and
	// a resolver asks for all of them. Default they have it too.
	Home bool
}

// Server answers questions. Its methods may be called by any goroutine.
type Server struct {
	view    atomic.Pointer[names.Index]
	rotate  atomic.Uint64
	counter counter
	// By UDP anybody can ask in the name of a client, and use up what that may ask there; so by TCP it has its own. Nil: no bound.
	packetLimit, streamLimit *limiter
	home                     bool
}

// New makes a server that knows of nothing yet: until the first Swap it says so (SERVFAIL), because what it does not know may be there.
func New(o Options) (*Server, error) {
	if o.Rate != (bucket.Rate{}) && (o.Rate.Burst < 1 || o.Rate.Second <= 0) {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "set how many questions a client may ask", Hint: "give how many at once, at least 1, and how many more each second; or neither"}
	}
	s := &Server{home: o.Home}
	if o.Rate.Burst > 0 {
		s.packetLimit, s.streamLimit = &limiter{sources: bucket.NewSources(o.Rate)}, &limiter{sources: bucket.NewSources(o.Rate)}
	}
	return s, nil
}

// Swap has all questions from now on answered from an index.
func (s *Server) Swap(x *names.Index) { s.view.Store(x) }

// limiter is how much each client has asked lately.
type limiter struct {
	mu      sync.Mutex // guards sources
	sources *bucket.Sources
}

// limit is what bounds a client.
func (s *Server) limit(by *limiter, from netip.Addr) *limiter {
	if s.home && from.Unmap().IsLoopback() {
		return nil
	}
	return by
}

// allow reports whether a client may ask once more.
func (l *limiter) allow(from netip.Addr) bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sources.Take(from, time.Now())
}

// Sockets are where a server is asked.
type Sockets struct {
	packets []*net.UDPConn
	streams []*net.TCPListener
}

// Listen takes addresses, each by UDP and TCP. With port 0 both have one number that is free.
func Listen(ctx context.Context, addresses []netip.AddrPort) (*Sockets, error) {
	s := &Sockets{}
	for _, address := range addresses {
		if err := s.listen(ctx, address); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *Sockets) listen(ctx context.Context, address netip.AddrPort) error {
	fault := func(err error, hint string) error {
		return &reason.Error{Code: reason.NamesUnserved, Doing: "listen for questions of the DNS at " + address.String(), Cause: err, Hint: hint}
	}
	if !address.IsValid() || address.Addr().IsUnspecified() {
		return fault(nil, "name the addresses: an answer has to come from the one that was asked")
	}
	var config net.ListenConfig
	stream, err := config.Listen(ctx, "tcp", address.String())
	if err != nil {
		return fault(err, "`ss -lntp` shows who listens")
	}
	s.streams = append(s.streams, stream.(*net.TCPListener)) // as the network's name says
	packet, err := config.ListenPacket(ctx, "udp", stream.Addr().String())
	if err != nil {
		return fault(err, "`ss -lnup` shows who listens")
	}
	s.packets = append(s.packets, packet.(*net.UDPConn)) // as the network's name says
	return nil
}

// Addresses are where it listens.
func (s *Sockets) Addresses() []netip.AddrPort {
	var all []netip.AddrPort
	for _, l := range s.streams {
		all = append(all, l.Addr().(*net.TCPAddr).AddrPort()) // what a TCPListener has
	}
	return all
}

// Close gives the addresses back.
func (s *Sockets) Close() error {
	var errs []error
	for _, p := range s.packets {
		errs = append(errs, p.Close())
	}
	for _, l := range s.streams {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Run answers at the sockets until its context ends, which is no error, or one of them fails. It closes them.
func (s *Server) Run(ctx context.Context, sockets *Sockets) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-running.Done()
		_ = sockets.Close() // nobody can be told more than that it is over
		return nil
	})
	for _, conn := range sockets.packets {
		for range udpWorkers {
			group.Go(func() error { return s.packets(running, conn) })
		}
	}
	for _, l := range sockets.streams {
		group.Go(func() error { return s.streams(running, l) })
	}
	err := group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return &reason.Error{Code: reason.NamesUnserved, Doing: "answer questions of the DNS", Cause: err}
}

// Serve answers at addresses, each by UDP and TCP, until the context ends. One that cannot be listened at, or that fails, is tried again, and the others
// go on; log is told, once for each reason in a row.
func (s *Server) Serve(ctx context.Context, addresses []netip.AddrPort, log *slog.Logger) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, address := range addresses {
		all.Go(func() { s.serve(ctx, address, log) })
	}
}

func (s *Server) serve(ctx context.Context, address netip.AddrPort, log *slog.Logger) {
	said := ""
	for ctx.Err() == nil {
		sockets, err := Listen(ctx, []netip.AddrPort{address})
		if err == nil {
			said = ""
			log.Info("names are answered", "address", sockets.Addresses()[0])
			err = s.Run(ctx, sockets)
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("names are not answered", "address", address, "err", err, "hint", reason.Of(err).Hint)
		}
		select {
		case <-time.After(listenPause):
		case <-ctx.Done():
		}
	}
}

// packets answers what comes to an address by UDP.
func (s *Server) packets(ctx context.Context, conn *net.UDPConn) error {
	query, reply := make([]byte, queryBytesMax), make([]byte, packetBytesMax)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(query)
		if err != nil {
			return err
		}
		if !s.limit(s.packetLimit, from.Addr()).allow(from.Addr()) {
			s.counter.limited.Add(1)
			continue
		}
		answer := s.respond(query[:n], reply, false)
		if answer == nil {
			continue
		}
		if err := conn.SetWriteDeadline(time.Now().Add(sendMax)); err != nil {
			return err
		}
		if _, err := conn.WriteToUDPAddrPort(answer, from); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.counter.dropped.Add(1) // the client asks again, as when a packet is lost
		}
	}
}
