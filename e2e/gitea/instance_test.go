package gitea

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

// readyTime bounds the wait for a Gitea that answers. It takes a second.
const readyTime = time.Minute

// instance is a Gitea, with an empty repository that everybody needs a token for.
type instance struct {
	t       *testing.T
	dir     string // of its data
	program string
	config  string
	at      string // where it answers, in the clear and only to this machine
	tokens  map[string]string
}

// settings are those of app.ini that somebody who installs Gitea decides, and for the rest nothing that a test does not need.
const settings = `RUN_USER = %[1]s
RUN_MODE = prod
WORK_PATH = %[2]s
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[3]s
LOCAL_ROOT_URL = http://127.0.0.1:%[3]s/
ROOT_URL = https://%[4]s/
STATIC_ROOT_PATH = %[5]s
DISABLE_SSH = true
SSH_USER = git
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = %[2]s/gitea.db
[security]
INSTALL_LOCK = true
SECRET_KEY = %[6]s
[webhook]
ALLOWED_HOST_LIST = loopback
[log]
MODE = console
LEVEL = Warn
[indexer]
ISSUE_INDEXER_TYPE = db
[actions]
ENABLED = false
[packages]
ENABLED = false
`

// newInstance starts one behind a front. It trusts the authorities that stand in a directory, beside those of the machine.
func newInstance(t *testing.T, f *front, authorities string) *instance {
	t.Helper()
	built := program(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	at := host.FreeAddress(t)
	g := &instance{t: t, dir: t.TempDir(), program: filepath.Join(built, "gitea"), at: "http://" + at, tokens: map[string]string{}}
	g.config = filepath.Join(g.dir, "app.ini")
	text := fmt.Sprintf(settings, me.Username, g.dir, at[strings.LastIndexByte(at, ':')+1:], f.host, built, rand.Text())
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.command("migrate")
	g.command("admin", "user", "create", "--username", owner, "--email", "ops@example.com", "--admin", "--random-password")
	for which, scopes := range map[string]string{"admin": "all", "read": "read:repository", "write": "write:repository"} {
		said := strings.Fields(g.command("admin", "user", "generate-access-token", "--username", owner, "--token-name", which, "--scopes", scopes, "--raw"))
		g.tokens[which] = said[len(said)-1] // warnings stand before it
	}
	g.start(authorities)
	var version struct{ Version string }
	host.Eventually(t, readyTime, "Gitea answers", func() (string, bool) {
		err := g.ask(http.MethodGet, "/version", nil, &version)
		return fmt.Sprint(err), err == nil
	})
	if "v"+version.Version != moduleVersion {
		t.Fatalf("this is Gitea %s", version.Version)
	}
	g.must(http.MethodPost, "/user/repos", map[string]any{"name": repository, "private": true, "default_branch": "main"}, nil)
	to, err := url.Parse(g.at)
	if err != nil {
		t.Fatal(err)
	}
	f.serve(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}})
	return g
}

// command runs a command of Gitea's to its end, and returns what it prints.
func (g *instance) command(args ...string) string {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), readyTime)
	defer cancel()
	c := exec.CommandContext(ctx, g.program, append(args, "--config", g.config)...)
	c.Env = append(os.Environ(), "HOME="+g.dir)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		g.t.Fatalf("gitea %s: %v\n%s%s", strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}

// start runs it until the test ends.
func (g *instance) start(authorities string) {
	g.t.Helper()
	path := filepath.Join(g.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer log.Close()
	c := exec.CommandContext(context.Background(), g.program, "web", "--config", g.config) // it is ended below
	c.Env = append(os.Environ(), "HOME="+g.dir, "SSL_CERT_DIR="+authorities)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	var waited sync.WaitGroup
	waited.Go(func() { _ = c.Wait() }) // it is killed
	g.t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		waited.Wait()
		if g.t.Failed() {
			text, _ := os.ReadFile(path)
			g.t.Logf("Gitea said:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
}

// ask asks its API as the administrator.
func (g *instance) ask(method, path string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), readyTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, g.at+"/api/v1"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "token "+g.tokens["admin"])
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode >= 300:
		return fmt.Errorf("%s: %s", answer.Status, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

func (g *instance) must(method, path string, body, into any) {
	g.t.Helper()
	if err := g.ask(method, path, body, into); err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
}

const inRepository = "/repos/" + owner + "/" + repository

func (g *instance) hook(all ...hook) {
	g.t.Helper()
	var there []struct{ ID int }
	g.must(http.MethodGet, inRepository+"/hooks", nil, &there)
	for _, h := range there {
		g.must(http.MethodDelete, fmt.Sprintf("%s/hooks/%d", inRepository, h.ID), nil, nil)
	}
	for _, h := range all {
		g.must(http.MethodPost, inRepository+"/hooks", map[string]any{"type": "gitea", "active": true, "events": []string{"push"}, "branch_filter": "*",
			"config": map[string]string{"url": h.url, "content_type": "json", "secret": h.secret}}, nil)
	}
}

func (g *instance) merge(branch string) string {
	g.t.Helper()
	var pull struct {
		Number    int
		Mergeable bool
		Commit    string `json:"merge_commit_sha"`
	}
	g.must(http.MethodPost, inRepository+"/pulls", map[string]any{"base": "main", "head": branch, "title": "Merge " + branch}, &pull)
	at := fmt.Sprintf("%s/pulls/%d", inRepository, pull.Number)
	host.Eventually(g.t, readyTime, "the pull request may be merged", func() (string, bool) {
		g.must(http.MethodGet, at, nil, &pull)
		return "", pull.Mergeable
	})
	g.must(http.MethodPost, at+"/merge", map[string]any{"Do": "merge"}, nil)
	g.must(http.MethodGet, at, nil, &pull)
	return pull.Commit
}

func (g *instance) statuses(commit string) []status {
	g.t.Helper()
	var combined struct {
		Statuses []struct{ Status, Description, Context string }
	}
	g.must(http.MethodGet, inRepository+"/commits/"+commit+"/status", nil, &combined)
	var all []status
	for _, s := range combined.Statuses {
		all = append(all, status{s.Status, s.Description, s.Context})
	}
	return all
}

func (g *instance) token(which string) string { return g.tokens[which] }
