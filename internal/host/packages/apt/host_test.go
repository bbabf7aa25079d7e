package apt

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const (
	// questionVariable carries a question to the test binary that runs in a host whose packages it may do anything with.
	questionVariable = "TAKO_PACKAGES_TEST_QUESTION"
	answerFile       = "/root/packages.answer"
	binaryFile       = "/root/packages.test"
	// answerTime bounds one question: each is a few runs of apt-get.
	answerTime = 2 * time.Minute
)

// question is what the test binary shall do in the host: check the packages, and apply what there is to do.
type question struct {
	Packages  []declare.Package
	CheckOnly bool
	// StopAfter ends the context of Apply when this file has appeared.
	StopAfter string
}

// answer is what became of one package.
type answer struct {
	Changes                      []host.Change
	Code                         reason.Code
	Error, Evidence, Hint, Holds string
	After                        time.Duration
	Changed                      bool
}

func (a *answer) fail(err error) {
	if e := reason.Of(err); e != nil {
		a.Code, a.Error, a.Evidence, a.Hint, a.Holds, a.After = e.Code, e.Error(), e.Evidence, e.Hint, e.Holder, e.After
	}
}

// TestInside answers a question in a host, and is nothing by itself.
func TestInside(t *testing.T) {
	text := os.Getenv(questionVariable)
	if text == "" {
		t.Skip("needs to be inside a host: TestAgentCase20 and others run it there")
	}
	var q question
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(q.answers(t))
	if err == nil {
		err = os.WriteFile(answerFile, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (q question) answers(t *testing.T) []answer {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	typ := packages.New(packages.Options{Backends: []packages.Backend{New()}})
	rs := make([]host.Resource, len(q.Packages))
	for i := range q.Packages {
		var err error
		res := declare.Resource{Package: &q.Packages[i]}
		if rs[i], err = typ.Bind(ctx, host.Declared{Title: "package/x", Resource: res, Body: func() (declare.Resource, error) { return res, nil }}); err != nil {
			t.Fatal(err)
		}
	}
	answers := make([]answer, len(rs))
	var plans []host.Plan
	var at []int
	for i, p := range typ.Check(ctx, rs, host.Shallow) {
		answers[i].Changes = p.Changes
		answers[i].fail(p.Err)
		if !p.Empty() && p.Err == nil && !q.CheckOnly {
			plans, at = append(plans, p), append(at, i)
		}
	}
	if len(plans) == 0 {
		return answers
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	if q.StopAfter != "" {
		waiting.Go(func() {
			boots.Eventually(t, time.Minute, q.StopAfter+" is there", func() (string, bool) {
				_, err := os.Stat(q.StopAfter)
				return fmt.Sprint(err), err == nil
			})
			cancel()
		})
	}
	for k, r := range typ.Apply(ctx, plans) {
		answers[at[k]].Changed = r.Changed
		answers[at[k]].fail(r.Err)
	}
	return answers
}

// aHost boots a host with the test binary in it.
func aHost(t *testing.T, debs ...boots.Deb) *boots.Host {
	t.Helper()
	return hostOf(t, boots.NewLab(t), debs...)
}

func hostOf(t *testing.T, lab *boots.Lab, debs ...boots.Deb) *boots.Host {
	t.Helper()
	for _, deb := range debs {
		lab.Repository().Add(t, deb)
	}
	h := lab.Boot(t, "packages")
	binary := filepath.Join(t.TempDir(), "packages.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	h.CopyIn(t, binary, binaryFile)
	return h
}

// command is what asks a question in a host.
func (q question) command(t *testing.T) []string {
	t.Helper()
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"env", questionVariable + "=" + string(b), binaryFile, "-test.run=^TestInside$"}
}

// ask asks a question in a host.
func ask(t *testing.T, h *boots.Host, q question) []answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	r, err := h.Run(ctx, q.command(t)...)
	if err != nil || r.Code != 0 {
		t.Fatalf("in the host: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	return answered(t, h)
}

func answered(t *testing.T, h *boots.Host) []answer {
	t.Helper()
	var answers []answer
	if err := json.Unmarshal([]byte(h.Get(t, answerFile)), &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// apply makes packages as declared.
func apply(t *testing.T, h *boots.Host, ps ...declare.Package) []answer {
	t.Helper()
	return ask(t, h, question{Packages: ps})
}

func present(name string) declare.Package { return declare.Package{Package: name} }

func pinned(name, version string) declare.Package {
	return declare.Package{Package: name, Version: version}
}

func absent(name string) declare.Package {
	return declare.Package{Package: name, State: declare.PackageAbsent}
}

// version is which version of a package dpkg itself says is installed, "" for none.
func version(t *testing.T, h *boots.Host, name string) string {
	t.Helper()
	r, err := h.Run(t.Context(), "dpkg-query", "--show", "--showformat=${Status} ${Version}", name)
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range []string{"install ok installed ", "hold ok installed "} {
		if v, ok := strings.CutPrefix(r.Stdout, is); ok {
			return v
		}
	}
	return ""
}

func simple(name, version string) boots.Deb { return boots.Deb{Name: name, Version: version} }

func TestAgentCase20_LockHeld(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t, simple("one", "1.0"))
	h.MustRun(t, "apt-get", "update")
	// perl is in every Debian; its lock is of the kind that dpkg takes.
	const lock = `use Fcntl; open(F, ">>", $ARGV[0]) or die; my $l = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; open(R, ">", "/root/locked"); close(R); sleep 600;`
	for _, name := range []string{"lock-frontend", "lock"} {
		h.MustRun(t, "rm", "-f", "/root/locked")
		holder := h.Start(t, "perl", "-e", lock, "/var/lib/dpkg/"+name)
		boots.Eventually(t, time.Minute, "the lock is held", func() (string, bool) {
			r, err := h.Run(t.Context(), "test", "-e", "/root/locked")
			return holder.Stderr(), err == nil && r.Code == 0
		})
		a := apply(t, h, present("one"))[0]
		c.Equal(a.Code, reason.PackageLock, "code while "+name+" is held")
		c.Check(strings.Contains(a.Holds, "pid ") && strings.Contains(a.Holds, "(perl)"), "holder is %q", a.Holds)
		c.Check(a.After > 0 && !a.Changed, "%+v", a)
		holder.Kill(t)
		holder.Wait(t, time.Minute)
	}
	a := apply(t, h, present("one"))[0]
	c.Check(a.Code == 0 && a.Changed, "after the lock is gone: %+v", a)
	c.Equal(version(t, h, "one"), "1.0", "one")
}

func TestAgentCase21_Interrupted(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t, simple("one", "1.0"), boots.Deb{
		Name: "slow", Version: "1.0",
		Scripts: map[string]string{"postinst": "#!/bin/sh\nif [ ! -e /root/go ]; then touch /root/slow; exec sleep 600; fi\n"},
	}, boots.Deb{
		Name: "bad", Version: "1.0", Scripts: map[string]string{"postinst": "#!/bin/sh\necho words of the script\nexit 3\n"},
	})
	h.MustRun(t, "apt-get", "update")

	// Power fails while a package is configured.
	h.Start(t, "apt-get", "install", "-y", "slow")
	await(t, h, "/root/slow")
	h.PowerCut(t)
	h.Boot(t)
	h.MustRun(t, "touch", "/root/go")
	as := apply(t, h, present("one"), present("slow"))
	c.Check(as[0].Code == 0 && as[0].Changed && as[1].Code == 0 && as[1].Changed, "after the power came back: %+v", as)
	c.Equal(version(t, h, "one"), "1.0", "one")
	c.Equal(version(t, h, "slow"), "1.0", "slow")

	// A package that cannot be configured keeps nobody else from anything.
	for range 2 {
		as = apply(t, h, present("bad"), absent("one"), present("hello"))
		c.Equal(as[0].Code, reason.PackageInterrupted, "code of the broken package")
		c.Check(strings.Contains(as[0].Evidence, "words of the script"), "evidence: %q", as[0].Evidence)
		c.Check(as[1].Code == 0 && as[2].Code == 0, "the others: %+v", as[1:])
		c.Equal(version(t, h, "one"), "", "one")
		c.Check(version(t, h, "hello") != "", "hello is installed")
		h.MustRun(t, "apt-get", "install", "-y", "one", "hello-", "bad-") // back, bad included
	}
}

func await(t *testing.T, h *boots.Host, file string) {
	t.Helper()
	boots.Eventually(t, time.Minute, file+" is there", func() (string, bool) {
		r, err := h.Run(t.Context(), "test", "-e", file)
		return r.Stderr, err == nil && r.Code == 0
	})
}

func TestAgentCase22_Refused(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t, simple("one", "1.0"), simple("one", "2.0"), boots.Deb{Name: "user", Version: "1", Fields: map[string]string{"Depends": "one"}},
		boots.Deb{Name: "rival", Version: "1", Fields: map[string]string{"Conflicts": "one"}},
		boots.Deb{Name: "concrete", Version: "1", Fields: map[string]string{"Provides": "virtual"}})
	// The host has never seen a list: the first question fetches them.
	as := apply(t, h, pinned("one", "1.0"), present("nowhere"), pinned("hello", "0.0"), present("virtual"))
	c.Check(as[0].Code == 0 && as[0].Changed, "an old version: %+v", as[0])
	c.Equal(version(t, h, "one"), "1.0", "one")
	c.Equal(as[1].Code, reason.PackageNotFound, "code of a package in no list")
	c.Equal(as[2].Code, reason.PackageVersionGone, "code of a version in no list")
	c.Check(strings.Contains(as[2].Hint, "2."), "the versions that there are: %q", as[2].Hint)
	c.Equal(as[3].Code, reason.PackageNotFound, "code of a name that is no package")

	a := apply(t, h, pinned("one", "2.0"))[0]
	c.Check(a.Code == 0 && a.Changed, "upgrade: %+v", a)
	older := pinned("one", "1.0")
	a = apply(t, h, older)[0]
	c.Check(a.Code == reason.PackageDowngrade && strings.Contains(a.Error, "2.0"), "downgrade: %+v", a)
	c.Equal(version(t, h, "one"), "2.0", "one")
	older.Options = &declare.PackageOptions{AllowDowngrade: true}
	a = apply(t, h, older)[0]
	c.Check(a.Code == 0 && a.Changed, "downgrade that is allowed: %+v", a)
	c.Equal(version(t, h, "one"), "1.0", "one")

	h.MustRun(t, "apt-mark", "hold", "one")
	for _, p := range []declare.Package{pinned("one", "2.0"), absent("one")} {
		c.Equal(apply(t, h, p)[0].Code, reason.PackageHeld, "code of a held package")
	}
	c.Equal(apply(t, h, present("one"))[0].Code, reason.Code(0), "code of a held package that may be as it is")
	h.MustRun(t, "apt-mark", "unhold", "one")

	apply(t, h, present("user"))
	a = apply(t, h, absent("one"))[0]
	c.Check(a.Code == reason.PackageToolFailed && strings.Contains(a.Error, "user"), "what others need: %+v", a)
	a = apply(t, h, present("rival"))[0]
	c.Check(a.Code == reason.PackageToolFailed, "what needs others away: %+v", a)
	a = apply(t, h, absent("bash"))[0]
	c.Check(a.Code == reason.PackageToolFailed, "an essential package: %+v", a)
	for _, name := range []string{"one", "user", "bash"} {
		c.Check(version(t, h, name) != "", "%s is installed", name)
	}
	as = apply(t, h, absent("one"), absent("user"), present("rival"))
	c.Check(!slices.ContainsFunc(as, func(a answer) bool { return a.Code != 0 || !a.Changed }), "all declared: %+v", as)
	c.Equal(version(t, h, "one"), "", "one")
}

func TestAgentCase24_NoStartBeforeConfiguration(t *testing.T) {
	c := casetest.Start(t)
	daemon := func(name, version string) boots.Deb {
		return boots.Deb{
			Name: name, Version: version,
			Files: map[string]string{"/lib/systemd/system/" + name + ".service": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"},
			Scripts: map[string]string{
				"postinst": "#!/bin/sh\nset -e\nsystemctl daemon-reload\ndeb-systemd-helper enable " + name + ".service\nif [ -n \"$2\" ]; then a=restart; else a=start; fi\ndeb-systemd-invoke $a " + name + ".service\n",
				"prerm":    "#!/bin/sh\nset -e\n[ \"$1\" != remove ] || deb-systemd-invoke stop " + name + ".service\n",
			},
		}
	}
	h := aHost(t, daemon("daemon", "1.0"), daemon("daemon", "2.0"), daemon("other", "1.0"), simple("one", "1.0"))
	isActive := func(unit string) string {
		r, _ := h.Run(t.Context(), "systemctl", "is-active", unit)
		return strings.TrimSpace(r.Stdout)
	}
	pid := func() string { return h.MustRun(t, "systemctl", "show", "--property=MainPID", "daemon.service") }
	clean := func() {
		c.Equal(h.MustRun(t, "sh", "-c", "ls -d /usr/sbin/policy-rc.d /run/tako-packages 2>/dev/null || :"), "", "what is left of the guard")
	}

	c.Check(apply(t, h, pinned("daemon", "1.0"))[0].Changed, "installed")
	c.Equal(isActive("daemon"), "inactive", "a new service")
	clean()
	h.MustRun(t, "systemctl", "start", "daemon")
	before := pid()
	a := apply(t, h, pinned("daemon", "2.0"))[0]
	c.Check(a.Code == 0, "upgrade: %+v", a)
	c.Equal(isActive("daemon"), "active", "a service that ran before its upgrade")
	c.Check(pid() != before, "its upgrade restarts it")
	clean()
	c.Check(apply(t, h, absent("daemon"))[0].Code == 0, "removed")
	c.Equal(isActive("daemon"), "inactive", "a service of a removed package")

	// The host's own rule counts too, and stays.
	const own = "#!/bin/sh\necho \"$@\" >>/root/asked\nexit 101\n"
	h.Put(t, "/usr/sbin/policy-rc.d", own, 0o755)
	h.MustRun(t, "systemctl", "daemon-reload")
	c.Check(apply(t, h, present("daemon"), present("other"))[0].Code == 0, "installed again")
	c.Equal(h.Get(t, "/usr/sbin/policy-rc.d"), own, "the host's own rule")
	h.MustRun(t, "systemctl", "start", "other")
	c.Check(apply(t, h, absent("other"))[0].Code == 0, "removed")
	c.Check(strings.Contains(h.Get(t, "/root/asked"), "other.service stop"), "the host's own rule was asked: %q", h.Get(t, "/root/asked"))
	h.MustRun(t, "rm", "/usr/sbin/policy-rc.d", "/root/asked")
	h.MustRun(t, "apt-get", "remove", "-y", "daemon")

	// nginx itself, by its own scripts.
	c.Check(apply(t, h, present("nginx"))[0].Changed, "nginx")
	c.Equal(isActive("nginx"), "inactive", "nginx")
	clean()
}

// TestAgentCase24_Killed ends everything in the middle of a transaction: services start as ever afterwards.
func TestAgentCase24_Killed(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t, simple("one", "1.0"), boots.Deb{
		Name: "slow", Version: "1.0",
		Scripts: map[string]string{"postinst": "#!/bin/sh\nif [ ! -e /root/go ]; then touch /root/slow; exec sleep 600; fi\n"},
	})
	h.MustRun(t, "apt-get", "update")
	h.Start(t, question{Packages: []declare.Package{present("slow")}}.command(t)...)
	await(t, h, "/root/slow")
	h.PowerCut(t)
	h.Boot(t)
	r, err := h.Run(t.Context(), "test", "-x", "/usr/sbin/policy-rc.d")
	c.Check(err == nil && r.Code != 0, "nobody asks what is left: %+v, %v", r, err)
	h.MustRun(t, "touch", "/root/go")
	c.Check(apply(t, h, present("one"))[0].Code == 0, "one")
	r, err = h.Run(t.Context(), "test", "-e", "/usr/sbin/policy-rc.d")
	c.Check(err == nil && r.Code != 0, "nothing is left after the next transaction: %+v, %v", r, err)
	c.Equal(version(t, h, "slow"), "1.0", "slow")

	// The agent ends in the middle of a transaction: that goes on, and the next agent waits for it.
	h.MustRun(t, "rm", "/root/go", "/root/slow")
	h.MustRun(t, "apt-get", "purge", "-y", "slow")
	a := ask(t, h, question{Packages: []declare.Package{present("slow")}, StopAfter: "/root/slow"})[0]
	c.Equal(a.Code, reason.Interrupted, "code of a transaction that is left alone")
	a = apply(t, h, present("slow"))[0]
	c.Equal(a.Code, reason.PackageLock, "code while it goes on")
	c.Check(strings.Contains(a.Holds, "(apt-get)") || strings.Contains(a.Holds, "(dpkg)"), "holder: %q", a.Holds)
	h.MustRun(t, "touch", "/root/go")
	h.MustRun(t, "sh", "-c", "kill $(pidof sleep | tr ' ' '\\n' | sort -n | tail -1)")
	c.Eventually(time.Minute, "it has come to its end", func() (string, bool) {
		a := ask(t, h, question{Packages: []declare.Package{present("slow")}})[0]
		return a.Error, a.Code == 0
	})
	c.Equal(version(t, h, "slow"), "1.0", "slow")
}

// TestOldLists installs with lists that name a file which the repository does not have any more.
func TestOldLists(t *testing.T) {
	lab := boots.NewLab(t)
	h := hostOf(t, lab, simple("one", "1.0"))
	h.MustRun(t, "apt-get", "update")
	h.MustRun(t, "sh", "-c", "sed -i s/one_1.0/one_0.9/ /var/lib/apt/lists/*Packages")
	lab.Repository().Add(t, simple("two", "1.0"))
	if a := apply(t, h, present("one"), present("hello"))[0]; a.Code != 0 || version(t, h, "one") != "1.0" {
		t.Errorf("%+v", a)
	}
}

// TestRemovalAlone keeps a package that would go if what replaces it fails.
func TestRemovalAlone(t *testing.T) {
	h := aHost(t, simple("old", "1.0"), boots.Deb{Name: "user", Version: "1.0", Fields: map[string]string{"Depends": "old | new"}},
		boots.Deb{Name: "new", Version: "1.0", Scripts: map[string]string{"preinst": "#!/bin/sh\nexit 1\n"}})
	h.MustRun(t, "apt-get", "update")
	h.MustRun(t, "apt-get", "install", "-y", "old", "user")
	as := apply(t, h, present("new"), absent("old"))
	if as[0].Code == 0 || as[1].Code != reason.PackageToolFailed {
		t.Errorf("%+v", as)
	}
	if version(t, h, "user") == "" {
		t.Error("a package that nobody declared absent was removed")
	}
}

func TestAgentCase25_OneBad(t *testing.T) {
	c := casetest.Start(t)
	h := aHost(t, simple("one", "1.0"), simple("two", "1.0"),
		boots.Deb{Name: "needs", Version: "1", Fields: map[string]string{"Depends": "nowhere"}},
		boots.Deb{Name: "breaks", Version: "1", Scripts: map[string]string{"preinst": "#!/bin/sh\necho words of the script\nexit 1\n"}})
	as := apply(t, h, present("one"), present("nowhere"), present("two"), present("needs"), present("breaks"), present("tree"))
	for i, want := range []reason.Code{0, reason.PackageNotFound, 0, reason.PackageToolFailed, reason.PackageToolFailed, 0} {
		c.Equal(as[i].Code, want, "code of package "+string(rune('0'+i))+": "+as[i].Error)
	}
	c.Check(strings.Contains(as[3].Evidence, "nowhere"), "why: %+v", as[3])
	c.Check(strings.Contains(as[4].Evidence, "words of the script"), "why: %+v", as[4])
	for _, name := range []string{"one", "two", "tree"} {
		c.Check(version(t, h, name) != "", "%s is installed", name)
	}

	transactions := func() int { return strings.Count(h.Get(t, "/var/log/apt/history.log"), "Commandline:") }
	before := transactions()
	for _, a := range apply(t, h, absent("one"), absent("two"), absent("tree"), present("hello"), present("sl")) {
		c.Check(a.Code == 0 && a.Changed, "%+v", a)
	}
	c.Equal(transactions()-before, 1, "transactions")
}
