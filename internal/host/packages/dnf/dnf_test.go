package dnf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

func TestDnfStates(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1.0-1"}, rpm{name: "one", version: "1.5-1"}, rpm{name: "one", version: "2.0-1"}, rpm{name: "Two_x", version: "3:1.0~rc1-1.el9_2"})
	// The root has never seen a list: the first question fetches them.
	l.made(pinned("one", "1.0-1"), present("Two_x"))
	if one, two := l.installedVersion("one"), l.installedVersion("Two_x"); one != "1.0-1" || two != "3:1.0~rc1-1.el9_2" {
		t.Errorf("one %s, two %s", one, two)
	}
	l.made(declare.Package{Package: "one", Version: ">=1.2 <2"})
	if v := l.installedVersion("one"); v != "1.5-1" {
		t.Errorf("in a range: %s", v)
	}
	l.made(declare.Package{Package: "one", State: declare.PackageLatest})
	if v := l.installedVersion("one"); v != "2.0-1" {
		t.Errorf("latest: %s", v)
	}
	l.refused(pinned("one", "1.0-1"), reason.PackageDowngrade)
	l.made(declare.Package{Package: "one", Version: "1.0-1", Options: &declare.PackageOptions{AllowDowngrade: true}})
	if v := l.installedVersion("one"); v != "1.0-1" {
		t.Errorf("back: %s", v)
	}
	l.made(absent("one"), absent("Two_x"))
	if l.installedVersion("one")+l.installedVersion("Two_x") != "" {
		t.Error("not removed")
	}
	for i, r := range l.apply(absent("one"), absent("nowhere")) {
		if r.Err != nil || r.Changed {
			t.Errorf("%d, absent already: %+v", i, r)
		}
	}
}

func TestAgentCase22_Dnf(t *testing.T) {
	c := casetest.Start(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1.0-1"}, rpm{name: "one", version: "2.0-1"}, rpm{name: "user", version: "1-1", requires: "one"},
		rpm{name: "needs", version: "1-1", requires: "nowhere"})
	l.refused(present("nowhere"), reason.PackageNotFound)
	l.refused(pinned("one", "9-9"), reason.PackageVersionGone, "2.0-1", "1.0-1")
	l.refused(present("needs"), reason.PackageToolFailed, "nothing provides nowhere")
	l.made(present("user"))
	l.refused(absent("one"), reason.PackageToolFailed, "user")
	c.Equal(l.installedVersion("user"), "1-1", "what needs it")
	if r := l.apply(absent("one"), absent("user")); r[0].Err != nil || r[1].Err != nil {
		c.Check(false, "both: %s, %s", told(r[0].Err), told(r[1].Err))
	}

	hold := func(held bool) declare.Package { return declare.Package{Package: "one", Hold: new(held)} }
	l.refused(hold(true), reason.PackageOptionUnsupported, "python3-dnf-plugin-versionlock")
	l.made(absent("one"))
	l.put("etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 1\nlocklist = "+l.root+"/etc/dnf/plugins/versionlock.list\n")
	l.put("etc/dnf/plugins/versionlock.list", "# mine\nother-0:1-1.*\n")
	l.made(pinned("one", "1.0-1"))
	l.made(hold(true))
	text, err := os.ReadFile(l.root + "/etc/dnf/plugins/versionlock.list")
	c.Check(err == nil && string(text) == "# mine\nother-0:1-1.*\none-0:1.0-1.*\n", "list: %q", text)
	l.refused(pinned("one", "2.0-1"), reason.PackageHeld, "dnf versionlock delete one")
	l.refused(absent("one"), reason.PackageHeld)
	l.made(hold(false))
	l.made(pinned("one", "2.0-1"))
	c.Equal(l.installedVersion("one"), "2.0-1", "no longer held")
}

