// Package peering is a host among the other hosts of its cluster: where they ask it, whom it asks, and what servers leave with it for them.
//
// A Peering is told to others only once it listens, and knows by which address of this host others reach it: that of its connections to servers.
// Open comes before Run, which owns the goroutine that answers.
package peering

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/peer"
	"tako.dev/tako/internal/transfer/wire"
)

// Peering is one host. Use New; a nil Peering is a host that neither asks nor answers.
type Peering struct {
	listen   string
	store    *held.Store
	identity *held.Identity
	deposits *peer.Deposits
	listener net.Listener // set by Open

	mu    sync.Mutex     // guards what follows
	peer  *peer.Server   // that answers; nil while none does
	bound netip.AddrPort // where it listens; zero while it does not
	local netip.Addr     // from where it reaches servers; zero before it has
}

// New makes a host that is asked at an address, HOST:PORT, and starts nothing; nil for an empty one.
func New(listen string, store *held.Store, identity *held.Identity) *Peering {
	if listen == "" {
		return nil
	}
	return &Peering{listen: listen, store: store, identity: identity, deposits: peer.NewDeposits()}
}

// locateMax bounds how long it is looked from where this host reaches its servers, whose names may have to be found.
const locateMax = 2 * time.Second

// Open listens, and finds out what others are to be told, so that the first report says it: a host that says nothing takes no part. What goes
// wrong is told and nothing more.
func (p *Peering) Open(ctx context.Context, log *slog.Logger) {
	if p == nil {
		return
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.listen)
	if err != nil {
		e := &reason.Error{Code: reason.SystemCallFailed, Doing: "listen for other hosts on " + p.listen, Cause: err}
		log.Warn("other hosts cannot ask this one", "err", e, "hint", "choose another address with --peers, or off")
		return
	}
	if bound, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
		p.set(func() { p.listener, p.bound = l, bound })
	}
	ctx, cancel := context.WithTimeout(ctx, locateMax)
	defer cancel()
	for _, address := range p.identity.Servers() {
		c, err := (&net.Dialer{}).DialContext(ctx, "udp", address) // nothing is sent: the kernel says which way it would go
		if err != nil {
			continue // it is found out with the first connection
		}
		p.note(c)
		_ = c.Close()
		return
	}
}

// Close stops to listen. Run does too, when it ends.
func (p *Peering) Close() {
	if p != nil && p.listener != nil {
		_ = p.listener.Close()
	}
}

// Run answers others until ctx ends, where Open has listened.
func (p *Peering) Run(ctx context.Context, log *slog.Logger) {
	if p == nil || p.listener == nil {
		return
	}
	s, err := peer.New(peer.Options{Store: p.store, Identity: p.identity, Deposits: p.deposits, Log: log})
	if err == nil {
		p.set(func() { p.peer = s })
		err = s.Run(ctx, p.listener)
	}
	p.set(func() { p.bound, p.peer = netip.AddrPort{}, nil })
	if err != nil {
		log.Warn("other hosts cannot ask this one any more", "err", err)
	}
}

// note notes from where this host reaches others.
func (p *Peering) note(c net.Conn) {
	if local, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
		p.set(func() { p.local = local.Addr().Unmap() })
	}
}

func (p *Peering) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Dial is a client.Dial that notes from where this host reaches others.
func (p *Peering) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := client.TCP(ctx, network, address)
	if err != nil || p == nil {
		return c, err
	}
	p.note(c)
	return c, nil
}

// Address is where others ask this host; empty where they cannot: it does not listen, or its address is not known, or is for itself alone.
func (p *Peering) Address() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	host := p.bound.Addr().Unmap()
	switch {
	case !p.bound.IsValid():
		return ""
	case !host.IsUnspecified():
	case !p.local.IsValid() || p.local.IsLoopback() || p.local.IsLinkLocalUnicast():
		return ""
	default:
		host = p.local
	}
	return netip.AddrPortFrom(host.WithZone(""), p.bound.Port()).String()
}

// State is how it stands; nil where others cannot ask it.
func (p *Peering) State() *report.Peering {
	address := p.Address()
	if address == "" {
		return nil
	}
	r := &report.Peering{Address: address, Kept: p.deposits.Len()}
	p.set(func() {
		if p.peer != nil {
			counts := p.peer.Counts()
			r.Answered, r.Refused = counts.Answered, counts.Refused+counts.Shut
		}
	})
	return r
}

// Peers are whom this host asks: those of the state that it enforces. None where that cannot be read.
func (p *Peering) Peers() []catalog.Peer {
	c, err := p.store.Own(p.store.Life().Enforced.Root)
	if err != nil {
		return nil
	}
	return c.Own.Peers
}

// Keep keeps what a server leaves here for another host. The errors are those of peer.Deposits.
func (p *Peering) Keep(d wire.Deposit) error {
	return p.deposits.Put(d, p.identity.Node(), p.identity.Trust(), time.Now())
}

// Ask has a client ask other hosts, and keep what is for them.
func (p *Peering) Ask(o *client.Options) {
	if p == nil {
		return
	}
	o.Dial, o.Peers = p.Dial, p.Peers
	log := o.Log
	o.Deposit = func(d wire.Deposit) {
		if err := p.Keep(d); err != nil {
			log.Info("leave what a server has for another host", "err", err)
		}
	}
}
