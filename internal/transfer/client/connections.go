package client

import (
	"context"
	"net"
	"sync"
)

// Connections are those that are open, so that all of them can be closed with the calls that are made over them. Use NewConnections.
type Connections struct {
	dial Dial

	mu   sync.Mutex // guards what follows
	open map[*line]bool
}

// line is a connection that is known until it is closed.
type line struct {
	net.Conn
	of *Connections
}

// NewConnections has connections made by dial, nil for TCP.
func NewConnections(dial Dial) *Connections {
	if dial == nil {
		dial = TCP
	}
	return &Connections{dial: dial, open: map[*line]bool{}}
}

// Dial makes a connection.
func (c *Connections) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &line{Conn: conn, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[one] = true
	return one, nil
}

// Close closes the connection.
func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// HangUp closes all connections. What could go wrong then is of no use to anybody.
func (c *Connections) HangUp() {
	c.mu.Lock()
	var all []*line
	for one := range c.open {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		_ = one.Close()
	}
}
