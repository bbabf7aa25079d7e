package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// planArgument tells the test binary that it is a copy of the program, which is to print a plan.
const planArgument = "rehearse-for-a-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == planArgument {
		fmt.Println("a word of warning before it")
		if err := json.NewEncoder(os.Stdout).Encode(planned); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// planned is what the program that tests begin with plans.
var planned = Summary([]string{"file/a", "file/b; mode"}, []bool{false, true})

// stage is a host as far as an upgrade sees one. It stands for systemd, too.
type stage struct {
	*testing.T
	typ     *Type
	runs    content.Digest
	dir     string
	source  string
	calls   []string
	refuses string // the call that fails
	code    reason.Code
	main    int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	makeStage(t, dir)
	return stageIn(t, dir)
}

// makeStage makes a host below a directory that runs the first program.
func makeStage(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"bin", "srv", "state"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "bin", "agent"), []byte("the first"), 0o755))
}

// stageIn is the host below a directory.
func stageIn(t *testing.T, dir string) *stage {
	t.Helper()
	root, err := disk.OpenRoot("/")
	must(t, err)
	t.Cleanup(func() { root.Close() })
	s := &stage{T: t, dir: dir, main: os.Getpid(), source: filepath.Join(dir, "srv", "next"), runs: content.DigestOf([]byte("the first"))}
	s.typ = New(Options{Root: root, StateDir: filepath.Join(dir, "state"), Units: s, Rehearse: []string{planArgument}})
	s.typ.program = filepath.Join(dir, "bin", "agent")
	s.typ.own = func() (content.Digest, error) { return s.runs, nil }
	s.typ.awaitEnd = func(context.Context) error { return nil }
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a file, whole at once.
func (s *stage) put(path, text string) {
	s.Helper()
	must(s.T, os.WriteFile(path+".new", []byte(text), 0o755))
	must(s.T, os.Rename(path+".new", path))
}

func (s *stage) call(name string) error {
	s.calls = append(s.calls, name)
	if s.refuses == name {
		return &reason.Error{Code: cmp.Or(s.code, reason.UnitNotFound), Doing: name}
	}
	return nil
}

func (s *stage) Start(_ context.Context, unit string) error { return s.call("start " + unit) }
func (s *stage) Stop(_ context.Context, unit string) error  { return s.call("stop " + unit) }
func (s *stage) MainPID(context.Context, string) (int, error) {
	return s.main, nil
}

func (s *stage) QueueRestart(_ context.Context, unit string, onlyIfActive bool) error {
	if err := s.call(fmt.Sprint("restart ", unit, " ", onlyIfActive)); err != nil {
		return err
	}
	program, err := os.ReadFile(s.typ.program)
	s.runs = content.DigestOf(program)
	return err
}

func (s *stage) Unit(context.Context, string) (systemd.UnitState, error) {
	return systemd.UnitState{ActiveState: "activating", SubState: "auto-restart", InvocationID: "first"}, nil
}

func (s *stage) Journal(context.Context, string, time.Time) string { return "no good" }

// script is a program that plans something.
func script(p Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return "#!/bin/sh\necho '" + string(text) + "'\n"
}

func (s *stage) declared() host.Declared {
	r := declare.Resource{Name: "program", Agent: &declare.Agent{Programs: []declare.AgentProgram{{Arch: runtime.GOARCH, Path: s.source}}}}
	return host.Declared{Title: "agent/program", Key: "agent:agent", Resource: r}
}

func (s *stage) bound() host.Resource {
	s.Helper()
	r, err := s.typ.Bind(s.Context(), s.declared())
	must(s.T, err)
	return r
}

func (s *stage) check(r host.Resource) host.Plan {
	s.Helper()
	return s.typ.Check(s.Context(), []host.Resource{r}, host.Shallow)[0]
}

// upgrade checks and applies.
func (s *stage) upgrade(r host.Resource) host.Result {
	s.Helper()
	p := s.check(r)
	must(s.T, p.Err)
	if p.Empty() {
		s.Fatal("nothing is planned")
	}
	return s.typ.Apply(s.Context(), []host.Plan{p})[0]
}

func (s *stage) wantCode(what string, err error, code reason.Code, words string) {
	s.Helper()
	if !reason.Is(err, code) || !strings.Contains(err.Error(), words) {
		s.Errorf("%s: %v, want %v with %q", what, err, code, words)
	}
}

// has compares a file.
func (s *stage) has(path, want string) {
	s.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		s.Errorf("%s has %.60q, %v; want %.60q", path, got, err, want)
	}
}