func TestAgentCase25_Dnf(t *testing.T) {
	c := casetest.Start(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1-1"}, rpm{name: "two", version: "1-1"}, rpm{name: "three", version: "1-1"}, rpm{name: "needs", version: "1-1", requires: "nowhere"},
		rpm{name: "breaks", version: "1-1", more: "%pre -p <lua>\nprint('words of the script')\nerror('it fails')\n"})
	rs := l.apply(present("one"), present("nowhere"), present("two"), present("needs"), present("breaks"), present("three"))
	for i, want := range []reason.Code{0, reason.PackageNotFound, 0, reason.PackageToolFailed, reason.PackageToolFailed, 0} {
		got := reason.Code(0)
		if rs[i].Err != nil {
			got = reason.Of(rs[i].Err).Code
		}
		c.Equal(got, want, "code of package "+string(rune('0'+i))+": "+told(rs[i].Err))
	}
	c.Check(strings.Contains(told(rs[3].Err), "nowhere"), "why: %s", told(rs[3].Err))
	c.Check(strings.Contains(told(rs[4].Err), "it fails"), "why: %s", told(rs[4].Err))
	for _, name := range []string{"one", "two", "three"} {
		c.Equal(l.installedVersion(name), "1-1", name)
	}
	transactions := func() int {
		return strings.Count(run(l, "dnf-3", "-q", "--noplugins", "--installroot", l.root, "--releasever", "9", "history", "list"), "|")
	}
	before := transactions()
	l.made(absent("one"), absent("two"))
	c.Check(transactions() > before, "a transaction is noted")
}

func TestDnfLocked(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1-1"})
	l.made(present("one"))
	// perl's fcntl lock is of the kind that rpm takes.
	const lock = `use Fcntl; open(F, ">>", $ARGV[0]) or die; my $l = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; print "held\n"; close(STDOUT); sleep 600;`
	cmd := exec.CommandContext(t.Context(), "perl", "-e", lock, l.back.databaseDir()+"/.rpm.lock")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	l.refused(absent("one"), reason.PackageLock, "perl", "pid ")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	l.made(absent("one"))
}

func TestDnfRepositoryGone(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1-1"}, rpm{name: "two", version: "1-1"})
	l.made(present("two"))
	// What was fetched names a file that the repository does not have any more.
	if err := os.RemoveAll(filepath.Join(l.repo, "noarch")); err != nil {
		t.Fatal(err)
	}
	l.publish(rpm{name: "one", version: "2-1"})
	l.again()
	l.made(present("one"))
	if v := l.installedVersion("one"); v != "2-1" {
		t.Errorf("with new lists: %s", v)
	}
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.again()
	l.refused(present("nowhere"), reason.PackageNotFound, "404")
}

// TestAgentCase29_DnfOffers sees that what a check asks dnf leaves no trace.
func TestAgentCase29_DnfOffers(t *testing.T) {
	c := casetest.Start(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	l := newLab(t)
	l.publish(rpm{name: "one", version: "1-1"}, rpm{name: "one", version: "2-1"})
	l.made(pinned("one", "1-1"))
	see := func() string {
		var kept []string
		for line := range strings.Lines(hosttest.Tree(t, l.root)) {
			if !strings.Contains(line, "-shm\"") && !strings.Contains(line, "-wal\"") { // SQLite's own: it sets their owner
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	before := see()
	p := declare.Package{Package: "one", State: declare.PackageLatest}
	r, err := l.typ.Bind(t.Context(), host.Declared{Title: "package/one", Resource: declare.Resource{Package: &p}})
	c.NoError(err, "bind")
	plan := l.typ.Check(t.Context(), []host.Resource{r}, host.Deep)[0]
	c.Check(plan.Err == nil && len(plan.Changes) == 1 && plan.Changes[0].To == "2-1", "plan: %+v", plan)
	after := see()
	for line := range strings.Lines(after) {
		c.Check(strings.Contains(before, line), "after a check: %s", line)
	}
	c.Check(len(before) == len(after), "something is gone")
}

func TestDnfBind(t *testing.T) {
	if !apart(t) {
		return
	}
	l := newLab(t)
	for _, p := range []declare.Package{{Package: "one", Preseed: "x x/y string z\n"}, {Package: "one", Conffiles: declare.ConffilesReplace}} {
		_, err := l.typ.Bind(t.Context(), host.Declared{Title: "package/one", Resource: declare.Resource{Package: &p}})
		if !reason.Is(err, reason.PackageOptionUnsupported) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if w := l.back.Ways(); len(w.Installed) == 0 || len(w.Lists) == 0 {
		t.Errorf("%+v", w)
	}
}
