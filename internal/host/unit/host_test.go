package unit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

const (
	// insideVariable tells the test binary that it runs in a host whose units it may do anything with.
	insideVariable = "TAKO_UNIT_TEST_INSIDE"
	binaryFile     = "/root/unit.test"
	insideTime     = 10 * time.Minute // half a minute on an idle machine
)

// TestAgentCase17_OnHost boots a host, and runs the tests below in it.
func TestAgentCase17_OnHost(t *testing.T) {
	c := casetest.Start(t)
	h := boots.NewLab(t).Boot(t, "unit")
	binary := filepath.Join(t.TempDir(), "unit.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	h.CopyIn(t, binary, binaryFile)
	ctx, cancel := context.WithTimeout(t.Context(), insideTime)
	defer cancel()
	r, err := h.Run(ctx, "env", insideVariable+"=1", binaryFile, "-test.run=^TestInside", "-test.v", "-rapid.nofailfile")
	c.Check(err == nil && r.Code == 0 && !strings.Contains(r.Stdout, "--- SKIP"), "in the host: %v\n%s%s", err, r.Stdout, r.Stderr)
	if testing.Verbose() {
		t.Log(r.Stdout)
	}
}

// ground is a host with its systemd.
type ground struct {
	testing.TB
	bus    *counted
	units  *Type
	timers *Timers
}

// counted counts daemon-reloads.
type counted struct {
	*systemd.Bus
	reloads int
}

func (b *counted) Reload(ctx context.Context) error {
	b.reloads++
	return b.Bus.Reload(ctx)
}

func newGround(t *testing.T) *ground {
	t.Helper()
	if os.Getenv(insideVariable) == "" {
		t.Skip("needs to be inside a host: TestAgentCase17_OnHost runs it there")
	}
	bus, err := systemd.New(systemd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = bus.Run(ctx, func(systemd.Event) {}) })
	t.Cleanup(func() { cancel(); running.Wait() })
	root, err := disk.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Root: root, Content: store, StateDir: t.TempDir(), Bus: bus}
	g := &ground{TB: t, bus: &counted{Bus: bus}, units: New(o), timers: NewTimers(o)}
	g.units.bus, g.timers.bus, g.timers.units = g.bus, g.bus, g.bus
	return g
}

