package server

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/transfer/bucket"
)

// How a lost host is found: a connection on which nothing is heard for 4 s is asked by the kernel, which answers for the other one without
// waking a process; after 12 s without an answer it ends. With what the timers of the kernel add that is within 15 s.
const (
	keepaliveIdle     = 4 * time.Second
	keepaliveInterval = 4 * time.Second
	keepaliveCount    = 2
	userTimeout       = 12 * time.Second // TCP_USER_TIMEOUT: the same for what was sent and is not acknowledged
	// silentMax is how long the kernel of a host that is there may be silent. While something is on its way that is not acknowledged our own
	// asks nothing, and begins to count when it was sent: a heartbeat late in those 12 s would double them. So the sweep looks at those; with its
	// pause, and two seconds for many connections to end, that is within 15 s.
	silentMax = 10 * time.Second
	// queuedMax is how long a connection may have waited in the kernel until it is accepted.
	queuedMax = 5 * time.Second
)

// listener admits connections before anything is computed for them, and knows those that are open.
type listener struct {
	net.Listener
	limits     Limits
	metrics    *metrics
	allowances *allowances
	closed     chan struct{}
	close      sync.Once

	mu        sync.Mutex // guards all below
	all       bucket.Bucket
	sources   *bucket.Sources
	open      map[*conn]struct{}
	strangers int                  // of the open ones: those that have not shown who they are
	unknown   map[netip.Prefix]int // the same, by where they come from
	nodes     map[string]int       // the others, by their caller
}

func newListener(l net.Listener, limits Limits, a *allowances, m *metrics) *listener {
	return &listener{
		Listener: l, limits: limits, allowances: a, metrics: m, closed: make(chan struct{}), sources: bucket.NewSources(limits.source()),
		open: map[*conn]struct{}{}, unknown: map[netip.Prefix]int{}, nodes: map[string]int{},
	}
}

// Accept returns the next connection that may go on to its handshake. Connections that come faster than all of them may wait in the
// kernel; of one address, or above the bounds, they are closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tooLate(raw) {
			reset(raw)
			l.metrics.rejected.WithLabelValues("late").Inc()
			continue
		}
		c, wait := l.admit(raw, time.Now())
		if c == nil {
			reset(raw)
			continue
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-l.closed:
				timer.Stop()
				_ = c.Close()
				return nil, net.ErrClosed
			}
		}
		return c, nil
	}
}

// admit takes a connection in, or not: then the first result is nil. The second is how long to wait before the next one.
func (l *listener) admit(raw net.Conn, now time.Time) (*conn, time.Duration) {
	tune(raw)
	from := addressOf(raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	why := ""
	switch {
	case len(l.open) >= l.limits.Connections:
		why = "connections"
	case l.strangers >= l.limits.Strangers, l.unknown[bucket.SourceOf(from)] >= l.limits.strangersOfOne():
		why = "strangers"
	case !l.sources.Take(from, now):
		why = "source"
	}
	if why != "" {
		l.metrics.rejected.WithLabelValues(why).Inc()
		return nil, 0
	}
	c := &conn{Conn: raw, from: from, since: now, home: l}
	l.open[c] = struct{}{}
	l.strangers++
	l.unknown[bucket.SourceOf(from)]++
	l.metrics.connections.Set(float64(len(l.open)))
	var wait time.Duration
	if r := l.limits.all(); !l.all.Take(r, now) {
		wait = l.all.Wait(r)
		l.all.Used++ // it is taken in all the same, after that time
	}
	return c, wait
}

// Close stops to accept. Connections stay.
func (l *listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// leave takes a connection out that is closed.
func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	delete(l.open, c)
	if c.stranger() {
		l.recognizedLocked(c)
	} else if name := c.shown.Load().name.Load().caller(); l.nodes[name] > 1 {
		l.nodes[name]--
	} else {
		delete(l.nodes, name)
	}
	l.metrics.connections.Set(float64(len(l.open)))
}

// recognizedLocked counts a connection no longer among the strangers.
func (l *listener) recognizedLocked(c *conn) {
	l.strangers--
	from := bucket.SourceOf(c.from)
	if l.unknown[from]--; l.unknown[from] == 0 {
		delete(l.unknown, from)
	}
}

// connections are those that are open now.
func (l *listener) connections() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*conn, 0, len(l.open))
	for c := range l.open {
		all = append(all, c)
	}
	return all
}

