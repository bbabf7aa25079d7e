package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// toldFacts are those of a host of which some are refused, as the test says.
type toldFacts struct {
	changed chan struct{}

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

func (f *toldFacts) Watch(ctx context.Context, sink func()) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.changed:
			sink()
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
