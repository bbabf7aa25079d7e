package client

import "sync"

// lines are the servers with the connections to them, by the number that the machine knows them by.
type lines struct {
	*Connections

	mu      sync.Mutex // guards what follows
	servers []*server
}

func newLines(dial Dial, identity Identity) *lines {
	l := &lines{Connections: NewConnections(dial)}
	l.renew(identity)
	return l
}

// renew has the next calls make new connections, with the certificate of then. Those that are there end with their calls.
func (l *lines) renew(identity Identity) {
	var servers []*server
	for _, address := range identity.Servers() {
		servers = append(servers, newServer(l.Dial, address, known(identity)))
	}
	l.mu.Lock()
	old := l.servers
	l.servers = servers
	l.mu.Unlock()
	for _, s := range old {
		s.http.CloseIdleConnections()
	}
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
