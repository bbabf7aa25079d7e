package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"tako.dev/tako/e2e/host"
)

// forge serves the repositories of a directory over https, to whom has the password.
type forge struct {
	t        *testing.T
	dir      string
	address  string
	password string
	during   func() // called in the middle of each request, if it is set
	server   *httptest.Server

	mu    sync.Mutex // guards asked
	asked []string   // what git has wanted: "ls-refs", "fetch"
}

const user = "tako"

func newForge(t *testing.T, dir, password string) *forge {
	t.Helper()
	f := &forge{t: t, dir: dir, address: host.FreeAddress(t), password: password}
	f.start()
	f.endWithTest()
	return f
}

// newForgeInLab is one that hosts of a lab reach under the name that its certificate has.
func newForgeInLab(t *testing.T, lab *host.Lab, dir, password string) (f *forge, hostsLine string) {
	t.Helper()
	listener := lab.Listen(t)
	address, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	f = &forge{t: t, dir: dir, address: net.JoinHostPort(certified, port), password: password}
	f.serveOn(listener)
	f.endWithTest()
	return f, address + " " + certified + "\n"
}

// certified is a name in the certificate of package httptest.
const certified = "example.com"

// start serves; after a stop, at the same address.
func (f *forge) start() {
	f.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(f.t.Context(), "tcp", f.address)
	must(f.t, err)
	f.serveOn(listener)
}

func (f *forge) serveOn(listener net.Listener) {
	f.t.Helper()
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	must(f.t, f.server.Listener.Close())
	f.server.Listener = listener
	f.server.StartTLS()
}

func (f *forge) endWithTest() {
	f.t.Cleanup(func() {
		if f.server != nil {
			f.stop()
		}
	})
}

func (f *forge) stop() {
	f.server.CloseClientConnections()
	f.server.Close()
	f.server = nil
}

// url is where a repository is.
func (f *forge) url(r *repository) string {
	return "https://" + f.address + "/" + filepath.Base(r.bare)
}

// authority is the certificate that clients are to trust.
func (f *forge) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw}))
}

// secret is what a Source of namespace ops needs to be let in, under the name forge.
func (f *forge) secret() string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: forge, namespace: ops}\nstringData: {username: %s, password: %q, ca.crt: %q}\n", user, f.password, f.authority())
}

func (f *forge) serve(w http.ResponseWriter, r *http.Request) {
	if f.during != nil {
		f.during()
	}
	name, password, _ := r.BasicAuth()
	if name != user || !same(password, f.password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if err := f.note(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	core, err := exec.CommandContext(r.Context(), "git", "--exec-path").Output()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"), Dir: f.dir, InheritEnv: []string{"PATH"}, Stderr: &bytes.Buffer{},
		Env: []string{"GIT_PROJECT_ROOT=" + f.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}}
	// A server of git is told the version of the protocol by a variable.
	if v := r.Header.Get("Git-Protocol"); v != "" {
		backend.Env = append(backend.Env, "GIT_PROTOCOL="+v)
	}
	backend.ServeHTTP(w, r)
}

// note keeps what a request of git is for: see gitprotocol-v2(5).
func (f *forge) note(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil // it asks what the server is capable of
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	plain := body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return err
		}
		if plain, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	command := "something else"
	for _, c := range []string{"ls-refs", "fetch"} {
		if strings.Contains(string(plain), "command="+c) {
			command = c
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, command)
	return nil
}

// take returns what git has wanted since take was called last.
func (f *forge) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// key is one for ssh.
type key struct {
	private string // PEM
	public  string // as in authorized_keys
}

func newKey(t *testing.T) key {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key{private: string(pem.EncodeToMemory(block)), public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))}
}

// sshd runs a real one which lets a key in, and returns its address and the line of known_hosts for it.
func sshd(t *testing.T, allowed key) (address, known string) {
	t.Helper()
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs sshd: apt-get install openssh-server")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: sshd changes users")
	}
	dir, own := t.TempDir(), newKey(t)
	address = host.FreeAddress(t)
	config := fmt.Sprintf("ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nStrictModes no\nPidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n",
		address, dir, dir)
	for name, content := range map[string]string{"host": own.private, "authorized": allowed.public + "\n", "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it for the separation of privileges
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // it is ended below
	c := exec.CommandContext(ctx, program, "-D", "-e", "-f", filepath.Join(dir, "config"))
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // it was killed
	})
	host.Eventually(t, gitTime, "sshd answers", func() (string, bool) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return err.Error(), false
		}
		return "", conn.Close() == nil
	})
	return address, "[127.0.0.1]:" + strings.Split(address, ":")[1] + " " + own.public + "\n"
}

// digest sums up all that is below a directory: names, modes, contents.
func digest(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := path + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(content))
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}
