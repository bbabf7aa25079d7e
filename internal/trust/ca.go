package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

const (
	day = 24 * time.Hour
	// CALifetime is 10 years: a new authority has to reach every host before the old one ends, and some are switched off for long.
	CALifetime = 3650 * day
	// ServerLifetime is what servers give themselves. They renew after RenewAt and when they start, so a stolen key is soon worthless.
	ServerLifetime = 90 * day
	// ClientLifetime is the default for people. Such a certificate cannot be taken back, so it is shorter than a year; a token can.
	ClientLifetime = 90 * day
	// ClientLifetimeMax is a year and some days, so that a yearly routine has time to renew.
	ClientLifetimeMax = 400 * day
	// ClockSkew is how far a certificate reaches back, for machines whose clocks are behind: 5 minutes is what Kerberos tolerates
	// (krb5.conf, clockskew), and whoever runs a network time service is far below it.
	ClockSkew = 5 * time.Minute

	certificateBlock = "CERTIFICATE"
	privateKeyBlock  = "PRIVATE KEY"
	// namesMax bounds the names of a server and the groups of a person: certificates go over the wire in every handshake.
	namesMax = 100
	// nameMax is that of DNS (RFC 1035), for users and groups too.
	nameMax = 253
)

// CA issues the certificates of a cluster. It is immutable and safe for concurrent use.
//
// Keys are ECDSA on P-256, for authority and leaves: Go, OpenSSL (so curl and kubectl) and browsers all accept them. Ed25519, which
// tako uses wherever only tako verifies, is refused by browsers, and the console is opened in one.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes an authority with a fresh key, valid for CALifetime.
func NewCA(cluster ClusterID, now time.Time) (*CA, error) {
	doing := "make certificate authority of cluster " + string(cluster)
	if err := cluster.validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tako cluster " + string(cluster)},
		NotBefore:             now.Add(-ClockSkew).UTC(),
		NotAfter:              now.Add(CALifetime).UTC(),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs leaves only
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	return caOf(doing, der, key)
}

func caOf(doing string, der []byte, key *ecdsa.PrivateKey) (*CA, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: doing, Cause: err}
	}
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: doing, Cause: errors.New("certificate and key do not make an authority")}
	}
	return &CA{certificate: cert, key: key}, nil
}

// Certificate returns the authority's own certificate. The caller must not change it.
func (c *CA) Certificate() *x509.Certificate { return c.certificate }

// CertificatePEM returns the authority's own certificate as one PEM block: what clients are given to trust.
func (c *CA) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.certificate.Raw})
}

// Pool returns a pool of this authority alone.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.certificate)
	return pool
}

// Format prints the authority as its name, whatever the verb: its key never reaches a log.
func (c *CA) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "certificate authority of %s", c.certificate.Subject.CommonName)
}

// ServerRequest says for what a server's certificate is: 1 to 100 names and addresses together.
type ServerRequest struct {
	DNSNames []string
	IPs      []net.IP
	Lifetime time.Duration // 0 is ServerLifetime
}

// IssueServer makes a key and a certificate for a server. It begins ClockSkew before now, and ends with the authority at the
// latest. Errors: InvalidValue, and CertificateTime when the authority is not valid now.
func (c *CA) IssueServer(r ServerRequest, now time.Time) (*Credential, error) {
	const doing = "issue server certificate"
	if n := len(r.DNSNames) + len(r.IPs); n == 0 || n > namesMax {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("%d names and addresses, want 1 to %d", n, namesMax)}
	}
	for _, n := range r.DNSNames {
		if !isHostName(n) {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("%q is no host name", clipped(n))}
		}
	}
	for _, ip := range r.IPs {
		if ip.To16() == nil {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("an IP address of %d bytes", len(ip))}
		}
	}
	name := ""
	if len(r.DNSNames) > 0 {
		name = r.DNSNames[0]
	}
	return c.issue(doing, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    r.DNSNames,
		IPAddresses: r.IPs,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, or(r.Lifetime, ServerLifetime), now)
}

// ClientRequest says for whom a client's certificate is.
type ClientRequest struct {
	User     string        // becomes the common name
	Groups   []string      // become the organizations, as Kubernetes reads them, in any order; at most 100
	Lifetime time.Duration // 0 is ClientLifetime; at most ClientLifetimeMax
}

