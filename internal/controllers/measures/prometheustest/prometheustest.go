// Package prometheustest runs a real Prometheus for tests: the program of Debian's package, with a configuration, a certificate and data of the test, and
// nothing of the machine's own.
//
// Start owns the process, and the goroutine that waits for it; both end with the test.
package prometheustest

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Username and Password are what a Prometheus asks for that is Locked.
const (
	Username = "tako"
	Password = "p4ss-of-the-test"
	// passwordHash is the password as its configuration has it, by bcrypt.
	passwordHash = "$2a$04$b46G1T3EiAneZAvThn5lsOGSV9m5dSNyrnQvQjLOS.NYOvHXJRaqe"
)

// startMax bounds a start: what it takes on a machine where everything else runs too.
const startMax = 60 * time.Second

// Options say what it does.
type Options struct {
	// Targets are scraped every 200 ms: HOST:PORT of programs that have /metrics.
	Targets []string
	// Locked is served over TLS, by a certificate of its own, to who knows the username and the password. Default plain, to everybody.
	Locked bool
}

// Prometheus is one that runs.
type Prometheus struct {
	URL string
	CA  string // PEM; empty where it is plain
}

// Start runs one until the test ends. The test is skipped where there is no program.
func Start(t *testing.T, o Options) *Prometheus {
	t.Helper()
	program := find(t)
	dir := t.TempDir()
	address := free(t)
	args := []string{"--web.listen-address=" + address, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--config.file=" + filepath.Join(dir, "prometheus.yml"), "--log.level=warn"}
	put(t, filepath.Join(dir, "prometheus.yml"), configuration(o.Targets))
	p, client := &Prometheus{URL: "http://" + address}, &http.Client{Timeout: time.Second}
	if o.Locked {
		cert := certificate(t, dir)
		p.URL, p.CA = "https://"+address, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
		put(t, filepath.Join(dir, "web.yml"), fmt.Sprintf("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {%s: %q}\n", Username, passwordHash))
		args = append(args, "--web.config.file="+filepath.Join(dir, "web.yml"))
		pool := x509.NewCertPool()
		pool.AddCert(cert)
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	}
	run(t, exec.CommandContext(t.Context(), program, args...), func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/-/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(Username, Password)
		resp, err := client.Do(r)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	client.CloseIdleConnections()
	return p
}

// find is the program: of this machine, or unpacked by tools/needs.sh.
func find(t *testing.T) string {
	t.Helper()
	for _, p := range []string{filepath.Join(cmp.Or(os.Getenv("TAKO_TEST_CACHE"), "/var/cache/tako-test"), "unpacked/usr/bin/prometheus"), "/usr/bin/prometheus"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Skip("needs prometheus, which tools/needs.sh unpacks")
	return ""
}

func configuration(targets []string) string {
	text := "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
	if len(targets) > 0 {
		text += "scrape_configs: [{job_name: programs, static_configs: [{targets: [" + strings.Join(targets, ", ") + "]}]}]\n"
	}
	return text
}

// certificate has one that stands for 127.0.0.1 written, with its key: that of servers of tests.
func certificate(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	put(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	return s.Certificate()
}

// run starts a program, and waits until it is ready.
func run(t *testing.T, c *exec.Cmd, ready func() bool) {
	t.Helper()
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		<-ended // it was killed with the test's context
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(startMax); !ready(); {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", c.Path, err, said.String())
		case <-late:
			t.Fatalf("%s is not ready after %s", c.Path, startMax)
		case <-tick.C:
		}
	}
}

// free is an address of this machine that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