func (s *stage) notes() []string {
	s.Helper()
	entries, err := os.ReadDir(s.typ.dir)
	must(s.T, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// another has the first program run, as if nothing had been before.
func (s *stage) another() {
	s.Helper()
	must(s.T, os.RemoveAll(s.typ.dir))
	s.put(s.typ.program, "the first")
	s.runs = content.DigestOf([]byte("the first"))
}

func TestConformance(t *testing.T) {
	s := newStage(t)
	next := script(planned)
	s.put(s.source, next)
	hosttest.Run(t, hosttest.Subject{
		Type: s.typ, Declared: []host.Declared{s.declared()}, Lasting: true,
		Observe: func(t testing.TB, _ int) any {
			must(t, s.typ.Confirm())
			return s.runs
		},
		Difference: func(_ int, before, after any) []host.Change {
			if before == after {
				return nil
			}
			return []host.Change{{Field: fieldProgram, From: short(before.(content.Digest)), To: short(after.(content.Digest))}}
		},
		Snapshot: func(t testing.TB) string {
			return hosttest.Tree(t, filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "srv"))
		},
		Disturb: func(testing.TB) { s.put(s.typ.program, "somebody else's") },
		Situations: []hosttest.Situation{
			{Name: "another program", Arrange: func(testing.TB) { s.another() }},
			{Name: "not started yet", Arrange: func(testing.TB) {
				s.another()
				s.put(s.typ.program, next)
			}},
		},
	})
}

func TestTrial(t *testing.T) {
	s := newStage(t)
	next := script(planned)
	s.put(s.source, next)
	r := s.bound()
	must(t, s.upgrade(r).Err)
	if want := []string{"stop " + trialUnit, "start " + trialUnit, "restart " + agentUnit + " false"}; !slices.Equal(s.calls, want) {
		t.Errorf("systemd was asked %q, want %q", s.calls, want)
	}
	s.has(s.typ.program, next)
	if got := s.notes(); !slices.Equal(got, []string{previousName, trialName}) {
		t.Errorf("there are %q", got)
	}
	s.wantCode("on trial", s.check(r).Err, reason.AgentOnTrial, "")
	must(t, s.typ.Confirm())
	if p := s.check(r); p.Err != nil || !p.Empty() {
		t.Errorf("after the trial: %+v", p)
	}
	must(t, s.typ.Confirm())
	// The copy looks once more, and has nothing to do.
	s.calls = nil
	must(t, s.typ.PutBack(t.Context()))
	s.has(s.typ.program, next)
	if s.calls != nil {
		t.Errorf("after a trial that ended well systemd was asked %q", s.calls)
	}
}

// The copy of the program before is the test binary here: it is what runs in this process.
func TestPutBack(t *testing.T) {
	s := newStage(t)
	next := script(planned)
	s.put(s.source, next)
	r := s.bound()
	must(t, s.upgrade(r).Err)
	must(t, os.Rename(s.typ.path(trialName), s.typ.path(overName))) // as the copy does when the time is over
	// Whatever it is ended after, its next run goes on.
	for _, refused := range []string{"restart " + agentUnit + " true", ""} {
		s.refuses = refused
		if err := s.typ.PutBack(t.Context()); (err != nil) != (refused != "") {
			t.Fatalf("%q refused: %v", refused, err)
		}
	}
	own, err := ownDigest()
	must(t, err)
	if s.runs != own {
		t.Errorf("%s runs, want what ran before", s.runs)
	}
	if got := s.notes(); !slices.Equal(got, []string{previousName, refusedName}) {
		t.Errorf("there are %q", got)
	}
	p := s.check(r)
	s.wantCode("put back", p.Err, reason.AgentPutBack, "auto-restart")
	if e := reason.Of(p.Err); !strings.Contains(e.Hint, refusedName) || e.Evidence != "no good" {
		t.Errorf("the hint is %q, the evidence %q", e.Hint, e.Evidence)
	}
	must(t, s.typ.Confirm()) // it is decided
	s.wantCode("still", s.check(r).Err, reason.AgentPutBack, "")
	// Another program is tried.
	s.put(s.source, next+"# another\n")
	must(t, s.upgrade(r).Err)
	must(t, s.typ.Confirm())
	if p := s.check(r); p.Err != nil || !p.Empty() {
		t.Errorf("another: %+v", p)
	}
}

// What was exchanged by somebody else, or not at all, is left alone.
func TestPutBackLeavesOthersAlone(t *testing.T) {
	s := newStage(t)
	must(t, s.typ.ready(t.Context()))
	must(t, s.typ.write(t.Context(), overName, trial{Program: s.typ.program, To: content.DigestOf([]byte("never there"))}))
	must(t, s.typ.PutBack(t.Context()))
	s.has(s.typ.program, "the first")
	if s.calls != nil || len(s.notes()) != 0 {
		t.Errorf("systemd was asked %q, and %q are left", s.calls, s.notes())
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		arrange func(s *stage)
		code    reason.Code
		words   string
	}{
		"not a program":     {"text", nil, reason.AgentUnfit, "exec format error"},
		"ends":              {"#!/bin/sh\nexit 3\n", nil, reason.AgentUnfit, "exit status 3"},
		"no plan":           {"#!/bin/sh\necho hello\n", nil, reason.AgentUnfit, "does not plan"},
		"sees less":         {script(Summary([]string{"file/a"}, []bool{false})), nil, reason.AgentUnfit, "1 resources where there are 2"},
		"does more":         {script(Summary([]string{"file/a; content", "file/b; mode"}, []bool{true, true})), nil, reason.AgentUnfit, "would do what the present one would not: file/a; content"},
		"does less":         {script(Summary([]string{"file/a", "file/b"}, []bool{false, false})), nil, reason.AgentUnfit, "would not do what the present one would: file/b; mode"},
		"not by its unit":   {script(planned), func(s *stage) { s.main = 1 }, reason.AgentNotService, ""},
		"no unit for it":    {script(planned), func(s *stage) { s.refuses = "start " + trialUnit }, reason.UnitNotFound, ""},
		"an old copy stays": {script(planned), func(s *stage) { s.refuses = "stop " + trialUnit }, reason.UnitNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.put(s.source, c.program)
			if c.arrange != nil {
				c.arrange(s)
			}
			s.wantCode(name, s.upgrade(s.bound()).Err, c.code, c.words)
			s.has(s.typ.program, "the first")
			if slices.ContainsFunc(s.calls, func(call string) bool { return strings.HasPrefix(call, "restart") }) {
				t.Errorf("systemd was asked %q", s.calls)
			}
			if _, err := os.Stat(s.typ.path(trialName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a trial is left: %v", err)
			}
		})
	}
}

// TestRestartAnswer: that the answer of systemd is lost says nothing of the restart. Its end does.
func TestRestartAnswer(t *testing.T) {
	late := &reason.Error{Code: reason.OperationTimeout, Doing: doing}
	for name, c := range map[string]struct {
		answer reason.Code
		end    error
		want   reason.Code
	}{
		"lost as the agent ends": {answer: reason.BusDisconnected},
		"lost, and no restart":   {answer: reason.BusDisconnected, end: late, want: reason.OperationTimeout},
		"refused":                {answer: reason.PermissionDenied, want: reason.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.put(s.source, script(planned))
			s.refuses, s.code = "restart "+agentUnit+" false", c.answer
			s.typ.awaitEnd = func(context.Context) error { return c.end }
			r := s.upgrade(s.bound())
			if !r.Changed {
				t.Error("nothing has changed, though the program was exchanged")
			}
			if c.want == 0 {
				must(t, r.Err)
				return
			}
			s.wantCode(name, r.Err, c.want, "")
		})
	}
}

