package gitea

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

// forge is what a test needs of one: what people do with it in a browser, and with git.
type forge interface {
	// hook has all webhooks be these.
	hook(all ...hook)
	// merge has a branch merged into main by a pull request, and returns the commit.
	merge(branch string) string
	// statuses are the newest of a commit, one of each context.
	statuses(commit string) []status
	// token is one of three: admin, read, which may read repositories, and write, which may write them.
	token(which string) string
}

// hook is a webhook.
type hook struct{ url, secret string }

// gitTime bounds one command of git, which takes milliseconds.
const gitTime = time.Minute

// clone is where a person works.
type clone struct {
	t     *testing.T
	dir   string
	front *front
	token string
}

// newClone makes an empty one, for the repository of a forge.
func newClone(t *testing.T, f *front, token string) *clone {
	t.Helper()
	c := &clone{t: t, dir: t.TempDir(), front: f, token: token}
	if err := os.WriteFile(filepath.Join(c.dir, ".authority"), []byte(authority(f.server)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.git("init", "--quiet", "--initial-branch=main")
	c.git("remote", "add", "origin", f.url())
	return c
}

func (c *clone) git(args ...string) string {
	c.t.Helper()
	return git(c.t, c.dir, []string{"GIT_SSL_CAINFO=" + filepath.Join(c.dir, ".authority"), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader", "GIT_CONFIG_VALUE_0=Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(owner+":"+c.token))}, args...)
}

func git(t *testing.T, dir string, environment []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), gitTime)
	defer cancel()
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	c.Env = append(append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=Ann Example", "GIT_AUTHOR_EMAIL=ann@example.com",
		"GIT_COMMITTER_NAME=Ann Example", "GIT_COMMITTER_EMAIL=ann@example.com"), environment...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// push writes a file, commits it and pushes the branch. It returns the commit.
func (c *clone) push(subject, file, content string) string {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(content), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.git("add", file)
	c.git("commit", "--quiet", "--message", subject)
	c.git("push", "--quiet", "origin", "HEAD")
	return c.git("rev-parse", "HEAD")
}

// listener hears what a forge calls, and hands on to the server what is for it.
type listener struct {
	server *httptest.Server
	to     string
	client *http.Client

	mu      sync.Mutex // guards all below
	calls   []call
	answers []int
}

// call is one that a forge made.
type call struct {
	message
	body []byte
}

// newListener hears. What is called below /hooks/ is handed on to the server at a URL.
func newListener(t *testing.T, to string, client *http.Client) *listener {
	t.Helper()
	l := &listener{to: to, client: client}
	l.server = httptest.NewTLSServer(l)
	t.Cleanup(l.server.Close)
	return l
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/hooks/") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, call{newMessage(r.Method+" "+r.URL.RequestURI(), r.Header, body.Bytes()), body.Bytes()})
		return
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, l.to+r.URL.Path, &body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request.Header = r.Header.Clone()
	answer, err := l.client.Do(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, answer.StatusCode)
	w.WriteHeader(answer.StatusCode)
}

// called waits for a call that names a commit as what was pushed.
func (l *listener) called(t *testing.T, commit string) call {
	t.Helper()
	var found call
	host.Eventually(t, gitTime, "the forge calls for commit "+commit, func() (string, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, c := range l.calls {
			if strings.Contains(string(c.body), `"after": "`+commit+`"`) {
				found = c
				return "", true
			}
		}
		return "", false
	})
	return found
}

// answered waits until the server has answered so many calls that were handed on, and returns how.
func (l *listener) answered(t *testing.T, n int) []int {
	t.Helper()
	var all []int
	host.Eventually(t, gitTime, "the forge calls", func() (string, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		all = append([]int(nil), l.answers...)
		return "", len(all) >= n
	})
	return all
}

// signature is the HMAC of a body.
func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
