package apt

import (
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

// configured is a package with a configuration file, which its version has written.
func configured(name, version string) boots.Deb {
	file := "/etc/" + name + ".conf"
	return boots.Deb{Name: name, Version: version, Files: map[string]string{file: "of version " + version + "\n"}, Conffiles: []string{file}}
}

// asking is a package that asks for a password, and for a word.
func asking(name string) boots.Deb {
	const template = "Template: NAME/password\nType: password\nDescription: a password\n a password\n\nTemplate: NAME/word\nType: string\nDefault: none\nDescription: a word\n a word\n"
	return boots.Deb{
		Name: name, Version: "1.0", Fields: map[string]string{"Depends": "debconf"},
		Scripts: map[string]string{
			"templates": strings.ReplaceAll(template, "NAME", name),
			"config":    "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_input high " + name + "/password || :\ndb_input high " + name + "/word || :\ndb_go || :\n",
			"postinst":  "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_get " + name + "/password\nprintf %s \"$RET\" >/root/" + name + ".password\ndb_get " + name + "/word\nprintf %s \"$RET\" >/root/" + name + ".word\n",
		},
	}
}

// TestStates has one host, and on it what goes beyond present and absent.
func TestStates(t *testing.T) {
	lab := boots.NewLab(t)
	h := hostOf(t, lab, simple("one", "1.0"), simple("one", "1.5"), simple("one", "2.0"), simple("two", "1.0"), configured("conf", "1.0"), configured("conf", "2.0"),
		boots.Deb{Name: "stubborn", Version: "1.0", Scripts: map[string]string{"postrm": "#!/bin/sh\n[ \"$1\" != purge ] || { echo words of the script; exit 1; }\n"}},
		boots.Deb{Name: "chatty", Version: "1.0", Fields: map[string]string{"Recommends": "two"}},
		asking("asks"), asking("deaf"))
	h.MustRun(t, "apt-get", "update")
	ground := states{h: h, lab: lab}
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"purged", ground.purged}, {"range", ground.ranges}, {"latest", ground.latest}, {"hold", ground.hold},
		{"options", ground.options}, {"conffiles", ground.conffiles}, {"configuration of the host", ground.ownConfiguration}, {"preseed", ground.preseed}, {"one bad", ground.oneBad},
	} {
		t.Run(part.name, part.test)
	}
}

type states struct {
	h   *boots.Host
	lab *boots.Lab
}

// is fails unless a package could be made as declared and has a version now, "" for none.
func (s states) is(t *testing.T, want string, p declare.Package) answer {
	t.Helper()
	a := apply(t, s.h, p)[0]
	if got := version(t, s.h, p.Package); a.Code != 0 || got != want {
		t.Errorf("%+v: is %q, want %q: %+v", p, got, want, a)
	}
	again := apply(t, s.h, p)[0]
	if again.Code != 0 || len(again.Changes) > 0 || again.Changed {
		t.Errorf("%+v once more: %+v", p, again)
	}
	return a
}

// isNot fails unless a package is refused for a reason, and has the version that it had.
func (s states) isNot(t *testing.T, want reason.Code, words string, p declare.Package) {
	t.Helper()
	before := version(t, s.h, p.Package)
	a := apply(t, s.h, p)[0]
	if a.Code != want || !strings.Contains(a.Error+a.Hint+a.Evidence, words) || version(t, s.h, p.Package) != before {
		t.Errorf("%+v: %+v", p, a)
	}
}

func purged(name string) declare.Package {
	return declare.Package{Package: name, State: declare.PackagePurged}
}

func (s states) exists(t *testing.T, file string) bool {
	t.Helper()
	r, err := s.h.Run(t.Context(), "test", "-e", file)
	return err == nil && r.Code == 0
}

func (s states) purged(t *testing.T) {
	s.is(t, "2.0", present("conf"))
	s.h.Put(t, "/etc/conf.conf", "ours\n", 0o644)
	s.is(t, "", absent("conf"))
	if !s.exists(t, "/etc/conf.conf") {
		t.Error("absent took the configuration away")
	}
	if a := s.is(t, "", purged("conf")); len(a.Changes) != 1 || a.Changes[0].To != "purged" || !a.Changed {
		t.Errorf("%+v", a)
	}
	s.is(t, "2.0", present("conf"))
	s.is(t, "", purged("conf"))
	if s.exists(t, "/etc/conf.conf") {
		t.Error("purged left the configuration")
	}
	apply(t, s.h, present("stubborn"), present("conf"))
	as := apply(t, s.h, purged("stubborn"), purged("conf"))
	if as[0].Code == 0 || !strings.Contains(as[0].Evidence, "words of the script") || as[1].Code != 0 || s.exists(t, "/etc/conf.conf") {
		t.Errorf("one that cannot be purged, and one that can: %+v", as)
	}
	s.h.MustRun(t, "sh", "-c", "rm -f /var/lib/dpkg/info/stubborn.postrm; dpkg --purge stubborn")
}

