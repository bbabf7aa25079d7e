package follower

import (
	"crypto/tls"
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

// Identity is who this server is to others of its cluster. Use NewIdentity. It is safe for concurrent use.
type Identity struct {
	issue func(now time.Time) (*trust.Credential, error)
	chain func() *trust.Chain

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	renew   time.Time
}

var _ client.Credential = (*Identity)(nil)

// NewIdentity has certificates issued as they are needed. chain is whom this server believes.
func NewIdentity(issue func(now time.Time) (*trust.Credential, error), chain func() *trust.Chain) *Identity {
	return &Identity{issue: issue, chain: chain}
}

// Certificate is part of client.Credential: one that is good for a while.
func (i *Identity) Certificate() (*tls.Certificate, error) {
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil && now.Before(i.renew) {
		return i.current, nil
	}
	fresh, err := i.issue(now)
	if err != nil {
		return nil, err
	}
	pair := fresh.TLS()
	i.current, i.renew = &pair, trust.RenewAt(fresh.Certificate())
	return i.current, nil
}

// Trust is part of client.Credential.
func (i *Identity) Trust() *trust.Chain { return i.chain() }
