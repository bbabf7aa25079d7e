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
	// serverPath begins the path of the SPIFFE ID that a server has towards other servers: spiffe://CLUSTER/server/NAME. Who has the
	// cluster's authority makes it for himself, and nobody else can.
	serverPath = "/server/"
	// serverIDLifetime is how long such a certificate is good: a server makes another one whenever it connects to another server.
	serverIDLifetime = 24 * time.Hour
)

// IssueServerID makes a key and a certificate with which a server calls other servers of its cluster, as a host calls them: for a client
// alone. Errors: InvalidValue, and CertificateTime when the authority is not valid now.
func (c *CA) IssueServerID(cluster ClusterID, name string, now time.Time) (*Credential, error) {
	doing := fmt.Sprintf("issue a certificate for server %q", clipped(name))
	if err := (NodeCertificate{Cluster: cluster, Name: name, UID: name}).validate(); err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	id := &url.URL{Scheme: spiffeScheme, Host: string(cluster), Path: serverPath + name}
	return c.issue(doing, &x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, serverIDLifetime, now)
}

// ServerIdentity is whose certificate one is.
type ServerIdentity struct {
	Cluster ClusterID
	Name    string // of the server
	Key     string // digest of the public key, as KeyDigest writes it
}

// IsServerID says whether a certificate names a server. It says nothing about who has issued it.
func IsServerID(cert *x509.Certificate) bool {
	return IsMachine(cert) && len(cert.URIs) == 1 && strings.HasPrefix(cert.URIs[0].Path, serverPath)
}

// ParseServerID reads whose certificate it is. Whether the authority of the cluster has issued it, others find out. Errors:
// CertificateRefused when it is not a server's.
func ParseServerID(cert *x509.Certificate) (ServerIdentity, error) {
	bad := func(why string) (ServerIdentity, error) {
		return ServerIdentity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "read whose certificate it is", Cause: errors.New("the certificate of " + subject(cert) + " " + why)}
	}
	if !IsServerID(cert) {
		return bad("is not that of a server")
	}
	id := cert.URIs[0]
	n := ServerIdentity{Cluster: ClusterID(id.Host), Name: strings.TrimPrefix(id.Path, serverPath), Key: KeyDigest(cert.RawSubjectPublicKeyInfo)}
	if err := (NodeCertificate{Cluster: n.Cluster, Name: n.Name, UID: n.Name}).validate(); err != nil {
		return bad("names a server in another way than tako does")
	}
	if id.String() != spiffeScheme+"://"+id.Host+serverPath+n.Name {
		return bad("says more than which server it is for")
	}
	if !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.IsCA {
		return bad("is not for a client alone")
	}
	return n, nil
}
