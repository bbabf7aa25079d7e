package exec

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// now is this moment.
func now(g *ground) host.Stamp {
	g.Helper()
	s, err := systemd.Now()
	if err != nil {
		g.Fatal(err)
	}
	return host.Stamp(s)
}

func TestSandboxAndWithoutWarden(t *testing.T) {
	if _, err := New(Options{Sandbox: true}).Bind(t.Context(), declared("a", declare.Exec{Command: []string{"true"}})); !reason.Is(err, reason.UnsupportedInRoot) {
		t.Errorf("in a sandbox: %v", err)
	}
	if _, err := New(Options{}).Bind(t.Context(), declared("a", declare.Exec{Command: []string{"true"}})); err == nil {
		t.Error("bound without a way to run it")
	}
}

// TestSecretsAreScrubbed: what a failing command prints of its variables is not shown.
func TestSecretsAreScrubbed(t *testing.T) {
	g := newGround(t)
	e := declare.Exec{Command: sh("set -x; : $TOKEN $LONGER; env; exit 1"), Environment: map[string]string{"TOKEN": "s3cr3t-t0ken", "LONGER": "s3cr3t-t0ken-and-more", "LANGUAGE": "en"}}
	_, res := g.converge(g.bind(e))
	fault := reason.Of(res.Err)
	if fault == nil || strings.Contains(fault.Evidence+fault.Error()+fault.Hint, "s3cr3t") || !strings.Contains(fault.Evidence, "TOKEN=$TOKEN") || !strings.Contains(fault.Evidence, "LANGUAGE=en") {
		t.Errorf("%v: %q", fault, fault.Evidence)
	}
	e.Timeout = "1s"
	e.Command = sh("echo $TOKEN; sleep 60")
	_, res = g.converge(g.bind(e))
	if fault := reason.Of(res.Err); fault == nil || !strings.HasPrefix(fault.Evidence, "$TOKEN") {
		t.Errorf("%+v", fault)
	}
}

func TestNotStarted(t *testing.T) {
	g := newGround(t)
	script := g.write("script", "#!/none/such\n")
	for _, row := range []struct{ program, words, hint string }{
		{"no-such-program", "is in none of", "package"},
		{"/none/such", "no such file", "package"},
		{script, "permission denied", "execute"},
	} {
		_, res := g.converge(g.bind(declare.Exec{Command: []string{row.program}}))
		if fault := reason.Of(res.Err); fault == nil || fault.Code != reason.CommandNotRun || res.Changed || !strings.Contains(fault.Error(), row.words) || !strings.Contains(fault.Hint, row.hint) {
			t.Errorf("%s: %v; %+v", row.program, res.Err, fault)
		}
	}
}

