package held

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const uid = "3b1f6c1e-0000-4000-8000-000000000001"

// authority is a cluster.
type authority struct {
	id    trust.ClusterID
	ca    *trust.CA
	root  *trust.SigningKey
	chain *trust.Chain
	later []byte // documents that a server has; nil: those of chain
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{id: trust.NewClusterID(), root: trust.NewSigningKey()}
	now := time.Now()
	var err error
	a.ca, err = trust.NewCA(a.id, now)
	must(t, err)
	a.chain, err = trust.NewChain(trust.Genesis{Cluster: a.id, CA: a.ca, Root: a.root, Heads: trust.NewSigningKey().Public()}, now, time.Time{})
	must(t, err)
	return a
}

// certificate issues one for the key of a request.
func (a *authority) certificate(t *testing.T, request []byte, name, uid string) []byte {
	t.Helper()
	r, err := trust.ParseNodeRequest(request)
	must(t, err)
	der, err := a.ca.IssueNode(r, trust.NodeCertificate{Cluster: a.id, Name: name, UID: uid}, time.Now())
	must(t, err)
	return der
}

func (a *authority) membership(t *testing.T, keys Keys) Membership {
	t.Helper()
	request, err := trust.NodeRequest(keys.Host, keys.Sealing.Public())
	must(t, err)
	text, err := a.chain.Encode()
	must(t, err)
	return Membership{Credentials: wire.Credentials{Certificate: a.certificate(t, request, "web-1", uid), Name: "web-1", UID: uid, Trust: text},
		Pin: a.chain.Pin(), Servers: []string{"tako.example.org:6444"}}
}

func TestJoinAndLoad(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	keys, err := Prepare(dir)
	must(t, err)
	if _, err := LoadIdentity(dir, time.Time{}); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("half a join is one: %v", err)
	}
	again, err := Prepare(dir)
	must(t, err)
	if again.Host.Digest() != keys.Host.Digest() || string(again.Sealing.Public()) != string(keys.Sealing.Public()) {
		t.Error("a join that was broken off goes on with other keys")
	}
	m := a.membership(t, keys)
	_, err = Join(dir, m, time.Time{})
	must(t, err)
	if _, err := Prepare(dir); !reason.Is(err, reason.HostJoined) {
		t.Errorf("joined twice: %v", err)
	}
	id, err := LoadIdentity(dir, time.Time{})
	must(t, err)
	cert, err := id.Certificate()
	must(t, err)
	if n := id.Node(); n.Name != "web-1" || n.UID != uid || n.Cluster != a.id || id.Servers()[0] != m.Servers[0] || cert.Leaf == nil ||
		string(id.Sealing().Public()) != string(keys.Sealing.Public()) || id.Trust().Pin() != m.Pin {
		t.Errorf("loaded %+v", n)
	}
	if err := filepath.Walk(filepath.Join(dir, identityName), func(p string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestLearn: a host keeps the addresses of servers that it is told of, behind those that it has joined with, and lets those go first that nobody
// tells of any more.
func TestLearn(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	keys, err := Prepare(dir)
	must(t, err)
	m := a.membership(t, keys)
	id, err := Join(dir, m, time.Time{})
	must(t, err)
	for _, step := range []struct {
		told, want []string
	}{
		{[]string{m.Servers[0], "10.0.0.1:6444", "no address", "10.0.0.2:6444"}, []string{"10.0.0.1:6444", "10.0.0.2:6444"}},
		{[]string{"10.0.0.3:6444", "10.0.0.1:6444"}, []string{"10.0.0.1:6444", "10.0.0.2:6444", "10.0.0.3:6444"}}, // the second one is away
		{[]string{"a:1", "a:2", "a:3", "a:4", "a:5", "a:6", "a:7", "10.0.0.3:6444", "a:8"},
			[]string{"10.0.0.3:6444", "a:1", "a:2", "a:3", "a:4", "a:5", "a:6", "a:7"}},
	} {
		before := id.Servers()
		want := append(slices.Clone(m.Servers), step.want...)
		changed, err := id.Learn(step.told)
		must(t, err)
		if got := id.Servers(); !slices.Equal(got, want) || changed == slices.Equal(got, before) {
			t.Errorf("told of %v it knows %v, want %v (changed: %t)", step.told, got, want, changed)
		}
		if changed, err = id.Learn(step.told); err != nil || changed {
			t.Errorf("told the same once more: %t, %v", changed, err)
		}
		again, err := LoadIdentity(dir, time.Time{})
		must(t, err)
		if !slices.Equal(again.Servers(), want) {
			t.Errorf("after a restart it knows %v, want %v", again.Servers(), want)
		}
	}
}

// TestHalfAJoinIsNone: whatever files of a join are missing, the host has joined wholly or not at all.
func TestHalfAJoinIsNone(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	keys, err := Prepare(dir)
	must(t, err)
	_, err = Join(dir, a.membership(t, keys), time.Time{})
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, identityName, nodeName)))
	if _, err := LoadIdentity(dir, time.Time{}); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("without its last file: %v", err)
	}
	keys, err = Prepare(dir)
	must(t, err)
	_, err = Join(dir, a.membership(t, keys), time.Time{})
	must(t, err)
	for _, name := range []string{hostKeyName, sealingKeyName, certificateName, trustName} {
		p := filepath.Join(dir, identityName, name)
		good, err := os.ReadFile(p)
		must(t, err)
		for _, bad := range [][]byte{nil, good[:len(good)/2]} {
			must(t, os.WriteFile(p, bad, 0o600))
			if _, err := LoadIdentity(dir, time.Time{}); err == nil {
				t.Errorf("%s: a damaged identity was loaded", name)
			}
		}
		must(t, os.WriteFile(p, good, 0o600))
	}
	_, err = LoadIdentity(dir, time.Time{})
	must(t, err)
}

