package follower

import (
	"crypto/tls"
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

// Peer is who this server is to others of its cluster. Use NewPeer. It is safe for concurrent use.
type Peer struct {
	issue func(now time.Time) (*trust.Credential, error)
	chain func() *trust.Chain

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	renew   time.Time
}

var _ client.Credential = (*Peer)(nil)

// NewPeer has certificates issued as they are needed. chain is whom this server believes.
func NewPeer(issue func(now time.Time) (*trust.Credential, error), chain func() *trust.Chain) *Peer {
	return &Peer{issue: issue, chain: chain}
}

// Certificate is part of client.Credential: one that is good for a while.
func (p *Peer) Certificate() (*tls.Certificate, error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && now.Before(p.renew) {
		return p.current, nil
	}
	fresh, err := p.issue(now)
	if err != nil {
		return nil, err
	}
	pair := fresh.TLS()
	p.current, p.renew = &pair, trust.RenewAt(fresh.Certificate())
	return p.current, nil
}

// Trust is part of client.Credential.
func (p *Peer) Trust() *trust.Chain { return p.chain() }
