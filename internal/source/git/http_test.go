package git

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// secret is looked for wherever it must not be.
const secret = "c4n4ry-Sup3r+geheim/x"

// backend serves a repository as git's own http server does.
func backend(o *origin) http.Handler {
	core := o.git("--exec-path")
	return &cgi.Handler{Path: filepath.Join(core, "git-http-backend"), Dir: o.dir,
		Env:        []string{"GIT_PROJECT_ROOT=" + filepath.Dir(o.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		InheritEnv: []string{"PATH"}, Stderr: &strings.Builder{}}
}

// served counts requests and the bytes of answers.
type served struct {
	next     http.Handler
	requests atomic.Int64
	bytes    atomic.Int64
}

func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	// git names the version of its protocol in a header, which CGI hands on as an environment variable only when told.
	if v := r.Header.Get("Git-Protocol"); v != "" {
		c := *s.next.(*cgi.Handler)
		c.Env = append(append([]string(nil), c.Env...), "GIT_PROTOCOL="+v)
		c.ServeHTTP(&counted{w, s}, r)
		return
	}
	s.next.ServeHTTP(&counted{w, s}, r)
}

type counted struct {
	http.ResponseWriter
	s *served
}

func (c *counted) Write(p []byte) (int, error) {
	c.s.bytes.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

func (c *counted) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func withAuth(header string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != header {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func TestHTTP(t *testing.T) {
	o := newOrigin(t)
	id := o.commit(map[string]string{"apps/a.yaml": "a", "other/b": "b"})
	basic, bearer := Auth{Username: "user", Password: secret}, Auth{BearerToken: secret}
	mux := http.NewServeMux()
	s := &served{next: backend(o)}
	mux.Handle("/repo.git/", s)
	mux.Handle("/basic/", http.StripPrefix("/basic", withAuth("Basic "+basic.basic(), s)))
	mux.Handle("/bearer/", http.StripPrefix("/bearer", withAuth("Bearer "+secret, s)))
	tls := httptest.NewTLSServer(mux)
	defer tls.Close()
	plain := httptest.NewServer(mux)
	defer plain.Close()
	basic.CA, bearer.CA = certificate(tls), certificate(tls)
	g := newGit(t, Limits{})
	remotes := []Remote{
		{URL: plain.URL + "/repo.git", PlainHTTP: true},
		{URL: tls.URL + "/repo.git", Auth: Auth{CA: certificate(tls)}},
		{URL: tls.URL + "/basic/repo.git", Auth: basic},
		{URL: tls.URL + "/bearer/repo.git", Auth: bearer},
	}
	for _, remote := range remotes {
		refs, err := g.List(t.Context(), remote, Everything)
		if err != nil {
			t.Fatal(err)
		}
		r := g.Repository(remote.URL)
		c, err := r.Fetch(t.Context(), remote, find(t, refs, "refs/heads/main"), []string{"apps"})
		if err != nil || c.ID != id {
			t.Fatalf("%s: %v", remote.URL, err)
		}
		if got := files(t, r, id, "apps"); len(got) != 1 || got["apps/a.yaml"] != "a" {
			t.Errorf("%s: %v", remote.URL, got)
		}
	}
	noSecretBelow(t, g.dir)
}

// noSecretBelow looks through everything that is on disk.
func noSecretBelow(t *testing.T, dir string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		n++
		content, err := os.ReadFile(p)
		if hasSecret(string(content)) {
			t.Errorf("%s holds a secret", p)
		}
		return err
	})
	if err != nil || n == 0 {
		t.Errorf("looked through %d files: %v", n, err)
	}
}

func hasSecret(s string) bool {
	for _, form := range (Auth{Username: "user", Password: secret}).secrets() {
		if strings.Contains(s, form) {
			return true
		}
	}
	return strings.Contains(s, "PRIVATE KEY")
}

// What fails says which of the codes it is, what to do, and nothing that is secret.
func TestHTTPFailures(t *testing.T) {
	o := newOrigin(t)
	o.commit(map[string]string{"a": "1"})
	repo := &served{next: backend(o)}
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	mux := http.NewServeMux()
	mux.Handle("/basic/", withAuth("Basic of somebody else", repo))
	mux.HandleFunc("/forbidden/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, r.Header.Get("Authorization"), http.StatusForbidden)
	})
	mux.HandleFunc("/gone/", http.NotFound)
	mux.HandleFunc("/busy/", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "later", http.StatusServiceUnavailable) })
	mux.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/x?"+r.URL.RawQuery, http.StatusMovedPermanently)
	})
	mux.HandleFunc("/garbage/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("\x00\xffgarbage\n", 100)) })
	mux.HandleFunc("/smart/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		fmt.Fprint(w, "001e# service=git-upload-pack\n0000zzzz"+strings.Repeat("x", 5000))
	})
	mux.HandleFunc("/echo/", func(w http.ResponseWriter, r *http.Request) {
		// A server that says back what it was told.
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		line := "ERR " + r.Header.Get("Authorization") + " https://user:" + secret + "@host/ " + secret
		fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s", len(line)+4, line)
	})
	hanging := make(chan struct{})
	mux.HandleFunc("/hang/", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hanging:
		}
	})
	mux.HandleFunc("/slow/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		for range 1000 {
			fmt.Fprint(w, "0")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	s := httptest.NewTLSServer(mux)
	defer s.Close()
	defer close(hanging)
	auth := Auth{Username: "user", Password: secret, CA: certificate(s)}
	g, hasty := newGit(t, Limits{}), newGit(t, Limits{Timeout: 400 * time.Millisecond})
	var log strings.Builder
	g.log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	tests := []struct {
		path string
		auth Auth
		code reason.Code
	}{
		{"/basic/repo.git", auth, reason.RepositoryAuth},
		{"/basic/repo.git", Auth{CA: auth.CA}, reason.RepositoryAuth},
		{"/forbidden/", auth, reason.RepositoryAuth},
		{"/gone/", auth, reason.RepositoryUnknown},
		{"/busy/", auth, reason.RepositoryUnreachable},
		{"/moved/", auth, reason.RepositoryAddress},
		{"/garbage/", auth, reason.RepositoryUnknown},
		{"/smart/", auth, reason.RepositoryUnreachable},
		{"/echo/", auth, reason.RepositoryUnreachable},
		{"/hang/", auth, reason.RepositoryUnreachable},
		{"/slow/", auth, reason.RepositoryUnreachable},
		{"/basic/repo.git", Auth{Username: "user", Password: secret}, reason.RepositoryUntrusted},
		{"/basic/repo.git", Auth{Username: "user", Password: secret, CA: []byte("no certificate")}, reason.RepositoryUntrusted},
	}
	for _, tt := range tests {
		remote := Remote{URL: s.URL + tt.path, Auth: tt.auth}
		g := g
		if tt.path == "/hang/" || tt.path == "/slow/" {
			g = hasty
		}
		_, err := g.List(t.Context(), remote, Everything)
		_, errFetch := g.Repository(tt.path).Fetch(t.Context(), remote, Ref{Name: "refs/heads/main"}, nil)
		for _, err := range []error{err, errFetch} {
			e := reason.Of(err)
			if e == nil || e.Code != tt.code {
				t.Errorf("%s: %v, want %s; %s", tt.path, err, tt.code, e.Evidence)
				continue
			}
			if text := fmt.Sprintf("%v %+v %#v %s %s", err, err, remote, e.Hint, e.Evidence); hasSecret(text) {
				t.Errorf("%s shows a secret: %s", tt.path, text)
			}
			if strings.Contains(e.Error(), "\n") {
				t.Errorf("%s: several lines: %q", tt.path, e.Error())
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
	if hasSecret(log.String()) {
		t.Errorf("the log shows a secret: %s", log.String())
	}
	s.Close()
	if _, err := g.List(t.Context(), Remote{URL: s.URL + "/x", Auth: auth}, Everything); !reason.Is(err, reason.RepositoryUnreachable) {
		t.Errorf("a server that is gone: %v", err)
	}
}

// While git talks to the server, no process of this machine shows the credentials in its arguments or environment.
func TestNoSecretInProcesses(t *testing.T) {
	var looked, git int
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Basic ") {
			t.Error("the credentials did not arrive")
		}
		entries, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range entries {
			command, _ := os.ReadFile(p + "/cmdline")
			environment, _ := os.ReadFile(p + "/environ")
			if strings.Contains(string(environment), "GIT_CONFIG_GLOBAL="+configPath) {
				git++
			}
			looked++
			if hasSecret(string(command)) || hasSecret(string(environment)) {
				t.Errorf("%s shows a secret: %q", p, command)
			}
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer s.Close()
	g := newGit(t, Limits{})
	_, err := g.List(t.Context(), Remote{URL: s.URL + "/x", Auth: Auth{Username: "user", Password: secret, CA: certificate(s)}}, Everything)
	if !reason.Is(err, reason.RepositoryAuth) || looked == 0 || git < 2 {
		t.Errorf("looked at %d processes, %d of git: %v", looked, git, err)
	}
}

// A cancelled call ends git and all its children.
func TestCancelled(t *testing.T) {
	arrived := make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer s.Close()
	g := newGit(t, Limits{})
	ctx, cancel := withCancel(t)
	done := make(chan error, 1)
	go func() {
		_, err := g.List(ctx, Remote{URL: s.URL + "/x", PlainHTTP: true}, Everything)
		done <- err
	}()
	<-arrived
	cancel()
	select {
	case err := <-done:
		if !reason.Is(err, reason.Interrupted) {
			t.Errorf("cancelled: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a cancelled call does not end")
	}
	wantNoneWith(t, "GIT_CONFIG_GLOBAL="+configPath, g.dir)
}

// Credentials that lie on this machine for others go nowhere.
func TestCredentialsOfTheMachine(t *testing.T) {
	var sent atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Store(r.Header.Get("Authorization") + r.Header.Get("Cookie"))
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you", http.StatusUnauthorized)
	}))
	defer s.Close()
	home := t.TempDir()
	host := strings.TrimPrefix(s.URL, "http://")
	write(t, filepath.Join(home, ".netrc"), "default login user password "+secret+"\n")
	write(t, filepath.Join(home, ".git-credentials"), "http://user:"+url.QueryEscape(secret)+"@"+host+"\n")
	write(t, filepath.Join(home, ".gitconfig"), "[credential]\n\thelper = store\n[http]\n\textraHeader = Cookie: "+secret+"\n")
	write(t, filepath.Join(home, "askpass"), "#!/bin/sh\necho '"+secret+"'\n")
	must(t, os.Chmod(filepath.Join(home, "askpass"), 0o755))
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home, "GIT_ASKPASS": filepath.Join(home, "askpass"), "SSH_ASKPASS": filepath.Join(home, "askpass"), "GIT_CONFIG_PARAMETERS": "'credential.helper=store'", "http_proxy": "http://127.0.0.1:1"} {
		t.Setenv(name, value)
	}
	_, err := newGit(t, Limits{}).List(t.Context(), Remote{URL: s.URL + "/x", PlainHTTP: true}, Everything)
	if got, ok := sent.Load().(string); !ok || got != "" || !reason.Is(err, reason.RepositoryAuth) {
		t.Errorf("sent %q: %v", got, err)
	}
}

// A server that never ends its list of refs ends with a limit, of memory or of their number.
func TestEndlessList(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
		for i := 0; r.Context().Err() == nil; i++ {
			line := fmt.Sprintf("%040x refs/pull/%0*d/head\n", i, 4000, i) // no branch and no tag: git keeps it all the same
			if _, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	_, err := newGit(t, Limits{MemoryBytes: 256 << 20}).List(t.Context(), Remote{URL: s.URL + "/x", PlainHTTP: true}, Everything)
	if !reason.Is(err, reason.RepositoryLimit) {
		t.Errorf("%v: %s", err, reason.Of(err).Evidence)
	}
}
