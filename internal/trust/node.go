package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// NodeLifetime is 7 days: a host renews after RenewAt, so one that was away for two days still has a valid certificate. One that
	// was away for longer renews with the expired one, as long as its Node is there.
	NodeLifetime = 7 * day
	// requestMax is several times a certificate request of a P-256 key, which has some 300 bytes.
	requestMax = 2 << 10
	// spiffeScheme is that of identities of machines, and nodePath begins the path of a node's: spiffe://CLUSTER/node/NAME/UID
	// (SPIFFE-ID, section 2).
	spiffeScheme = "spiffe"
	nodePath     = "/node/"
	// sealingURI begins the name of a sealing key in a certificate request: a hash as RFC 6920 names it. Such a URI among the
	// alternative names binds the key without an OID of our own: we are given no arc, and those that anybody may take, below 2.25,
	// have a number of 128 bits, which crypto/x509 does not read.
	sealingURI = "ni:///sha-256;"
)

// segmentPattern is a segment of the path of a SPIFFE ID that is no name of a directory (SPIFFE-ID, section 2.2).
var segmentPattern = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,252}$`)

// KeyDigest names a public key by its SubjectPublicKeyInfo: sha256: and 64 hexadecimal digits.
func KeyDigest(spki []byte) string {
	sum := sha256.Sum256(spki)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// NodeRequest makes the certificate request of a host, DER, for joining and for renewing. It says two things: that who makes it has
// the key, and which sealing key is the host's. What the host is called is not for itself to say. Errors: InvalidValue.
func NodeRequest(key *HostKey, sealing []byte) ([]byte, error) {
	const doing = "make a certificate request"
	if _, err := sealingPublic(sealing); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	name, err := url.Parse(sealingName(sealing))
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{SignatureAlgorithm: x509.ECDSAWithSHA256, URIs: []*url.URL{name}}, key.private)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	return der, nil
}

func sealingName(sealing []byte) string {
	sum := sha256.Sum256(sealing)
	return sealingURI + base64.RawURLEncoding.EncodeToString(sum[:])
}

// HostRequest is a certificate request of a host that was verified. Use ParseNodeRequest.
type HostRequest struct {
	public  *ecdsa.PublicKey
	key     string
	sealing string
}

// ParseNodeRequest reads and verifies a certificate request. Of what it says about who makes it nothing is taken. Errors:
// JoinRequestInvalid.
func ParseNodeRequest(der []byte) (*HostRequest, error) {
	r, public, err := parseRequest(der)
	if err == nil && (len(r.URIs) != 1 || !strings.HasPrefix(r.URIs[0].String(), sealingURI)) {
		err = errors.New("it names no sealing key")
	}
	if err != nil {
		return nil, badRequest(err)
	}
	return &HostRequest{public: public, key: KeyDigest(r.RawSubjectPublicKeyInfo), sealing: r.URIs[0].String()}, nil
}

func badRequest(cause error) error {
	return &reason.Error{Code: reason.JoinRequestInvalid, Doing: "read the certificate request", Cause: cause}
}

// parseRequest reads a certificate request, and verifies that who made it has the key. The error is words for a coded one.
func parseRequest(der []byte) (*x509.CertificateRequest, *ecdsa.PublicKey, error) {
	if len(der) > requestMax {
		return nil, nil, fmt.Errorf("it has %d bytes, at most %d", len(der), requestMax)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, nil, err
	}
	public, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() || r.SignatureAlgorithm != x509.ECDSAWithSHA256 {
		return nil, nil, errors.New("its key and signature are not ECDSA on P-256 with SHA-256")
	}
	if err := r.CheckSignature(); err != nil {
		return nil, nil, errors.New("its signature is wrong: who made it does not have the key")
	}
	return r, public, nil
}

// Key returns the digest of the key, as KeyDigest writes it.
func (r *HostRequest) Key() string { return r.key }

// Binds says whether the request names that sealing key, and the key can be sealed to.
func (r *HostRequest) Binds(sealing []byte) bool {
	_, err := sealingPublic(sealing)
	return err == nil && r.sealing == sealingName(sealing)
}

// NodeCertificate says for which node a certificate is.
type NodeCertificate struct {
	Cluster ClusterID
	Name    string // of the Node: a DNS name
	UID     string // of the Node
}

// IssueNode makes the certificate of a host, DER, valid for NodeLifetime: it is for a client alone, so that no host can be taken for a
// server. It has no common name, which is what a user is called: what would take it for a person's finds nobody. It does not decide
// who is which node. Errors: InvalidValue, and CertificateTime when the authority is not valid now.
func (c *CA) IssueNode(r *HostRequest, n NodeCertificate, now time.Time) ([]byte, error) {
	doing := fmt.Sprintf("issue a certificate for node %q", clipped(n.Name))
	if err := n.validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	id := &url.URL{Scheme: spiffeScheme, Host: string(n.Cluster), Path: nodePath + n.Name + "/" + n.UID}
	return c.sign(doing, &x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, r.public, NodeLifetime, now)
}

func (n NodeCertificate) validate() error {
	if err := n.Cluster.validate(); err != nil {
		return err
	}
	for _, s := range []string{n.Name, n.UID} {
		if !segmentPattern.MatchString(s) {
			return fmt.Errorf("%q cannot stand in a SPIFFE ID", clipped(s))
		}
	}
	return nil
}

// NodeIdentity is whose certificate one is.
type NodeIdentity struct {
	NodeCertificate
	Key string // digest of the public key, as KeyDigest writes it
}

// ParseNode reads whose certificate it is. Whether an authority of the cluster has issued it, and whether the node is still there,
// others find out. Errors: CertificateRefused when it is not a node's.
func ParseNode(cert *x509.Certificate) (NodeIdentity, error) {
	bad := func(why string) (NodeIdentity, error) {
		return NodeIdentity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "read whose certificate it is", Cause: errors.New("the certificate of " + subject(cert) + " " + why)}
	}
	if !IsMachine(cert) || len(cert.URIs) != 1 {
		return bad("is not that of a node")
	}
	id := cert.URIs[0]
	parts := strings.Split(strings.TrimPrefix(id.Path, nodePath), "/")
	if !strings.HasPrefix(id.Path, nodePath) || len(parts) != 2 {
		return bad("is not that of a node")
	}
	n := NodeCertificate{Cluster: ClusterID(id.Host), Name: parts[0], UID: parts[1]}
	if err := n.validate(); err != nil {
		return bad("names a node in another way than tako does")
	}
	if id.String() != spiffeScheme+"://"+id.Host+nodePath+n.Name+"/"+n.UID {
		return bad("says more than which node it is for")
	}
	if !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.IsCA {
		return bad("is not for a client alone")
	}
	return NodeIdentity{NodeCertificate: n, Key: KeyDigest(cert.RawSubjectPublicKeyInfo)}, nil
}

// IsMachine says whether a certificate names a machine, by a SPIFFE ID. Such a certificate is never a person's.
func IsMachine(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return strings.EqualFold(u.Scheme, spiffeScheme) })
}
