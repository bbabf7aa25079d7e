package trust

import (
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// relayPath begins the path of a relay's SPIFFE ID: spiffe://CLUSTER/relay/NAME/UID. No node has one, and no relay has a node's: what
// would take one for the other finds nothing that it can read.
const relayPath = "/relay/"

// RelayLifetime is NodeLifetime: a relay renews as a host does.
const RelayLifetime = NodeLifetime

// RelayRequest makes the certificate request of a relay, DER, for joining and for renewing. It says that who makes it has the key, and
// nothing else: a relay has no sealing key, because no secret is for it.
func RelayRequest(key *HostKey) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{SignatureAlgorithm: x509.ECDSAWithSHA256}, key.private)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "make a certificate request", Cause: err}
	}
	return der, nil
}

// ParseRelayRequest reads and verifies a certificate request of a relay. Errors: JoinRequestInvalid, also for a request of a host.
func ParseRelayRequest(der []byte) (*HostRequest, error) {
	r, public, err := parseRequest(der)
	if err == nil && len(r.URIs) > 0 {
		err = errors.New("it names a sealing key, which a relay has none of")
	}
	if err != nil {
		return nil, badRequest(err)
	}
	return &HostRequest{public: public, key: KeyDigest(r.RawSubjectPublicKeyInfo)}, nil
}

// RelayCertificate says for which relay a certificate is.
type RelayCertificate struct {
	Cluster ClusterID
	Name    string // of the Token that the relay has joined with
	UID     string // of that Token
}

// IssueRelay makes the certificate of a relay, DER, valid for RelayLifetime: for a client of servers, and for a server of hosts, which
// believe what is signed and nothing else of whoever the authority has let serve them. It names no host, so nothing that goes by names
// takes it for a server: neither the command line nor a browser. Errors: InvalidValue, and CertificateTime when the authority is not valid
// now.
func (c *CA) IssueRelay(r *HostRequest, n RelayCertificate, now time.Time) ([]byte, error) {
	doing := fmt.Sprintf("issue a certificate for relay %q", clipped(n.Name))
	if err := NodeCertificate(n).validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	id := &url.URL{Scheme: spiffeScheme, Host: string(n.Cluster), Path: relayPath + n.Name + "/" + n.UID}
	return c.sign(doing, &x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: relayUsage()}, r.public, RelayLifetime, now)
}

func relayUsage() []x509.ExtKeyUsage {
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
}

// RelayIdentity is whose certificate one is.
type RelayIdentity struct {
	RelayCertificate
	Key string // digest of the public key, as KeyDigest writes it
}

// IsRelay says whether a certificate names a relay. It says nothing about who has issued it.
func IsRelay(cert *x509.Certificate) bool {
	return IsMachine(cert) && len(cert.URIs) == 1 && strings.HasPrefix(cert.URIs[0].Path, relayPath)
}

// ParseRelay reads whose certificate it is. Whether an authority of the cluster has issued it, and whether the relay is still one, others
// find out. Errors: CertificateRefused when it is not a relay's.
func ParseRelay(cert *x509.Certificate) (RelayIdentity, error) {
	bad := func(why string) (RelayIdentity, error) {
		return RelayIdentity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "read whose certificate it is", Cause: errors.New("the certificate of " + subject(cert) + " " + why)}
	}
	if !IsRelay(cert) {
		return bad("is not that of a relay")
	}
	id := cert.URIs[0]
	parts := strings.Split(strings.TrimPrefix(id.Path, relayPath), "/")
	if len(parts) != 2 {
		return bad("is not that of a relay")
	}
	n := RelayCertificate{Cluster: ClusterID(id.Host), Name: parts[0], UID: parts[1]}
	if err := NodeCertificate(n).validate(); err != nil {
		return bad("names a relay in another way than tako does")
	}
	if id.String() != spiffeScheme+"://"+id.Host+relayPath+n.Name+"/"+n.UID {
		return bad("says more than which relay it is for")
	}
	if !slices.Equal(cert.ExtKeyUsage, relayUsage()) || cert.IsCA {
		return bad("is not for a relay alone")
	}
	return RelayIdentity{RelayCertificate: n, Key: KeyDigest(cert.RawSubjectPublicKeyInfo)}, nil
}
