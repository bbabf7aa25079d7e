package agent

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// toldFacts are those of a host of which some are refused, as the test says.
type toldFacts struct {
	changed   chan struct{}
	unwatched chan error // what cannot be watched; may be nil

	mu      sync.Mutex // guards what follows
	known   map[string]any
	refused []error
	failed  error // why they cannot be read
}

func (f *toldFacts) Collect() (func(string) (any, bool), []error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := maps.Clone(f.known)
	return func(name string) (any, bool) { x, ok := known[name]; return x, ok }, slices.Clone(f.refused), f.failed
}

func (f *toldFacts) Watch(ctx context.Context, sink func(), trouble func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			sink()
		case err := <-f.unwatched:
			trouble(err)
		}
	}
}

func (f *toldFacts) refuse(errs ...error) {
	f.mu.Lock()
	f.refused = errs
	f.mu.Unlock()
	f.changed <- struct{}{}
}

func (f *toldFacts) fail(err error) {
	f.mu.Lock()
	f.failed = err
	f.mu.Unlock()
	f.changed <- struct{}{}
}

func (f *toldFacts) know(facts map[string]any) {
	f.mu.Lock()
	f.known = facts
	f.mu.Unlock()
	f.changed <- struct{}{}
}

// TestServersKnowFacts: a change of what a host is goes to the servers when it happens, though nothing that is declared uses it.
func TestServersKnowFacts(t *testing.T) {
	s, c := joinedSite(t)
	facts := &toldFacts{changed: make(chan struct{}), known: map[string]any{"facts.os.id": "debian"}}
	s.opts.Facts = facts
	m := c.assign(nil, c.config("NodeConfig/qa/web", 500, filesOf("a")...))
	s.watch()
	r := c.settles(m, wire.Applied)
	if r.Host == nil || r.Host.Facts["os.id"] != "debian" || r.Host.Disks != nil {
		t.Errorf("told of the host: %+v", r.Host)
	}
	facts.know(map[string]any{"facts.os.id": "debian", "facts.disks": []string{"sda"}, "facts.disks['sda'].bytes": int64(1 << 40), declare.AllFacts: "another"})
	c.until("it has a disk", func(r *wire.Report) bool {
		return r.Host.Facts["disks"] == "sda" && slices.Equal(r.Host.Disks, []wire.Disk{{Name: "sda", Bytes: 1 << 40}})
	})
}

// TestRefusedFactsAreTold: what is refused of the facts is in the report for as long as it is so, though no fact has another value; it is
// shown once; and the host is converged all the same.
func TestRefusedFactsAreTold(t *testing.T) {
	s := newSite(t)
	bad := &reason.Error{Code: reason.OwnFactsMalformed, Doing: "read own facts /etc/tako/facts.d/a.yaml", Hint: "mend it"}
	facts := &toldFacts{changed: make(chan struct{}), refused: []error{bad}}
	var mu sync.Mutex
	var shown []string
	s.opts.Facts, s.opts.OnLine = facts, func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		if l.Trouble != nil {
			shown = append(shown, l.Trouble.Message)
		}
	}
	s.declare("a")
	stop := s.watch()
	told := func(codes ...reason.Code) func(*Report) bool {
		return func(r *Report) bool {
			return r.Settled && r.Converged && slices.EqualFunc(r.Degraded, codes, func(p Problem, c reason.Code) bool { return p.Code == c })
		}
	}
	r := s.until("what is refused at the start", told(reason.OwnFactsMalformed))
	if p := r.Degraded[0]; p.Hint != bad.Hint || !strings.Contains(p.Message, "a.yaml") {
		t.Errorf("told as %+v", p)
	}
	unsafe := &reason.Error{Code: reason.OwnFactsUnsafe, Doing: "read own facts /etc/tako/facts.d/b.yaml"}
	facts.refuse(bad, unsafe)
	s.until("another one", told(reason.OwnFactsMalformed, reason.OwnFactsUnsafe))
	facts.refuse(unsafe)
	s.until("one is mended", told(reason.OwnFactsUnsafe))
	stop()
	if r, running, err := local.StatusOf(t.Context(), s.opts.StateDir, false); err != nil || running || !told(reason.OwnFactsUnsafe)(r) {
		t.Errorf("without an agent: %+v, %v, %v", r, running, err)
	}
	if mu.Lock(); !slices.Equal(shown, []string{bad.Error(), unsafe.Error()}) {
		t.Errorf("shown are %q", shown)
	}
	mu.Unlock()
	facts.refused = nil
	s.watch()
	s.until("all are mended", told())
}

// TestAuditReadsFacts: a fact that has changed and that nothing told of is noticed by the next audit; what cannot be watched is told.
func TestAuditReadsFacts(t *testing.T) {
	s, c := joinedSite(t)
	facts := &toldFacts{changed: make(chan struct{}), unwatched: make(chan error), known: map[string]any{"facts.timezone": "Etc/UTC"}}
	s.opts.Facts, s.opts.Audit = facts, 50*time.Millisecond
	m := c.assign(nil, c.config("NodeConfig/qa/web", 500, filesOf("a")...))
	s.watch()
	if r := c.settles(m, wire.Applied); r.Host == nil || r.Host.Facts["timezone"] != "Etc/UTC" {
		t.Errorf("told of the host: %+v", r.Host)
	}
	facts.mu.Lock()
	facts.known = map[string]any{"facts.timezone": "Europe/Berlin"}
	facts.mu.Unlock()
	c.until("it has another zone", func(r *wire.Report) bool { return r.Host.Facts["timezone"] == "Europe/Berlin" })
	facts.unwatched <- &reason.Error{Code: reason.WatchLimit, Doing: "watch facts"}
	s.until("what is not watched is told", func(r *Report) bool {
		return slices.ContainsFunc(r.Degraded, func(p Problem) bool { return p.Code == reason.WatchLimit })
	})
}

// zones is a type of time zones that are files, and zoneFacts a host that has such a one, and tells nobody when it changes.
type (
	zones     struct{ *plain }
	zoneFacts struct {
		noFacts
		file string
	}
)

func (z zones) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	return &sheet{path: "/zone", text: d.Resource.Timezone.Zone, at: filepath.Join(z.dir, "zone")}, nil
}

func (f zoneFacts) Collect() (func(string) (any, bool), []error, error) {
	zone, err := os.ReadFile(f.file)
	return func(name string) (any, bool) { return string(zone), name == "facts.timezone" }, nil, err
}

// TestOwnChangeOfAFact: what depends on the host's zone is enforced when the agent itself has changed that.
func TestOwnChangeOfAFact(t *testing.T) {
	s := newSite(t)
	s.edit("zone", "Etc/UTC")
	s.opts.Facts, s.opts.Types[declare.TypeTimezone] = zoneFacts{file: s.path("etc/zone")}, zones{s.files}
	s.declare("a|when: facts.timezone == 'Europe/Berlin'")
	text, err := os.ReadFile(s.path("site.yaml"))
	must(t, err)
	must(t, os.WriteFile(s.path("site.yaml"), append(text, "    - name: zone\n      timezone: {zone: Europe/Berlin}\n"...), 0o600))
	s.watch()
	s.until("both are as declared", func(r *Report) bool {
		return r.Settled && r.Converged && resource(r, "file/a").Outcome == reason.Repaired
	})
	s.holds("a", "text of a")
	s.holds("zone", "Europe/Berlin")
}
