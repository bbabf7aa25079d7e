package client

import (
	"context"
	"net"
	"sync"
)

// lines are the servers with the connections to them, by the number that the machine knows them by.
type lines struct {
	dial Dial

	mu      sync.Mutex // guards what follows
	servers []*server
	open    map[*line]bool
}

// line is a connection that is known to lines until it is closed.
type line struct {
	net.Conn
	lines *lines
}

// Close closes the connection.
func (l *line) Close() error {
	l.lines.mu.Lock()
	delete(l.lines.open, l)
	l.lines.mu.Unlock()
	return l.Conn.Close()
}

func newLines(dial Dial, identity Identity) *lines {
	l := &lines{dial: dial, open: map[*line]bool{}}
	l.renew(identity)
	return l
}

// renew has the next calls make new connections, with the certificate of then. Those that are there end with their calls.
func (l *lines) renew(identity Identity) {
	var servers []*server
	for _, address := range identity.Servers() {
		servers = append(servers, newServer(l.dialed, address, known(identity)))
	}
	l.mu.Lock()
	old := l.servers
	l.servers = servers
	l.mu.Unlock()
	for _, s := range old {
		s.http.CloseIdleConnections()
	}
}

func (l *lines) dialed(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	one := &line{Conn: conn, lines: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[one] = true
	return one, nil
}

func (l *lines) at(number int) *server {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.servers[number%len(l.servers)]
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.servers)
}

// hangUp closes all connections, with the calls that are made over them. What could go wrong then is of no use to anybody.
func (l *lines) hangUp() {
	l.mu.Lock()
	var all []*line
	for one := range l.open {
		all = append(all, one)
	}
	l.mu.Unlock()
	for _, one := range all {
		_ = one.Close()
	}
}
