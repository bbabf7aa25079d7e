package held

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// serve answers for trust documents with the certificate of an authority, and returns the address.
func (a *authority) serve(t *testing.T, by *authority) string {
	t.Helper()
	certificate, err := by.ca.IssueServer(trust.ServerRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, time.Now())
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc(wire.PathTrust, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get(wire.ParamAfter) != "0" && len(a.later) == 0 {
			return
		}
		text, err := a.chain.Encode()
		if err != nil {
			t.Error(err)
		}
		if len(a.later) > 0 {
			text = a.later
		}
		_, _ = w.Write(text) // the host may have gone
	})
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate.TLS()}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// TestReaddress: a host takes another address of its servers when one of its cluster answers there, and nothing else of it changes.
func TestReaddress(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthority(t), newAuthority(t)
	if _, err := Readdress(t.Context(), dir, []string{"127.0.0.1:1"}, time.Time{}); !reason.Is(err, reason.HostNotJoined) {
		t.Errorf("a host that has not joined: %v", err)
	}
	keys, err := Prepare(dir)
	must(t, err)
	before, err := Join(dir, a.membership(t, keys), time.Time{})
	must(t, err)
	unchanged := func(what string) {
		t.Helper()
		id, err := LoadIdentity(dir, time.Time{})
		must(t, err)
		if len(id.Servers()) != 1 || id.Servers()[0] != before.Servers()[0] {
			t.Errorf("%s: its servers are %q", what, id.Servers())
		}
	}
	for what, c := range map[string]struct {
		address string
		code    reason.Code
	}{
		"no address":      {"new.example.org", reason.InvalidValue},
		"nobody there":    {boots.FreeAddress(t), reason.ServerUnreachable},
		"another cluster": {other.serve(t, other), reason.WrongCluster},
		"its documents, of another's certificate": {a.serve(t, other), reason.WrongCluster},
	} {
		if _, err := Readdress(t.Context(), dir, []string{c.address}, time.Time{}); !reason.Is(err, c.code) {
			t.Errorf("%s: %v", what, err)
		}
		unchanged(what)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	address := a.serve(t, a)
	if _, err := Readdress(ended, dir, []string{address}, time.Time{}); err == nil {
		t.Error("an end is no error")
	}
	unchanged("ended")
	files := map[string]string{}
	for _, name := range []string{hostKeyName, sealingKeyName, certificateName, trustName} {
		content, err := os.ReadFile(filepath.Join(dir, identityName, name))
		must(t, err)
		files[name] = string(content)
	}
	node, err := Readdress(t.Context(), dir, []string{address}, time.Time{})
	must(t, err)
	id, err := LoadIdentity(dir, time.Time{})
	must(t, err)
	if id.Servers()[0] != address || len(id.Servers()) != 1 || id.Node() != before.Node() || node != before.Node() {
		t.Errorf("node %+v, servers %q", id.Node(), id.Servers())
	}
	for name, was := range files {
		if content, err := os.ReadFile(filepath.Join(dir, identityName, name)); err != nil || string(content) != was {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
}

// TestReaddressAfterRotation: a server whose authority only later trust documents name is one of the cluster.
func TestReaddressAfterRotation(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	keys, err := Prepare(dir)
	must(t, err)
	_, err = Join(dir, a.membership(t, keys), time.Time{})
	must(t, err)
	ca, err := trust.NewCA(a.id, time.Now())
	must(t, err)
	next, err := a.chain.Next(time.Now(), trust.SetCAs(string(ca.CertificatePEM())))
	must(t, err)
	next, err = next.Sign(a.root)
	must(t, err)
	longer, err := a.chain.Extend([]trust.Signed{next})
	must(t, err)
	a.later, err = longer.Encode()
	must(t, err)
	a.ca = ca
	_, err = Readdress(t.Context(), dir, []string{a.serve(t, a)}, time.Time{})
	must(t, err)
	id, err := LoadIdentity(dir, time.Time{})
	must(t, err)
	if id.Trust().Current().Number != longer.Current().Number {
		t.Errorf("it believes document %d", id.Trust().Current().Number)
	}
}
