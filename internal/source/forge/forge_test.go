package forge

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	token  = "ghp_canary"
	commit = "0123456789abcdef0123456789abcdef01234567"
)

// contract is a forge that takes what its documentation says, and tells what it does not like.
func contract(t *testing.T, kind Kind) http.Handler {
	mux := http.NewServeMux()
	at, state := "/api/repos/octo/fleet/statuses/{commit}", "failure"
	if kind == GitLab {
		at, state = "/api/projects/{id}/statuses/{commit}", "failed"
	}
	mux.HandleFunc("POST "+at, func(w http.ResponseWriter, r *http.Request) {
		want := map[string]string{"Content-Type": "application/json", "User-Agent": "tako"}
		switch kind {
		case GitHub: // docs.github.com/rest/commits/statuses, API version 2022-11-28
			want["Accept"], want["X-Github-Api-Version"], want["Authorization"] = "application/vnd.github+json", "2022-11-28", "Bearer "+token
		case GitLab: // docs.gitlab.com/api/commits, "Set the pipeline status of a commit"; the project by its path, URL-encoded
			want["Accept"], want["Private-Token"], want["Authorization"] = "application/json", token, ""
			if got := r.URL.EscapedPath(); r.PathValue("id") != "octo/deep/fleet" || !strings.HasPrefix(got, "/api/projects/octo%2Fdeep%2Ffleet/") {
				t.Errorf("the project is at %s", got)
			}
		case Gitea: // the OpenAPI document of Gitea: repoCreateStatus, AuthorizationHeaderToken
			want["Accept"], want["Authorization"] = "application/json", "token "+token
		}
		for name, value := range want {
			if got := r.Header.Get(name); got != value {
				t.Errorf("%s: header %s is %q, want %q", kind, name, got, value)
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var got map[string]string
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%s: %v: %s", kind, err, body)
		}
		if r.PathValue("commit") != commit || got["state"] != state || got["context"] != "tako/prod/site" || got["target_url"] != "https://tako.example/x" ||
			len([]rune(got["description"])) != 140 || !strings.HasPrefix(got["description"], "a.yaml:3:5 is wrong ü") || len(got) != 4 {
			t.Errorf("%s: %s", kind, body)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id": 1}`)
	})
	return mux
}

func target(kind Kind, api string) Target {
	x := Target{Kind: kind, API: api, Owner: "octo", Name: "fleet", Commit: commit, Token: token}
	if kind == GitLab {
		x.Owner = "octo/deep"
	}
	return x
}

func TestPost(t *testing.T) {
	for _, kind := range []Kind{GitHub, GitLab, Gitea} {
		server := httptest.NewServer(contract(t, kind))
		defer server.Close()
		status := Status{State: Failure, Description: "a.yaml:3:5 is\n wrong " + strings.Repeat("ü", 200), Context: "tako/prod/site", TargetURL: "https://tako.example/x"}
		if err := New(Options{}).Post(t.Context(), target(kind, server.URL+"/api/"), status); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestAnswers: each answer has a code, says when to come back, and shows no token, also where the forge repeats it.
func TestAnswers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		status int
		header map[string]string
		code   reason.Code
		after  time.Duration
	}{
		"token refused": {401, nil, reason.ForgeRefused, 0},
		"not allowed":   {403, nil, reason.ForgeRefused, 0},
		"not found":     {404, nil, reason.ForgeRefused, 0},
		"invalid":       {422, nil, reason.ForgeRefused, 0},
		"redirect":      {307, map[string]string{"Location": elsewhere.URL}, reason.ForgeRefused, 0},
		"too many":      {429, map[string]string{"Retry-After": "7"}, reason.ForgeUnreachable, 7 * time.Second},
		"secondary":     {403, map[string]string{"Retry-After": "60"}, reason.ForgeUnreachable, time.Minute},
		"by the hour":   {403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}, reason.ForgeUnreachable, time.Hour},
		"in the past":   {429, map[string]string{"Retry-After": "Mon, 02 Jan 2006 15:04:05 GMT"}, reason.ForgeUnreachable, 0},
		"broken":        {502, nil, reason.ForgeUnreachable, 0},
		"later":         {503, map[string]string{"Retry-After": "no number"}, reason.ForgeUnreachable, 0},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for k, v := range c.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(c.status)
			fmt.Fprintf(w, `{"message": "no: %s"}`, r.Header.Get("Authorization"))
		}))
		err := New(Options{}).Post(t.Context(), target(GitHub, server.URL), Status{State: Pending})
		server.Close()
		e := reason.Of(err)
		if err == nil || e.Code != c.code || e.After != c.after {
			t.Errorf("%s: %v, %v after %v", name, e.Code, err, e.After)
		}
		if all := fmt.Sprintf("%v %+v %#v", err, *e, *e); strings.Contains(all, "canary") || !strings.Contains(e.Evidence, "no: Bearer …") {
			t.Errorf("%s: %s", name, all)
		}
	}
}

