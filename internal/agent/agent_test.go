package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noFacts is a host that has none, and never gets any.
type noFacts struct{}

func (noFacts) Collect() (func(string) (any, bool), []error, error) {
	return func(string) (any, bool) { return nil, false }, nil, nil
}

func (noFacts) Watch(ctx context.Context, _ func(), _ func(error)) { <-ctx.Done() }

// site is a host in a directory: its files, its declaration, its state.
type site struct {
	t     *testing.T
	dir   string // with etc, state and site.yaml
	files *plain
	opts  Options
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	must(t, os.Mkdir(s.path("etc"), 0o755))
	root, err := disk.OpenRoot("/")
	must(t, err)
	t.Cleanup(func() { root.Close() })
	s.files = newPlain(s.path("etc"))
	s.opts = Options{Files: []string{s.path("site.yaml")}, StateDir: s.path("state"), NodeName: "web-1", Root: root, Facts: noFacts{},
		Types: map[declare.ResourceType]host.Type{declare.TypeFile: s.files, declare.TypeService: s.files}}
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// declare writes the declaration: one file resource for each name, with further lines after it: "a", "b|require: [a]". A name
// that ends in .service is a service.
func (s *site) declare(resources ...string) {
	s.t.Helper()
	text := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n"
	for _, r := range resources {
		name, more, _ := strings.Cut(r, "|")
		body := fmt.Sprintf("file: {path: /%s, content: text of %s}", name, name)
		if strings.HasSuffix(name, ".service") {
			body = fmt.Sprintf("service: {unit: %s}", name)
		}
		text += fmt.Sprintf("    - name: %s\n      %s\n", name, body)
		if more != "" {
			text += "      " + strings.ReplaceAll(more, "|", "\n      ") + "\n"
		}
	}
	// Whole or not at all, as somebody with sense would.
	must(s.t, os.WriteFile(s.path("new"), []byte(text), 0o600))
	must(s.t, os.Rename(s.path("new"), s.path("site.yaml")))
}

// edit is somebody else's hand on a file: one change, not a truncation and a write.
func (s *site) edit(name, text string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.path("edit"), []byte(text), 0o600))
	must(s.t, os.Rename(s.path("edit"), s.path("etc/"+name)))
}

func (s *site) holds(name, text string) {
	s.t.Helper()
	if b, err := os.ReadFile(s.path("etc/" + name)); err != nil && text != "" || string(b) != text {
		s.t.Errorf("%s holds %q, %v; want %q", name, b, err, text)
	}
}

