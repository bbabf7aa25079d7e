package relay

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network is who listens where, in memory.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
}

// listener is somebody who listens.
type listener struct {
	network *network
	address string
	dials   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	conns   []net.Conn // guarded by network.mu
}

func (n *network) listen(address string) *listener {
	l := &listener{network: n, address: address, dials: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
	return l
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens at " + address)
	}
	near, far := net.Pipe()
	select {
	case l.dials <- far:
		n.mu.Lock()
		defer n.mu.Unlock()
		l.conns = append(l.conns, far)
		return near, nil
	case <-l.closed:
		return nil, errors.New("nobody listens at " + address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut ends the connections of who listens at an address, and who is not back is not there.
func (n *network) cut(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.listeners[address]; l != nil {
		delete(n.listeners, address)
		for _, c := range l.conns {
			_ = c.Close()
		}
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dials:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// wires are connections that one has made.
type wires struct {
	network *network

	mu    sync.Mutex // guards what follows
	conns []net.Conn
	down  bool
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := w.network.dial(ctx, network, address)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.down {
		_ = c.Close()
		err = errors.New("the line is cut")
	}
	w.conns = append(w.conns, c)
	return c, err
}

// cut ends all of them, and lets none be made.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
