package trust

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

const testUID = "6f4cbd19-5f2e-4d37-8a2b-0c1d2e3f4a5b"

func nodeRequest(t testing.TB, key *HostKey, sealing *SealingKey) *HostRequest {
	t.Helper()
	der, err := NodeRequest(key, sealing.Public())
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseNodeRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNodeCertificate(t *testing.T) {
	ca, cluster, key, sealing := testCA(t, testTime), NewClusterID(), NewHostKey(), NewSealingKey()
	r := nodeRequest(t, key, sealing)
	if r.Key() != key.Digest() || !strings.HasPrefix(r.Key(), "sha256:") {
		t.Errorf("the request is of key %s, want %s", r.Key(), key.Digest())
	}
	if !r.Binds(sealing.Public()) || r.Binds(NewSealingKey().Public()) || r.Binds(nil) {
		t.Error("the request binds another sealing key, or not its own")
	}
	want := NodeCertificate{Cluster: cluster, Name: "web-1.example.com", UID: testUID}
	der, err := ca.IssueNode(r, want, testTime)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := key.TLS(der)
	if err != nil {
		t.Fatal(err)
	}
	cert := pair.Leaf
	if got, err := ParseNode(cert); err != nil || got.NodeCertificate != want || got.Key != key.Digest() {
		t.Errorf("read as %+v, %v", got, err)
	}
	if got := cert.URIs[0].String(); got != "spiffe://"+string(cluster)+"/node/web-1.example.com/"+testUID {
		t.Errorf("it says %s", got)
	}
	if cert.Subject.String() != "" || len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 || cert.IsCA || cert.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("it says more: %+v", cert.Subject)
	}
	verify := func(use x509.ExtKeyUsage, now time.Time) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: now})
		return err
	}
	for name, c := range map[string]struct {
		use  x509.ExtKeyUsage
		now  time.Time
		good bool
	}{
		"now":             {x509.ExtKeyUsageClientAuth, testTime, true},
		"clock behind":    {x509.ExtKeyUsageClientAuth, testTime.Add(-ClockSkew), true},
		"its last second": {x509.ExtKeyUsageClientAuth, testTime.Add(NodeLifetime), true},
		"after its end":   {x509.ExtKeyUsageClientAuth, testTime.Add(NodeLifetime + time.Second), false},
		"as a server":     {x509.ExtKeyUsageServerAuth, testTime, false},
	} {
		if err := verify(c.use, c.now); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewHostKey().TLS(der); !reason.Is(err, reason.CertificateRefused) {
		t.Errorf("with another key: %v", err)
	}
	words, ok := ExplainCertificate("renew", verify(x509.ExtKeyUsageClientAuth, testTime.Add(30*day)), testTime.Add(30*day))
	if !ok || !strings.Contains(words.Error(), "/node/web-1.example.com/") || !strings.Contains(words.Error(), "the server's clock") {
		t.Errorf("an expired one is told as %v", words)
	}
	_, err = ca.IssueNode(r, want, testTime.Add(2*CALifetime))
	wantCode(t, err, reason.CertificateTime)
}

// Nothing that could mean something else gets into an identity.
func TestNodeNames(t *testing.T) {
	ca, r := testCA(t, testTime), nodeRequest(t, NewHostKey(), NewSealingKey())
	cluster := NewClusterID()
	for _, n := range []NodeCertificate{
		{}, {cluster, "", testUID}, {cluster, "a", ""}, {"", "a", testUID}, {"UPPER", "a", testUID}, {cluster, "..", testUID}, {cluster, ".", testUID},
		{cluster, "a/b", testUID}, {cluster, "a", "b/c"}, {cluster, "a?b", testUID}, {cluster, "a%2fb", testUID}, {cluster, "a b", testUID}, {cluster, "ä", testUID},
		{cluster, "a\n", testUID}, {cluster, strings.Repeat("a", 254), testUID},
	} {
		_, err := ca.IssueNode(r, n, testTime)
		if !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%q: %v", n, err)
		}
	}
}

