package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func testCA(t testing.TB, now time.Time) *CA {
	t.Helper()
	ca, err := NewCA(NewClusterID(), now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestCertificates(t *testing.T) {
	ca := testCA(t, testTime)
	server, err := ca.IssueServer(ServerRequest{DNSNames: []string{"tako.example", "localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.IssueClient(ClientRequest{User: "ann@example.com", Groups: []string{"ops", "dev"}}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(c *Credential, use x509.ExtKeyUsage, name string, now time.Time) error {
		_, err := c.Certificate().Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{use}, DNSName: name, CurrentTime: now})
		return err
	}
	for _, name := range []string{"tako.example", "localhost", "127.0.0.1", "::1"} {
		if err := verify(server, x509.ExtKeyUsageServerAuth, name, testTime); err != nil {
			t.Errorf("server as %s: %v", name, err)
		}
	}
	if err := verify(client, x509.ExtKeyUsageClientAuth, "", testTime); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := verify(server, x509.ExtKeyUsageClientAuth, "", testTime); err == nil {
		t.Error("a server's certificate is good for a client")
	}
	if err := verify(client, x509.ExtKeyUsageServerAuth, "", testTime); err == nil {
		t.Error("a client's certificate is good for a server")
	}
	if err := verify(client, x509.ExtKeyUsageClientAuth, "", testTime.Add(-ClockSkew)); err != nil {
		t.Errorf("with a clock that is a little behind: %v", err)
	}
	if err := verify(client, x509.ExtKeyUsageClientAuth, "", testTime.Add(ClientLifetime+time.Second)); err == nil {
		t.Error("a certificate outlives its lifetime")
	}
	if s := client.Certificate().Subject; s.CommonName != "ann@example.com" || !slices.Equal(slices.Sorted(slices.Values(s.Organization)), []string{"dev", "ops"}) {
		t.Errorf("subject %v", s)
	}
	if a, b := server.Certificate().SerialNumber, client.Certificate().SerialNumber; a.BitLen() < 64 || b.BitLen() < 64 || a.Cmp(b) == 0 {
		t.Errorf("serial numbers %v and %v are not random", a, b)
	}
	if at := RenewAt(client.Certificate()); !at.After(testTime.Add(ClientLifetime/2)) || !at.Before(client.Certificate().NotAfter.Add(-ClientLifetime/4)) {
		t.Errorf("renewed at %s, valid until %s", at, client.Certificate().NotAfter)
	}
	// A leaf signs nothing.
	forged := &CA{certificate: client.Certificate(), key: client.key}
	leaf, err := forged.IssueServer(ServerRequest{DNSNames: []string{"x"}}, testTime)
	if err == nil {
		pool := x509.NewCertPool()
		pool.AddCert(client.Certificate())
		if _, err := leaf.Certificate().Verify(x509.VerifyOptions{Roots: ca.Pool(), Intermediates: pool, CurrentTime: testTime}); err == nil {
			t.Error("what a leaf has issued is believed")
		}
	}
}

func TestCertificateRequestsRefused(t *testing.T) {
	ca := testCA(t, testTime)
	long := strings.Repeat("a", nameMax+1)
	for name, r := range map[string]ClientRequest{
		"no user":             {},
		"long user":           {User: long},
		"newline":             {User: "a\nb"},
		"hidden character":    {User: "a\u202eb"},
		"not UTF-8":           {User: "a\xff"},
		"empty group":         {User: "a", Groups: []string{""}},
		"long group":          {User: "a", Groups: []string{long}},
		"too many groups":     {User: "a", Groups: slices.Repeat([]string{"g"}, namesMax+1)},
		"negative lifetime":   {User: "a", Lifetime: -time.Hour},
		"lifetime of decades": {User: "a", Lifetime: 10000 * day},
	} {
		_, err := ca.IssueClient(r, testTime)
		if !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, r := range map[string]ServerRequest{
		"no name":           {},
		"empty name":        {DNSNames: []string{""}},
		"no host name":      {DNSNames: []string{"a b"}},
		"not ASCII":         {DNSNames: []string{"tákó"}},
		"no address":        {IPs: []net.IP{{1, 2, 3}}},
		"too many":          {DNSNames: slices.Repeat([]string{"a"}, namesMax+1)},
		"negative lifetime": {DNSNames: []string{"a"}, Lifetime: -1},
	} {
		_, err := ca.IssueServer(r, testTime)
		if !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewCA("no-cluster", testTime); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("an authority of no cluster: %v", err)
	}
}

// A certificate is never valid when its authority is not.
func TestLeafStaysWithinItsAuthority(t *testing.T) {
	ca := testCA(t, testTime)
	end := ca.Certificate().NotAfter
	c, err := ca.IssueClient(ClientRequest{User: "a"}, end.Add(-time.Hour))
	if err != nil || c.Certificate().NotAfter.After(end) {
		t.Errorf("shortly before the authority ends: %v", err)
	}
	c, err = ca.IssueClient(ClientRequest{User: "a"}, testTime.Add(-time.Minute))
	if err != nil || c.Certificate().NotBefore.Before(ca.Certificate().NotBefore) {
		t.Errorf("shortly after the authority began, with a clock behind: %v", err)
	}
	for _, now := range []time.Time{end.Add(time.Hour), testTime.AddDate(-1, 0, 0)} {
		_, err := ca.IssueClient(ClientRequest{User: "a"}, now)
		if words := wantCode(t, err, reason.CertificateTime); !strings.Contains(words, "clock says "+now.Format(clockLayout)) {
			t.Errorf("%q does not name the clock", words)
		}
	}
}

// handshake serves with the server's credential and asks with the client's, each believing in an authority and a time of its own.
func handshake(t *testing.T, server, client *Credential, serverCA, clientCA *CA, serverTime, clientTime time.Time, name string) (serverErr, clientErr error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	s := tls.Server(a, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server.TLS()}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: serverCA.Pool(), Time: func() time.Time { return serverTime },
	})
	c := tls.Client(b, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{client.TLS()}, ServerName: name,
		RootCAs: clientCA.Pool(), Time: func() time.Time { return clientTime },
	})
	done := make(chan error, 1)
	go func() {
		done <- s.HandshakeContext(ctx)
		a.Close()
	}()
	clientErr = c.HandshakeContext(ctx)
	if clientErr == nil {
		_, _ = io.Copy(io.Discard, c) // the server writes its tickets, or its refusal, and closes
	}
	b.Close()
	return <-done, clientErr
}

