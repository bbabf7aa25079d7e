package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/transfer/core"
)

const (
	herd = 10_000
	// backlog is how many connections wait in the kernel to be accepted: net.core.somaxconn of Linux.
	backlog = 4096
	// patience is how long an agent waits for a connection, and as long again for the handshake.
	patience = 10 * time.Second
)

// kernel is a listening socket, with the connections that wait to be accepted.
type kernel struct {
	waiting chan net.Conn
	closed  chan struct{}
}

func (k *kernel) Accept() (net.Conn, error) {
	select {
	case c := <-k.waiting:
		return c, nil
	case <-k.closed:
		return nil, net.ErrClosed
	}
}

func (k *kernel) Close() error   { close(k.closed); return nil }
func (k *kernel) Addr() net.Addr { return &net.TCPAddr{} }

// dialed is one end of a connection, with where it comes from.
type dialed struct {
	net.Conn
	from net.Addr
}

func (d dialed) RemoteAddr() net.Addr { return d.from }

// stampede is a herd that comes back, and when each of it was recognized.
type stampede struct {
	k    *kernel
	l    *listener
	mu   sync.Mutex
	back []time.Duration // since the beginning
	dies []time.Duration // connections that were refused, or given up
}

// agent comes back with the pauses of an agent.
func (s *stampede) agent(name string, from net.Addr, began time.Time, random *rand.Rand) {
	for backoff := (core.Backoff{}); ; {
		<-time.After(backoff.Next(random))
		if s.connect(name, from) {
			s.mu.Lock()
			s.back = append(s.back, time.Since(began))
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		s.dies = append(s.dies, time.Since(began))
		s.mu.Unlock()
	}
}

func (s *stampede) connect(name string, from net.Addr) bool {
	near, far := net.Pipe()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case s.k.waiting <- dialed{far, from}:
	case <-late.C:
		return false
	}
	_ = near.SetDeadline(time.Now().Add(patience))
	_, err := near.Write([]byte(name + "\n"))
	if err == nil {
		_, err = near.Read(make([]byte, 1)) // it is recognized
	}
	return err == nil
}

// serve recognizes who connects, after what a handshake takes.
func (s *stampede) serve(all *sync.WaitGroup) {
	for {
		accepted, err := s.l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			c := accepted.(*conn)
			name := make([]byte, 64)
			n, err := c.Read(name)
			if err != nil {
				_ = c.Close()
				return
			}
			<-time.After(50 * time.Millisecond)
			seen := &shown{}
			c.shown.Store(seen)
			if !c.known(seen, Identity{Name: string(name[:n-1])}) {
				_ = c.Close()
				return
			}
			_, _ = c.Write([]byte{1})
		})
	}
}

// TestTransferCase39_Herd: ten thousand agents come back in one moment. They are let in at the pace that the server has, whether they come from
// as many addresses or from one, and all are back within a minute.
func TestTransferCase39_Herd(t *testing.T) {
	c := casetest.Start(t)
	for name, address := range map[string]func(i int) net.Addr{
		"each has an address": func(i int) net.Addr {
			return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 40000))
		},
		"all behind one address": func(int) net.Addr {
			return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 40000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			synctest.Test(t, func(t *testing.T) {
				limits := Limits{}.withDefaults()
				k := &kernel{waiting: make(chan net.Conn, backlog), closed: make(chan struct{})}
				s := &stampede{k: k, l: newListener(k, limits, newAllowances(limits), newMetrics())}
				var server, served, agents sync.WaitGroup
				server.Go(func() { s.serve(&served) })
				began := time.Now()
				for i := range herd {
					random := rand.New(rand.NewPCG(uint64(i), 1))
					agents.Go(func() { s.agent(fmt.Sprint("node-", i), address(i), began, random) })
				}
				agents.Wait()
				_ = s.l.Close()
				server.Wait()
				served.Wait()
				for _, open := range s.l.connections() {
					_ = open.Close()
				}
				slices.Sort(s.back)
				c.Equal(len(s.back), herd, "agents that are back")
				c.Check(s.back[herd-1] <= time.Minute, "the last one is back after %s", s.back[herd-1])
				most := 0
				for i := range s.back {
					until, _ := slices.BinarySearch(s.back, s.back[i]+time.Second)
					most = max(most, until-i)
				}
				c.Check(most <= int(limits.all().Burst+limits.all().Second), "%d were let in within a second", most)
				c.Check(len(s.dies) <= herd, "%d connections were in vain", len(s.dies))
				t.Logf("the last is back after %s, at most %d in a second, %d connections in vain", s.back[herd-1], most, len(s.dies))
			})
		})
	}
}
