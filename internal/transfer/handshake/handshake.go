// Package handshake is a listener whose connections have shaken hands. It is by itself because of what that costs: a handshake needs some
// 16 KiB of stack, which the goroutine that serves a connection for as long as it lasts would keep until the collector has taken it back, half
// by half. So each is made in a goroutine that ends then. Run owns them all, and one that accepts. And when thousands come at once, they have to
// take turns: the processors make a few hundred in a second, and if all were begun, none would be done before the other side has given up.
package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Listener is a listener whose connections have shaken hands. Use New.
type Listener struct {
	net.Listener
	config *tls.Config
	most   time.Duration
	log    *slog.Logger
	turns  *turns

	done   chan accepted
	closed chan struct{}
	close  sync.Once
}

// accepted is a connection, or why there is none.
type accepted struct {
	conn net.Conn
	err  error
}

// New makes a Listener of one whose connections have not, and starts nothing. A handshake may take so long at most. Nobody else changes the
// configuration from then on, whose GetConfigForClient is the listener's. A connection with a method Left that says true is one whose other end
// has closed it: nothing is computed for it any more.
func New(l net.Listener, config *tls.Config, most time.Duration, log *slog.Logger) *Listener {
	config.GetConfigForClient = takeTurn
	return &Listener{Listener: l, config: config, most: most, log: log, turns: newTurns(), done: make(chan accepted), closed: make(chan struct{})}
}

// turnKey is where the context of a handshake has its turn.
type turnKey struct{}

// errLeft: the other end has not waited for its turn.
var errLeft = errors.New("the other end has closed the connection before its turn")

// takeTurn waits until a handshake may go on whose first message was read. That much is cheap, and who sends none takes nobody's turn.
func takeTurn(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if err := hello.Context().Value(turnKey{}).(*turn).take(hello.Context()); err != nil {
		return nil, err
	}
	if c, is := hello.Conn.(interface{ Left() bool }); is && c.Left() {
		return nil, errLeft
	}
	return nil, nil // what the configuration says holds
}

// Run accepts until the listener is closed, and waits for the handshakes that it has begun.
func (h *Listener) Run() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for {
		h.turns.room(h.closed)
		raw, err := h.Listener.Accept()
		if err != nil {
			h.hand(accepted{err: err}) // whoever accepts from here pauses, where it may be over in a moment
			select {
			case <-h.closed:
				return
			default:
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		all.Go(func() { h.shake(ctx, raw) })
	}
}

// shake shakes hands, and hands the connection over.
func (h *Listener) shake(ctx context.Context, raw net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, h.most)
	defer cancel()
	turn := h.turns.next()
	secure := tls.Server(raw, h.config)
	err := secure.HandshakeContext(context.WithValue(ctx, turnKey{}, turn))
	turn.end()
	if err == nil && h.hand(accepted{conn: secure}) {
		return
	}
	_ = raw.Close() // why it came to nothing is known
	if err != nil {
		h.log.Debug("a handshake came to nothing", "from", raw.RemoteAddr().String(), "err", err)
	}
}

// hand hands something to Accept; false when nobody accepts any more.
func (h *Listener) hand(a accepted) bool {
	select {
	case h.done <- a:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection whose handshake is done.
func (h *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-h.done:
		return a.conn, a.err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close stops to accept. Connections that were handed over stay.
func (h *Listener) Close() error {
	h.close.Do(func() { close(h.closed) })
	return h.Listener.Close()
}