// TestStrangersCredentials: what is for somebody else, or by somebody else, is not taken, when joining and when renewing.
func TestStrangersCredentials(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthority(t), newAuthority(t)
	keys, err := Prepare(dir)
	must(t, err)
	request, err := trust.NodeRequest(keys.Host, keys.Sealing.Public())
	must(t, err)
	strange, err := trust.NodeRequest(trust.NewHostKey(), keys.Sealing.Public())
	must(t, err)
	bad := map[string][]byte{
		"another key": a.certificate(t, strange, "web-1", uid), "another name": a.certificate(t, request, "web-2", uid),
		"another uid": a.certificate(t, request, "web-1", "x"), "another cluster": other.certificate(t, request, "web-1", uid), "nothing": nil,
	}
	for name, der := range bad {
		m := a.membership(t, keys)
		m.Credentials.Certificate = der
		if _, err := Join(dir, m, time.Time{}); !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("joined with a certificate of %s: %v", name, err)
		}
	}
	m := a.membership(t, keys)
	m.Pin = other.chain.Pin()
	if _, err := Join(dir, m, time.Time{}); !reason.Is(err, reason.TrustRefused) {
		t.Errorf("joined with another pin: %v", err)
	}
	if joined, err := HasJoined(dir); joined || err != nil {
		t.Fatalf("joined: %v, %v", joined, err)
	}
	id, err := Join(dir, a.membership(t, keys), time.Time{})
	must(t, err)
	was, err := id.Certificate()
	must(t, err)
	for name, der := range bad {
		if err := id.Renewed(der); !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("renewed with a certificate of %s: %v", name, err)
		}
	}
	request, err = id.Request()
	must(t, err)
	must(t, id.Renewed(a.certificate(t, request, "web-1", uid)))
	now, err := id.Certificate()
	must(t, err)
	loaded, err := LoadIdentity(dir, time.Time{})
	must(t, err)
	kept, err := loaded.Certificate()
	must(t, err)
	if string(now.Certificate[0]) == string(was.Certificate[0]) || string(kept.Certificate[0]) != string(now.Certificate[0]) {
		t.Error("the new certificate is not the one that is kept")
	}
}