// What a person reads when a certificate is refused, out of real handshakes and with clocks that are off.
func TestCertificateErrorsInWords(t *testing.T) {
	ca, stranger := testCA(t, testTime), testCA(t, testTime)
	year := 365 * day
	issue := func(ca *CA, now time.Time) (server, client *Credential) {
		server, err := ca.IssueServer(ServerRequest{DNSNames: []string{"tako.example"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}}, now)
		if err != nil {
			t.Fatal(err)
		}
		client, err = ca.IssueClient(ClientRequest{User: "ann"}, now)
		if err != nil {
			t.Fatal(err)
		}
		return server, client
	}
	server, client := issue(ca, testTime)
	ahead, clientAhead := issue(ca, testTime.Add(year))
	for name, c := range map[string]struct {
		server, client         *Credential
		clientCA               *CA
		serverTime, clientTime time.Time
		name                   string
		code                   reason.Code
		words                  []string
	}{
		"all well": {server, client, ca, testTime, testTime, "tako.example", 0, nil},
		"server's certificate of next year": {
			ahead, client, ca, testTime, testTime, "tako.example", reason.CertificateTime,
			[]string{`"tako.example, 10.0.0.1" is valid from 2027-11-21 07:55:00 UTC`, "this machine's clock says 2026-11-21 08:00:00 UTC"},
		},
		"server's certificate of last year": {
			server, client, ca, testTime, testTime.Add(year), "tako.example", reason.CertificateTime,
			[]string{"was valid until 2027-02-19 08:00:00 UTC", "this machine's clock says 2027-11-21 08:00:00 UTC"},
		},
		"client's certificate of next year": {
			server, clientAhead, ca, testTime, testTime, "tako.example", reason.CertificateTime,
			[]string{`"ann" is valid from 2027-11-21 07:55:00 UTC`, "the server's clock says 2026-11-21 08:00:00 UTC"},
		},
		"client's certificate of last year": {
			server, client, ca, testTime.Add(year), testTime, "tako.example", reason.CertificateTime,
			[]string{`"ann" was valid until 2027-02-19 08:00:00 UTC`, "the server's clock says 2027-11-21 08:00:00 UTC"},
		},
		"another authority": {server, client, stranger, testTime, testTime, "tako.example", reason.CertificateRefused, []string{"authority that is not trusted here"}},
		"another name":      {server, client, ca, testTime, testTime, "other.example", reason.CertificateRefused, []string{"tako.example", "other.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			serverErr, clientErr := handshake(t, c.server, c.client, ca, c.clientCA, c.serverTime, c.clientTime, c.name)
			err, now := clientErr, c.clientTime
			if _, about := ExplainCertificate("", err, now); !about {
				err, now = serverErr, c.serverTime
			}
			if c.code == 0 {
				if serverErr != nil || clientErr != nil {
					t.Errorf("server %v, client %v", serverErr, clientErr)
				}
				return
			}
			e, about := ExplainCertificate("connect to tako.example:6443", err, now)
			if !about {
				t.Fatalf("server %v, client %v: not about a certificate", serverErr, clientErr)
			}
			words := wantCode(t, e, c.code)
			for _, w := range c.words {
				if !strings.Contains(words, w) {
					t.Errorf("%q does not say %q", words, w)
				}
			}
			if e.Hint == "" || !errors.Is(e, err) {
				t.Errorf("no hint, or the error itself is lost: %+v", e)
			}
			if again, about := ExplainCertificate("again", e, now); !about || again != e {
				t.Errorf("what is in words already became %v", again)
			}
		})
	}
	for _, err := range []error{nil, io.EOF, &reason.Error{Code: reason.DiskFull}} {
		if e, about := ExplainCertificate("", err, testTime); about || e != nil {
			t.Errorf("%v is said to be about a certificate: %v", err, e)
		}
	}
}

