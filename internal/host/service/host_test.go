package service

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

const (
	// questionVariable carries a question to the test binary that runs in a host whose units it may do anything with.
	questionVariable = "TAKO_SERVICE_TEST_QUESTION"
	answerFile       = "/root/service.answer"
	binaryFile       = "/root/service.test"
	// answerTime bounds one question: a few jobs of systemd.
	answerTime = 2 * time.Minute
	unitDir    = "/etc/systemd/system/"
)

// question is what the test binary shall do in the host with one service: check it, apply what there is to do, and then
// refresh it if since is given.
type question struct {
	Service     declare.Service
	Since       *host.Stamp
	AskOnly     bool // whether somebody else has refreshed it since
	Ignore      []string
	CheckOnly   bool
	Times       int  // how often to check and apply; 0 is once
	Conformance bool // run the suite instead
}

// answer is what became of the service.
type answer struct {
	Changes         []host.Change
	Code            reason.Code // of the first error
	Error, Evidence string
	Hint            string
	Changed         bool
	Refreshed       host.Refreshed
	Satisfied       bool
	Now             host.Stamp // after everything
}

func (a *answer) fail(err error) {
	if e := reason.Of(err); e != nil && a.Code == 0 {
		a.Code, a.Error, a.Evidence, a.Hint = e.Code, e.Error(), e.Evidence, e.Hint
	}
}

