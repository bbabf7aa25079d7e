package apiserver

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// renewPause is how long a renewal that failed waits: the old certificate is good for a third of its life yet.
const renewPause = time.Hour

// certificate is the server's own, issued anew while the server runs before it ends.
type certificate struct {
	ca        *trust.CA
	names     []string
	addresses []net.IP
	lifetime  time.Duration // 0 is the authority's choice
	log       *slog.Logger

	mu        sync.Mutex // guards all below
	current   *trust.Credential
	pair      *tls.Certificate // current
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = (*certificate)(nil)

// newCertificate issues the first one.
func newCertificate(ca *trust.CA, names []string, addresses []net.IP, log *slog.Logger) (*certificate, error) {
	c := &certificate{ca: ca, names: names, addresses: addresses, log: log}
	return c, c.issue(time.Now())
}

func (c *certificate) issue(now time.Time) error {
	fresh, err := c.ca.IssueServer(trust.ServerRequest{DNSNames: c.names, IPs: c.addresses, Lifetime: c.lifetime}, now)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(fresh.CertificatePEM(), fresh.KeyPEM())
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "read the certificate that was issued to this server", Cause: err}
	}
	c.mu.Lock()
	c.current, c.pair = fresh, &pair
	told := slices.Clone(c.listeners)
	c.mu.Unlock()
	for _, l := range told {
		l.Enqueue()
	}
	return nil
}

// Run renews until the context ends.
func (c *certificate) Run(ctx context.Context) {
	wait := time.NewTimer(time.Until(c.renewAt()))
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		if err := c.issue(time.Now()); err != nil {
			c.log.Error("renew the server's certificate", "err", err)
			wait.Reset(renewPause)
			continue
		}
		wait.Reset(time.Until(c.renewAt()))
	}
}

func (c *certificate) renewAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return trust.RenewAt(c.current.Certificate())
}

// Name is what the library calls it in its log.
func (*certificate) Name() string { return "server" }

// CurrentCertKeyContent is the certificate and its key, PEM.
func (c *certificate) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.CertificatePEM(), c.current.KeyPEM()
}

// forTLS is the certificate as a handshake needs it.
func (c *certificate) forTLS() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pair, nil
}

// AddListener adds who wants to know of a new one.
func (c *certificate) AddListener(l dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}