func TestBind(t *testing.T) {
	s := newStage(t)
	other := s.declared()
	other.Resource.Agent.Programs[0].Arch = "another"
	_, err := s.typ.Bind(t.Context(), other)
	s.wantCode("no program for it", err, reason.AgentNoProgram, runtime.GOARCH)
	s.typ.Sandbox = true
	_, err = s.typ.Bind(t.Context(), s.declared())
	s.wantCode("sandbox", err, reason.UnsupportedInRoot, "")
	s.typ.Sandbox = false
	r := s.bound()
	s.wantCode("nothing there", s.check(r).Err, reason.SourceMissing, "")
	s.put(s.source, "#!/bin/sh\n")
	must(t, os.Chmod(s.source, 0o777))
	s.wantCode("anybody's", s.check(r).Err, reason.SourceUntrusted, "")
}

// TestClock: the minute of a new program begins when it was started, not while the agent before ends what it has begun.
func TestClock(t *testing.T) {
	began := time.Unix(1000, 0)
	c := clock{over: began.Add(startMax)}
	c.hear(began.Add(80*time.Second), false)
	if !c.over.Equal(began.Add(startMax)) {
		t.Errorf("over at %v while the agent before ends", c.over)
	}
	c.hear(began.Add(90*time.Second), true)
	c.hear(began.Add(100*time.Second), true) // started once more, because it has crashed
	if want := began.Add(90*time.Second + trialTime); !c.over.Equal(want) {
		t.Errorf("over at %v, want %v", c.over, want)
	}
}

func TestDamagedNotes(t *testing.T) {
	s := newStage(t)
	s.put(s.source, script(planned))
	must(t, s.typ.ready(t.Context()))
	for _, name := range []string{trialName, refusedName} {
		must(t, os.WriteFile(s.typ.path(name), []byte("{"), 0o600))
		p := s.check(s.bound())
		s.wantCode(name, p.Err, reason.StateCorrupt, name)
		if hint := reason.Of(p.Err).Hint; !strings.Contains(hint, s.typ.path(name)) {
			t.Errorf("%s: the hint is %q", name, hint)
		}
		must(t, os.Remove(s.typ.path(name)))
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte("{}"))
	f.Add([]byte(script(planned)))
	whole, err := json.Marshal(planned)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte("first\n"), whole...))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parsePlan(data)
		if err != nil {
			return
		}
		if err := Compare(p, p); err != nil {
			t.Errorf("a plan differs from itself: %v", err)
		}
		if Compare(p, planned) == nil && (p.Sum != planned.Sum || p.Count != planned.Count) {
			t.Errorf("%+v is taken for %+v", p, planned)
		}
	})
}
