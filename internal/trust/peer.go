package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// peerPath begins the path of the SPIFFE ID that a server has towards other servers: spiffe://CLUSTER/server/NAME. Who has the
	// cluster's authority makes it for himself, and nobody else can.
	peerPath = "/server/"
	// peerLifetime is how long such a certificate is good: a server makes another one whenever it connects to another server.
	peerLifetime = 24 * time.Hour
)

// IssuePeer makes a key and a certificate with which a server calls other servers of its cluster, as a host calls them: for a client
// alone. Errors: InvalidValue, and CertificateTime when the authority is not valid now.
func (c *CA) IssuePeer(cluster ClusterID, name string, now time.Time) (*Credential, error) {
	doing := fmt.Sprintf("issue a certificate for server %q", clipped(name))
	if err := (NodeCertificate{Cluster: cluster, Name: name, UID: name}).validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	id := &url.URL{Scheme: spiffeScheme, Host: string(cluster), Path: peerPath + name}
	return c.issue(doing, &x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, peerLifetime, now)
}

// PeerIdentity is whose certificate one is.
type PeerIdentity struct {
	Cluster ClusterID
	Name    string // of the server
	Key     string // digest of the public key, as KeyDigest writes it
}

// IsPeer says whether a certificate names a server. It says nothing about who has issued it.
func IsPeer(cert *x509.Certificate) bool {
	return IsMachine(cert) && len(cert.URIs) == 1 && strings.HasPrefix(cert.URIs[0].Path, peerPath)
}

// ParsePeer reads whose certificate it is. Whether the authority of the cluster has issued it, others find out. Errors:
// CertificateRefused when it is not a server's.
func ParsePeer(cert *x509.Certificate) (PeerIdentity, error) {
	bad := func(why string) (PeerIdentity, error) {
		return PeerIdentity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "read whose certificate it is", Cause: errors.New("the certificate of " + subject(cert) + " " + why)}
	}
	if !IsPeer(cert) {
		return bad("is not that of a server")
	}
	id := cert.URIs[0]
	n := PeerIdentity{Cluster: ClusterID(id.Host), Name: strings.TrimPrefix(id.Path, peerPath), Key: KeyDigest(cert.RawSubjectPublicKeyInfo)}
	if err := (NodeCertificate{Cluster: n.Cluster, Name: n.Name, UID: n.Name}).validate(); err != nil {
		return bad("names a server in another way than tako does")
	}
	if id.String() != spiffeScheme+"://"+id.Host+peerPath+n.Name {
		return bad("says more than which server it is for")
	}
	if !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.IsCA {
		return bad("is not for a client alone")
	}
	return n, nil
}
