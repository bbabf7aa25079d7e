package peer

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// burst is how many seconds' worth may come at once.
const burst = 4

// bucket holds what is left of a rate. The zero bucket is full.
type bucket struct {
	used float64
	at   time.Time // of the last look
}

// take takes so much of a rate of so much a second, and says how long to wait until there is that much again where there is not.
func (b *bucket) take(n, second float64, now time.Time) (wait time.Duration) {
	b.leak(second, now)
	if over := b.used + n - burst*second; over > 0 && b.used > 0 {
		return time.Duration(over / second * float64(time.Second))
	}
	b.used += n
	return 0
}

func (b *bucket) leak(second float64, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.used = max(0, b.used-passed.Seconds()*second)
	}
	b.at = now
}

// gate is a listener that admits few connections, before anything is computed for them.
type gate struct {
	net.Listener
	limits Limits
	shut   func() // counts one that was not admitted

	mu      sync.Mutex // guards what follows
	all     bucket
	open    int
	sources map[netip.Addr]int
}

func newGate(l net.Listener, limits Limits, shut func()) *gate {
	return &gate{Listener: l, limits: limits, shut: shut, sources: map[netip.Addr]int{}}
}

// Accept returns the next connection that may go on to its handshake. The others are closed.
func (g *gate) Accept() (net.Conn, error) {
	for {
		raw, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := g.admit(raw, time.Now()); c != nil {
			return c, nil
		}
		g.shut()
		if tcp, is := raw.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // no trace of it stays in the kernel
		}
		_ = raw.Close()
	}
}

func (g *gate) admit(raw net.Conn, now time.Time) *admitted {
	from := addressOf(raw)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= g.limits.Connections || g.sources[from] >= g.limits.SourceConnections || g.all.take(1, float64(g.limits.Accepts), now) > 0 {
		return nil
	}
	g.open++
	g.sources[from]++
	return &admitted{Conn: raw, leave: sync.OnceFunc(func() { g.leave(from) })}
}

func (g *gate) leave(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	if g.sources[from]--; g.sources[from] == 0 {
		delete(g.sources, from)
	}
}

// admitted is a connection that counts until it is closed.
type admitted struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (a *admitted) Close() error {
	a.leave()
	return a.Conn.Close()
}

// addressOf is where a connection comes from; the zero address where that is no IP address.
func addressOf(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

// callersMax bounds what is remembered of callers: many times those whose lists this host is in. When more come, those that have used nothing
// lately are forgotten, and if there are none, the new one waits.
const callersMax = 1024

// callers bound what one node may have this host do, however many connections it has.
type callers struct {
	second float64

	mu    sync.Mutex // guards what follows
	nodes map[string]*bucket
}

func newCallers(second int) *callers {
	return &callers{second: float64(second), nodes: map[string]*bucket{}}
}

// take counts a call of a node, and says how long it has to wait if there were too many.
func (c *callers) take(uid string, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.nodes[uid]
	if b == nil {
		if len(c.nodes) >= callersMax {
			c.forgetLocked(now)
		}
		if len(c.nodes) >= callersMax {
			return time.Second
		}
		b = &bucket{}
		c.nodes[uid] = b
	}
	return b.take(1, c.second, now)
}

// forgetLocked drops those of which nothing is used: they are as good as none.
func (c *callers) forgetLocked(now time.Time) {
	for uid, b := range c.nodes {
		if b.leak(c.second, now); b.used == 0 {
			delete(c.nodes, uid)
		}
	}
}
