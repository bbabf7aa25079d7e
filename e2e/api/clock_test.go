//go:build e2e

package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/state"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// In these tests no clock is set: what has a date is made with another one, by the cluster's own keys, which looks the same from
// the other side.

// told is how times are told to people.
const told = "2006-01-02 15:04:05 UTC"

// An era is when something was valid, seen from now.
type era struct {
	name        string
	from, until time.Time
	words       []string // what who is refused must read
}

// eras are a year ahead and a year ago. whose clock it is that everything hangs on is said too.
func eras(whose string) []era {
	now := time.Now().UTC().Truncate(time.Second)
	ahead, ago := now.AddDate(1, 0, 0), now.AddDate(-1, 0, 0)
	says := whose + " clock says " + now.Format("2006-01-02 ")
	return []era{
		{"a year ahead", ahead, ahead.AddDate(0, 3, 0), []string{"valid from " + ahead.Format(told), says, "timedatectl"}},
		{"a year ago", ago.AddDate(0, -3, 0), ago, []string{"valid until " + ago.Format(told), says, "timedatectl", "new"}},
	}
}

// want checks that everything a person must know is in what he reads.
func (e era) want(t *testing.T, read string) {
	t.Helper()
	for _, w := range e.words {
		if !strings.Contains(read, w) {
			t.Errorf("no %q in:\n%s", w, read)
		}
	}
}

// person is somebody who asks the API for objects. kubectl keeps in his home what kinds there are: without that it asks for them
// first, and does not show the server's words when that is refused.
type person struct{ home string }

func newPerson(t *testing.T) *person { return &person{home: t.TempDir()} }

// ask runs a program with the credentials of a kubeconfig.
func (p *person) ask(t *testing.T, program, kubeconfig string) (stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), operationTime)
	defer cancel()
	c := exec.CommandContext(ctx, program, "get", "nodeconfigs", "--namespace", "default")
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "KUBECONFIG=" + kubeconfig}
	_, stderr, code = command(t, c)
	return stderr, code
}

// programs are what people ask with.
func programs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"tako": host.TakoBinary(t)}
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Log("without kubectl")
	} else {
		all["kubectl"] = "kubectl"
	}
	return all
}

// access writes a kubeconfig for a server.
func access(t *testing.T, url string, ca []byte, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// etcdOf reaches the etcd of a server.
func etcdOf(t *testing.T, s *server) *clientv3.Client {
	t.Helper()
	c, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: []string{"unix://" + filepath.Join(s.dir, "etcd", "client.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Client
}

// authorityOf is the cluster's own authority, opened as the server does.
func authorityOf(t *testing.T, s *server) *authority {
	t.Helper()
	got, err := etcdOf(t, s).Get(t.Context(), "/tako-trust/keys")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("the cluster's keys: %v, %v", got, err)
	}
	secret, err := trust.LoadSecret(filepath.Join(s.dir, "machine-secret"))
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := secret.Open(trust.PurposeClusterKeys, "", got.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	var keys struct {
		CACertificate []byte `cbor:"caCertificate"`
		CAKey         []byte `cbor:"caKey"`
	}
	if err := cbor.Unmarshal(plain, &keys); err != nil {
		t.Fatal(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(keys.CAKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(keys.CACertificate)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: private.(*ecdsa.PrivateKey), pem: pemOf("CERTIFICATE", cert.Raw)}
}

// client is a client's certificate.
func (a *authority) client(t *testing.T, e era) *clientcmdapi.AuthInfo {
	t.Helper()
	cert, key := a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ann", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: e.from, NotAfter: e.until,
	})
	return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
}

// TestClientCertificateOfAnotherYear: who comes with a certificate that is not valid now reads from when or until when it is, what
// the server's clock says, and what to do.
func TestClientCertificateOfAnotherYear(t *testing.T) {
	s := newServerOfYears(t)
	ca := authorityOf(t, s)
	now := era{from: time.Now().Add(-time.Hour), until: time.Now().Add(time.Hour)}
	for name, program := range programs(t) {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t)
			if said, code := p.ask(t, program, access(t, s.url, ca.pem, ca.client(t, now))); code != 0 {
				t.Fatalf("a good certificate: %d, %s", code, said)
			}
			for _, e := range eras("the server's") {
				t.Run(e.name, func(t *testing.T) {
					said, code := p.ask(t, program, access(t, s.url, ca.pem, ca.client(t, e)))
					if code == 0 {
						t.Error("it was accepted")
					}
					e.want(t, said)
				})
			}
			t.Run("of another authority", func(t *testing.T) {
				// Who was never anybody here is told nothing.
				e := eras("the server's")[1]
				said, code := p.ask(t, program, access(t, s.url, ca.pem, newAuthority(t, "other").client(t, e)))
				if code == 0 || strings.Contains(said, "clock says") {
					t.Errorf("exit code %d: %s", code, said)
				}
			})
		})
	}
}