func TestReplacedDeclaration(t *testing.T) {
	g := newGround(t)
	d := declared("a", declare.Exec{Command: []string{"true"}})
	other := declare.Resource{Name: "a", Exec: &declare.Exec{Command: []string{"false"}}}
	d.Body = func() (declare.Resource, error) { return other, nil }
	res, err := g.Bind(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if p := g.look(res.(*resource)); !reason.Is(p.Err, reason.ConcurrentEdit) {
		t.Errorf("%+v", p)
	}
}

// TestDamagedRecord: a record that says nothing is none.
func TestDamagedRecord(t *testing.T) {
	g := newGround(t)
	r := g.bind(declare.Exec{Command: sh("echo run >>" + g.path("runs"))})
	g.made(r)
	for _, text := range []string{"", "{", "{}", `{"digest": 1}`, "\x00"} {
		g.write("state/exec/"+strings.TrimPrefix(r.record, g.path("state/exec/")), text)
		if p := g.look(r); p.Err != nil || p.Empty() {
			t.Errorf("%q: %+v", text, p)
		}
	}
	g.made(r)
	if n := g.runs("runs"); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestTwoConfigsOfOneName(t *testing.T) {
	g := newGround(t)
	for _, config := range []string{"one", "two"} {
		d := declared("same", declare.Exec{Command: sh("echo run >>" + g.path("runs"))})
		d.Key = "exec:NodeConfig//" + config + "/same"
		res, err := g.Bind(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		g.made(res.(*resource))
	}
	if n := g.runs("runs"); n != 2 {
		t.Errorf("%d runs", n)
	}
}

const passwd = `# a comment
root:x:0:0:root:/root:/bin/bash
+::::::
broken:x:one:2:::
www-data:x:33:34:www:/var/www:
dos:x:7:8::/dos:/bin/sh` + "\r\n" + `twice:x:9:9::/first:/bin/sh
twice:x:10:10::/second:/bin/sh
33:x:44:44::/named-by-a-number:/bin/sh
last:x:5:6::/last:/bin/sh`

func TestFindUser(t *testing.T) {
	for name, want := range map[string]entry{
		"root": {name: "root", home: "/root", shell: "/bin/bash"}, "0": {name: "root", home: "/root", shell: "/bin/bash"},
		"www-data": {name: "www-data", uid: 33, gid: 34, home: "/var/www", shell: "/bin/sh"},
		"dos":      {name: "dos", uid: 7, gid: 8, home: "/dos", shell: "/bin/sh"},
		"twice":    {name: "twice", uid: 9, gid: 9, home: "/first", shell: "/bin/sh"},
		"33":       {name: "33", uid: 44, gid: 44, home: "/named-by-a-number", shell: "/bin/sh"},
		"last":     {name: "last", uid: 5, gid: 6, home: "/last", shell: "/bin/sh"}, "5": {name: "last", uid: 5, gid: 6, home: "/last", shell: "/bin/sh"},
	} {
		if got, ok := findUser([]byte(passwd), name); !ok || got != want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "+", "broken", "nobody", "#", "one"} {
		if got, ok := findUser([]byte(passwd), name); ok {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

func FuzzDatabases(f *testing.F) {
	f.Add([]byte(passwd), "root")
	f.Add([]byte("a:x:1:b,c\nd:x:2:b\n+\n"), "b")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if u, ok := findUser(data, name); ok && (u.name == "" || u.home == "" || u.shell == "") {
			t.Errorf("%+v", u)
		}
		_, _ = findGroup(data, name)
		_ = memberships(data, name)
	})
}

func TestMemberships(t *testing.T) {
	data := []byte("adm:x:4:www,a\nwww:x:33:\nx:x:5:awww\ny:x:six:www\nz:x:6:b,www")
	if got := memberships(data, "www"); len(got) != 2 || got[0] != 4 || got[1] != 6 {
		t.Errorf("%v", got)
	}
	if gid, ok := findGroup(data, "www"); !ok || gid != 33 {
		t.Errorf("%d %v", gid, ok)
	}
}

func TestCommandText(t *testing.T) {
	for want, args := range map[string][]string{
		"/bin/true -a": {"/bin/true", "-a"}, `sh -c 'echo "a b"'`: {"sh", "-c", `echo "a b"`}, `x ''"`: nil, `x ''`: {"x", ""}, `x 'it'\''s'`: {"x", "it's"}, `x "\x1b[0m"`: {"x", "\x1b[0m"},
	} {
		if args == nil {
			continue
		}
		if got := commandText(args); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := commandText([]string{strings.Repeat("ä", 200)}); len(got) > commandTextMax+4 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%q", got)
	}
}

// BenchmarkCheck is what a look at a command costs.
func BenchmarkCheck(b *testing.B) {
	for name, e := range map[string]declare.Exec{
		"creates": {Command: []string{"true"}, Creates: "/etc/passwd"}, "guard": {Command: []string{"true"}, Unless: []string{"true"}},
	} {
		b.Run(name, func(b *testing.B) {
			typ := New(Options{StateDir: b.TempDir(), Warden: []string{"/proc/self/exe", wardenArgument}})
			r, err := typ.Bind(b.Context(), declared("a", e))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if p := typ.Check(b.Context(), []host.Resource{r}, host.Deep)[0]; p.Err != nil {
					b.Fatal(p.Err)
				}
			}
		})
	}
}

// TestOrdinaryUserGuards: without root rights nothing can be sealed, so a plan cannot say, and applying it can.
func TestOrdinaryUserGuards(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs to be an ordinary user: TestAsOrdinaryUser runs it")
	}
	g := newGround(t)
	for _, guard := range []string{"true", "false"} {
		g.remove("runs")
		r := g.bind(declare.Exec{Command: sh("echo run >>" + g.path("runs")), OnlyIf: []string{guard}})
		for range 2 {
			p, res := g.converge(r)
			if p.Unknown == "" || res.Err != nil || res.Changed != (guard == "true") {
				t.Errorf("onlyIf %s: %+v, %+v", guard, p, res)
			}
		}
		if n := g.runs("runs"); n != map[string]int{"true": 2, "false": 0}[guard] {
			t.Errorf("onlyIf %s: %d runs", guard, n)
		}
	}
}

// TestGuardOutsideOfItsWindow: what waits for a window is looked at all the same, so its guard is asked for real where its sealed word is
// not good; a preview never asks so.
func TestGuardOutsideOfItsWindow(t *testing.T) {
	g := newGround(t)
	g.needsSeal()
	for name, c := range map[string]struct {
		guard []string
		run   bool
	}{
		"not asked before":     {[]string{"test", "-e", g.path("request")}, false},
		"misled by its seal":   {sh("touch " + g.path("trace")), true},
		"misled the other way": {sh("! touch " + g.path("trace")), false},
	} {
		d := declared(name, declare.Exec{Command: sh("echo run >>" + g.path("runs")), OnlyIf: c.guard})
		d.Resource.WindowFor, d.Resource.Windows = declare.WindowForChanges, []declare.Window{{Opens: "02:00", Duration: "1h"}}
		r, err := g.Bind(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if p := g.Check(t.Context(), []host.Resource{r}, host.Explain)[0]; p.Err != nil || isThere(g.path("trace")) {
			t.Errorf("%s: a preview asks for real: %+v", name, p)
		}
		for range 3 {
			p := g.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]
			if p.Err != nil || p.Unknown != "" || p.Empty() == c.run {
				t.Errorf("%s: %+v, want something to do: %v", name, p, c.run)
			}
		}
		g.remove("trace")
	}
	if isThere(g.path("runs")) {
		t.Error("a check has run a command")
	}
}

// TestAskedPaths: what a guard of test(1) is about is watched.
func TestAskedPaths(t *testing.T) {
	for _, c := range []struct {
		guards [][]string
		want   []string
	}{
		{[][]string{{"test", "-e", "/run/reboot-required"}}, []string{"/run/reboot-required"}},
		{[][]string{{"/usr/bin/test", "!", "-e", "/a", "-a", "-s", "/a", "-o", "/b", "-nt", "/c"}, nil}, []string{"/a", "/b", "/c"}},
		{[][]string{{"test", "-e", "/"}, {"test", "/a/../b", "=", "x/y"}, {"grep", "-q", "x", "/etc/passwd"}}, nil},
		{[][]string{append([]string{"test"}, strings.Split(strings.Repeat("/a/b/c/d/e/f/g/h/", 9), "")...)}, nil},
	} {
		if got := askedPaths(c.guards...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.guards, got, c.want)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("/", i))
	}
	if got := askedPaths(append([]string{"test"}, many...)); len(got) != askedPathsMax {
		t.Errorf("%d are watched", len(got))
	}
	g := newGround(t)
	r := g.bind(declare.Exec{Command: []string{"true"}, Creates: "/made", Unless: []string{"test", "-e", "/asked"}})
	if want := []host.Watch{{Kind: host.WatchPath, Name: "/made"}, {Kind: host.WatchPath, Name: "/asked"}}; !slices.Equal(r.Watches(), want) {
		t.Errorf("watches %v", r.Watches())
	}
}

// TestAsOrdinaryUser runs the tests that make sense without root rights as a user who has none.
func TestAsOrdinaryUser(t *testing.T) {
	needsRoot(t)
	const nobody = 65534
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^(TestConformance|TestAgentCase28_Exec|TestOrdinary|TestSecrets|TestDamaged)", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestConformance ") || !strings.Contains(string(out), "PASS: TestOrdinaryUserGuards ") {
		t.Errorf("as uid %d: %v\n%s", nobody, err, out)
	}
}