// TestAlready: that GitLab does not take a state twice is no failure; that it does not go from one to another is one.
func TestAlready(t *testing.T) {
	said := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": said})
	}))
	defer server.Close()
	for _, c := range []struct {
		kind  Kind
		state State
		said  string
		taken bool
	}{
		{GitLab, Pending, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`, true},
		{GitLab, Failure, `Cannot transition status via :drop from :failed`, true},
		{GitLab, Pending, `Cannot transition status via :enqueue from :running (Reason(s): Status cannot transition via "enqueue")`, false},
		{GitLab, Pending, `state does not have a valid value`, false},
		{Gitea, Pending, `Cannot transition status via :enqueue from :pending`, false},
	} {
		said = c.said
		err := New(Options{}).Post(t.Context(), target(c.kind, server.URL), Status{State: c.state})
		if c.taken && err != nil || !c.taken && !reason.Is(err, reason.ForgeRefused) {
			t.Errorf("%s, %s, %q: %v", c.kind, c.state, c.said, err)
		}
	}
}

// TestUnreachable: nobody there, and one who does not answer.
func TestUnreachable(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	err := New(Options{Timeout: 50 * time.Millisecond}).Post(t.Context(), target(GitHub, server.URL), Status{State: Success})
	if !reason.Is(err, reason.ForgeUnreachable) || strings.Contains(err.Error(), "canary") {
		t.Errorf("a forge that hangs: %v", err)
	}
	close(release)
	server.Close()
	if err := New(Options{}).Post(t.Context(), target(GitHub, server.URL), Status{State: Success}); !reason.Is(err, reason.ForgeUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	if err := New(Options{}).Post(t.Context(), target(GitHub, secure.URL), Status{State: Success}); !reason.Is(err, reason.ForgeUnreachable) || reason.Of(err).Hint == "" {
		t.Errorf("an unknown authority: %v", err)
	}
	trusting := target(GitHub, secure.URL)
	trusting.Authorities = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := New(Options{}).Post(t.Context(), trusting, Status{State: Success}); !reason.Is(err, reason.ForgeRefused) {
		t.Errorf("an authority that is named: %v", err) // it is asked, and knows nothing
	}
	trusting.Authorities = []byte("none")
	if err := New(Options{}).Post(t.Context(), trusting, Status{State: Success}); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("an authority that is none: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(Options{}).Post(ctx, target(GitHub, secure.URL), Status{State: Success}); err == nil {
		t.Error("cancelled, and posted")
	}
}

func TestInvalid(t *testing.T) {
	good := Status{State: Success}
	for name, c := range map[string]struct {
		change func(*Target)
		status Status
	}{
		"kind":        {func(x *Target) { x.Kind = "bitbucket" }, good},
		"plain http":  {func(x *Target) { x.API = "http://forge.example" }, good},
		"credentials": {func(x *Target) { x.API = "https://user:pass@forge.example" }, good},
		"query":       {func(x *Target) { x.API = "https://forge.example?a=b" }, good},
		"no address":  {func(x *Target) { x.API = "forge" }, good},
		"owner":       {func(x *Target) { x.Owner = "../x" }, good},
		"dots":        {func(x *Target) { x.Name = ".." }, good},
		"no name":     {func(x *Target) { x.Name = "" }, good},
		"commit":      {func(x *Target) { x.Commit = "main" }, good},
		"short":       {func(x *Target) { x.Commit = "0123456" }, good},
		"no token":    {func(x *Target) { x.Token = "" }, good},
		"two lines":   {func(x *Target) { x.Token = "canary\r\nX: y" }, good},
		"state":       {func(*Target) {}, Status{State: "great"}},
		"target":      {func(*Target) {}, Status{State: Success, TargetURL: "javascript:alert(1)"}},
	} {
		x := target(GitHub, "https://forge.example")
		c.change(&x)
		if err := New(Options{}).Post(t.Context(), x, c.status); !reason.Is(err, reason.InvalidValue) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := fmt.Sprintf("%v %+v %#v %s", target(GitHub, ""), target(GitHub, ""), target(GitHub, ""), Token(token)); strings.Contains(all, "canary") {
		t.Error(all)
	}
}

func TestRepository(t *testing.T) {
	for cloneURL, want := range map[string]string{"https://gitlab.example/octo/deep/fleet.git": "octo/deep/fleet", "git@gitlab.example:octo/fleet.git": "octo/fleet", "https://gitlab.example/octo//fleet": "/", "/srv/a/b/c": "/"} {
		owner, name, err := Repository(GitLab, cloneURL)
		if err == nil { // what is between is looked at with the rest of the target
			x := target(GitLab, "https://gitlab.example/api/v4")
			x.Owner, x.Name = owner, name
			_, err = x.address()
		}
		if err != nil {
			owner, name = "", ""
		}
		if owner+"/"+name != want {
			t.Errorf("%q is %s/%s at GitLab (%v)", cloneURL, owner, name, err)
		}
	}
	for cloneURL, want := range map[string]string{
		"https://github.example/octo/fleet.git": "octo/fleet", "ssh://git@github.example:22/octo/fleet": "octo/fleet", "git@github.example:octo/fleet.git": "octo/fleet",
		"https://host.example/below/octo/fleet/": "octo/fleet", "https://github.example/fleet": "/", "/srv/git/fleet": "/", "": "/", "file:///srv/fleet": "/",
	} {
		if owner, name, err := Repository(GitHub, cloneURL); owner+"/"+name != want || (err != nil) != (want == "/") {
			t.Errorf("%q is %s/%s (%v)", cloneURL, owner, name, err)
		}
	}
}

func FuzzRepository(f *testing.F) {
	f.Add("git@github.example:octo/fleet.git", "v1")
	f.Add("https://gitlab.example/a/b/c.git", "")
	f.Fuzz(func(t *testing.T, cloneURL, name string) {
		in := target(GitLab, "https://forge.example/api/v4")
		in.Owner, in.Name, _ = Repository(GitLab, cloneURL)
		if r, err := NewRequest(t.Context(), in, Status{State: Success}); err == nil && (strings.Count(r.URL.EscapedPath(), "/") != 6 || !strings.HasPrefix(r.URL.Path, "/api/v4/projects/") || r.URL.Host != "forge.example" || r.URL.RawQuery != "") {
			t.Errorf("%q becomes %s", cloneURL, r.URL)
		}
		x := target(Gitea, "https://forge.example/api/v1")
		if x.Owner, x.Name, _ = Repository(Gitea, cloneURL); name != "" {
			x.Name = name
		}
		r, err := NewRequest(t.Context(), x, Status{State: Success})
		if err == nil && (!strings.HasPrefix(r.URL.Path, "/api/v1/repos/") || strings.Count(r.URL.Path, "/") != 7 || r.URL.Host != "forge.example" || r.URL.RawQuery != "") {
			t.Errorf("%q, %q become %s", cloneURL, name, r.URL)
		}
	})
}