// TestInside answers a question in a host, and is nothing by itself.
func TestInside(t *testing.T) {
	text := os.Getenv(questionVariable)
	if text == "" {
		t.Skip("needs to be inside a host: TestAgentCase14 and others run it there")
	}
	var q question
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		t.Fatal(err)
	}
	bus := connected(t)
	if q.Conformance {
		conform(t, bus)
		return
	}
	b, err := json.Marshal(q.answer(t, bus))
	if err == nil {
		err = os.WriteFile(answerFile, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connected is the bus for the time of the test.
func connected(t *testing.T) *systemd.Bus {
	t.Helper()
	bus, err := systemd.New(systemd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = bus.Run(ctx, func(systemd.Event) {}) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return bus
}

func (q question) answer(t *testing.T, bus *systemd.Bus) (a answer) {
	ctx := t.Context()
	typ := New(Options{Bus: bus})
	r, err := typ.Bind(ctx, host.Declared{Title: "service/x", Resource: declare.Resource{Service: &q.Service, Ignore: q.Ignore}})
	if err != nil {
		a.fail(err)
		return a
	}
	for range max(1, q.Times) {
		a = answer{}
		p := typ.Check(ctx, []host.Resource{r}, host.Shallow)[0]
		a.Changes = p.Changes
		a.fail(p.Err)
		if p.Err == nil && !p.Empty() && !q.CheckOnly {
			result := typ.Apply(ctx, []host.Plan{p})[0]
			a.Changed = result.Changed
			a.fail(result.Err)
		}
	}
	switch {
	case q.AskOnly:
		a.Satisfied, a.Refreshed.Note = typ.Satisfied(ctx, r, *q.Since)
	case q.Since != nil:
		a.Refreshed, err = typ.Refresh(ctx, r, *q.Since)
		a.fail(err)
	}
	now, err := systemd.Now()
	a.fail(err)
	a.Now = host.Stamp(now)
	return a
}

// aHost boots a host with the test binary in it.
func aHost(t *testing.T) *boots.Host {
	t.Helper()
	h := boots.NewLab(t).Boot(t, "service")
	binary := filepath.Join(t.TempDir(), "service.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	h.CopyIn(t, binary, binaryFile)
	return h
}

// ask asks a question in a host.
func ask(t *testing.T, h *boots.Host, q question) answer {
	t.Helper()
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	r, err := h.Run(ctx, "env", questionVariable+"="+string(b), binaryFile, "-test.run=^TestInside$", "-test.v")
	if err != nil || r.Code != 0 {
		t.Fatalf("in the host: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	var a answer
	if !q.Conformance {
		if err := json.Unmarshal([]byte(h.Get(t, answerFile)), &a); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func invocation(t *testing.T, h *boots.Host, unit string) string {
	t.Helper()
	return strings.TrimSpace(h.MustRun(t, "systemctl", "show", "--property=InvocationID", "--value", unit))
}

// daemon is a unit that runs the program of a configuration.
const daemon = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/root/daemon\nExecReload=/bin/touch /root/reloaded\n[Install]\nWantedBy=multi-user.target\n"

const (
	works  = "#!/bin/sh\nexec sleep infinity\n"
	broken = "#!/bin/sh\necho words of the daemon >&2\nexit 7\n"
)

// notifies makes a unit wait for readiness, so that its failure is one of its start.
func notifies(unit string) string {
	return strings.Replace(unit, "[Service]\n", "[Service]\nType=forking\n", 1)
}

func TestAgentCase14_RefreshFails(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t)
	// Forking, so that a program that exits with an error makes its start fail.
	h.Put(t, unitDir+"daemon.service", notifies(daemon), 0o644)
	const forks = "#!/bin/sh\nsleep infinity &\nexit 0\n"
	h.Put(t, "/root/daemon", forks, 0o755)
	s := declare.Service{Unit: "daemon.service"}
	first := ask(t, h, question{Service: s})
	c.Check(first.Code == 0 && first.Changed, "started: %+v", first)

	h.Put(t, "/root/daemon", broken, 0o755)
	failed := ask(t, h, question{Service: s, Since: &first.Now})
	c.Equal(failed.Code, reason.UnitJobFailed, "code of the failed restart")
	c.Check(strings.Contains(failed.Evidence, "words of the daemon"), "evidence: %q", failed.Evidence)
	again := ask(t, h, question{Service: s, Since: &first.Now})
	c.Check(again.Code != 0, "still pending: %+v", again)
	h.Reboot(t)
	again = ask(t, h, question{Service: s, Since: &first.Now})
	c.Check(again.Code != 0, "still pending after a reboot: %+v", again)

	h.Put(t, "/root/daemon", forks, 0o755)
	done := ask(t, h, question{Service: s, Since: &first.Now})
	c.Check(done.Code == 0, "done: %+v", done)
	c.Equal(strings.TrimSpace(h.MustRun(t, "systemctl", "is-active", "daemon")), "active", "the unit")
}

func TestAgentCase15_RestartedByOperator(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t)
	h.Put(t, unitDir+"daemon.service", daemon, 0o644)
	h.Put(t, "/root/daemon", works, 0o755)
	s := declare.Service{Unit: "daemon.service"}
	changed := ask(t, h, question{Service: s}).Now

	h.MustRun(t, "systemctl", "restart", "daemon")
	before := invocation(t, h, "daemon")
	a := ask(t, h, question{Service: s, Since: &changed})
	c.Check(a.Code == 0 && !a.Refreshed.Acted && strings.Contains(a.Refreshed.Note, "was started at"), "satisfied: %+v", a)
	c.Equal(invocation(t, h, "daemon"), before, "the run of the unit")

	a = ask(t, h, question{Service: s, Since: &changed, AskOnly: true})
	c.Check(a.Satisfied && strings.Contains(a.Refreshed.Note, "was started at"), "asked, outside of a window: %+v", a)
	a = ask(t, h, question{Service: s, Since: &a.Now, AskOnly: true})
	c.Check(!a.Satisfied, "asked, outside of a window: %+v", a)
	c.Equal(invocation(t, h, "daemon"), before, "the run of the unit that was asked about")

	// What changes later is not satisfied by it.
	a = ask(t, h, question{Service: s, Since: &a.Now})
	c.Check(a.Code == 0 && a.Refreshed.Acted, "restarted: %+v", a)
	c.Check(invocation(t, h, "daemon") != before, "the unit runs anew")

	before = invocation(t, h, "daemon")
	a = ask(t, h, question{Service: declare.Service{Unit: "daemon.service", OnNotify: declare.NotifyReload}, Since: &a.Now})
	c.Check(a.Code == 0 && a.Refreshed.Acted && a.Refreshed.Note == "reloaded", "reloaded: %+v", a)
	c.Equal(invocation(t, h, "daemon"), before, "the run of the unit that was reloaded")
	h.MustRun(t, "test", "-e", "/root/reloaded")

	// More restarts than systemd allows a unit that crashes, five in ten seconds.
	for range 8 {
		a = ask(t, h, question{Service: s, Since: &a.Now})
		c.Check(a.Code == 0 && a.Refreshed.Acted, "restarted again: %+v", a)
	}

	// A start that is under way is waited for, and nobody's repair.
	h.Put(t, unitDir+"slow.service", strings.Replace(daemon, "[Service]\n", "[Service]\nExecStartPre=/bin/sleep 4\n", 1), 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	slow := declare.Service{Unit: "slow.service"}
	h.MustRun(t, "systemctl", "start", "--no-block", "slow")
	activating := func() {
		boots.Eventually(t, time.Minute, "the unit is activating", func() (string, bool) {
			state := strings.TrimSpace(h.MustRun(t, "systemctl", "show", "--property=ActiveState", "--value", "slow"))
			return state, state == "activating"
		})
	}
	activating()
	a = ask(t, h, question{Service: slow, Since: &a.Now})
	c.Check(a.Code == 0 && !a.Changed && !a.Refreshed.Acted, "a start under way: %+v", a)
	c.Equal(a.Changes, []host.Change{{Field: "state", From: "activating", To: "running"}}, "planned during a start")
	before = invocation(t, h, "slow")
	h.MustRun(t, "systemctl", "restart", "--no-block", "slow")
	activating()
	a = ask(t, h, question{Service: slow, Since: &a.Now})
	c.Check(a.Code == 0 && !a.Changed && !a.Refreshed.Acted, "a restart under way: %+v", a)
	c.Check(invocation(t, h, "slow") != before, "the unit runs anew")

	h.MustRun(t, "systemctl", "stop", "daemon")
	a = ask(t, h, question{Service: declare.Service{Unit: "daemon.service", State: declare.ServiceStopped}, Since: &a.Now})
	c.Check(a.Code == 0 && !a.Refreshed.Acted, "declared stopped: %+v", a)
	for _, askOnly := range []bool{false, true} {
		a = ask(t, h, question{Service: s, Ignore: []string{"state"}, Since: &a.Now, AskOnly: askOnly})
		c.Check(a.Code == 0 && !a.Changed && !a.Refreshed.Acted && a.Satisfied == askOnly, "stopped by others, whose it is: %+v", a)
	}
	c.Equal(strings.TrimSpace(h.MustRun(t, "systemctl", "show", "--property=ActiveState", "--value", "daemon")), "inactive", "the unit")
}

func TestAgentCase17_UnitFileChanged(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t)
	h.Put(t, "/root/daemon", works, 0o755)
	s := declare.Service{Unit: "daemon.service"}
	c.Equal(ask(t, h, question{Service: s}).Code, reason.UnitNotFound, "code before the unit file is there")
	h.Put(t, unitDir+"daemon.service", daemon, 0o644)
	a := ask(t, h, question{Service: s})
	c.Check(a.Code == 0 && a.Changed, "a new unit file: %+v", a)

	h.Put(t, unitDir+"daemon.service", daemon+"\n[Unit]\nDescription=changed\n", 0o644)
	h.MustRun(t, "touch", "--date=now + 2 seconds", unitDir+"daemon.service") // systemd compares times
	before := invocation(t, h, "daemon")
	a = ask(t, h, question{Service: s, CheckOnly: true})
	c.Equal(a.Changes, []host.Change{{Field: "daemon-reload", From: "unit files changed", To: "read"}}, "planned")
	a = ask(t, h, question{Service: s, Since: &a.Now})
	c.Check(a.Code == 0 && a.Refreshed.Acted, "restarted: %+v", a)
	c.Check(invocation(t, h, "daemon") != before, "the unit runs anew")
	show := h.MustRun(t, "systemctl", "show", "--property=NeedDaemonReload,Description", "daemon")
	c.Check(strings.Contains(show, "NeedDaemonReload=no") && strings.Contains(show, "Description=changed"), "systemd has read the file: %s", show)
	c.Check(ask(t, h, question{Service: s}).Changes == nil, "nothing is left to do")

	// Also before a start, and where nothing but the file has changed.
	reloaded := func(when string) {
		a := ask(t, h, question{Service: s})
		c.Check(a.Code == 0 && a.Changed, "%s: %+v", when, a)
		c.Equal(h.MustRun(t, "systemctl", "show", "--property=NeedDaemonReload", "--value", "daemon"), "no\n", "systemd has a file to read "+when)
	}
	h.MustRun(t, "touch", "--date=now + 4 seconds", unitDir+"daemon.service")
	reloaded("while the unit runs")
	h.MustRun(t, "systemctl", "stop", "daemon")
	h.Put(t, unitDir+"daemon.service.d/more.conf", "[Service]\nEnvironment=MORE=yes\n", 0o644)
	reloaded("before a start")
}

func TestAgentCase18_OddUnits(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t)
	yes, no := true, false
	h.Put(t, "/root/daemon", works, 0o755)
	h.Put(t, unitDir+"static.service", "[Service]\nExecStart=/root/daemon\n", 0o644)
	h.Put(t, unitDir+"masked.service", daemon, 0o644)
	h.Put(t, unitDir+"named.service", daemon+"Alias=other.service\n", 0o644)
	h.Put(t, unitDir+"once.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n", 0o644)
	h.Put(t, unitDir+"stays.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n", 0o644)
	h.Put(t, unitDir+"picky.service", "[Unit]\nConditionPathExists=/nowhere\n[Service]\nExecStart=/root/daemon\n", 0o644)
	h.Put(t, unitDir+"loops.service", "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=2\n[Service]\nType=oneshot\nExecStart=/bin/false\n", 0o644)
	h.Put(t, unitDir+"instance@.service", "[Service]\nExecStart=/root/daemon %i\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	h.Put(t, unitDir+"bad.service", "[Service]\nType=exec\nExecStart=relative\n", 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	h.MustRun(t, "mv", unitDir+"masked.service", "/usr/lib/systemd/system/")
	h.MustRun(t, "systemctl", "mask", "masked.service")
	for _, name := range []string{"ours", "briefly", "runs"} {
		h.Put(t, "/usr/lib/systemd/system/"+name+".service", daemon, 0o644)
	}
	h.MustRun(t, "systemctl", "mask", "--runtime", "briefly.service")
	h.MustRun(t, "systemctl", "start", "runs.service")
	h.MustRun(t, "systemctl", "enable", "named.service")
	for _, row := range []struct {
		service declare.Service
		code    reason.Code
		words   string // in the error or its hint
	}{
		{declare.Service{Unit: "static.service"}, 0, ""},
		{declare.Service{Unit: "static.service", Enabled: &yes}, reason.UnitNotInstalled, "[Install]"},
		{declare.Service{Unit: "static.service", Enabled: &no}, 0, ""},
		{declare.Service{Unit: "masked.service"}, reason.UnitMasked, "systemctl unmask"},
		{declare.Service{Unit: "masked.service", State: declare.ServiceStopped, Enabled: &no}, 0, ""},
		{declare.Service{Unit: "masked.service", Masked: &yes}, 0, ""},
		{declare.Service{Unit: "masked.service", Masked: &no, Enabled: &yes}, 0, ""},
		{declare.Service{Unit: "masked.service", Enabled: &yes}, 0, ""},
		{declare.Service{Unit: "ours.service", Masked: &yes}, 0, ""},
		{declare.Service{Unit: "ours.service"}, reason.UnitMasked, "masked: false"},
		{declare.Service{Unit: "ours.service", Masked: &no, State: declare.ServiceStopped}, 0, ""},
		{declare.Service{Unit: "ours.service"}, 0, ""},
		{declare.Service{Unit: "briefly.service"}, reason.UnitMasked, "unmask --runtime"},
		{declare.Service{Unit: "briefly.service", Masked: &yes}, 0, ""},
		{declare.Service{Unit: "briefly.service", Masked: &no}, 0, ""},
		{declare.Service{Unit: "runs.service", Masked: &yes}, 0, ""},
		{declare.Service{Unit: "runs.service", Masked: &yes, State: declare.ServiceStopped}, 0, ""},
		{declare.Service{Unit: "notyet.service", Masked: &yes}, 0, ""},
		{declare.Service{Unit: "static.service", Masked: &yes}, reason.UnitEnableRefused, "where the mask would be"},
		{declare.Service{Unit: "other.service", Enabled: &yes}, reason.UnitNotInstalled, "named.service"},
		{declare.Service{Unit: "once.service"}, reason.UnitJobFailed, "RemainAfterExit"},
		{declare.Service{Unit: "stays.service"}, 0, ""},
		{declare.Service{Unit: "picky.service"}, reason.UnitJobFailed, "condition"},
		{declare.Service{Unit: "instance@one.service", Enabled: &yes}, 0, ""},
		{declare.Service{Unit: "instance@one.service", Enabled: &no, State: declare.ServiceStopped}, 0, ""},
		{declare.Service{Unit: "instance@.service"}, reason.UnitNotFound, ""},
		{declare.Service{Unit: "bad.service"}, reason.UnitJobFailed, ""},
		{declare.Service{Unit: "nowhere.service"}, reason.UnitNotFound, "require"},
		{declare.Service{Unit: "nowhere.service", State: declare.ServiceStopped}, 0, ""},
		{declare.Service{Unit: "loops.service"}, reason.UnitJobFailed, "exit status 1"},
	} {
		a := ask(t, h, question{Service: row.service})
		c.Check(a.Code == row.code && strings.Contains(a.Error+a.Hint, row.words), "%+v: %+v", row.service, a)
	}
	for unit, want := range map[string]string{"masked": "active\nenabled", "ours": "active\ndisabled", "briefly": "active\ndisabled", "runs": "inactive\nmasked", "notyet": "inactive\nmasked"} {
		r, err := h.Run(t.Context(), "sh", "-c", "systemctl is-active "+unit+"; systemctl is-enabled "+unit)
		c.NoError(err, "look at "+unit)
		c.Equal(strings.TrimSpace(r.Stdout), want, unit)
	}
	h.MustRun(t, "sh", "-c", "systemctl reset-failed loops; systemctl start loops; systemctl start loops; systemctl start loops; :")
	loops := declare.Service{Unit: "loops.service"}
	c.Equal(ask(t, h, question{Service: loops}).Code, reason.UnitJobFailed, "code of the first try of a declaration: the start limit is lifted")
	c.Equal(ask(t, h, question{Service: loops, Times: 3}).Code, reason.UnitStartLimit, "code of repairs: the start limit stands")
}

func TestAgentCase40_NoSystemd(t *testing.T) {
	c := casetest.Start(t)
	bind := func(typ *Type) reason.Code {
		_, err := typ.Bind(t.Context(), host.Declared{Title: "service/x", Resource: declare.Resource{Name: "x", Service: &declare.Service{}}})
		return reason.Of(err).Code
	}
	typ := New(Options{})
	typ.booted = filepath.Join(t.TempDir(), "nothing")
	c.Equal(bind(typ), reason.NoSystemd, "code where systemd is not what booted the host")
	row, _ := reason.Lookup(reason.NoSystemd)
	c.Check(row.Outcome == reason.Failed && row.Detail == reason.Unsupported, "%+v", row)
	c.Equal(bind(New(Options{Sandbox: true})), reason.UnsupportedInRoot, "code in a sandbox")
}

// TestConformanceOnHost runs the suite of the contract in a host, with its systemd.
func TestConformanceOnHost(t *testing.T) {
	h := aHost(t)
	for _, name := range []string{"one", "two"} {
		h.Put(t, "/usr/lib/systemd/system/"+name+".service", "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	}
	h.MustRun(t, "systemctl", "daemon-reload")
	ask(t, h, question{Conformance: true})
}

// conform is the part of TestConformanceOnHost that runs in the host.
func conform(t *testing.T, bus *systemd.Bus) {
	systemctl := func(t testing.TB, args ...string) string {
		t.Helper()
		// The status of is-active and is-enabled is the answer in another form.
		out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
		if err != nil && !strings.HasPrefix(args[0], "is-") {
			t.Fatalf("systemctl %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	units := []string{"one.service", "two.service"}
	arrange := func(verbs ...string) func(testing.TB) {
		return func(t testing.TB) {
			for _, verb := range verbs {
				systemctl(t, append([]string{verb}, units...)...)
			}
		}
	}
	type seen struct{ active, enabled string }
	words := map[string]string{"active": "running", "inactive": "stopped"}
	subject := hosttest.Subject{
		Type: New(Options{Bus: bus}),
		Observe: func(t testing.TB, i int) any {
			return seen{words[systemctl(t, "is-active", units[i])], systemctl(t, "is-enabled", units[i])}
		},
		Snapshot: func(t testing.TB) string {
			return systemctl(t, append([]string{"show", "--property=InvocationID,ActiveState,StateChangeTimestampMonotonic"}, units...)...) +
				hosttest.Tree(t, unitDir, "/run/systemd/system")
		},
		Gone: []any{seen{"stopped", "disabled"}, seen{"stopped", "disabled"}},
		Difference: func(_ int, before, after any) []host.Change {
			b, a := before.(seen), after.(seen)
			var changes []host.Change
			if a.enabled == "masked" {
				changes = append(changes, host.Change{Field: fieldMasked, From: "not masked", To: "masked"})
			} else if b.enabled != a.enabled {
				changes = append(changes, host.Change{Field: fieldEnabled, From: b.enabled, To: a.enabled})
			}
			if b.active != a.active {
				changes = append(changes, host.Change{Field: fieldState, From: b.active, To: a.active})
			}
			return changes
		},
	}
	declared := func(state declare.ServiceState, enabled bool) {
		subject.Declared = nil
		for _, unit := range units {
			subject.Declared = append(subject.Declared, host.Declared{Title: "service/" + unit,
				Resource: declare.Resource{Service: &declare.Service{Unit: unit, State: state, Enabled: &enabled}}})
		}
	}
	declared(declare.ServiceRunning, true)
	subject.Situations = []hosttest.Situation{
		{Name: "stopped and disabled", Arrange: arrange("stop", "disable")},
		{Name: "stopped", Arrange: arrange("stop", "enable")},
		{Name: "disabled", Arrange: arrange("start", "disable")},
	}
	t.Run("running", func(t *testing.T) { hosttest.Run(t, subject) })
	declared(declare.ServiceStopped, false)
	subject.Situations = []hosttest.Situation{
		{Name: "running and enabled", Arrange: arrange("start", "enable")},
		{Name: "running", Arrange: arrange("start", "disable")},
	}
	t.Run("stopped", func(t *testing.T) { hosttest.Run(t, subject) })
	masked := true
	for i, unit := range units {
		subject.Declared[i].Resource.Service = &declare.Service{Unit: unit, Masked: &masked}
	}
	subject.Situations = []hosttest.Situation{
		{Name: "running and enabled", Arrange: arrange("unmask", "start", "enable")},
		{Name: "stopped and disabled", Arrange: arrange("unmask", "stop", "disable")},
	}
	subject.Gone = []any{seen{"stopped", "masked"}, seen{"stopped", "masked"}} // a mask is nothing that could be deleted
	t.Run("masked", func(t *testing.T) { hosttest.Run(t, subject) })
}