// certificateOf is a certificate with those alternative names.
func certificateOf(t testing.TB, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	ca := testCA(t, testTime)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	change(template)
	key := NewHostKey()
	der, err := ca.sign("sign", template, &key.private.PublicKey, day, testTime)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestParseNodeRefuses(t *testing.T) {
	cluster := string(NewClusterID())
	uris := func(list ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, s := range list {
				u, err := url.Parse(s)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	good := "spiffe://" + cluster + "/node/a/" + testUID
	if _, err := ParseNode(certificateOf(t, uris(good))); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, change := range map[string]func(*x509.Certificate){
		"a person":        func(*x509.Certificate) {},
		"another scheme":  uris("https://" + cluster + "/node/a/" + testUID),
		"two":             uris(good, good),
		"one of another":  uris(good, "https://x"),
		"no uid":          uris("spiffe://" + cluster + "/node/a"),
		"a relay":         uris("spiffe://" + cluster + "/relay/a/" + testUID),
		"more path":       uris(good + "/b"),
		"a query":         uris(good + "?a=b"),
		"a fragment":      uris(good + "#a"),
		"a user":          uris("spiffe://u@" + cluster + "/node/a/" + testUID),
		"a port":          uris("spiffe://" + cluster + ":1/node/a/" + testUID),
		"escaped":         uris("spiffe://" + cluster + "/node/%61/" + testUID),
		"a slash in it":   uris("spiffe://" + cluster + "/node/a%2fb/" + testUID),
		"another cluster": uris("spiffe://x/node/a/" + testUID),
		"a server": func(c *x509.Certificate) {
			uris(good)(c)
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseNode(certificateOf(t, change))
			wantCode(t, err, reason.CertificateRefused)
		})
	}
	for name, machine := range map[string]bool{good: true, "SPIFFE://x/y": true, "https://x": false} {
		if got := IsMachine(certificateOf(t, uris(name))); got != machine {
			t.Errorf("%s is a machine's: %v", name, got)
		}
	}
}

func TestNodeRequestsRefused(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	named := func(uris ...string) *x509.CertificateRequest {
		r := &x509.CertificateRequest{}
		for _, s := range uris {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			r.URIs = append(r.URIs, u)
		}
		return r
	}
	binding := sealingName(NewSealingKey().Public())
	create := func(r *x509.CertificateRequest, key any) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	good := create(named(binding), p256)
	if _, err := ParseNodeRequest(good); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	forged := append([]byte(nil), good...)
	forged[len(forged)-1] ^= 1
	sha512 := named(binding)
	sha512.SignatureAlgorithm = x509.ECDSAWithSHA512
	for name, der := range map[string][]byte{
		"nothing":            nil,
		"too long":           make([]byte, requestMax+1),
		"more behind it":     append(append([]byte(nil), good...), 0),
		"a wrong signature":  forged,
		"another curve":      create(named(binding), p384),
		"RSA":                create(named(binding), weak),
		"Ed25519":            create(named(binding), edwards),
		"another hash":       create(sha512, p256),
		"no sealing key":     create(named(), p256),
		"two sealing keys":   create(named(binding, binding), p256),
		"something else":     create(named("https://x"), p256),
		"a digest of others": create(named("ni:///sha-512;"+strings.TrimPrefix(binding, sealingURI)), p256),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseNodeRequest(der)
			wantCode(t, err, reason.JoinRequestInvalid)
		})
	}
	for name, sealing := range map[string][]byte{"none": nil, "short": make([]byte, 31), "zeros": make([]byte, 32)} {
		if _, err := NodeRequest(NewHostKey(), sealing); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("a request with sealing key %s: %v", name, err)
		}
	}
}

func TestHostKeysComeBack(t *testing.T) {
	dir := t.TempDir()
	key, sealing := NewHostKey(), NewSealingKey()
	keyPath, sealingPath := filepath.Join(dir, "key"), filepath.Join(dir, "sealing-key")
	if err := SaveHostKey(key, keyPath); err != nil {
		t.Fatal(err)
	}
	if err := SaveSealingKey(sealing, sealingPath); err != nil {
		t.Fatal(err)
	}
	if back, err := LoadHostKey(keyPath); err != nil || back.Digest() != key.Digest() {
		t.Errorf("%v came back as %v, %v", key, back, err)
	}
	if back, err := LoadSealingKey(sealingPath); err != nil || string(back.Public()) != string(sealing.Public()) {
		t.Errorf("another sealing key came back: %v", err)
	}
	if err := SaveHostKey(NewHostKey(), keyPath); !reason.Is(err, reason.StateUnwritable) {
		t.Errorf("a key is written over: %v", err)
	}
	if _, err := LoadHostKey(sealingPath); !reason.Is(err, reason.KeyFileDamaged) || !strings.Contains(err.Error(), sealingPath) {
		t.Errorf("a sealing key as a host's: %v", err)
	}
	if _, err := LoadSealingKey(keyPath); !reason.Is(err, reason.KeyFileDamaged) {
		t.Errorf("a host's key as a sealing key: %v", err)
	}
	if _, err := DecodeHostKey(NewSigningKey().EncodePEM()); !reason.Is(err, reason.KeyFileDamaged) {
		t.Errorf("a signing key as a host's: %v", err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s"} {
		for _, secret := range []any{key, sealing} {
			if words := fmt.Sprintf(verb, secret); len(words) > 100 {
				t.Errorf("%s prints %q", verb, words)
			}
		}
	}
}

func FuzzParseNodeRequest(f *testing.F) {
	der, err := NodeRequest(NewHostKey(), NewSealingKey().Public())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, der, der[:len(der)/2], {0x30, 0x00}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseNodeRequest(b)
		if err != nil {
			if !reason.Is(err, reason.JoinRequestInvalid) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		if r.Key() != KeyDigest(mustSPKI(t, r.public)) || !strings.HasPrefix(r.sealing, sealingURI) {
			t.Errorf("%x was read as %+v", b, r)
		}
	})
}

func mustSPKI(t testing.TB, key *ecdsa.PublicKey) []byte {
	t.Helper()
	b, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is read as a node's identity is exactly what is written for it.
func FuzzParseNode(f *testing.F) {
	cluster := string(NewClusterID())
	for _, s := range []string{"", "spiffe://" + cluster + "/node/a/" + testUID, "spiffe://" + cluster + "/node/%61/b", "spiffe:///node/a/b", "spiffe://a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		n, err := ParseNode(&x509.Certificate{URIs: []*url.URL{u}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			if !reason.Is(err, reason.CertificateRefused) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		if want := "spiffe://" + string(n.Cluster) + "/node/" + n.Name + "/" + n.UID; u.String() != want || n.validate() != nil {
			t.Errorf("%q was read as %+v", s, n)
		}
	})
}
