package bundles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	stored "tako.dev/tako/internal/apiserver/bundles"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// site is somebody who pushes to a server whose bundles are the real ones.
type site struct {
	*testing.T
	store *stored.Store
	url   string

	mu     sync.Mutex // guards what follows: a call that was broken off may still be served
	before intruder
	calls  int
	moved  int64 // bytes of all requests
}

// intruder answers a call, which has a number, in the place of the server if it returns true.
type intruder func(w http.ResponseWriter, r *http.Request, call int) bool

// set begins to count anew, with another one who comes before the server; nil is nobody.
func (s *site) set(before intruder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.calls, s.moved = before, 0, 0
}

// counted is how many calls there were, and the bytes of all requests.
func (s *site) counted() (calls int, moved int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.moved
}

// called counts a call.
func (s *site) called(r *http.Request) (intruder, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.moved += max(r.ContentLength, 0)
	return s.before, s.calls
}

func newSite(t *testing.T) *site {
	t.Helper()
	store, err := stored.New(filepath.Join(t.TempDir(), "bundles"))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, store: store}
	may := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	handler := store.Handler(may, http.NotFoundHandler())
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before, call := s.called(r); before != nil && before(w, r, call) {
			return
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "ann"})))
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx, func(context.Context) (map[string]bool, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		listening.Close()
		cancel()
		<-ended
	})
	s.url = listening.URL
	return s
}

// run runs a command.
func (s *site) run(args ...string) (string, error) {
	s.Helper()
	var out, errs bytes.Buffer
	shell := &Shell{Out: &out, Err: &errs, Connect: func() (*remote.Server, string, error) {
		server, err := remote.New(&rest.Config{Host: s.url}, remote.Options{})
		return server, "prod", err
	}}
	cmd := shell.New()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(s.Context())
	return out.String(), err
}

// push pushes files, and returns what came of it.
func (s *site) push(args ...string) pushed {
	s.Helper()
	out, err := s.run(append([]string{"push", "-o", "json"}, args...)...)
	if err != nil {
		s.Fatal(err)
	}
	var p pushed
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		s.Fatal(err)
	}
	return p
}

// value is that of a key in a bundle on the server.
func (s *site) value(digest, key string) string {
	s.Helper()
	root, err := bundle.ParseDigest(digest)
	if err != nil {
		s.Fatal(err)
	}
	b, trie, err := s.store.Open(root)
	if err != nil {
		s.Fatal(err)
	}
	at := catalog.KeyOf(catalog.DataClaim(key))
	of, _, err := trie.Get(at)
	if err != nil {
		s.Fatal(err)
	}
	body, ok := b.Body(of)
	if !ok {
		return "absent"
	}
	d, err := catalog.DecodeBody(at, body)
	if err != nil {
		s.Fatal(err)
	}
	return string(d.Resource.Data.Bytes())
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// lines are entries, one on each line.
func lines(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"key\": \"k/%d\", \"value\": %q}\n", i, value)
	}
	return b.String()
}

// TestPush: the first push moves everything, the same again nothing, and one after a change the change.
func TestPush(t *testing.T) {
	s := newSite(t)
	const n = 20_000
	file := write(t, t.TempDir(), "k.jsonl", lines(n, strings.Repeat("v", 100)))
	first := s.push(file)
	if first.Entries != n || first.Moved.Changes != n || first.Moved.Bytes < first.Bytes {
		t.Errorf("%+v", first)
	}
	if got := s.value(first.Digest, "k/77"); got != strings.Repeat("v", 100) {
		t.Errorf("%q", got)
	}
	s.set(nil)
	again := s.push(file)
	if calls, _ := s.counted(); again.Digest != first.Digest || again.Moved != (moved{}) || calls != 1 {
		t.Errorf("the same again: %+v in %d calls", again, calls)
	}
	write(t, filepath.Dir(file), "k.jsonl", strings.Replace(lines(n, strings.Repeat("v", 100)), `"k/77", "value": "v`, `"k/77", "value": "w`, 1))
	s.set(nil)
	second := s.push(file)
	if calls, moved := s.counted(); second.Digest == first.Digest || second.Moved.Changes != 1 || second.Moved.Bytes > 400 || moved > 3000 || calls > 12 {
		t.Errorf("one change: %+v, %d bytes in %d calls", second, moved, calls)
	}
	if got := s.value(second.Digest, "k/77"); got != "w"+strings.Repeat("v", 99) {
		t.Errorf("%q", got)
	}
	out, err := s.run("push", file)
	if err != nil || !strings.Contains(out, fmt.Sprintf("bundle: {digest: %q}", second.Digest)) {
		t.Errorf("%s, %v", out, err)
	}
	if whole := s.push("--whole", file); whole.Digest != second.Digest {
		t.Errorf("%+v", whole)
	}
}