func (s states) ranges(t *testing.T) {
	s.is(t, "1.5", pinned("one", ">=1 <2"))
	s.is(t, "1.5", pinned("one", ">=1.5"))
	s.is(t, "1.5", present("one"))
	s.is(t, "2.0", pinned("one", ">1.5"))
	s.isNot(t, reason.PackageDowngrade, "1.5", pinned("one", "<2.0"))
	s.isNot(t, reason.PackageVersionGone, "there are: 2.0, 1.5, 1.0", pinned("one", ">2.0"))
	older := pinned("one", "<1.5")
	older.Options = &declare.PackageOptions{AllowDowngrade: true}
	s.is(t, "1.0", older)
	s.is(t, "", absent("one"))
}

func (s states) latest(t *testing.T) {
	latest := declare.Package{Package: "one", State: declare.PackageLatest}
	within := declare.Package{Package: "one", State: declare.PackageLatest, Version: "<2"}
	s.is(t, "1.5", within)
	s.is(t, "2.0", latest)
	s.lab.Repository().Add(t, simple("one", "2.1"))
	s.is(t, "2.0", latest) // nobody has fetched lists
	s.h.MustRun(t, "apt-get", "update")
	if a := s.is(t, "2.1", latest); len(a.Changes) != 1 || a.Changes[0].From != "2.0" || a.Changes[0].To != "2.1" {
		t.Errorf("%+v", a)
	}
	// What is newer than the lists, and a pin of the host.
	s.h.Put(t, "/etc/apt/preferences.d/one", "Package: one\nPin: version 1.0\nPin-Priority: 900\n", 0o644)
	s.is(t, "2.1", latest)
	s.is(t, "", absent("one"))
	s.is(t, "1.0", latest)
	s.h.MustRun(t, "rm", "/etc/apt/preferences.d/one")
	s.is(t, "2.1", latest)
	s.is(t, "", absent("one"))
}

func (s states) hold(t *testing.T) {
	yes, no := true, false
	held := func(version string, hold *bool) declare.Package {
		return declare.Package{Package: "one", Version: version, Hold: hold}
	}
	marked := func() bool { return strings.TrimSpace(s.h.MustRun(t, "apt-mark", "showhold")) == "one" }
	s.is(t, "1.0", held("1.0", &yes))
	if !marked() {
		t.Error("a new package is not held")
	}
	s.h.MustRun(t, "apt-get", "-y", "dist-upgrade")
	if v := version(t, s.h, "one"); v != "1.0" {
		t.Errorf("somebody else has changed it to %s", v)
	}
	s.is(t, "1.5", held("1.5", &yes))
	if !marked() {
		t.Error("a package that has changed is not held")
	}
	s.isNot(t, reason.PackageHeld, "unhold one", held("2.0", nil))
	s.isNot(t, reason.PackageHeld, "unhold one", absent("one"))
	s.is(t, "2.0", held("2.0", &no))
	if marked() {
		t.Error("it is held still")
	}
	s.h.MustRun(t, "apt-mark", "hold", "one")
	if a := s.is(t, "2.0", held("", &no)); !a.Changed || len(a.Changes) != 1 || a.Changes[0].Field != "hold" {
		t.Errorf("the mark of somebody else: %+v", a)
	}
	// Another package that needs a newer version of one that is held.
	s.lab.Repository().Add(t, boots.Deb{Name: "pulls", Version: "1.0", Fields: map[string]string{"Depends": "one (>= 2.1)"}})
	s.lab.Repository().Add(t, simple("two", "1.1"))
	s.h.MustRun(t, "sh", "-c", "apt-get update; apt-mark hold one; apt-get install -y two=1.0; apt-mark hold two")
	as := apply(t, s.h, declare.Package{Package: "two", Version: "1.1", Hold: &yes}, present("pulls"))
	if as[0].Code != 0 || as[1].Code == 0 || version(t, s.h, "one") != "2.0" || version(t, s.h, "two") != "1.1" {
		t.Errorf("%+v", as)
	}
	s.h.MustRun(t, "sh", "-c", "apt-mark unhold one two; apt-get -y purge one two")
}

func (s states) options(t *testing.T) {
	yes, no := true, false
	chatty := func(recommends *bool) declare.Package {
		return declare.Package{Package: "chatty", Options: &declare.PackageOptions{Recommends: recommends}}
	}
	for want, recommends := range map[string]*bool{"": &no, "1.1": &yes} {
		s.is(t, "1.0", chatty(recommends))
		if got := version(t, s.h, "two"); got != want {
			t.Errorf("recommends %t: two is %q", *recommends, got)
		}
		apply(t, s.h, absent("chatty"), absent("two"))
	}
	as := apply(t, s.h, chatty(&no), present("hello"), absent("conf"))
	if as[0].Code != 0 || as[1].Code != 0 || version(t, s.h, "two") != "" || version(t, s.h, "hello") == "" {
		t.Errorf("of two kinds at once: %+v", as)
	}
	apply(t, s.h, absent("chatty"), absent("hello"))
}