// IssueClient makes a key and a certificate for a person. It begins ClockSkew before now, and ends with the authority at the
// latest. It does not decide who may be in which group. Errors: InvalidValue, and CertificateTime when the authority is not valid
// now.
func (c *CA) IssueClient(r ClientRequest, now time.Time) (*Credential, error) {
	doing := fmt.Sprintf("issue client certificate for %q", clipped(r.User))
	if len(r.Groups) > namesMax {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("%d groups, want at most %d", len(r.Groups), namesMax)}
	}
	if err := plainNames(append([]string{r.User}, r.Groups...)); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	lifetime := or(r.Lifetime, ClientLifetime)
	if lifetime > ClientLifetimeMax {
		return nil, &reason.Error{
			Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("a lifetime of %.0f days, at most %.0f", lifetime.Hours()/24, ClientLifetimeMax.Hours()/24),
			Hint: "a certificate cannot be taken back; for longer use a token, which can",
		}
	}
	return c.issue(doing, &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.User, Organization: r.Groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, lifetime, now)
}

// issue makes a key and a certificate for it.
func (c *CA) issue(doing string, template *x509.Certificate, lifetime time.Duration, now time.Time) (*Credential, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	der, err := c.sign(doing, template, &key.PublicKey, lifetime, now)
	if err != nil {
		return nil, err
	}
	return newCredential(doing, der, key)
}

// sign completes a template. The serial number is left to x509, which takes a random one of 20 bytes (RFC 5280).
func (c *CA) sign(doing string, template *x509.Certificate, public *ecdsa.PublicKey, lifetime time.Duration, now time.Time) ([]byte, error) {
	if lifetime <= 0 {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: fmt.Errorf("a lifetime of %s, want more than nothing", lifetime)}
	}
	if now.Before(c.certificate.NotBefore) || now.After(c.certificate.NotAfter) {
		return nil, certificateTime(doing, "the cluster's certificate authority", thisClock, c.certificate, now)
	}
	template.NotBefore = latest(now.Add(-ClockSkew), c.certificate.NotBefore).UTC()
	template.NotAfter = now.Add(lifetime).UTC()
	if template.NotAfter.After(c.certificate.NotAfter) {
		template.NotAfter = c.certificate.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, public, c.key)
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	return der, nil
}

// Credential is a certificate with its private key.
type Credential struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	keyPEM      []byte
}

func newCredential(doing string, der []byte, key *ecdsa.PrivateKey) (*Credential, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	return &Credential{cert, key, pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: pkcs8})}, nil
}

// Certificate returns the certificate. The caller must not change it.
func (c *Credential) Certificate() *x509.Certificate { return c.certificate }

// CertificatePEM returns the certificate as one PEM block, as a kubeconfig and a TLS server take it.
func (c *Credential) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.certificate.Raw})
}

// KeyPEM returns the private key as one PEM block (PKCS #8). It is a secret. The caller owns the slice.
func (c *Credential) KeyPEM() []byte { return slices.Clone(c.keyPEM) }

// TLS returns the credential as crypto/tls takes it.
func (c *Credential) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.certificate.Raw}, PrivateKey: c.key, Leaf: c.certificate}
}

// Format prints the credential as the name it is for, whatever the verb: its key never reaches a log.
func (c *Credential) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "credential of %q", c.certificate.Subject.CommonName)
}

// RenewAt is when a certificate should be replaced: after two thirds of its life, so that a third is left for trying again.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

// plainNames refuses names that a certificate cannot carry, or that would mislead whoever reads them in a log.
func plainNames(names []string) error {
	for _, n := range names {
		switch {
		case n == "":
			return errors.New("an empty name")
		case len(n) > nameMax:
			return fmt.Errorf("a name of %d bytes, at most %d", len(n), nameMax)
		case !utf8.ValidString(n) || !isGraphic(n):
			return fmt.Errorf("name %q holds something that cannot be printed", n)
		}
	}
	return nil
}

func isGraphic(s string) bool {
	for _, r := range s {
		if !unicode.IsGraphic(r) {
			return false
		}
	}
	return true
}

// or is the value, or the default for none.
func or(d, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return d
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