// TestTokenOfAnotherYear: the same with a token.
func TestTokenOfAnotherYear(t *testing.T) {
	s := newServer(t)
	ca := authorityOf(t, s)
	for _, e := range eras("the server's") {
		t.Run(e.name, func(t *testing.T) {
			kubeconfig := access(t, s.url, ca.pem, &clientcmdapi.AuthInfo{Token: tokenOf(t, s, e)})
			for name, program := range programs(t) {
				t.Run(name, func(t *testing.T) {
					p := newPerson(t)
					if said, code := p.ask(t, program, s.kubeconfig()); code != 0 {
						t.Fatalf("the administrator: %d, %s", code, said)
					}
					host.Eventually(t, settleTime, "the token is refused", func() (string, bool) {
						said, code := p.ask(t, program, kubeconfig)
						return said, code != 0 && strings.Contains(said, e.words[0])
					})
					said, _ := p.ask(t, program, kubeconfig)
					e.want(t, said)
				})
			}
		})
	}
}

// tokenOf makes a token, and then the dates of another year for it where nobody else can: in the store.
func tokenOf(t *testing.T, s *server, e era) string {
	t.Helper()
	api := s.client(t).CoreV1().RESTClient()
	made := &v1alpha1.Token{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Token"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "ann-"},
		Spec: v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: &v1alpha1.UserToken{Name: "ann", Groups: []string{"system:masters"}}},
	}
	body, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := api.Post().AbsPath("/apis/tako.dev/v1alpha1/tokens").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Raw()
	if err == nil {
		err = json.Unmarshal(answer, made)
	}
	if err != nil || made.Status.Token == "" {
		t.Fatalf("make a token: %v, %s", err, answer)
	}
	store, key := etcdOf(t, s), "/tako/tako.dev/tokens/"+made.Name
	got, err := store.Get(t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("the token in the store: %v, %v", got, err)
	}
	var stored v1alpha1.Token
	if err := json.Unmarshal(got.Kvs[0].Value, &stored); err != nil {
		t.Fatal(err)
	}
	stored.CreationTimestamp, stored.Spec.Expires = metav1.NewTime(e.from), &metav1.Time{Time: e.until}
	value, err := json.Marshal(stored)
	if err == nil {
		_, err = store.Put(t.Context(), key, string(value))
	}
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// TestServerOfAnotherYear: a client whose clock differs from that of the server's authority by a year names its own clock.
func TestServerOfAnotherYear(t *testing.T) {
	ca := newAuthority(t, "tako cluster")
	for _, e := range eras("this machine's") {
		t.Run(e.name, func(t *testing.T) {
			cert, key := ca.issue(t, &x509.Certificate{
				Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				NotBefore: e.from, NotAfter: e.until,
			})
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			far := httptest.NewUnstartedServer(http.NotFoundHandler())
			far.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
			far.Config.ErrorLog = log.New(io.Discard, "", 0) // of what the client does not like
			far.StartTLS()
			defer far.Close()
			said, code := newPerson(t).ask(t, host.TakoBinary(t), access(t, far.URL, ca.pem, &clientcmdapi.AuthInfo{Token: "x"}))
			if entry, _ := reason.Lookup(reason.CertificateTime); code != int(entry.Exit) {
				t.Errorf("exit code %d, want %d", code, entry.Exit)
			}
			e.want(t, said)
		})
	}
}

// TestAuthorityOfAnotherYear: a server whose clock is not within the life of its own authority does not start, and says why.
func TestAuthorityOfAnotherYear(t *testing.T) {
	for _, test := range []struct {
		name  string
		made  time.Time
		words string
	}{
		{"made a year ahead", time.Now().AddDate(1, 0, 0), "certificate authority is valid from "},
		{"made eleven years ago", time.Now().AddDate(-11, 0, 0), "certificate authority was valid until "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			found(t, dir, test.made)
			p := startTako(t, "server", "--data-dir", dir, "--listen", "127.0.0.1:0")
			code := p.wait(readyTime)
			wantRefusal(t, p, code, reason.CertificateTime, test.words)
			if said := p.log.tail(); !strings.Contains(said, "this machine's clock says "+time.Now().UTC().Format("2006-01-02 ")) {
				t.Errorf("what its clock says is not in:\n%s", said)
			}
		})
	}
}

