package relay

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// takenMax is how long a watch waits for the word of the server: it looks into its store for 2 s at most, and the relay may have to
	// reconnect first.
	takenMax = 10 * time.Second
	// certificatesMax is how many certificates are remembered of hosts that call: as many as there may be connections.
	certificatesMax = 20_000
)

// agents is the Presence of the relay's own server, and what the relay's server has said of its nodes.
type agents struct {
	metrics *metrics
	nudge   chan struct{} // holds one: there may be something to tell the server

	mu           sync.Mutex // guards what follows
	roster       *core.Roster
	changed      map[string]chan struct{} // by UID of a node: closed when something else is said of it
	certificates map[owner][]byte         // DER, the newest that each has shown
}

// owner is who has shown a certificate.
type owner struct{ uid, key string }

var _ server.Presence = (*agents)(nil)

func newAgents(m *metrics) *agents {
	return &agents{metrics: m, nudge: make(chan struct{}, 1), roster: core.NewRoster(time.Now()), changed: map[string]chan struct{}{}, certificates: map[owner][]byte{}}
}

// with has something done with the roster. The server may have to be told.
func (a *agents) with(do func(*core.Roster)) {
	a.mu.Lock()
	do(a.roster)
	a.metrics.agents.Set(float64(a.roster.Agents()))
	a.mu.Unlock()
	poke(a.nudge)
}

// Opened is part of server.Presence.
func (a *agents) Opened(who server.Identity, conn uint64) {
	a.with(func(r *core.Roster) { r.Opened(conn, who.Name, who.UID, a.certificates[owner{who.UID, who.Key}]) })
}

// Closed is part of server.Presence.
func (a *agents) Closed(who server.Identity, conn uint64, dead bool) {
	a.with(func(r *core.Roster) {
		if r.Closed(conn, dead); r.Node(who.UID) == nil {
			a.changesLocked(who.UID)
		}
	})
}

// Asked is part of server.Presence.
func (a *agents) Asked(_ server.Identity, conn uint64) {
	a.with(func(r *core.Roster) { r.Asked(conn) })
}

// Heard is part of server.Presence. The answer is what the server has said to the report before: it has not seen this one.
func (a *agents) Heard(_ server.Identity, conn uint64, report *wire.Report) (reply wire.StatusReply) {
	a.with(func(r *core.Roster) { reply = r.Heard(conn, report) })
	return reply
}

// shown keeps the certificate of a host that calls: the server identifies it anew.
func (a *agents) shown(who server.Identity, cert *x509.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.certificates[owner{who.UID, who.Key}]; !known && len(a.certificates) >= certificatesMax {
		for o := range a.certificates {
			if a.roster.Node(o.uid) == nil { // of who is here they are wanted
				delete(a.certificates, o)
				break
			}
		}
	}
	a.certificates[owner{who.UID, who.Key}] = cert.Raw
}

// certificate is what a host has shown last.
func (a *agents) certificate(who server.Identity) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.certificates[owner{who.UID, who.Key}]
}

// waitLocked is a channel that is closed when something else is said of a node.
func (a *agents) waitLocked(uid string) <-chan struct{} {
	c := a.changed[uid]
	if c == nil {
		c = make(chan struct{})
		a.changed[uid] = c
	}
	return c
}

// changesLocked wakes who waits for a node.
func (a *agents) changesLocked(uid string) {
	if c := a.changed[uid]; c != nil {
		close(c)
		delete(a.changed, uid)
	}
}

// changes wakes who waits for any node.
func (a *agents) changes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.changed {
		a.changesLocked(uid)
	}
}

// came takes in what the server says, and returns the questions in it.
func (a *agents) came(down *wire.RelayDown) (all []asked) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roster.Paced(down.Pause)
	for i := range down.Agents {
		news := &down.Agents[i]
		n := a.roster.Came(news)
		if n == nil {
			continue
		}
		a.changesLocked(n.UID)
		for _, q := range news.Questions {
			all = append(all, asked{n.Name, n.UID, q})
		}
	}
	return all
}

// asked is a question to a node.
type asked struct {
	node, uid string
	question  wire.Question
}

// take is what the server is to be told, and when there may be more.
func (a *agents) take(now time.Time) ([]wire.RelayedAgent, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roster.Take(now)
}

// heads are what servers sign for the hosts that are here.
type heads struct{ relay *Relay }

var _ server.Heads = heads{}

// Head is part of server.Heads. What is shown with a call by a host that has no watch here is verified by its signature.
func (h heads) Head(who server.Identity) ([]byte, <-chan struct{}, error) {
	a := h.relay.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.roster.Node(who.UID)
	if n == nil {
		return nil, nil, nil // nobody waits for one
	}
	if n.Problem != nil {
		return nil, nil, client.Problem("serve node "+who.Name, n.Problem)
	}
	if abandoned, _ := a.roster.Abandoned(time.Now()); abandoned {
		return nil, nil, noServer(who)
	}
	return n.Head, a.waitLocked(who.UID), nil
}

// Carried takes what the server leaves with a host for others: it is looked for whenever something else is said of the host.
func (h heads) Carried(_ server.Identity, conn uint64) []wire.Deposit {
	a := h.relay.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roster.Carried(conn)
}

// Shown is part of server.Heads: it waits until the server has taken the host, which it has been told of with the mark.
func (h heads) Shown(ctx context.Context, who server.Identity, _ catalog.Mark) error {
	timer := time.NewTimer(takenMax)
	defer timer.Stop()
	for {
		changed, taken, err := h.taken(who)
		if taken || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-timer.C:
			return noServer(who)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// taken says whether the server has taken a host; the channel is closed when it may have.
func (h heads) taken(who server.Identity) (changed <-chan struct{}, taken bool, err error) {
	a := h.relay.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.roster.Node(who.UID)
	switch {
	case n == nil:
		return nil, false, noServer(who) // its watch was closed
	case n.Problem != nil:
		return nil, false, client.Problem("serve node "+who.Name, n.Problem)
	}
	return a.waitLocked(who.UID), n.Taken, nil
}

// HeadKeys is part of server.Heads.
func (h heads) HeadKeys(now time.Time) catalog.Keys {
	return h.relay.opts.Identity.Trust().KeysOf(trust.RoleHeads, now)
}

// noServer is what a host is told that comes while the relay has no server: another relay may have one.
func noServer(who server.Identity) error {
	return &reason.Error{
		Code: reason.ServerUnreachable, Doing: "serve node " + who.Name, Cause: errors.New("no server answers the relay"),
		Hint: "see the log of the relay; the host goes on with what it has, and asks others of its addresses",
	}
}
