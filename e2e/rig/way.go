package rig

import (
	"net"
	"sync"
	"testing"
)

// Way is a way to a server that can be cut.
type Way struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards what follows
	state state
	conns map[net.Conn]bool
}

type state uint8

const (
	good state = iota
	cut        // nothing comes through, and nobody is told
	lost       // as cut, and the far end has found out
)

// NewWay makes a good way to an address. It ends with the test.
func NewWay(t testing.TB, to string) *Way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{listener: l, to: to, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			w.join(&all, near)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.become(good)
		all.Wait()
	})
	return w
}

// Address is where it begins, HOST:PORT.
func (w *Way) Address() string { return w.listener.Addr().String() }

// Cut lets nothing through any more, and nobody is told.
func (w *Way) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = cut
}

// Lose lets nothing through any more, and the far end finds out: as its kernel does, which asks the other one whether a connection lives. Nobody
// tells the near end.
func (w *Way) Lose() { w.become(lost) }

// Heal makes it good again. What was lost meanwhile is lost, so the connections end.
func (w *Way) Heal() { w.become(good) }

// become ends the connections that do not outlive a change: the far ends' where it is lost, all where it is good again.
func (w *Way) become(s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
	for c, far := range w.conns {
		if far || s == good {
			_ = c.Close()
		}
	}
}

// join has a connection go on to the far end, where there is a way.
func (w *Way) join(all *sync.WaitGroup, near net.Conn) {
	w.mu.Lock()
	w.conns[near] = false
	gone := w.state == lost
	w.mu.Unlock()
	if gone {
		all.Go(func() { w.pass(nil, near) })
		return
	}
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		w.end(near)
		return
	}
	w.mu.Lock()
	w.conns[far] = true
	w.mu.Unlock()
	all.Go(func() { w.pass(far, near) })
	all.Go(func() { w.pass(near, far) })
}

// pass hands on what comes until one end has gone. Where the way is lost the other one is not told.
func (w *Way) pass(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err == nil && to != nil && w.now() == good {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			break
		}
	}
	w.end(from)
	if to != nil && w.now() != lost {
		w.end(to)
	}
}

func (w *Way) now() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *Way) end(c net.Conn) {
	_ = c.Close() // it may have gone by itself
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}