// newServerOfYears starts a server that was set up two years ago.
func newServerOfYears(t *testing.T) *server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	found(t, dir, time.Now().AddDate(-2, 0, 0))
	return newServerIn(t, dir)
}

// found makes the data directory of a cluster that was set up at another time.
func found(t *testing.T, dir string, made time.Time) {
	t.Helper()
	d, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: d.Join("etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	c, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	secret, _, err := state.MachineSecret(t.Context(), c.Client, d)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := state.ClusterKeys(t.Context(), c.Client, secret, made)
	if err == nil {
		_, _, err = state.Chain(t.Context(), c.Client, d, keys, made)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTrustOfAnotherYear: a trust document that was issued in another year is not put into force.
func TestTrustOfAnotherYear(t *testing.T) {
	s := newServer(t)
	root, err := trust.LoadSigningKey(filepath.Join(s.dir, "trust", "root-key"))
	if err != nil {
		t.Fatal(err)
	}
	chain := chainOf(t, s)
	now := time.Now().UTC().Truncate(time.Second)
	ahead, ago := now.AddDate(1, 0, 0), now.AddDate(-1, 0, 0)
	for _, test := range []struct {
		name   string
		issued time.Time
		words  []string
	}{
		{"a year ahead", ahead, []string{"issued at " + ahead.Format(told), "this machine's clock says " + now.Format("2006-01-02 "), "timedatectl"}},
		{"a year ago", ago, []string{"issued at " + ago.Format(told), "before number 1", "clock of who issued it is behind"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			proposal, err := chain.Next(now, trust.BumpEpoch())
			if err != nil {
				t.Fatal(err)
			}
			proposal.Document.Issued = test.issued
			if proposal, err = proposal.Sign(root); err != nil {
				t.Fatal(err)
			}
			text, err := proposal.Encode()
			path := filepath.Join(t.TempDir(), "proposal.json")
			if err == nil {
				err = os.WriteFile(path, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, said, code := command(t, exec.CommandContext(t.Context(), host.TakoBinary(t), "trust", "accept", path, "--data-dir", s.dir))
			if code == 0 {
				t.Error("it was accepted")
			}
			era{words: append(test.words, reason.TrustRefused.String())}.want(t, said)
		})
	}
	if n := chainOf(t, s).Current().Number; n != 1 {
		t.Errorf("number %d is in force", n)
	}
}

// chainOf is what `tako trust show` prints.
func chainOf(t *testing.T, s *server) *trust.Chain {
	t.Helper()
	text, said, code := command(t, exec.CommandContext(t.Context(), host.TakoBinary(t), "trust", "show", "--data-dir", s.dir))
	if code != 0 {
		t.Fatalf("tako trust show: %d, %s", code, said)
	}
	documents, err := trust.DecodeDocuments([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pin, err := documents[0].Document.Hash()
	if err != nil {
		t.Fatal(err)
	}
	chain, err := trust.Verify(documents, pin, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// TestStartAfterYears: a server that was off for so long that the administrator's certificate has ended gives him a new one when
// it starts, and itself too.
func TestStartAfterYears(t *testing.T) {
	s := newServerOfYears(t)
	ca := authorityOf(t, s)
	ended := eras("the server's")[1]
	old, err := os.ReadFile(access(t, s.url, ca.pem, ca.client(t, ended)))
	if err == nil {
		err = os.WriteFile(s.kubeconfig(), old, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, code := newPerson(t).ask(t, host.TakoBinary(t), s.kubeconfig()); code == 0 {
		t.Fatalf("a certificate that has ended was accepted: %s", said)
	}
	s.stop(t)
	s.start(t)
	if said, code := newPerson(t).ask(t, host.TakoBinary(t), s.kubeconfig()); code != 0 {
		t.Errorf("exit code %d: %s", code, said)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	conn, err := tls.Dial("tcp", s.listen, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if left := time.Until(conn.ConnectionState().PeerCertificates[0].NotAfter); left < trust.ServerLifetime-time.Hour {
		t.Errorf("the server's certificate ends in %v", left)
	}
}