// TestForms: the digest is that of the entries, whatever form and order they are written in.
func TestForms(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	inLines := write(t, dir, "a.jsonl", "{\"key\":\"b\",\"value\":\"2\"}\n\n{\"base64\":\"AAE=\",\"key\":\"c\"}\r\n{\"key\":\"a\"}")
	declared := write(t, dir, "a.yaml", `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: values}
spec:
  resources:
    - name: one
      data: {key: a}
    - name: two
      data: {key: c, base64: AAE=}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: more}
spec:
  resources:
    - {name: three, data: {key: b, value: "2"}}
`)
	first, second := s.push(inLines), s.push(declared)
	if first.Digest != second.Digest || first.Entries != 3 {
		t.Errorf("%+v, %+v", first, second)
	}
	if got := s.value(first.Digest, "c"); got != "\x00\x01" {
		t.Errorf("%q", got)
	}
	limited := s.push(write(t, dir, "ttl.jsonl", "{\"key\":\"b\",\"value\":\"2\"}\n{\"base64\":\"AAE=\",\"key\":\"c\",\"ttl\":\"6h\"}\n{\"key\":\"a\"}"))
	text, err := os.ReadFile(declared)
	if err != nil {
		t.Fatal(err)
	}
	same := s.push(write(t, dir, "ttl.yaml", strings.Replace(string(text), "base64: AAE=}", "base64: AAE=}\n      ttl: 6h", 1)))
	if limited.Digest != same.Digest || limited.Digest == first.Digest {
		t.Errorf("with a ttl %+v, %+v; without %+v", limited, same, first)
	}
	if _, err := s.run("push", write(t, dir, "wrong.jsonl", "{\"key\":\"a\",\"ttl\":\"1h\"}")); err == nil || !strings.Contains(err.Error(), "shorter than 2h") {
		t.Errorf("a ttl of an hour: %v", err)
	}
	apart := t.TempDir()
	write(t, apart, "x.jsonl", "{\"key\":\"a\"}\n{\"key\":\"c\",\"base64\":\"AAE=\"}\n")
	write(t, apart, "y.yml", "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: b}\nspec:\n  resources:\n  - {name: b, data: {key: b, value: '2'}}\n")
	write(t, apart, "README.md", "no entries")
	if third := s.push(apart); third.Digest != first.Digest {
		t.Errorf("%+v", third)
	}
}

