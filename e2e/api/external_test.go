//go:build e2e

package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

const (
	// members is the smallest cluster that survives the loss of one.
	members = 3
	// leaderKills is how often its leader is killed.
	leaderKills = 3
	// heartbeatMS and electionMS are those of members whose machine is busy: who is a moment late loses no vote.
	heartbeatMS, electionMS = "250", "2500"
)

// member is one etcd of a cluster.
type member struct {
	name, dir, client, peer string
	run                     *exec.Cmd
}

// cluster is an etcd of several members that speak TLS only, to those that have a certificate.
type cluster struct {
	program string
	pki     string // the directory of ca.pem, cert.pem and key.pem
	tls     *tls.Config
	members []*member
}

// newCluster starts a cluster.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{program: host.EtcdBinary(t), pki: dir}
	c.certify(t)
	for i := range members {
		m := &member{name: "m" + itoa(i), dir: filepath.Join(dir, "m"+itoa(i)), client: "https://" + host.FreeAddress(t), peer: "https://" + host.FreeAddress(t)}
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		c.start(t, m)
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
		}
	})
	c.leader(t)
	return c
}

// certify makes a CA, and one certificate for members and clients.
func (c *cluster) certify(t *testing.T) {
	t.Helper()
	ca := newAuthority(t, "etcd")
	cert, key := ca.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "tako"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	for name, b := range map[string][]byte{"ca.pem": ca.pem, "cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(c.pki, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.pem)
	c.tls = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

func (c *cluster) file(name string) string { return filepath.Join(c.pki, name) }

// start starts a member, for the first time or again.
func (c *cluster) start(t *testing.T, m *member) {
	t.Helper()
	var all []string
	for _, o := range c.members {
		all = append(all, o.name+"="+o.peer)
	}
	m.run = exec.CommandContext(context.Background(), c.program, // it is killed in a cleanup, or by the kernel
		"--name", m.name, "--data-dir", m.dir, "--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client, "--client-cert-auth",
		"--cert-file", c.file("cert.pem"), "--key-file", c.file("key.pem"), "--trusted-ca-file", c.file("ca.pem"),
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer, "--peer-client-cert-auth",
		"--peer-cert-file", c.file("cert.pem"), "--peer-key-file", c.file("key.pem"), "--peer-trusted-ca-file", c.file("ca.pem"),
		"--heartbeat-interval", heartbeatMS, "--election-timeout", electionMS, "--log-level", "fatal")
	m.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.run.Start(); err != nil {
		t.Fatal(err)
	}
}

func (m *member) kill() {
	if m.run == nil {
		return
	}
	_ = m.run.Process.Kill() // it may have ended
	_ = m.run.Wait()
	m.run = nil
}

func (c *cluster) endpoints() []string {
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.client)
	}
	return urls
}

// leader waits for the leader of the living members.
func (c *cluster) leader(t *testing.T) *member {
	t.Helper()
	var found *member
	host.Eventually(t, settleTime, "etcd has a leader", func() (string, bool) {
		for _, m := range c.members {
			if m.run != nil && c.leads(t, m) {
				found = m
			}
		}
		return "none", found != nil
	})
	return found
}

func (c *cluster) leads(t *testing.T, m *member) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, TLS: c.tls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	status, err := client.Status(ctx, m.client)
	return err == nil && status.Leader == status.Header.MemberId
}

// args are what a server is told of the cluster.
func (c *cluster) args() []string {
	return []string{"--etcd-servers", strings.Join(c.endpoints(), ","), "--etcd-ca", c.file("ca.pem"), "--etcd-cert", c.file("cert.pem"), "--etcd-key", c.file("key.pem")}
}

// externalOperations are a few of each kind.
func externalOperations() []operation {
	return []operation{
		{name: "create", run: "kubectl create -f web.yaml -f node.yaml", out: "nodeconfig.tako.dev/web created"},
		{name: "table", run: "kubectl get nodeconfig", out: `^NAME +RESOURCES .*\nweb +2 `},
		{name: "apply", run: "kubectl apply --server-side --force-conflicts -f web-changed.yaml", out: "web serverside-applied"},
		{name: "conflict", run: "kubectl apply --server-side --field-manager=other -f web.yaml", exit: 1, err: "conflict with"},
		{name: "patch", run: `kubectl patch nc web --type=merge -p '{"metadata":{"labels":{"a":"b"}}}'`, out: "patched"},
		{name: "watch", run: watching("kubectl get nc -w -o name", "web"), out: "nodeconfig.tako.dev/web", none: "it has ended"},
		{name: "status", run: `kubectl patch nc web --subresource=status --type=merge -p '{"status":{"observedGeneration":1}}' -o jsonpath='{.status.observedGeneration}'`, out: "^1$"},
		{name: "wait", run: "kubectl wait --for=jsonpath='{.metadata.labels.a}'=b nc/web", out: "condition met"},
		{name: "secret", run: "kubectl create secret generic s --from-literal=a=b && kubectl get secret s -o jsonpath='{.data.a}'", out: "Yg=="},
		{name: "delete", run: "kubectl delete nc,nodes --all", out: `"web" deleted.*"web-1" deleted`},
	}
}

// TestExternalEtcd runs the server over a cluster that others run, and kills that cluster's leader under load: nothing that was
// acknowledged is lost, and watches go on.
func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	e := newCluster(t)
	s := newServer(t, e.args()...)
	t.Run("kubectl", func(t *testing.T) {
		if _, err := exec.LookPath("kubectl"); err != nil {
			t.Skip("needs kubectl: it is in no Debian package; see kubernetes.io/docs/tasks/tools")
		}
		k := newKubectl(t, s)
		for _, o := range externalOperations() {
			t.Run(o.name, func(t *testing.T) { k.try(t, o) })
		}
	})
	t.Run("leader killed", func(t *testing.T) {
		c := s.client(t)
		l := newLoad(t, c)
		r, stop := startRecord(t, c)
		defer stop()
		l.start(t.Context())
		for range leaderKills {
			l.awaitMore(t, writesPerLife)
			m := e.leader(t)
			m.kill()
			l.awaitMore(t, writesPerLife)
			e.start(t, m)
			e.leader(t)
		}
		s.kill(t)
		s.start(t)
		l.awaitMore(t, writesPerLife)
		l.end()
		l.check(t, r)
	})
	t.Run("another server", func(t *testing.T) { e.secondServer(t) })
	t.Run("no certificate", func(t *testing.T) {
		p := startTako(t, "server", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--etcd-servers", strings.Join(e.endpoints(), ","), "--etcd-ca", e.file("ca.pem"))
		code := p.wait(readyTime)
		wantRefusal(t, p, code, reason.StoreUnreachable, "does it accept this server's certificate?")
	})
}

// secondServer starts a server that has the cluster's address and not its machine secret.
func (c *cluster) secondServer(t *testing.T) {
	t.Helper()
	p := startTako(t, append([]string{"server", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0"}, c.args()...)...)
	if code := p.wait(readyTime); code <= 0 || !strings.Contains(p.log.tail(), "TK10") {
		t.Errorf("a server without the machine secret ended with %d:\n%s", code, p.log.tail())
	}
}