// conn is a connection.
type conn struct {
	net.Conn
	from  netip.Addr
	since time.Time // it was accepted
	home  *listener
	dead  atomic.Bool   // keepalive has ended it: host or link are lost
	wrote atomic.Bool   // something that may not be acknowledged yet
	watch atomic.Uint64 // the newest one that came over it; 0: none
	shown atomic.Pointer[shown]
	gone  bool // it was closed; home.mu guards it
	given bool // it has cost its address nothing; home.mu guards it

	hasty, strange atomic.Uint32 // calls: above the allowance of its node, and before it was known whose it is
}

// shown is what was found out about the certificate that a connection has shown: once, because it does not change.
type shown struct {
	leaf *x509.Certificate
	err  error                    // why it is not believed, apart from its time
	name atomic.Pointer[Identity] // of whom, once a call was let in
}

// addressOf is where a connection comes from; the zero address where that is no IP address.
func addressOf(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

// tune sets what finds a lost host. What cannot be set is not: the heartbeats find it too, later.
func tune(c net.Conn) {
	tcp, is := c.(*net.TCPConn)
	if !is {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveInterval, Count: keepaliveCount})
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
}

// silent is for how long nothing was heard of the other end's kernel, while something is on its way to it: 0 otherwise, when our kernel asks it
// by itself. To look costs a system call, so it is only looked after something was written.
func (c *conn) silent() (heard time.Duration) {
	if !c.wrote.Swap(false) {
		return 0
	}
	if info := infoOf(c.Conn); info != nil && info.Unacked+info.Notsent_bytes > 0 {
		heard = time.Duration(info.Last_ack_recv) * time.Millisecond
		c.wrote.Store(true)
	}
	return heard
}

// Left says whether the other end has closed the connection already, though what it has sent is still to be read.
func (c *conn) Left() bool {
	info := infoOf(c.Conn)
	return info != nil && info.State != unix.BPF_TCP_ESTABLISHED
}

// tooLate reports whether a connection that was just accepted has waited in the kernel for so long that its other end has left, or will before its
// handshake is done: agents wait for ten seconds, and those who came first would all be served in their last one.
func tooLate(c net.Conn) bool {
	info := infoOf(c)
	return info != nil && (info.State != unix.BPF_TCP_ESTABLISHED || time.Duration(info.Last_data_recv)*time.Millisecond > queuedMax)
}

// infoOf is what the kernel knows of a connection; nil where that is no TCP connection.
func infoOf(c net.Conn) (info *unix.TCPInfo) {
	tcp, is := c.(*net.TCPConn)
	if !is {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		if known, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = known
		}
	})
	return info
}

// reset closes a connection that is not wanted, without a trace of it staying in the kernel.
func reset(c net.Conn) {
	if tcp, is := c.(*net.TCPConn); is {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Read reads, and remembers what an error says about the other end.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.judge(err)
	return n, err
}

// Write writes, and remembers the same.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wrote.Store(true)
	c.judge(err)
	return n, err
}

// judge: the kernel ends a connection whose other end is not heard with ETIMEDOUT, or with what a router or the own link last said about
// the way there (tcp_write_err in Linux).
func (c *conn) judge(err error) {
	if err == nil {
		return
	}
	for _, lost := range []syscall.Errno{unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN} {
		if errors.Is(err, lost) {
			c.dead.Store(true)
		}
	}
}

// Close closes it.
func (c *conn) Close() error {
	c.home.leave(c)
	return c.Conn.Close()
}

// stranger: nothing that was shown over it was believed yet.
func (c *conn) stranger() bool {
	s := c.shown.Load()
	return s == nil || s.name.Load() == nil
}

// joined notes that the connection was of use, and has cost its address nothing then.
func (c *conn) joined() {
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	c.home.giveLocked(c)
}

// known notes who is at the other end, and that the connection has cost its address nothing then, unless the node makes too many of them.
// It is false when the node has too many open.
func (c *conn) known(s *shown, who Identity) bool {
	if s.name.Load() != nil {
		return true // a certificate does not change its node
	}
	l := c.home
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.name.Load() != nil || c.gone:
		return true
	case l.nodes[who.caller()] >= l.limits.NodeConnections:
		return false
	}
	s.name.Store(&who)
	l.recognizedLocked(c)
	l.nodes[who.caller()]++
	// A node that connects over and over uses up what its address has, like somebody that nobody knows.
	if ok, _ := l.allowances.take(who.caller(), connecting, time.Now()); ok {
		l.giveLocked(c)
	}
	return true
}

// giveLocked gives back what a connection has cost its address, once.
func (l *listener) giveLocked(c *conn) {
	if !c.given {
		c.given = true
		l.sources.Give(c.from)
	}
}
