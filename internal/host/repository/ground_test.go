package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/apart"
)

// privately makes a host of its own as far as repositories go, and becomes the test: copies of /etc and of the databases of rpm, nothing
// fetched, and a network with nobody else in it.
const privately = `mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
mount --bind "$1/etc" /etc
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=0755 tmpfs /var/lib/apt
mount -t tmpfs -o mode=0755 tmpfs /var/cache
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial /var/lib/rpm "$1/rpm"
mount --bind "$1/rpm" /var/lib/rpm
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/keyrings /etc/yum.repos.d /etc/pki
grep -lriE 'proxy|acquire' /etc/apt/apt.conf /etc/apt/apt.conf.d 2>/dev/null | xargs -r rm
: >/etc/resolv.conf
echo 'Acquire::Retries "0";' >/etc/apt/apt.conf.d/zz-test
ip link set lo up`

// inside runs the test that calls it once more where it may do anything with package managers, and reports whether this is that run.
func inside(t *testing.T) bool {
	t.Helper()
	for _, tool := range []string{"apt-get", "apt-ftparchive", "dpkg-deb", "gpg", "gpg-agent"} {
		needs(t, tool)
	}
	return apart.Run(t, apart.Host{
		Namespaces: []string{"--net", "--pid", "--fork", "--mount-proc"}, Script: privately, Env: []string{"http_proxy=", "https_proxy="},
	})
}

func needs(t testing.TB, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skip("needs " + tool)
	}
}

// ground is the type on a root.
type ground struct {
	*hosttest.Ground
	*Type
	dir string // of the root: "/", or a sandbox
}

func newGround(t testing.TB, dir string) *ground {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	typ := New(Options{Root: root})
	return &ground{Ground: &hosttest.Ground{TB: t, Of: func(declare.Resource) host.Type { return typ }}, Type: typ, dir: dir}
}

func (g *ground) bind(r declare.Resource) host.Resource {
	g.Helper()
	_, bound := g.Bound(r)
	return bound
}

func (g *ground) path(p string) string { return filepath.Join(g.dir, p) }

// put writes a file, with the directories above it; empty is no file.
func (g *ground) put(p, body string) {
	g.Helper()
	p = g.path(p)
	err := os.RemoveAll(p)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p), 0o755)
	}
	if err == nil && body != "" {
		err = os.WriteFile(p, []byte(body), 0o644)
	}
	if err != nil {
		g.Fatal(err)
	}
}

// see is the content of a file; empty for none.
func (g *ground) see(p string) string {
	g.Helper()
	b, err := os.ReadFile(g.path(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.Fatal(err)
	}
	return string(b)
}

// run runs a program of the host.
func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// signer is somebody with a key.
type signer struct {
	home, name string
	armored    string
}

func newSigner(t testing.TB, name string) *signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // a short path, for the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{home: home, name: name + "@example.com"}
	t.Cleanup(func() {
		err := errors.Join(exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run(), os.RemoveAll(home))
		if err != nil {
			t.Error(err)
		}
	})
	s.gpg(t, "--passphrase", "", "--quick-generate-key", s.name, "rsa2048", "sign", "never") // rpm 4.18 reads no other kind everywhere
	s.armored = s.gpg(t, "--armor", "--export", s.name)
	return s
}

func (s *signer) gpg(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gpg", append([]string{"--batch", "--no-tty", "--yes", "--homedir", s.home}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %v: %v", args, err)
	}
	return string(out)
}

// server serves a directory, with and without what may be wrong.
type server struct {
	testing.TB
	dir string
	url string

	mu     sync.Mutex
	status int // instead of an answer; 0 for an answer
	hold   chan struct{}
	asked  int
}

func newServer(t testing.TB) *server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{TB: t, dir: t.TempDir(), url: "http://" + l.Addr().String() + "/"}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	status, hold := s.status, s.hold
	s.asked++
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	r.Header.Del("If-Modified-Since")
	http.FileServer(http.Dir(s.dir)).ServeHTTP(w, r)
}

func (s *server) set(status int, hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.hold = status, hold
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// deb adds a package to the server's directory.
func (s *server) deb(name, version string) {
	s.Helper()
	build := s.TempDir()
	if err := os.Chmod(build, 0o755); err != nil {
		s.Fatal(err)
	}
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: of a test\n", name, version)
	err := errors.Join(os.Mkdir(filepath.Join(build, "DEBIAN"), 0o755), os.WriteFile(filepath.Join(build, "DEBIAN/control"), []byte(control), 0o644))
	if err != nil {
		s.Fatal(err)
	}
	run(s, "dpkg-deb", "--root-owner-group", "-Znone", "--build", build, filepath.Join(s.dir, name+"_"+version+"_all.deb"))
}

// suite publishes what is in the directory as the component main of a suite; nobody signs it without a signer.
func (s *server) suite(name string, by *signer) {
	s.Helper()
	dir := filepath.Join(s.dir, "dists", name)
	index := filepath.Join(dir, "main", "binary-"+run(s, "dpkg", "--print-architecture"))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(index, 0o755)); err != nil {
		s.Fatal(err)
	}
	s.shell(s.dir, "apt-ftparchive packages . >\"$1/Packages\"", index)
	s.release(dir, name, by)
}

// flat publishes it without parts.
func (s *server) flat(by *signer) {
	s.Helper()
	s.shell(s.dir, "rm -f Release InRelease; apt-ftparchive packages . >Packages", "")
	s.release(s.dir, "flat", by)
}

func (s *server) release(dir, name string, by *signer) {
	s.Helper()
	s.shell(dir, `rm -f Release InRelease; apt-ftparchive -o APT::FTPArchive::Release::Suite="$1" -o APT::FTPArchive::Release::Codename="$1" release . >/tmp/release.$$; mv /tmp/release.$$ Release`, name)
	if by != nil {
		by.gpg(s, "--clearsign", "--output", filepath.Join(dir, "InRelease"), filepath.Join(dir, "Release"))
	}
}

func (s *server) shell(dir, script, arg string) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "sh", "-ec", script, "sh", arg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v: %s", script, err, out)
	}
}

// until waits for something that others do.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// attempt runs a program of the host that may fail.
func attempt(t testing.TB, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	return string(out), err
}
