package trust

import (
	"crypto/x509"
	"net/url"
	"testing"

	"tako.dev/tako/internal/reason"
)

func relayRequest(t testing.TB, key *HostKey) *HostRequest {
	t.Helper()
	der, err := RelayRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRelayRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRelayCertificate: it is for a relay, for a client and a server, and lasts as a host's; it is no node's, and names no host.
func TestRelayCertificate(t *testing.T) {
	ca, cluster, key := testCA(t, testTime), NewClusterID(), NewHostKey()
	want := RelayCertificate{Cluster: cluster, Name: "edge-1", UID: testUID}
	der, err := ca.IssueRelay(relayRequest(t, key), want, testTime)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := key.TLS(der)
	if err != nil {
		t.Fatal(err)
	}
	cert := pair.Leaf
	if got, err := ParseRelay(cert); err != nil || got.RelayCertificate != want || got.Key != key.Digest() || !IsRelay(cert) {
		t.Errorf("read as %+v, %v", got, err)
	}
	if _, err := ParseNode(cert); !reason.Is(err, reason.CertificateRefused) {
		t.Errorf("it is a node's: %v", err)
	}
	if got := cert.NotAfter.Sub(testTime); got != RelayLifetime {
		t.Errorf("it lasts %s", got)
	}
	if len(cert.DNSNames) > 0 || len(cert.IPAddresses) > 0 || cert.Subject.CommonName != "" || cert.VerifyHostname("edge-1") == nil {
		t.Error("it names a host or a user")
	}
	for _, usage := range relayUsage() {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), CurrentTime: testTime, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("for usage %d: %v", usage, err)
		}
	}
}

// TestRelayIsNoNode: neither the requests nor the certificates of one pass for those of the other.
func TestRelayIsNoNode(t *testing.T) {
	key, sealing := NewHostKey(), NewSealingKey()
	ofRelay, err := RelayRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	ofNode, err := NodeRequest(key, sealing.Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseNodeRequest(ofRelay); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("a relay's request is taken for a node's: %v", err)
	}
	if _, err := ParseRelayRequest(ofNode); !reason.Is(err, reason.JoinRequestInvalid) {
		t.Errorf("a node's request is taken for a relay's: %v", err)
	}
	ca, cluster := testCA(t, testTime), NewClusterID()
	der, err := ca.IssueNode(nodeRequest(t, key, sealing), NodeCertificate{Cluster: cluster, Name: "edge-1", UID: testUID}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := key.TLS(der)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRelay(pair.Leaf); !reason.Is(err, reason.CertificateRefused) || IsRelay(pair.Leaf) {
		t.Errorf("a node's certificate is taken for a relay's: %v", err)
	}
	for _, name := range []string{"", "a/b", "../etc", "x y"} {
		if _, err := ca.IssueRelay(relayRequest(t, key), RelayCertificate{Cluster: cluster, Name: name, UID: testUID}, testTime); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

// TestParseRelayRefuses: what is not just what IssueRelay makes.
func TestParseRelayRefuses(t *testing.T) {
	cluster := NewClusterID()
	id := func(path string) []*url.URL { return []*url.URL{{Scheme: "spiffe", Host: string(cluster), Path: path}} }
	good := func(c *x509.Certificate) { c.URIs, c.ExtKeyUsage = id("/relay/edge-1/"+testUID), relayUsage() }
	if _, err := ParseRelay(certificateOf(t, good)); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*x509.Certificate){
		"of nobody":            func(c *x509.Certificate) { c.URIs = nil },
		"for two":              func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) },
		"of a node":            func(c *x509.Certificate) { c.URIs = id("/node/edge-1/" + testUID) },
		"without a UID":        func(c *x509.Certificate) { c.URIs = id("/relay/edge-1") },
		"with more":            func(c *x509.Certificate) { c.URIs = id("/relay/edge-1/" + testUID + "/more") },
		"with a query":         func(c *x509.Certificate) { c.URIs[0].RawQuery = "a=b" },
		"of no cluster":        func(c *x509.Certificate) { c.URIs[0].Host = "" },
		"for a client alone":   func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
		"for signing code too": func(c *x509.Certificate) { c.ExtKeyUsage = append(relayUsage(), x509.ExtKeyUsageCodeSigning) },
	} {
		cert := certificateOf(t, func(c *x509.Certificate) { good(c); change(c) })
		if got, err := ParseRelay(cert); !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
