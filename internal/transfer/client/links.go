package client

import (
	"context"
	"net"
	"sync"
	"time"
)

// Links counts the connections to servers, for people. Its Dial makes them, in the place of the default. The zero Links has none. Its methods
// may be called from several goroutines.
type Links struct {
	mu    sync.Mutex // guards what follows
	open  int
	since time.Time // when open became, or ceased to be, 0; zero where there was no connection yet
}

// Dial is a Dial.
func (k *Links) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := tcp(ctx, network, address)
	if err != nil {
		return nil, err
	}
	k.count(1)
	return &link{Conn: conn, ended: sync.OnceFunc(func() { k.count(-1) })}, nil
}

func (k *Links) count(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.open > 0
	k.open += n
	if was != (k.open > 0) {
		k.since = time.Now()
	}
}

// State says whether there is a connection, and since when that is so; zero where there was none yet.
func (k *Links) State() (connected bool, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open > 0, k.since
}

// link is one connection.
type link struct {
	net.Conn
	ended func()
}

// Close ends the connection.
func (l *link) Close() error {
	l.ended()
	return l.Conn.Close()
}
