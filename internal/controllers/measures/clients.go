package measures

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// clientsMax is how many sets of authorities have connections of their own that are kept; beyond it each question is a handshake.
	clientsMax = 32
	// headerBytes bounds the headers of an answer.
	headerBytes = 64 << 10
	// idleMax is how long a connection is kept: several times as long as questions are apart.
	idleMax = time.Minute
)

// clients are those that ask, by the authorities that they trust: a connection that one set of them stands for is none for another. The zero value is
// ready for use, and safe for concurrent use.
type clients struct {
	mu   sync.Mutex // guards what follows
	byCA map[[sha256.Size]byte]*client
}

type client struct {
	http.Client
	used time.Time
}

// of is the one that trusts authorities, PEM; empty: those of this machine.
func (c *clients) of(ca string) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := sha256.Sum256([]byte(ca))
	known := c.byCA[id]
	if known == nil {
		settings := &tls.Config{MinVersion: tls.VersionTLS12}
		if ca != "" {
			settings.RootCAs = x509.NewCertPool()
			if !settings.RootCAs.AppendCertsFromPEM([]byte(ca)) {
				return nil, errors.New("what ca names holds no certificate in PEM")
			}
		}
		if c.byCA == nil {
			c.byCA = map[[sha256.Size]byte]*client{}
		}
		if len(c.byCA) >= clientsMax {
			c.dropLocked()
		}
		known = &client{Client: http.Client{
			// No proxy of the environment: what is asked is at the address that the server was started with.
			Transport: &http.Transport{
				DialContext: (&net.Dialer{ControlContext: reach}).DialContext, TLSClientConfig: settings, MaxConnsPerHost: atOnce, IdleConnTimeout: idleMax, MaxResponseHeaderBytes: headerBytes, ForceAttemptHTTP2: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
		c.byCA[id] = known
	}
	known.used = time.Now()
	return &known.Client, nil
}

// dropLocked forgets the one that was used least lately. What it asks goes on.
func (c *clients) dropLocked() {
	var oldest [sha256.Size]byte
	for id, known := range c.byCA {
		if first := c.byCA[oldest]; first == nil || known.used.Before(first.used) {
			oldest = id
		}
	}
	c.byCA[oldest].CloseIdleConnections()
	delete(c.byCA, oldest)
}

// close ends the connections that nothing is asked over.
func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.byCA {
		known.CloseIdleConnections()
	}
}

// reach refuses an address that a name has led to, before a connection is made.
func reach(_ context.Context, _, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || forbidden(at.Addr()) {
		return errForbidden
	}
	return nil
}