// converge runs the agent once.
func (s *site) converge() error {
	s.t.Helper()
	a, err := New(s.opts)
	must(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	return a.Run(ctx)
}

// watch runs the agent for the time of the test, or until the function that it returns is called.
func (s *site) watch() (stop func()) {
	s.t.Helper()
	opts := s.opts
	opts.Watch = true
	a, err := New(opts)
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = func() {
		s.t.Helper()
		cancel()
		err := <-ended
		ended <- nil
		if err != nil {
			s.t.Errorf("the agent ended with %v", err)
		}
	}
	s.t.Cleanup(stop)
	s.until("it answers", func(*Report) bool { return true })
	return stop
}

// until waits for a state of the running agent.
func (s *site) until(what string, is func(*Report) bool) *Report {
	s.t.Helper()
	deadline := time.After(time.Minute)
	for {
		r, running, err := local.StatusOf(s.t.Context(), s.opts.StateDir, true)
		if err == nil && running && is(r) {
			return r
		}
		select {
		case <-deadline:
			s.t.Fatalf("%s: not reached: %+v, running %v, %v", what, r, running, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// resource finds one in a report.
func resource(r *Report, title string) Resource {
	for _, res := range r.Resources {
		if res.Title == title {
			return res
		}
	}
	return Resource{}
}

func TestOneRun(t *testing.T) {
	s := newSite(t)
	s.declare("a", "b.service|require: [a]", "c|notify: [b.service]")
	s.edit("c", "theirs")
	must(t, s.converge())
	s.holds("a", "text of a")
	s.holds("b.service", "running")
	s.holds("c", "text of c")
	if got := fmt.Sprint(s.files.done()); got != "[apply /a apply /c apply /b.service refresh /b.service]" && got != "[apply /c apply /a apply /b.service refresh /b.service]" {
		t.Errorf("did %s", got)
	}
	// Three files were written and one service was refreshed.
	r, running, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	if err != nil || running || !r.Converged || !r.Settled || r.Counts[reason.Repaired] != 3 || r.Totals.Change != 4 || r.Node != "web-1" {
		t.Errorf("report %+v, running %v, %v", r, running, err)
	}
	h, err := local.HistoryOf(s.opts.StateDir, store.Asked{Subject: "c"})
	if err != nil || len(h) != 1 || h[0].Code != reason.RepairedChange.String() || !slices.Equal(h[0].Changes, []string{"content theirs -> text of c"}) {
		t.Errorf("history of c: %+v, %v", h, err)
	}

	must(t, s.converge())
	if calls := s.files.done(); calls != nil {
		t.Errorf("a second run did %v", calls)
	}
	s.edit("a", "theirs")
	must(t, s.converge())
	h, err = local.HistoryOf(s.opts.StateDir, store.Asked{Subject: "a", Limit: 1})
	if err != nil || len(h) != 1 || h[0].Code != reason.RepairedDrift.String() {
		t.Errorf("what had been converged and was edited is not called drift: %+v, %v", h, err)
	}
}

func TestFailureIsToldAndTriedAgain(t *testing.T) {
	s := newSite(t)
	s.declare("a", "b|require: [a]", "c")
	full := &reason.Error{Code: reason.DiskFull, Doing: "write /a", Hint: "free space"}
	s.files.fail("apply /a", full)
	err := s.converge()
	if !reason.Is(err, reason.NotConverged) || !strings.Contains(err.Error(), "file/a") {
		t.Errorf("verdict %v", err)
	}
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	must(t, err)
	a, b := resource(r, "file/a"), resource(r, "file/b")
	if a.Outcome != reason.Failed || a.Problem.Code != reason.DiskFull || a.Problem.Hint != full.Hint || a.Attempts == 0 || r.Resources[0].Title != "file/a" {
		t.Errorf("a: %+v", a)
	}
	if b.Outcome != reason.Blocked || b.BlockedBy != "file/a" || b.Problem.Code != reason.BlockedBy {
		t.Errorf("b: %+v", b)
	}
	s.holds("c", "text of c")
	s.holds("b", "")
	why, running, err := local.WhyOf(t.Context(), s.opts.StateDir, "/a")
	if err != nil || running || why.Resource.Problem == nil || why.Resource.Problem.Code != reason.DiskFull || len(why.History) == 0 {
		t.Errorf("why, from the disk: %+v, running %v, %v", why, running, err)
	}
	s.files.fail("apply /a", nil)
	must(t, s.converge())
	s.holds("b", "text of b")
}

func TestWhatLeavesIsUndone(t *testing.T) {
	s := newSite(t)
	s.edit("restored", "before")
	s.declare("kept", "deleted|onRemove: delete", "restored|onRemove: restore", "stubborn|onRemove: delete")
	must(t, s.converge())
	s.declare("other")
	s.files.fail("remove /stubborn", &reason.Error{Code: reason.TypeInTheWay, Doing: "remove /stubborn"})
	if err := s.converge(); !reason.Is(err, reason.NotConverged) {
		t.Errorf("verdict with a removal that fails: %v", err)
	}
	s.holds("kept", "text of kept")
	s.holds("deleted", "")
	s.holds("restored", "before")
	s.holds("stubborn", "text of stubborn")
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	must(t, err)
	if left := resource(r, "file/stubborn"); left.Removal != "delete" || left.Outcome != reason.Failed || len(r.Resources) != 2 {
		t.Errorf("listed %+v", r.Resources)
	}
	s.files.fail("remove /stubborn", nil)
	s.files.done()
	must(t, s.converge())
	if calls := s.files.done(); !slices.Equal(calls, []string{"remove /stubborn"}) {
		t.Errorf("in the end did %v", calls)
	}
}

// TestRemovalIsBoundAgain: what is to be undone, and could not even be made ready when it left the declaration, is tried again.
func TestRemovalIsBoundAgain(t *testing.T) {
	s := newSite(t)
	s.declare("other", "gone|onRemove: delete")
	must(t, s.converge())
	s.declare("other")
	s.files.fail("bind file/gone", &reason.Error{Code: reason.UnknownOwner, Doing: "look up user app"})
	s.watch()
	s.until("it is told", func(r *Report) bool { return resource(r, "file/gone").Outcome == reason.Failed })
	s.holds("gone", "text of gone")
	s.files.fail("bind file/gone", nil)
	s.until("it is undone", func(r *Report) bool { return r.Converged })
	s.holds("gone", "")
}

// TestOwedRefreshSurvivesTheProcess: a refresh that failed is made by the next one, though nothing changes any more.
func TestOwedRefreshSurvivesTheProcess(t *testing.T) {
	s := newSite(t)
	s.declare("a|notify: [b.service]", "b.service")
	s.files.fail("refresh /b.service", &reason.Error{Code: reason.UnitJobFailed, Doing: "restart b"})
	if err := s.converge(); err == nil {
		t.Fatal("converged although a refresh failed")
	}
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	must(t, err)
	if b := resource(r, "service/b.service"); !slices.Equal(b.Owes, []string{"file/a"}) {
		t.Errorf("b owes %v", b.Owes)
	}
	s.files.done()
	s.files.fail("refresh /b.service", nil)
	must(t, s.converge())
	if calls := s.files.done(); !slices.Equal(calls, []string{"refresh /b.service"}) {
		t.Errorf("the next process did %v", calls)
	}
	must(t, s.converge())
	if calls := s.files.done(); calls != nil {
		t.Errorf("and the one after it %v", calls)
	}
}

func TestDriftIsRepairedAndAFightIsTold(t *testing.T) {
	s := newSite(t)
	s.declare("a", "b")
	stop := s.watch()
	s.until("converged", func(r *Report) bool { return r.Converged && r.Settled })
	s.edit("a", "theirs")
	r := s.until("repaired", func(r *Report) bool { return r.Totals.Drift == 1 && r.Settled })
	s.holds("a", "text of a")
	if a := resource(r, "file/a"); a.Outcome != reason.Repaired || a.Detail != reason.Drift || r.Totals.Missed != 0 {
		t.Errorf("a: %+v, totals %+v", a, r.Totals)
	}
	// The brake: five repairs in a minute are a fight. What is fought over stays as the other left it.
	for i := range 10 {
		s.edit("b", fmt.Sprint("theirs ", i))
		r = s.until("answered", func(r *Report) bool {
			b, err := os.ReadFile(s.path("etc/b"))
			return r.Settled && (resource(r, "file/b").Outcome == reason.Contended || err == nil && string(b) == "text of b")
		})
		if resource(r, "file/b").Outcome == reason.Contended {
			break
		}
	}
	b := resource(r, "file/b")
	if b.Outcome != reason.Contended || b.RetryAt.IsZero() || r.Converged || r.Counts[reason.Repaired] != 1 {
		t.Errorf("b: %+v of %+v", b, r.Counts)
	}
	stop()
	// The hold-off outlives the process.
	s.files.done()
	s.edit("b", "theirs again")
	s.watch()
	r = s.until("looked at", func(r *Report) bool { return r.Settled })
	if calls := s.files.done(); slices.Contains(calls, "apply /b") || resource(r, "file/b").Outcome == reason.Kept {
		t.Errorf("after a restart did %v, and b is %+v", calls, resource(r, "file/b"))
	}
}

func TestNewestDeclarationIsRefusedAndTheLastGoodEnforced(t *testing.T) {
	s := newSite(t)
	s.declare("a")
	stop := s.watch()
	s.until("converged", func(r *Report) bool { return r.Converged && r.Settled })
	must(t, os.WriteFile(s.path("site.yaml"), []byte("kind: Nonsense\n"), 0o600))
	r := s.until("refused", func(r *Report) bool { return len(r.Refused) > 0 })
	if r.Converged || r.Counts[reason.Repaired] != 1 || !strings.Contains(r.Refused[0].Message, "site.yaml:1") {
		t.Errorf("report %+v", r)
	}
	stop()
	s.edit("a", "theirs")
	s.watch()
	s.until("enforced after a restart", func(r *Report) bool { return len(r.Refused) > 0 && r.Settled && r.Counts[reason.Unknown] == 0 })
	s.holds("a", "text of a")
	s.declare("a", "b")
	s.until("accepted", func(r *Report) bool { return len(r.Refused) == 0 && r.Converged && r.Settled && len(r.Resources) == 2 })
	s.holds("b", "text of b")
}

func TestQuestionsToARunningAgent(t *testing.T) {
	s := newSite(t)
	s.declare("a", "b|require: [a]", "c|require: [b]", "off|when: node.labels['role'] == 'db'")
	s.files.fail("apply /a", &reason.Error{Code: reason.DiskFull, Doing: "write /a"})
	s.watch()
	s.until("failed", func(r *Report) bool { return r.Counts[reason.Failed] == 1 && r.Counts[reason.Blocked] == 2 })
	a, running, err := local.WhyOf(t.Context(), s.opts.StateDir, "c")
	if err != nil || !running || len(a.Because) != 2 || a.Because[1].Title != "file/a" || a.Because[1].Problem.Code != reason.DiskFull {
		t.Errorf("why c: %+v, running %v, %v", a, running, err)
	}
	if len(a.Requires) != 1 || a.Requires[0].Title != "file/b" || !a.Watched {
		t.Errorf("what c comes after: %+v, watched %v", a.Requires, a.Watched)
	}
	if a, _, err = local.WhyOf(t.Context(), s.opts.StateDir, "file/off"); err != nil || a.Resource.Outcome != reason.NotApplicable || a.Resource.Problem.Code != reason.WhenFalse || a.Watched {
		t.Errorf("why off: %+v, %v", a, err)
	}
	if _, _, err = local.WhyOf(t.Context(), s.opts.StateDir, "nothing"); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("why nothing: %v", err)
	}
	if _, err := New(s.opts); !reason.Is(err, reason.AnotherAgent) {
		t.Errorf("a second agent on the same state: %v", err)
	}
	s.files.fail("apply /a", nil)
	s.edit("a", "theirs") // a cure is tried at an event, or the back-off would have to end
	s.until("cured", func(r *Report) bool { return r.Converged && r.Settled })
	checks := s.until("converged", func(r *Report) bool { return r.Converged }).Totals.Checks
	if r, err := local.CheckNow(t.Context(), s.opts.StateDir, true); err != nil || !r.Settled || r.Totals.Checks < checks+3 {
		t.Errorf("check: %+v, %v", r, err)
	}
}

// TestTypeThatPanics: a fault of one resource is told as such, and harms no other.
func TestTypeThatPanics(t *testing.T) {
	s := newSite(t)
	s.declare("a|require: [b]", "b")
	s.opts.Types = map[declare.ResourceType]host.Type{declare.TypeFile: faulty{s.files}}
	if err := s.converge(); !reason.Is(err, reason.NotConverged) {
		t.Errorf("verdict %v", err)
	}
	r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
	must(t, err)
	if a := resource(r, "file/a"); a.Outcome != reason.Failed || a.Problem.Code != reason.InternalFault || !strings.Contains(a.Problem.Message, "out of paper") {
		t.Errorf("a: %+v", a)
	}
	s.holds("b", "text of b")
}

// faulty panics at /a.
type faulty struct{ *plain }

func (f faulty) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	for _, p := range plans {
		if p.Resource.(*sheet).path == "/a" {
			panic("out of paper")
		}
	}
	return f.plain.Apply(ctx, plans)
}

func TestOptionsAreChecked(t *testing.T) {
	s := newSite(t)
	for name, spoil := range map[string]func(*Options){
		"no state directory": func(o *Options) { o.StateDir = "" }, "no root": func(o *Options) { o.Root = nil },
		"no types": func(o *Options) { o.Types = nil }, "no facts": func(o *Options) { o.Facts = nil }, "audit": func(o *Options) { o.Audit = -1 },
	} {
		opts := s.opts
		spoil(&opts)
		if _, err := New(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := os.Lstat(s.opts.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("refused options made a state directory: %v", err)
	}
}

// TestStateIsGivenBack: whatever a run ends with, the next one can begin.
func TestStateIsGivenBack(t *testing.T) {
	s := newSite(t)
	must(t, os.WriteFile(s.path("site.yaml"), []byte("kind: Nonsense\n"), 0o600))
	if err := s.converge(); err == nil {
		t.Error("nonsense converged")
	}
	st, err := store.Open(s.opts.StateDir, time.Now())
	must(t, err)
	must(t, st.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.declare("a")
	a, err := New(s.opts)
	must(t, err)
	if err := a.Run(ctx); !reason.Is(err, reason.Interrupted) {
		t.Errorf("a run that was interrupted: %v", err)
	}
	must(t, s.converge())
}

// keeping is a type that keeps old content, and notes what it may not forget.
type keeping struct {
	*plain
	asked *[]string
}

func (k keeping) Forget(_ context.Context, originals [][]byte) error {
	for _, o := range originals {
		*k.asked = append(*k.asked, string(o))
	}
	slices.Sort(*k.asked)
	return &reason.Error{Code: reason.StateUnwritable, Doing: "forget"}
}

// TestOldContentThatIsNeededIsNamed: what was there before a resource that is to be restored is named until that has been done,
// also while its removal fails; and who cannot forget harms nobody.
func TestOldContentThatIsNeededIsNamed(t *testing.T) {
	s := newSite(t)
	var asked []string
	s.opts.Types[declare.TypeFile] = keeping{s.files, &asked}
	s.edit("a", "before a")
	s.edit("b", "before b")
	s.declare("a|onRemove: restore", "b|onRemove: restore", "c|onRemove: delete")
	round := func(want ...string) {
		t.Helper()
		asked = nil
		err := s.converge()
		if err != nil && !reason.Is(err, reason.NotConverged) {
			t.Fatal(err)
		}
		if !slices.Equal(asked, want) {
			t.Errorf("needed %q, want %q", asked, want)
		}
	}
	round()
	round("before a", "before b")
	s.files.fail("remove /b", &reason.Error{Code: reason.DiskFull, Doing: "remove b"})
	s.declare("other")
	round("before a", "before b")
	round("before b")
	s.files.fail("remove /b", nil)
	round("before b")
	round()
	s.holds("a", "before a")
	s.holds("b", "before b")
	if r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false); err != nil || !r.Converged || len(r.Degraded) != 1 || r.Degraded[0].Code != reason.StateUnwritable {
		t.Errorf("report %+v, %v", r, err)
	}
}
