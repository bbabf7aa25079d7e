package relay

import (
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
)

// blamedFor is how long a server is not asked for content that has sent what has not the hash that was asked for, as long as there is
// another one: as long as a host blames it.
const blamedFor = 10 * time.Minute

// upstreams are the servers, and which one the relay is with.
type upstreams struct {
	opts        Options
	connections *client.Connections

	mu     sync.Mutex // guards what follows
	sticky *core.Sticky
	all    []*client.Upstream
	blamed []time.Time // until when each is
}

func newUpstreams(opts Options) *upstreams {
	u := &upstreams{opts: opts, connections: client.NewConnections(opts.Dial), sticky: core.NewSticky(len(opts.Servers)), blamed: make([]time.Time, len(opts.Servers))}
	u.renew()
	return u
}

// renew has the next calls make new connections, with the certificate of then. Those that are open end with their calls.
func (u *upstreams) renew() {
	var all []*client.Upstream
	for _, address := range u.opts.Servers {
		all = append(all, client.NewUpstream(u.connections.Dial, address, u.opts.Identity))
	}
	u.mu.Lock()
	old := u.all
	u.all = all
	u.mu.Unlock()
	for _, s := range old {
		s.Close()
	}
}

// close closes all connections.
func (u *upstreams) close() { u.connections.HangUp() }

// current is the server to be with.
func (u *upstreams) current() *client.Upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[u.sticky.Current()]
}

// failed turns away from the current one.
func (u *upstreams) failed(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sticky.Failed(now)
}

// forContent is the server to ask for content: the current one, or while that is blamed another one that is not.
func (u *upstreams) forContent(now time.Time) *client.Upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		if at := (u.sticky.Current() + i) % len(u.all); !u.blamed[at].After(now) {
			return u.all[at]
		}
	}
	return u.all[u.sticky.Current()]
}

// blame notes that a server has sent what nobody asked for.
func (u *upstreams) blame(s *client.Upstream, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, other := range u.all {
		if other.Address() == s.Address() {
			u.blamed[i] = now.Add(blamedFor)
		}
	}
}