func (s states) conffiles(t *testing.T) {
	for policy, want := range map[declare.Conffiles]string{"": "ours\n", declare.ConffilesKeep: "ours\n", declare.ConffilesReplace: "of version 2.0\n"} {
		s.is(t, "1.0", pinned("conf", "1.0"))
		s.h.Put(t, "/etc/conf.conf", "ours\n", 0o644)
		newer := pinned("conf", "2.0")
		newer.Conffiles = policy
		s.is(t, "2.0", newer)
		if got := s.h.Get(t, "/etc/conf.conf"); got != want {
			t.Errorf("%q: %q", policy, got)
		}
		if policy == declare.ConffilesReplace && s.h.Get(t, "/etc/conf.conf.dpkg-old") != "ours\n" {
			t.Error("what was replaced is lost")
		}
		s.is(t, "", purged("conf"))
	}
	newer := pinned("conf", "2.0")
	newer.Conffiles = declare.ConffilesReplace
	s.is(t, "1.0", pinned("conf", "1.0"))
	s.h.MustRun(t, "rm", "/etc/conf.conf")
	s.is(t, "2.0", newer)
	if !s.exists(t, "/etc/conf.conf") {
		t.Error("a missing file has not come back")
	}
}

// ownConfiguration: what the host's own configuration of apt says of conffiles does not come before what is declared.
func (s states) ownConfiguration(t *testing.T) {
	const file = "/etc/apt/apt.conf.d/99own"
	for _, options := range []string{`"--force-confnew"`, `"--force-confdef"; "--force-confold"`, `"--force-confask"; "--force-confmiss"`} {
		s.h.Put(t, file, "Dpkg::Options { "+options+"; };\n", 0o644)
		s.is(t, "", purged("conf"))
		s.conffiles(t)
	}
	s.h.MustRun(t, "rm", file)
}

const secret = "hunter2 $(x) 'y'"

func (s states) preseed(t *testing.T) {
	p := declare.Package{Package: "asks", Preseed: "asks asks/password password " + secret + "\nasks asks/word string a word\n"}
	a := s.is(t, "1.0", p)
	if got := s.h.Get(t, "/root/asks.password") + "|" + s.h.Get(t, "/root/asks.word"); got != secret+"|a word" {
		t.Errorf("answered %q: %+v", got, a)
	}
	s.is(t, "", purged("asks"))

	// Somebody else asks just now.
	const lock = `use Fcntl ":flock"; open(F, "+<", "/var/cache/debconf/config.dat") or die; flock(F, LOCK_EX|LOCK_NB) or die; open(R, ">", "/root/locked"); close(R); sleep 600;`
	holder := s.h.Start(t, "perl", "-e", lock)
	await(t, s.h, "/root/locked")
	a = apply(t, s.h, p)[0]
	if a.Code != reason.PackageLock || a.After == 0 || version(t, s.h, "asks") != "" || strings.Contains(a.Error+a.Evidence+a.Hint, "hunter2") {
		t.Errorf("while debconf is locked: %+v", a)
	}
	holder.Kill(t)
	holder.Wait(t, time.Minute)

	// Nobody takes answers.
	s.h.MustRun(t, "mv", debconfPath, debconfPath+".away")
	deaf := declare.Package{Package: "deaf", Preseed: "deaf deaf/password password " + secret}
	as := apply(t, s.h, deaf, present("two"))
	s.h.MustRun(t, "mv", debconfPath+".away", debconfPath)
	if as[0].Code != reason.PackageAnswersRefused || strings.Contains(as[0].Error+as[0].Evidence+as[0].Hint, "hunter2") || as[1].Code != 0 || version(t, s.h, "deaf") != "" || version(t, s.h, "two") == "" {
		t.Errorf("answers that are not taken: %+v", as)
	}
	if r, err := s.h.Run(t.Context(), "grep", "-rl", "hunter2", "/var/log", "/run", "/tmp"); err != nil || r.Stdout != "" {
		t.Errorf("a password is in %s, %v", r.Stdout, err)
	}
}

// oneBad is about wishes, as case 25 is about packages: one that cannot be met is alone.
func (s states) oneBad(t *testing.T) {
	s.h.MustRun(t, "sh", "-c", "apt-get -y purge one two; apt-get -y install one=2.0")
	as := apply(t, s.h, pinned("one", "<2"), pinned("two", ">=7"), present("tree"), purged("conf"), declare.Package{Package: "hello", State: declare.PackageLatest})
	for i, want := range []reason.Code{reason.PackageDowngrade, reason.PackageVersionGone, 0, 0, 0} {
		if as[i].Code != want {
			t.Errorf("%d: %+v", i, as[i])
		}
	}
	if version(t, s.h, "tree") == "" || version(t, s.h, "hello") == "" {
		t.Error("the others are not there")
	}
}