func (g *ground) run(args ...string) string {
	g.Helper()
	out, err := exec.CommandContext(g.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		g.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// try runs a program whose exit status does not matter.
func (g *ground) try(args ...string) string {
	g.Helper()
	out, _ := exec.CommandContext(g.Context(), args[0], args[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func (g *ground) put(p, text string) {
	g.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		g.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		g.Fatal(err)
	}
}

// clean removes everything that these tests make.
func (g *ground) clean() {
	g.Helper()
	g.try("sh", "-c", `systemctl stop 't-*' ; systemctl disable t-one.timer t-two.timer; rm -rf /etc/systemd/system/t-* /usr/lib/systemd/system/t-* /etc/systemd/system/*/t-* /var/lib/systemd/timers/stamp-t-*; systemctl daemon-reload; systemctl reset-failed`)
}

func declared(r declare.Resource) host.Declared {
	return host.Declared{Title: r.Title(), Resource: r, Body: func() (declare.Resource, error) { return r, nil }}
}

// converge makes resources of one type as declared, all together.
func (g *ground) converge(rs ...declare.Resource) []host.Result {
	g.Helper()
	var typ host.Type = g.units
	if rs[0].Timer != nil {
		typ = g.timers
	}
	results := make([]host.Result, len(rs))
	var plans []host.Plan
	var at []int
	for i, r := range rs {
		bound, err := typ.Bind(g.Context(), declared(r))
		if err != nil {
			g.Fatal(err)
		}
		p := typ.Check(g.Context(), []host.Resource{bound}, host.Deep)[0]
		if results[i].Err = p.Err; p.Err == nil && !p.Empty() {
			plans, at = append(plans, p), append(at, i)
		}
	}
	for i, res := range typ.Apply(g.Context(), plans) {
		results[at[i]] = res
	}
	return results
}

// made converges resources, which must go well and leave nothing to do.
func (g *ground) made(rs ...declare.Resource) []host.Result {
	g.Helper()
	results := g.converge(rs...)
	for i, res := range results {
		if res.Err != nil {
			e := reason.Of(res.Err)
			g.Fatalf("%s: %v; %s\n%s", rs[i].Title(), e, e.Hint, e.Evidence)
		}
	}
	for i, again := range g.converge(rs...) {
		if again.Err != nil || again.Changed {
			g.Errorf("%s: a second time: %+v", rs[i].Title(), again)
		}
	}
	return results
}

func unitOf(name, dropIn, text string) declare.Resource {
	return declare.Resource{Name: name, Unit: &declare.Unit{DropIn: dropIn, Content: text}}
}

const sleeper = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

// TestInsideUnits: one daemon-reload for many files; what is refused; drop-ins, templates, files of packages.
func TestInsideUnits(t *testing.T) {
	g := newGround(t)
	g.clean()
	var many []declare.Resource
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		many = append(many, unitOf("t-"+n, "", sleeper), unitOf("t-"+n, "50-more", "[Service]\nEnvironment=N="+n+"\n"))
	}
	many = append(many, unitOf("t-sock.socket", "", "[Socket]\nListenStream=/run/t-sock\n"), unitOf("t-sock", "", sleeper), unitOf("t-inst@", "", "[Service]\nExecStart=/bin/sleep %i\n"))
	g.bus.reloads = 0
	g.made(many...)
	if g.bus.reloads != 1 {
		t.Errorf("%d daemon-reloads for %d files", g.bus.reloads, len(many))
	}
	if got := g.run("systemctl", "show", "--property=Environment", "t-c"); got != "Environment=N=c" {
		t.Errorf("of the drop-in: %s", got)
	}
	g.run("systemctl", "start", "t-inst@infinity", "t-a")
	before := g.run("systemctl", "show", "--property=InvocationID", "t-a")
	g.made(unitOf("t-a", "", sleeper+"# changed\n"))
	if got := g.run("systemctl", "show", "--property=NeedDaemonReload,InvocationID", "t-a"); !strings.Contains(got, "NeedDaemonReload=no") || !strings.Contains(got, before) {
		t.Errorf("a change of the file: %s, before %s", got, before)
	}
	// Written by an agent that was killed before systemd had read it.
	g.put(declare.UnitDir+"/t-a.service", sleeper+"# again\n")
	g.run("touch", "--date=now + 2 seconds", declare.UnitDir+"/t-a.service")
	g.bus.reloads = 0
	if res := g.made(unitOf("t-a", "", sleeper+"# again\n")); !res[0].Changed || g.bus.reloads != 1 {
		t.Errorf("a file that systemd has not read: %+v, %d daemon-reloads", res, g.bus.reloads)
	}
	for words, r := range map[string]declare.Resource{
		"Unknown key 'Restrat'": unitOf("t-bad", "", "[Service]\nExecStart=/bin/true\nRestrat=always\n"),
		"not executable":        unitOf("t-none", "", "[Service]\nExecStart=/usr/bin/there-is-none\n"),
		"Unknown key 'Nonsens'": unitOf("t-a", "60-bad", "[Service]\nNonsens=1\n"),
	} {
		res := g.converge(r, unitOf("t-b", "", sleeper+"# good beside bad\n"))
		e := reason.Of(res[0].Err)
		if !reason.Is(res[0].Err, reason.CheckRejected) || !strings.Contains(e.Evidence, words) || res[0].Changed || strings.Contains(e.Evidence, "/units") {
			t.Errorf("%s: %+v, %q", words, res[0], e.Evidence)
		}
		if res[1].Err != nil {
			t.Errorf("beside %s: %v", words, res[1].Err)
		}
		if r.Unit.DropIn == "" {
			if _, err := os.Lstat(r.Unit.Path(r.Name)); err == nil {
				t.Errorf("%s was written", r.Name)
			}
		}
	}
	if res := g.made(unitOf("t-later", "x", "[Service]\nEnvironment=A=b\n")); !strings.Contains(res[0].Note, "no unit t-later.service yet") {
		t.Errorf("a drop-in of nothing: %+v", res)
	}
	g.put("/usr/lib/systemd/system/t-pkg.service", sleeper)
	if res := g.made(unitOf("t-pkg", "", sleeper+"# ours\n")); !strings.Contains(res[0].Note, "takes the place of /usr/lib/systemd/system/t-pkg.service") {
		t.Errorf("over a package's file: %+v", res)
	}
	g.put("/usr/lib/systemd/system/t-mask.service", sleeper)
	g.run("systemctl", "mask", "t-mask")
	if res := g.converge(unitOf("t-mask", "", sleeper)); !reason.Is(res[0].Err, reason.TypeInTheWay) || !strings.Contains(reason.Of(res[0].Err).Hint, "unmask") {
		t.Errorf("a masked unit: %+v", res)
	}
}

func (g *ground) tree() string {
	g.Helper()
	return hosttest.Tree(g, declare.UnitDir) + g.run("systemctl", "show", "--property=Id,ActiveState,UnitFileState,NeedDaemonReload,StateChangeTimestampMonotonic", "t-one.service", "t-one.timer", "t-two.timer")
}

func TestInsideUnitConformance(t *testing.T) {
	g := newGround(t)
	all := []declare.Resource{unitOf("t-one", "", sleeper), unitOf("t-two", "50-x", "[Service]\nEnvironment=A=b\n")}
	paths := []string{declare.UnitDir + "/t-one.service", declare.UnitDir + "/t-two.service.d/50-x.conf"}
	type sight struct{ text, mode string }
	arrange := func(text string, mode os.FileMode) func(testing.TB) {
		return func(testing.TB) {
			g.clean()
			g.put("/usr/lib/systemd/system/t-two.service", sleeper)
			for _, p := range paths {
				if text != "" {
					g.put(p, text)
					if err := os.Chmod(p, mode); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.run("systemctl", "daemon-reload")
		}
	}
	subject := hosttest.Subject{
		Type: g.units, Remembers: true, Secrets: []string{"hushhush"},
		Observe: func(t testing.TB, i int) any {
			b, err := os.ReadFile(paths[i])
			if err != nil {
				return sight{}
			}
			return sight{string(b), "0" + g.run("stat", "-c", "%a", paths[i])}
		},
		Difference: func(i int, before, after any) (changes []host.Change) {
			b, a := before.(sight), after.(sight)
			add := func(field, from, to string) { changes = append(changes, host.Change{Field: field, From: from, To: to}) }
			name := func(s string) string {
				if s == "" {
					return ""
				}
				return contentText(len(s), content.DigestOf([]byte(s)))
			}
			if b.text == "" {
				add("", "absent", "file")
			}
			if b.text != a.text {
				from := name(b.text)
				if b.mode == "0600" {
					from = fmt.Sprintf("%d B, not shown", len(b.text))
				}
				add("content", from, name(a.text))
			}
			if b.mode != a.mode {
				add("mode", b.mode, a.mode)
			}
			return changes
		},
		Gone:     []any{sight{}, sight{}},
		Snapshot: func(testing.TB) string { return g.tree() },
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange("", 0)},
			{Name: "wrong there", Arrange: arrange("[Service]\nExecStart=/bin/false\n", 0o644)},
			{Name: "a private one there", Arrange: arrange("[Service]\nExecStart=/bin/false\nEnvironment=TOKEN=hushhush\n", 0o600)},
		},
		Disturb: func(testing.TB) {
			for _, p := range paths {
				g.put(p, "[Service]\nExecStart=/bin/true\n# disturbed\n")
			}
		},
	}
	for _, r := range all {
		subject.Declared = append(subject.Declared, declared(r))
	}
	hosttest.Run(t, subject)
}

func timerOf(name string, t declare.Timer) declare.Resource {
	return declare.Resource{Name: name, Timer: &t}
}

func TestInsideTimerConformance(t *testing.T) {
	g := newGround(t)
	all := []declare.Resource{
		timerOf("t-one", declare.Timer{Calendar: []string{"*-*-* 02:00", "Mon 05:00 UTC"}, Command: []string{"/bin/sleep", "infinity"}, Jitter: "15m"}),
		timerOf("t-two", declare.Timer{Calendar: []string{"monthly"}, Unit: "t-other.service"}),
	}
	type sight struct{ timer, service, enabled, active string }
	read := func(p string) string {
		b, _ := os.ReadFile(p) // "" where there is none
		return string(b)
	}
	see := func(name string) sight {
		return sight{read(declare.UnitDir + "/" + name + ".timer"), read(declare.UnitDir + "/" + name + ".service"),
			strings.Split(g.try("systemctl", "is-enabled", name+".timer"), "\n")[0], g.try("systemctl", "is-active", name+".timer")}
	}
	arrange := func(commands string) func(testing.TB) {
		return func(testing.TB) {
			g.clean()
			g.put(declare.UnitDir+"/t-other.service", sleeper)
			g.run("sh", "-ec", "cd /etc/systemd/system\n"+commands+"\nsystemctl daemon-reload")
		}
	}
	word := func(s string) string {
		return map[string]string{"active": "started", "inactive": "stopped", "enabled": "enabled", "disabled": "disabled"}[s]
	}
	subject := hosttest.Subject{
		Type:    g.timers,
		Observe: func(_ testing.TB, i int) any { return see(all[i].Name) },
		Difference: func(i int, before, after any) (changes []host.Change) {
			b, a := before.(sight), after.(sight)
			add := func(field, from, to string) { changes = append(changes, host.Change{Field: field, From: from, To: to}) }
			file := func(label, from, to string) {
				switch {
				case from == to:
				case from == "":
					add(label, "absent", "file")
					add(label+" content", "", contentText(len(to), content.DigestOf([]byte(to))))
					add(label+" mode", "", "0644")
				case to == "":
					add(label+" file", "present", "absent")
				default:
					add(label+" content", contentText(len(from), content.DigestOf([]byte(from))), contentText(len(to), content.DigestOf([]byte(to))))
				}
			}
			file("service", b.service, a.service)
			file("timer", b.timer, a.timer)
			if wasOn, isOn := b.enabled == "enabled", a.enabled == "enabled"; wasOn != isOn {
				from, to := "disabled", "enabled"
				if wasOn {
					from, to = to, from
				}
				add("enabled", from, to)
			}
			if b.active != a.active {
				add("state", word(b.active), word(a.active))
			}
			return changes
		},
		Snapshot: func(testing.TB) string { return g.tree() },
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: arrange("")},
			{Name: "another there", Arrange: arrange("for n in one two; do printf '[Timer]\\nOnCalendar=daily\\nUnit=t-other.service\\n[Install]\\nWantedBy=timers.target\\n' >t-$n.timer; done")},
			{Name: "another runs", Arrange: arrange("for n in one two; do printf '[Timer]\\nOnCalendar=daily\\nUnit=t-other.service\\n[Install]\\nWantedBy=timers.target\\n' >t-$n.timer; done; systemctl daemon-reload; systemctl enable --now t-one.timer t-two.timer")},
		},
		Disturb: func(testing.TB) {
			for _, r := range all {
				g.put(declare.UnitDir+"/"+r.Name+".timer", "[Timer]\nOnCalendar=hourly\nUnit=t-other.service\n")
			}
		},
	}
	for _, r := range all {
		subject.Declared = append(subject.Declared, declared(r))
	}
	g.clean()
	subject.Gone = []any{see("t-one"), see("t-two")}
	t.Run("present", func(t *testing.T) { hosttest.Run(t, subject) })

	subject.Declared = nil
	arrange("")(t)
	g.made(all...)
	for i, r := range all {
		all[i] = timerOf(r.Name, declare.Timer{State: declare.EditAbsent})
		subject.Declared = append(subject.Declared, declared(all[i]))
	}
	keep := g.run("mktemp", "-d")
	g.run("sh", "-ec", "cp -a /etc/systemd/system/t-*.timer /etc/systemd/system/t-one.service "+keep)
	subject.Situations = []hosttest.Situation{{Name: "there", Arrange: arrange("cp -a " + keep + "/* .; systemctl daemon-reload; systemctl enable --now t-one.timer t-two.timer")}}
	subject.Disturb = nil
	t.Run("absent", func(t *testing.T) { hosttest.Run(t, subject) })
}

// TestInsideTimers: a new time counts at once, what runs goes on, absent ends it, and what is somebody else's stays.
func TestInsideTimers(t *testing.T) {
	g := newGround(t)
	g.clean()
	show := func(property, unit string) string {
		return g.run("systemctl", "show", "--value", "--property="+property, unit)
	}
	backup := declare.Timer{Calendar: []string{"*-*-* 02:00 UTC"}, Command: []string{"sleep", "infinity"}, User: "nobody", Directory: "/tmp", Timeout: "1h", Environment: map[string]string{"A": "b c"}}
	if note := g.made(timerOf("t-one", backup))[0].Note; !strings.Contains(note, "it runs next at ") || !strings.Contains(note, "02:00:00 UTC") {
		t.Errorf("note %q", note)
	}
	if got := show("NextElapseUSecRealtime", "t-one.timer"); !strings.Contains(got, "02:00:00") {
		t.Errorf("it elapses %s", got)
	}
	g.run("systemctl", "start", "--no-block", "t-one.service")
	boots.Eventually(t, time.Minute, "the command runs", func() (string, bool) {
		name := g.try("cat", "/proc/"+show("MainPID", "t-one.service")+"/comm")
		return name, name == "sleep"
	})
	pid := show("MainPID", "t-one.service")
	if got := g.run("sh", "-c", "stat -c %U /proc/"+pid+"; readlink /proc/"+pid+"/cwd; tr '\\0' '\\n' </proc/"+pid+"/environ | grep ^A="); got != "nobody\n/tmp\nA=b c" {
		t.Errorf("it runs as %s", got)
	}
	backup.Calendar, backup.Command = []string{"*-*-* 03:30 UTC"}, []string{"sleep", "4711"}
	g.made(timerOf("t-one", backup))
	if got := show("NextElapseUSecRealtime", "t-one.timer"); !strings.Contains(got, "03:30:00") {
		t.Errorf("after a change it elapses %s", got)
	}
	if got := show("MainPID", "t-one.service"); got != pid {
		t.Errorf("the command was ended by a change: %s, was %s", got, pid)
	}
	g.run("systemctl", "stop", "t-one.timer")
	g.made(timerOf("t-one", backup))
	if got := show("MainPID", "t-one.service"); got != pid {
		t.Errorf("the command was ended by a repair")
	}
	g.made(timerOf("t-one", declare.Timer{State: declare.EditAbsent}))
	if got := g.try("sh", "-c", "systemctl is-active t-one.timer t-one.service; ls /etc/systemd/system /etc/systemd/system/timers.target.wants | grep t-one; kill -0 "+pid+" 2>&1"); !strings.HasPrefix(got, "inactive\ninactive\n") || strings.Contains(got, "t-one.") {
		t.Errorf("after it is absent: %s", got)
	}

	// Many share a daemon-reload; one that elapses runs its command.
	g.bus.reloads = 0
	marks := t.TempDir()
	var many []declare.Resource
	for _, n := range []string{"a", "b", "c", "d"} {
		many = append(many, timerOf("t-"+n, declare.Timer{Calendar: []string{"*:*:*"}, Command: []string{"touch", marks + "/" + n}}))
	}
	g.made(many...)
	if g.bus.reloads != 1 {
		t.Errorf("%d daemon-reloads for %d timers", g.bus.reloads, len(many))
	}
	boots.Eventually(t, time.Minute, "all have run", func() (string, bool) {
		list := g.run("ls", marks)
		return list, len(strings.Fields(list)) == 4
	})
	for i := range many {
		many[i].Timer = &declare.Timer{State: declare.EditAbsent}
	}
	g.made(many...)

	// A service that is not a timer's is neither replaced nor removed.
	g.put(declare.UnitDir+"/t-one.service", sleeper)
	g.run("systemctl", "daemon-reload")
	res := g.converge(timerOf("t-one", backup))
	if !reason.Is(res[0].Err, reason.UnitTaken) || !strings.Contains(reason.Of(res[0].Err).Hint, "unit: t-one.service") {
		t.Errorf("over a service of somebody else: %+v", res)
	}
	g.made(timerOf("t-one", declare.Timer{State: declare.EditAbsent}))
	g.run("test", "-e", declare.UnitDir+"/t-one.service")
	g.made(timerOf("t-one", declare.Timer{Calendar: []string{"daily"}, Unit: "t-one.service"}))

	res = g.converge(timerOf("t-two", declare.Timer{Calendar: []string{"daily Nowhere/Town"}, Command: []string{"true"}}))
	if !reason.Is(res[0].Err, reason.CheckRejected) || !strings.Contains(reason.Of(res[0].Err).Evidence, "Nowhere/Town") {
		t.Errorf("an unknown zone: %+v", res)
	}
}

// TestInsideCommandLine runs commands with anything in their arguments and environment, and looks at what arrives.
func TestInsideCommandLine(t *testing.T) {
	g := newGround(t)
	g.clean()
	out := filepath.Join(t.TempDir(), "out")
	// The test binary is the command, by a name that is hard to quote.
	program := filepath.Join(t.TempDir(), "a $HOME ${x} %n;")
	g.run("ln", "-s", binaryFile, program)
	word := rapid.StringOfN(rapid.OneOf(rapid.RuneFrom([]rune("$%\"'\\{};&|<> \n\t\r\x01\x7fäa-@:+!~#=")), rapid.Rune().Filter(func(r rune) bool { return r != 0 && r != 0xfffd })), 0, 8, -1)
	rapid.Check(t, func(rt *rapid.T) {
		args := rapid.SliceOfN(word, 0, 12).Draw(rt, "arguments")
		value := rapid.StringOfN(rapid.RuneFrom([]rune("$%\"'\\{};&|<> \n\täa-@:+!~#=")), 0, 12, -1).Draw(rt, "value")
		timer := &declare.Timer{Command: append([]string{program, "-test.run=^TestCommand$", "--"}, args...), Environment: map[string]string{"VALUE": value, "OUT": out}}
		if err := os.WriteFile(declare.UnitDir+"/t-one.service", []byte(serviceText(timer, "t-one")), 0o644); err != nil {
			rt.Fatal(err)
		}
		if err := g.bus.Bus.Reload(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := g.bus.Start(t.Context(), "t-one.service"); err != nil {
			rt.Fatalf("%q: %v\n%s", args, err, reason.Of(err).Evidence)
		}
		var got commanded
		b, err := os.ReadFile(out)
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil {
			rt.Fatal(err)
		}
		if strings.Join(got.Args, "\x00") != strings.Join(args, "\x00") || len(got.Args) != len(args) || got.Value != value || got.Name != program {
			rt.Fatalf("arrived\n%q\nwant\n%q %q", got, args, value)
		}
	})
}

// commanded is what TestCommand was run with.
type commanded struct {
	Name, Value string
	Args        []string
}

// TestCommand is the command of TestInsideCommandLine.
func TestCommand(t *testing.T) {
	out := os.Getenv("OUT")
	if out == "" {
		t.Skip("needs to be the command of a timer")
	}
	c := commanded{Name: os.Args[0], Value: os.Getenv("VALUE"), Args: os.Args[3:]}
	b, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(out, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
