package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/transfer/bucket"
)

// acceptPause is for how long nothing is accepted when there is no descriptor or no memory for it: others give some back meanwhile.
const acceptPause = 100 * time.Millisecond

// streams accepts connections to an address.
func (s *Server) streams(ctx context.Context, l *net.TCPListener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	open := &clients{of: map[netip.Prefix]int{}}
	places := make(chan struct{}, connsMax)
	for {
		select {
		case places <- struct{}{}: // what comes when there is none waits in the kernel
		case <-ctx.Done():
			return ctx.Err()
		}
		conn, err := l.AcceptTCP()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ECONNABORTED) {
			<-places
			select {
			case <-time.After(acceptPause):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return err
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() // what a TCPConn has
		// Behind a local address all programs of the host are one client: they wait for one another.
		limit := s.limit(s.streamLimit, from)
		if limit != nil && !open.enter(from) {
			s.counter.limited.Add(1)
			_ = conn.Close() // there is nothing on the way
			<-places
			continue
		}
		conns.Go(func() {
			defer func() { <-places }()
			if limit != nil {
				defer open.leave(from)
			}
			s.stream(ctx, conn, limit)
		})
	}
}

// clients counts the connections of each client.
type clients struct {
	mu sync.Mutex // guards of
	of map[netip.Prefix]int
}

func (c *clients) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	source := bucket.SourceOf(from)
	if c.of[source] >= connsOfOne {
		return false
	}
	c.of[source]++
	return true
}

func (c *clients) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	source := bucket.SourceOf(from)
	if c.of[source]--; c.of[source] == 0 {
		delete(c.of, source)
	}
}

// stream answers the questions of a connection, one after the other (RFC 7766), until the client is done, or silent for too long.
func (s *Server) stream(ctx context.Context, conn *net.TCPConn, limit *limiter) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()   // what a TCPConn has
	ended := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what is being read or written
	defer func() {
		if ended() {
			_ = conn.Close() // every answer has been taken or given up
		}
	}()
	query := make([]byte, queryBytesMax)
	for {
		n, err := receive(conn, query)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
				s.counter.dropped.Add(1)
			}
			return
		}
		if !limit.allow(from) {
			s.counter.limited.Add(1)
			return
		}
		answer := s.respond(query[:n], nil, true)
		if answer == nil {
			return
		}
		// In one write, so that it is one packet: RFC 7766, section 8.
		framed := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(answer)), uint16(len(answer))), answer...)
		if conn.SetWriteDeadline(time.Now().Add(queryMax)) != nil {
			return
		}
		if _, err := conn.Write(framed); err != nil {
			return
		}
	}
}

// errTooLong is what there is no room for.
var errTooLong = errors.New("the question is too long")

// receive reads a question.
func receive(conn net.Conn, to []byte) (int, error) {
	var length [2]byte
	if err := conn.SetReadDeadline(time.Now().Add(idleMax)); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > len(to) {
		return 0, errTooLong
	}
	if err := conn.SetReadDeadline(time.Now().Add(queryMax)); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, to[:n])
}
