package client

import (
	"slices"
	"sync"

	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

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

// Learned is what a host or a relay knows of servers beside those that it was given: what it knew, in its order, and what is new of what a server
// has told. Where that is too much, those go that are not told of any more, the oldest first. What is no address is left out.
func Learned(given, before, told []string) []string {
	all := slices.Clone(before)
	told = told[:min(len(told), wire.ServersMax)]
	for _, address := range told {
		if trust.CheckAddress(address) == nil && !slices.Contains(given, address) && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	for over := len(all) - wire.ServersMax; over > 0; over-- {
		gone := slices.IndexFunc(all, func(address string) bool { return !slices.Contains(told, address) })
		all = slices.Delete(all, gone, gone+1)
	}
	return all
}
