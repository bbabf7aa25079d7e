package trust

import (
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// TestPeer: a server is known by its certificate, and is neither a host nor a relay.
func TestPeer(t *testing.T) {
	now := time.Now()
	cluster := NewClusterID()
	ca, err := NewCA(cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ca.IssueServerID(cluster, "a1b2", now)
	if err != nil {
		t.Fatal(err)
	}
	cert := c.Certificate()
	who, err := ParseServerID(cert)
	if err != nil || who.Cluster != cluster || who.Name != "a1b2" || who.Key == "" {
		t.Errorf("it is read as %+v, %v", who, err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if !IsMachine(cert) || IsRelay(cert) {
		t.Error("it is taken for a person's, or for a relay's")
	}
	if _, err := ParseNode(cert); !reason.Is(err, reason.CertificateRefused) {
		t.Errorf("it is taken for a host's: %v", err)
	}
	if _, err := ca.IssueServerID(cluster, "a/b", now); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("a name with a stroke: %v", err)
	}
}

// TestNotPeer: what only looks like a server's certificate is refused.
func TestNotPeer(t *testing.T) {
	now := time.Now()
	cluster := NewClusterID()
	ca, err := NewCA(cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, c := range map[string]struct {
		path  string
		usage []x509.ExtKeyUsage
	}{
		"a node":         {"/node/web-1/uid", client},
		"without name":   {"/server/", client},
		"with more":      {"/server/a/b", client},
		"a directory":    {"/server/..", client},
		"serves as well": {"/server/a", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}},
	} {
		t.Run(name, func(t *testing.T) {
			id := &url.URL{Scheme: spiffeScheme, Host: string(cluster), Path: c.path}
			issued, err := ca.issue("test", &x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: c.usage}, time.Hour, now)
			if err != nil {
				t.Fatal(err)
			}
			if who, err := ParseServerID(issued.Certificate()); !reason.Is(err, reason.CertificateRefused) {
				t.Errorf("it is read as %+v, %v", who, err)
			}
		})
	}
}
