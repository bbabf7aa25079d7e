package relay

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
)

// blamedFor is how long a server is not asked for content that has sent what has not the hash that was asked for, as long as there is
// another one: as long as a host blames it.
const blamedFor = 10 * time.Minute

// upstreams are the servers, and which one the relay is with: those that it was given, in their order, and behind them those that servers have
// told of, for when none of the others answers.
type upstreams struct {
	opts        Options
	connections *client.Connections

	mu     sync.Mutex // guards what follows
	sticky *core.Sticky
	all    []*client.Upstream
	blamed map[string]time.Time // until when, by address
}

func newUpstreams(opts Options) *upstreams {
	u := &upstreams{opts: opts, connections: client.NewConnections(opts.Dial), sticky: core.NewSticky(len(opts.Servers)), blamed: map[string]time.Time{}}
	u.renew()
	return u
}

// renew has the next calls make new connections, with the certificate of then, and to the servers that are known then. Those that are open end with
// their calls.
func (u *upstreams) renew() {
	var all []*client.Upstream
	for _, address := range slices.Concat(u.opts.Servers, u.opts.Identity.Learned(u.opts.Servers)) {
		all = append(all, client.NewUpstream(u.connections.Dial, address, u.opts.Identity))
	}
	u.mu.Lock()
	old := u.all
	u.all = all
	u.sticky.Resize(len(all))
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
		if at := (u.sticky.Current() + i) % len(u.all); !u.blamed[u.all[at].Address()].After(now) {
			return u.all[at]
		}
	}
	return u.all[u.sticky.Current()]
}

// blame notes that a server has sent what nobody asked for.
func (u *upstreams) blame(s *client.Upstream, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.blamed, func(_ string, until time.Time) bool { return !until.After(now) })
	u.blamed[s.Address()] = now.Add(blamedFor)
}

// learn has the relay know of all servers, so that it finds another one when those are gone that it was given.
func (u *upstreams) learn(told []string) {
	changed, err := u.opts.Identity.Learn(u.opts.Servers, told)
	if err != nil {
		u.opts.Log.Warn("keep the addresses of servers", "err", err)
	}
	if changed {
		u.opts.Log.Info("this relay knows of other servers", "servers", u.opts.Identity.Learned(u.opts.Servers))
		u.renew()
	}
}
