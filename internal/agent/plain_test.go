package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// plain is a type of files that are written plainly, below a directory of the test, and that fails where it is told to. A service
// of it is a file that holds its state.
type plain struct {
	dir string

	mu    sync.Mutex       // guards what follows
	fails map[string]error // of Apply, by path
	calls []string         // "apply /a", "refresh /b", "remove /c", in order
}

func newPlain(dir string) *plain { return &plain{dir: dir, fails: map[string]error{}} }

// sheet is one resource of it.
type sheet struct {
	path, text string
	at         string // of the host
	seen       string
}

func (s *sheet) Watches() []host.Watch { return []host.Watch{{Kind: host.WatchPath, Name: s.at}} }

func (p *plain) call(verb, path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, verb+" "+path)
	return p.fails[verb+" "+path]
}

// fail makes a verb on a path fail from now on; nil heals it.
func (p *plain) fail(call string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails[call] = err
}

// failing is what a call is to fail with, which is not noted.
func (p *plain) failing(call string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fails[call]
}

// done lists what was called, and forgets it.
func (p *plain) done() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func (p *plain) Lane() converge.Lane { return converge.Lane{Name: "plain", Parallel: 4, Batch: 8} }

func (p *plain) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	if err := p.failing("bind " + d.Title); err != nil {
		return nil, err
	}
	if s := d.Resource.Service; s != nil {
		return &sheet{path: "/" + s.Unit, text: "running", at: filepath.Join(p.dir, s.Unit)}, nil
	}
	path := d.Resource.File.Path
	return &sheet{path: path, text: d.Resource.File.Content, at: filepath.Join(p.dir, path)}, nil
}

// read returns a file's text; of one that is not there, nothing.
func (s *sheet) read() string {
	b, _ := os.ReadFile(s.at)
	return string(b)
}

func (p *plain) Check(_ context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, r := range rs {
		s := r.(*sheet)
		have := s.read()
		plans[i] = host.Plan{Resource: r, Recognised: depth == host.Shallow && have == s.text && s.seen == have}
		p.mu.Lock()
		broken := p.fails["check "+s.path]
		p.mu.Unlock()
		switch {
		case broken != nil:
			plans[i] = host.Plan{Resource: r, Err: broken}
		case have != s.text:
			plans[i].Changes, plans[i].State = []host.Change{{Field: "content", From: have, To: s.text}}, have
		}
	}
	return plans
}

func (p *plain) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, plan := range plans {
		s := plan.Resource.(*sheet)
		if ctx.Err() != nil {
			results[i].Err = &reason.Error{Code: reason.Interrupted, Doing: "write " + s.path}
			continue
		}
		if s.read() != plan.State {
			results[i].Err = &reason.Error{Code: reason.ConcurrentEdit, Doing: "write " + s.path}
			continue
		}
		if results[i].Err = p.call("apply", s.path); results[i].Err == nil {
			results[i].Err = os.WriteFile(s.at, []byte(s.text), 0o600)
			results[i].Changed, s.seen = true, s.text
		}
	}
	return results
}

func (p *plain) Refresh(_ context.Context, r host.Resource, _ host.Stamp) (host.Refreshed, error) {
	err := p.call("refresh", r.(*sheet).path)
	return host.Refreshed{Acted: err == nil, Note: "refreshed"}, err
}

func (p *plain) Original(_ context.Context, r host.Resource) ([]byte, error) {
	return []byte(r.(*sheet).read()), nil
}

func (p *plain) Remove(_ context.Context, r host.Resource, how declare.OnRemove, original []byte) error {
	s := r.(*sheet)
	if err := p.call("remove", s.path); err != nil {
		return err
	}
	if how == declare.OnRemoveRestore && len(original) > 0 {
		return os.WriteFile(s.at, original, 0o600)
	}
	if err := os.Remove(s.at); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// TestPlainIsSound: what the other tests lean on keeps the contract of a type.
func TestPlainIsSound(t *testing.T) {
	dir := t.TempDir()
	paths := []string{"/a", "/b"}
	observe := func(_ testing.TB, i int) any { b, _ := os.ReadFile(dir + paths[i]); return string(b) }
	set := func(text string) func(testing.TB) {
		return func(t testing.TB) {
			for _, p := range paths {
				must(t, os.WriteFile(dir+p, []byte(text), 0o600))
			}
		}
	}
	s := hosttest.Subject{
		Type: newPlain(dir), Remembers: true, Gone: []any{"", ""}, Observe: observe,
		Difference: func(_ int, before, after any) []host.Change {
			return []host.Change{{Field: "content", From: before.(string), To: after.(string)}}
		},
		Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, dir) },
		Disturb:    set("edited"),
		Situations: []hosttest.Situation{{Name: "other texts", Arrange: set("old")}},
	}
	for _, p := range paths {
		s.Declared = append(s.Declared, host.Declared{Title: "file" + p, Resource: declare.Resource{File: &declare.File{Path: p, Content: "text of " + p}}})
	}
	hosttest.Run(t, s)
	if !slices.Contains(s.Type.(*plain).done(), "apply /a") {
		t.Error("nothing was applied")
	}
}
