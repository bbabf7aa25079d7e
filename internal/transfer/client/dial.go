package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Bounds of connections.
const (
	dialTimeout = 10 * time.Second
	// idleMax is how long a connection without a call stays open; a watch is a call.
	idleMax = 2 * time.Minute
	// headersMax is far above what our servers send.
	headersMax = 8 << 10
	// receiveMax is what a connection may have sent and nobody has read yet: two parts of a difference.
	receiveMax = 512 << 10
	// writeMax is how long a write may get nowhere: as for the server.
	writeMax = 10 * time.Second
	// pingAfter is after how much silence a server is asked, below all calls, whether it goes on: over a watch it says something each minute at the
	// latest, so one that is well is never asked. pingMax is how long it may take to answer. What the kernel answers says nothing of a process that
	// stands still.
	pingAfter, pingMax = 65 * time.Second, 15 * time.Second
)

// Dial makes a connection to an address, HOST:PORT.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// TCP dials as the server listens: the kernel finds out within 15 s that the other end is gone.
func TCP(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 4 * time.Second, Count: 2}}
	return d.DialContext(ctx, network, address)
}

// transport makes connections of HTTP/2 with a TLS configuration.
func transport(dial Dial, config *tls.Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialContext: dial, ForceAttemptHTTP2: true,
		TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleMax, MaxResponseHeaderBytes: headersMax,
		DisableCompression: true, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: receiveMax, MaxReceiveBufferPerStream: receiveMax, WriteByteTimeout: writeMax,
			SendPingTimeout: pingAfter, PingTimeout: pingMax,
		},
	}
}

// known is for connections to servers of the cluster, by the certificate of whoever makes them.
func known(identity Credential) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Verified below, against the authorities that are in force at that moment. Names are left out: they change, and whoever the
		// authority has made a server is as good as another one; what a server says is believed for its signatures.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			chain := identity.Trust()
			return verifyServer(s.PeerCertificates, chain.Pool(), chain.Time(time.Now()))
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return identity.Certificate() },
	}
}

// strange is for connections to whoever answers. What comes over them has to speak for itself, and no secret goes.
func strange() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
}

// verifyServer wants a certificate of a server that one of the authorities has issued.
func verifyServer(certs []*x509.Certificate, pool *x509.CertPool, now time.Time) error {
	if len(certs) == 0 {
		return &reason.Error{Code: reason.CertificateRefused, Doing: "verify the server", Cause: errors.New("it shows no certificate")}
	}
	rest := x509.NewCertPool()
	for _, c := range certs[1:] {
		rest.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: rest, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

// explain puts what went wrong with a call into words.
func explain(doing string, err error) error {
	if e := new(reason.Error); errors.As(err, &e) {
		return e
	}
	if e, is := trust.ExplainCertificate(doing, err, time.Now()); is {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer in time")
	}
	return &reason.Error{Code: reason.ServerUnreachable, Doing: doing, Cause: err}
}

// server is one address with the connections to it.
type server struct {
	address string
	http    *http.Transport
}

func newServer(dial Dial, address string, config *tls.Config) *server {
	return &server{address: address, http: transport(dial, config)}
}

func (s *server) url(path, query string) string {
	u := "https://" + s.address + path
	if query != "" {
		u += "?" + query
	}
	return u
}

func (s *server) doing(path string) string { return fmt.Sprintf("call https://%s%s", s.address, path) }
