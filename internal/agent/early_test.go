package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// slow is plain, with something that happens while a resource is bound or just after it was looked at.
type slow struct {
	*plain
	bound, checked func()
}

func (s *slow) Bind(ctx context.Context, d host.Declared) (host.Resource, error) {
	r, err := s.plain.Bind(ctx, d)
	if err == nil && s.bound != nil {
		s.bound()
	}
	return r, err
}

func (s *slow) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := s.plain.Check(ctx, rs, depth)
	if s.checked != nil {
		s.checked()
	}
	return plans
}

// slowly lets a site have it.
func (s *site) slowly() *slow {
	t := &slow{plain: s.files}
	for kind := range s.opts.Types {
		s.opts.Types[kind] = t
	}
	return t
}

// TestDeclarationsChangeWhileTheyAreTakenIn: what is declared after the declarations were read, and before the agent has begun, counts too.
func TestDeclarationsChangeWhileTheyAreTakenIn(t *testing.T) {
	s := newSite(t)
	s.declare("a")
	s.slowly().bound = sync.OnceFunc(func() { s.declare("a", "b") })
	s.watch()
	s.until("the later one is taken in", func(r *Report) bool { return r.Settled && resource(r, "file/b").Outcome.Converged() })
	s.holds("b", "text of b")
}

// TestNewDirectoryOfDeclarations: the same of one that is put into a directory which the agent has just read for the first time.
func TestNewDirectoryOfDeclarations(t *testing.T) {
	s := newSite(t)
	dir := s.path("site")
	declare := func(name string) {
		s.declare(filepath.Base(name))
		text, err := os.ReadFile(s.path("site.yaml"))
		must(t, err)
		at := filepath.Join(dir, name+".yaml")
		must(t, os.MkdirAll(filepath.Dir(at), 0o700))
		must(t, os.WriteFile(s.path("new"), []byte(strings.ReplaceAll(string(text), "name: web", "name: web-"+filepath.Base(name))), 0o600))
		must(t, os.Rename(s.path("new"), at))
	}
	s.opts.Files = []string{dir}
	declare("a")
	held := s.slowly()
	s.watch()
	s.until("it is converged", func(r *Report) bool { return r.Converged && r.Settled })
	held.bound = sync.OnceFunc(func() { declare("sub/c") })
	declare("sub/b")
	s.until("the later one is taken in", func(r *Report) bool { return resource(r, "file/c").Title != "" })
}

// TestChangeBeforeItIsWatched: what could not be bound at first is watched only after it was looked at; what happens in between is seen.
func TestChangeBeforeItIsWatched(t *testing.T) {
	s := newSite(t)
	s.declare("a")
	s.edit("a", "text of a")
	s.files.fail("bind file/a", &reason.Error{Code: reason.UnknownOwner, Doing: "look up user app"})
	held := s.slowly()
	held.checked = sync.OnceFunc(func() { s.edit("a", "theirs") })
	s.watch()
	s.until("it is told", func(r *Report) bool { return resource(r, "file/a").Outcome == reason.Failed })
	s.files.fail("bind file/a", nil)
	s.until("it is repaired", func(r *Report) bool { return r.Settled && resource(r, "file/a").Outcome == reason.Repaired })
	s.holds("a", "text of a")
}