// TestMistakes: each is told with its place, and nobody is asked.
func TestMistakes(t *testing.T) {
	s := newSite(t)
	s.set(func(http.ResponseWriter, *http.Request, int) bool { t.Error("the server is asked"); return false })
	dir := t.TempDir()
	config := func(resources string) string {
		return "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: a}\nspec:\n  resources:\n" + resources
	}
	for what, c := range map[string]struct{ name, text, want string }{
		"no JSON":          {"a.jsonl", "{\"key\":\"a\"}\nhello\n", "TK0414 a.jsonl:2"},
		"an unknown field": {"a.jsonl", "{\"key\":\"a\",\"valeu\":\"1\"}\n", "TK0414 a.jsonl:1"},
		"no key":           {"a.jsonl", "{\"value\":\"a\"}\n", "TK0414 a.jsonl:1"},
		"two on a line":    {"a.jsonl", "{\"key\":\"a\"} {\"key\":\"b\"}\n", "TK0414 a.jsonl:1"},
		"one key twice":    {"a.jsonl", "{\"key\":\"a\"}\n{\"key\":\"b\"}\n{\"key\":\"a\",\"value\":\"x\"}\n", "TK0421 a.jsonl:3 first a.jsonl:1"},
		"a long line":      {"a.jsonl", strings.Repeat(" ", lineBytesMax+10), "TK0429 a.jsonl:1"},
		"a large value":    {"a.jsonl", "{\"key\":\"a\",\"value\":\"" + strings.Repeat("x", 1<<20) + "\"}", "TK0429 a.jsonl:1"},
		"a file":           {"a.yaml", config("  - name: f\n    file: {path: /f}\n"), "TK0415 a.yaml:6"},
		"no YAML":          {"a.yaml", config("  - name: f\n    flie: {path: /f}\n"), "TK0412 a.yaml:7"},
	} {
		p := write(t, dir, c.name, c.text)
		_, err := s.run("push", p)
		var refused *failure.Refused
		if !errors.As(err, &refused) || len(refused.Faults) == 0 {
			t.Errorf("%s: %v", what, err)
			continue
		}
		f := refused.Faults[0]
		got := fmt.Sprintf("%s %s:%d", f.Code, filepath.Base(f.File), f.Line)
		if len(f.Related) > 0 {
			got += fmt.Sprintf(" first %s:%d", filepath.Base(f.Related[0].File), f.Related[0].Line)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s: %s", what, got, c.want, f.Message)
		}
	}
	good := write(t, dir, "b.jsonl", "{\"key\":\"a\"}\n")
	for what, args := range map[string][]string{
		"no file": {"push", dir + "/none"}, "nothing in it": {"push", t.TempDir()}, "a format": {"push", good, "-o", "yaml"}, "no config": {"push", good, "--set", "node/a"},
		"a config of a namespace for the cluster": {"push", good, "--set", "nodeconfig/a", "--cluster"}, "nothing": {"push"},
	} {
		if _, err := s.run(args...); err == nil {
			t.Errorf("%s is pushed", what)
		}
	}
}

// TestBrokenLine: whatever call fails, the next push goes on where that one was.
func TestBrokenLine(t *testing.T) {
	file := write(t, t.TempDir(), "k.jsonl", lines(60_000, strings.Repeat("v", 100))) // five pieces
	for _, fails := range []int{1, 4} {
		s := newSite(t)
		s.set(func(_ http.ResponseWriter, _ *http.Request, call int) bool {
			if call == fails {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		_, _ = s.run("push", file) // the library may have made the call again
		s.set(nil)
		if p := s.push(file); p.Entries != 60_000 || fails > 3 && p.Moved.Bytes > p.Bytes+60_000*4+100-pieceMax {
			t.Errorf("after call %d: %+v", fails, p)
		}
	}
}

// TestBusy: a server that is busy is asked again, and one that says the same for ever is not asked for ever.
func TestBusy(t *testing.T) {
	s := newSite(t)
	file := write(t, t.TempDir(), "k.jsonl", lines(10, "v"))
	s.set(func(w http.ResponseWriter, r *http.Request, call int) bool {
		if call != 3 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"message":"busy","details":{"causes":[{"reason":"`+reason.TransferBusy.String()+`","message":"busy"}]}}`)
		return true
	})
	if p := s.push(file); p.Entries != 10 {
		t.Errorf("%+v", p)
	}
	s.set(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"here": false, "offset": 7}`)
		return true
	})
	_, err := s.run("push", write(t, t.TempDir(), "l.jsonl", lines(11, "v")))
	if calls, _ := s.counted(); err == nil || calls > 20 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestBaseIsGone: a bundle that was collected between two calls is no reason to fail.
func TestBaseIsGone(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	first := s.push(write(t, dir, "a.jsonl", lines(1000, "v")))
	root, err := bundle.ParseDigest(first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	gone := false
	s.set(func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		if r.Method == http.MethodPatch && !gone {
			gone = true
			if err := s.store.Remove(root); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	second := s.push(write(t, dir, "b.jsonl", lines(1001, "v")))
	if !gone || second.Moved.Changes != 1001 {
		t.Errorf("%+v", second)
	}
}
