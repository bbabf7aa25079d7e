package gitea

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// replay is a git server that calls and answers as the recording has it, and takes nothing that the recording does not have.
type replay struct {
	t      *testing.T
	front  *front
	root   string // of what git-http-backend serves
	bare   string
	client *http.Client
	says   map[string]message // the recording

	mu     sync.Mutex // guards all below
	hooks  []hook
	posted map[string][]status // by commit
}

// tokens of a recording are as long as those of Gitea.
var tokens = map[string]string{"admin": strings.Repeat("ad", 20), "read": strings.Repeat("de", 20), "write": strings.Repeat("fe", 20)}

// newReplay starts one behind a front. The client is for its calls.
func newReplay(t *testing.T, f *front, client *http.Client) *replay {
	t.Helper()
	r := &replay{t: t, front: f, root: t.TempDir(), client: client, says: map[string]message{}, posted: map[string][]status{}}
	for _, name := range []string{"push", "merge", "created", "refused-token", "refused-repository", "refused-scope", "refused-commit"} {
		r.says[name] = recorded(t, name)
	}
	r.bare = filepath.Join(r.root, owner, repository+".git")
	if err := os.MkdirAll(r.bare, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "--quiet", "--bare", "--initial-branch=main")
	r.git("config", "http.receivepack", "true")
	paths := http.NewServeMux()
	paths.HandleFunc("/"+owner+"/"+repository+".git/", r.serveGit)
	paths.HandleFunc("POST /api/v1/repos/{owner}/{name}/statuses/{commit}", r.serveStatus)
	paths.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		t.Errorf("%s %s is nothing that the recording has", request.Method, request.URL)
		http.NotFound(w, request)
	})
	f.serve(paths)
	return r
}

func (r *replay) git(args ...string) string {
	r.t.Helper()
	return git(r.t, r.bare, nil, args...)
}

// serveGit serves the repository to whom has a token, and makes the calls for what was pushed.
func (r *replay) serveGit(w http.ResponseWriter, request *http.Request) {
	_, password, _ := request.BasicAuth()
	push := strings.Contains(request.URL.String(), "git-receive-pack")
	if may := []string{tokens["admin"], tokens["write"], tokens["read"]}; !slices.Contains(may, password) || push && password == tokens["read"] {
		w.Header().Set("WWW-Authenticate", `Basic realm="Gitea"`)
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	core, err := exec.CommandContext(request.Context(), "git", "--exec-path").Output()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"), Dir: r.root, InheritEnv: []string{"PATH"}, Stderr: &bytes.Buffer{},
		Env: []string{"GIT_PROJECT_ROOT=" + r.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_PROTOCOL=" + request.Header.Get("Git-Protocol")}}
	before := r.refs(request.Context())
	backend.ServeHTTP(w, request)
	if push {
		r.call("push", before, r.refs(request.Context()))
	}
}

// refs are the branches, each with its commit.
func (r *replay) refs(ctx context.Context) map[string]string {
	out, err := exec.CommandContext(ctx, "git", "-C", r.bare, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads").Output()
	if err != nil && ctx.Err() == nil {
		r.t.Errorf("list the branches: %v", err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = commit
	}
	return all
}

// call calls all webhooks for the branches that have changed, as a call of the recording.
func (r *replay) call(name string, before, after map[string]string) {
	r.mu.Lock()
	hooks := r.hooks
	r.mu.Unlock()
	for ref, commit := range after {
		if before[ref] == commit {
			continue
		}
		for _, h := range hooks {
			m := values{"forge": r.front.host, "ref": ref, "before": before[ref], "after": commit}.concrete(r.says[name])
			mac := hmac.New(sha1.New, []byte(h.secret))
			mac.Write([]byte(m.body))
			m = values{"sha1": hex.EncodeToString(mac.Sum(nil)), "sha256": signature(h.secret, []byte(m.body))}.concrete(m)
			request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, h.url, strings.NewReader(m.body))
			if err != nil {
				r.t.Error(err)
				continue
			}
			for name, value := range m.header {
				request.Header.Set(name, value)
			}
			answer, err := r.client.Do(request)
			if err != nil {
				r.t.Errorf("call %s: %v", h.url, err)
				continue
			}
			_ = answer.Body.Close() // nothing is read of it
		}
	}
}

// serveStatus takes a status as Gitea does, and answers what it answered.
func (r *replay) serveStatus(w http.ResponseWriter, request *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(request.Body) // the front has read it before
	m := newMessage(request.Method+" "+request.URL.RequestURI(), request.Header, body.Bytes())
	names, err := r.front.names(m)
	if err != nil {
		r.t.Errorf("a status is no JSON: %v", err)
	}
	commit, s, _ := statusOf(m)
	answer := "created"
	switch {
	case names["token"] != tokens["admin"] && names["token"] != tokens["read"] && names["token"] != tokens["write"]:
		answer = "refused-token"
	case request.PathValue("owner") != owner || request.PathValue("name") != repository:
		answer = "refused-repository"
	case names["token"] == tokens["read"]:
		answer = "refused-scope"
	case exec.CommandContext(request.Context(), "git", "-C", r.bare, "cat-file", "-e", commit+"^{commit}").Run() != nil:
		answer = "refused-commit"
	default:
		r.mu.Lock()
		all := slices.DeleteFunc(r.posted[commit], func(o status) bool { return o.Context == s.Context })
		r.posted[commit] = append(all, s)
		r.mu.Unlock()
	}
	a := names.concrete(r.says[answer])
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	code, err := strconv.Atoi(a.start)
	if err != nil {
		r.t.Error(err)
	}
	w.WriteHeader(code)
	_, _ = w.Write([]byte(a.body)) // who has asked may be gone
}

func (r *replay) hook(all ...hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks = all
}

func (r *replay) merge(branch string) string {
	r.t.Helper()
	before := r.refs(r.t.Context())
	tree := r.git("merge-tree", "--write-tree", "main", branch)
	commit := r.git("commit-tree", "-p", "main", "-p", branch, "-m", "Merge "+branch, tree)
	r.git("update-ref", "refs/heads/main", commit)
	r.call("merge", before, r.refs(r.t.Context()))
	return commit
}

func (r *replay) statuses(commit string) []status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.posted[commit])
}

func (r *replay) token(which string) string { return tokens[which] }