// The programs that people use besides Go accept what is issued.
func TestCurlAndOpenSSLAccept(t *testing.T) {
	now := time.Now()
	ca := testCA(t, now)
	credential, err := ca.IssueServer(ServerRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.IssueClient(ClientRequest{User: "ann", Groups: []string{"ops"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"ca": ca.CertificatePEM(), "cert": client.CertificatePEM(), "key": client.KeyPEM()} {
		if err := WritePrivate(filepath.Join(dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{credential.TLS()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}
	s.StartTLS()
	defer s.Close()
	for _, command := range [][]string{
		{"curl", "--silent", "--show-error", "--max-time", "20", "--cacert", "ca", "--cert", "cert", "--key", "key", s.URL},
		{"openssl", "verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca", "cert"},
	} {
		t.Run(command[0], func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skipf("needs %s: %v", command[0], err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			c := exec.CommandContext(ctx, command[0], command[1:]...)
			c.Dir = dir
			c.Env = append(os.Environ(), "no_proxy=127.0.0.1")
			out, err := c.CombinedOutput()
			if err != nil || command[0] == "curl" && string(out) != "ann" {
				t.Errorf("%v: %s (%v)", command, out, err)
			}
		})
	}
}

func TestCredentialPEM(t *testing.T) {
	ca := testCA(t, testTime)
	c, err := ca.IssueClient(ClientRequest{User: "ann"}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(c.CertificatePEM(), c.KeyPEM())
	if err != nil || !bytes.Equal(pair.Certificate[0], c.TLS().Certificate[0]) {
		t.Errorf("the PEM pieces make another pair: %v", err)
	}
	if block, rest := pem.Decode(ca.CertificatePEM()); block == nil || len(rest) > 0 || !bytes.Equal(block.Bytes, ca.Certificate().Raw) {
		t.Errorf("the authority's PEM is %q", ca.CertificatePEM())
	}
}
