package setting

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

func sysctlOf(key, value string) declare.Resource {
	return declare.Resource{Name: key, Sysctl: &declare.Sysctl{Value: value}}
}

// TestAgentCase33_SysctlOverridden has files before and after ours in the order of sysctl.d(5), and compares with systemd-sysctl itself.
func TestAgentCase33_SysctlOverridden(t *testing.T) {
	c := casetest.Start(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	g := newGround(t, "/")
	forward := sysctlOf("net.ipv4.ip_forward", "1")
	g.Made(forward)
	c.Equal(strings.TrimSpace(g.see(t, proc("net.ipv4.ip_forward"))), "1", "now")

	// What comes earlier, is a pattern, is hidden by a file of its name, or says the same, changes nothing.
	for p, body := range map[string]string{
		"/etc/sysctl.d/10-x.conf": "net.ipv4.ip_forward=0\n", "/usr/lib/sysctl.d/99-sysctl2.conf": "net.ipv4.ip_forward=0\n",
		"/etc/sysctl.d/zz-pattern.conf": "net.ipv4.ip_*=0\n", "/usr/lib/sysctl.d/zz-hidden.conf": "net.ipv4.ip_forward=0\n", "/etc/sysctl.d/zz-hidden.conf": "-> /dev/null",
		"/etc/sysctl.d/zz-same.conf": "net/ipv4/ip_forward =  1\n", "/etc/sysctl.d/zz-no.confx": "net.ipv4.ip_forward=0\n",
	} {
		g.put(t, p, body)
	}
	if res := g.Converge(forward); res.Err != nil || res.Changed {
		c.Check(false, "with files that change nothing: %s", hosttest.Told(res.Err))
	}

	later := "/etc/sysctl.d/zzz.conf"
	for _, line := range []string{"net.ipv4.ip_forward = 0", "-net.ipv4.ip_forward=0", "net/ipv4/ip_forward=0"} {
		g.put(t, later, "# not ours\n; nor this\n"+line+"\n")
		res := g.Refused(forward, reason.SettingOverridden, later+":3", "sets it to 0", "take that line out")
		c.Check(!res.Changed, "something changed although all that is ours is right")
		c.Equal(g.see(t, later), "# not ours\n; nor this\n"+line+"\n", "the file of another")
	}
	// All that can be done is done all the same, and then it is told.
	run(t, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	res := g.Refused(forward, reason.SettingOverridden, later)
	c.Check(res.Changed, "nothing was changed")
	c.Equal(strings.TrimSpace(g.see(t, proc("net.ipv4.ip_forward"))), "1", "in spite of the file")

	// A link counts where it stands, and what it leads to is watched for.
	g.put(t, "/etc/other.conf", "net.ipv4.ip_forward=0\n")
	g.put(t, later, "-> ../other.conf")
	g.Refused(forward, reason.SettingOverridden, later+":1")
	g.put(t, "/etc/other.conf", "net.ipv4.ip_forward=1\n")
	c.NoError(g.Converge(forward).Err, "converge with a link that says the same")
	if program, err := exec.LookPath("/usr/lib/systemd/systemd-sysctl"); err == nil {
		g.put(t, later, "")
		run(t, "sysctl", "-qw", "net.ipv4.ip_forward=0")
		run(t, program, "--prefix=/net/ipv4/ip_forward")
		c.Equal(strings.TrimSpace(g.see(t, proc("net.ipv4.ip_forward"))), "1", "what systemd-sysctl makes of all these files")
	}
}

func TestSysctl(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	g.Refused(sysctlOf("net.ipv4.vs.no_such", "1"), reason.SettingUnknown, "/proc/sys/net/ipv4/vs/no_such", "kernelModule: {module: ip_vs}")
	g.Refused(sysctlOf("net.ipv4.ip_foward", "1"), reason.SettingUnknown, "did you mean net.ipv4.ip_forward?")
	g.Refused(sysctlOf("net.nowhere.at_all", "1"), reason.SettingUnknown, "module that is not loaded")
	g.Refused(sysctlOf("net.ipv4.ip_forward", "many"), reason.SettingRefused, "invalid argument")
	g.Refused(sysctlOf("net.ipv4.route.flush", "1"), reason.SettingRefused, "command to the kernel")
	g.Refused(sysctlOf("net.ipv4.ip_local_reserved_ports", "8081,8080"), reason.SettingRefused, "8080-8081", "as the kernel has it")
	if body := g.see(t, "/etc/sysctl.d/99-tako-net.ipv4.ip_forward.conf"); body != "" {
		t.Errorf("what the kernel has refused is set at boot: %q", body)
	}
	// Blanks are of no account, and a dot within a part is a slash.
	run(t, "ip", "link", "set", "lo", "name", "t.1")
	g.Made(declare.Resource{Name: "x", Sysctl: &declare.Sysctl{Key: "net.ipv4.conf.t/1.forwarding", Value: "1"}})
	if got := strings.TrimSpace(g.see(t, "/proc/sys/net/ipv4/conf/t.1/forwarding")); got != "1" {
		t.Errorf("net.ipv4.conf.t/1.forwarding is %q", got)
	}
	if got := assignments(g.see(t, "/etc/sysctl.d/99-tako-net.ipv4.conf.t:1.forwarding.conf")); got["net.ipv4.conf.t/1.forwarding"].value != "1" {
		t.Errorf("the file says %v", got)
	}
	// In a container the parameters are read-only.
	run(t, "mount", "-o", "bind,ro", "/proc/sys", "/proc/sys")
	g.Refused(sysctlOf("net.ipv4.ip_forward", "1"), reason.SettingRefused, "in a container")
	// In a sandbox there are none.
	sandbox := newGround(t, t.TempDir())
	for _, r := range []declare.Resource{
		sysctlOf("net.ipv4.ip_forward", "1"), {Name: "x", KernelModule: &declare.KernelModule{}}, {Name: "x", Hostname: &declare.Hostname{Name: "x"}},
		{Name: "x", Locale: &declare.Locale{Generate: []string{"de_DE.UTF-8"}}},
	} {
		sandbox.Refused(r, reason.UnsupportedInRoot)
	}
}

func TestModule(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	module := func(name string, state declare.ModuleState, options map[string]string) declare.Resource {
		return declare.Resource{Name: name, KernelModule: &declare.KernelModule{State: state, Options: options}}
	}
	g.Refused(module("nosuch", "", nil), reason.SettingUnknown, "Module nosuch not found")
	g.Refused(module("forbidden", "", nil), reason.SettingRefused, "Operation not permitted")
	if body := g.see(t, "/etc/modules-load.d/tako-nosuch.conf"); body != "" {
		t.Errorf("what cannot be loaded is loaded at boot: %q", body)
	}
	// Built in is loaded, whether the kernel shows it or only the list of its distribution does.
	run(t, "mkdir", "-p", "/sys/module/t_shown/parameters")
	for _, name := range []string{"t_shown", "t_inside"} {
		g.Made(module(name, "", nil))
		g.Refused(module(name, declare.ModuleBlocked, nil), reason.SettingRefused, "built into")
		g.Refused(module(name, declare.ModuleUnloaded, nil), reason.SettingRefused, "built into")
	}
	// Options of one that is loaded already are told.
	g.Made(module("t_late", "", map[string]string{"flag": "Y"}))
	g.put(t, "/sys/module/t_late/parameters/size", "7\n")
	if res := g.Made(module("t_late", "", map[string]string{"flag": "1", "size": "8"})); !strings.Contains(res.Note, "size is 7") || strings.Contains(res.Note, "flag") {
		t.Errorf("note: %q", res.Note)
	}
	if res := g.Made(module("t_inside", "", map[string]string{"size": "8"})); !strings.Contains(res.Note, "t_inside.size=8") {
		t.Errorf("note: %q", res.Note)
	}
	// One in use stays, and who uses it is named; it is blocked for the next boot all the same.
	run(t, "mkdir", "-p", "/sys/module/t_late/holders/t_user")
	g.Refused(module("t_late", declare.ModuleBlocked, nil), reason.ModuleInUse, "by t_user")
	if conf := g.see(t, "/etc/modprobe.d/tako-t_late.conf"); !blocks(conf, "t_late") {
		t.Errorf("not blocked: %q", conf)
	}
	run(t, "rmdir", "/sys/module/t_late/holders/t_user")
	g.put(t, "/sys/module/t_late/refcnt", "2\n")
	g.Refused(module("t_late", declare.ModuleUnloaded, nil), reason.ModuleInUse, "2 times")
	g.put(t, "/sys/module/t_late/refcnt", "0\n")
	g.Made(module("t_late", declare.ModuleBlocked, nil))
	// Somebody else's block.
	g.put(t, "/etc/modprobe.d/other.conf", "install t_other /bin/false\n")
	g.Refused(module("t_other", "", nil), reason.CommandFailed, "a file in /etc/modprobe.d blocks it")
	// Without modules or without modprobe there is a reason in words.
	run(t, "umount", "/usr/local/sbin")
	if _, err := exec.LookPath("modprobe"); err != nil {
		g.Refused(module("t_new", "", nil), reason.ModulesUnavailable, "no modprobe")
	}
	run(t, "umount", "--lazy", "/usr/lib")
	if _, err := os.Stat(modulesDir); err != nil {
		g.Refused(module("t_new", "", nil), reason.ModulesUnavailable, "in a container")
	}
	g.Made(module("t_absent", declare.ModuleBlocked, nil)) // that needs neither
}

func TestHostname(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	g.put(t, hostnameFile, "# a comment\n\n  me  \n")
	run(t, "hostname", "me")
	if res := g.Converge(declare.Resource{Name: "x", Hostname: &declare.Hostname{Name: "me"}}); res.Err != nil || res.Changed {
		t.Errorf("a name with a comment is as declared: %+v", res)
	}
	g.Refused(declare.Resource{Name: "x", Expand: true, Hostname: &declare.Hostname{Name: "localhost"}}, reason.InvalidValue, "$(...)")
	// As containers have it: the file is mounted by itself.
	g.put(t, "/etc/own", "old\n")
	run(t, "mount", "--bind", "/etc/own", hostnameFile)
	g.Made(declare.Resource{Name: "x", Hostname: &declare.Hostname{Name: "new"}})
	if got := g.see(t, "/etc/own"); got != "new\n" {
		t.Errorf("the mounted file has %q", got)
	}
}

func TestTimezone(t *testing.T) {
	if _, err := os.Stat(zoneInfo + "/Europe/Berlin"); err != nil {
		t.Skip("needs tzdata")
	}
	dir := t.TempDir()
	g := newGround(t, dir)
	zone := func(name string) declare.Resource {
		return declare.Resource{Name: "zone", Timezone: &declare.Timezone{Zone: name}}
	}
	for wrong, near := range map[string]string{"Europe/Berln": "Europe/Berlin", "europe/berlin": "Europe/Berlin", "Mars/Olympus_Mons": "timedatectl", "Europe": "timedatectl"} {
		g.Refused(zone(wrong), reason.SettingUnknown, near)
	}
	for _, c := range []struct{ before, debian, zone, want string }{
		{"", "", "Europe/Berlin", "-> ../usr/share/zoneinfo/Europe/Berlin"},
		{"", "12.1\n", "Europe/Berlin", "-> /usr/share/zoneinfo/Europe/Berlin"},
		{"-> /usr/share/zoneinfo/UTC", "", "America/Argentina/Buenos_Aires", "-> /usr/share/zoneinfo/America/Argentina/Buenos_Aires"},
		{"-> ../usr/share/zoneinfo/UTC", "12.1\n", "Cuba", "-> ../usr/share/zoneinfo/Cuba"},
		{"TZif2", "12.1\n", "UTC", "-> /usr/share/zoneinfo/UTC"},
	} {
		g.put(t, localtime, c.before)
		g.put(t, "/etc/debian_version", c.debian)
		g.Made(zone(c.zone))
		if got := g.see(t, localtime); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if got := g.see(t, timezoneFile); got != "" {
			t.Errorf("%+v: %s was made", c, timezoneFile)
		}
	}
	// A sandbox with zones of its own has those.
	g.put(t, zoneInfo+"/Own/Zone", "TZif2")
	g.Made(zone("Own/Zone"))
	g.Refused(zone("Europe/Berlin"), reason.SettingUnknown)
	g.put(t, zoneInfo+"/Own/Zone", "no zone")
	g.Refused(zone("Own/Zone"), reason.SettingUnknown)
	g.put(t, localtime, "")
	g.put(t, localtime+"/x", "a directory is in the way")
	g.put(t, zoneInfo+"/Own/Zone", "TZif2")
	g.Refused(zone("Own/Zone"), reason.TypeInTheWay)
}

func TestLocale(t *testing.T) {
	dir := t.TempDir()
	g := newGround(t, dir)
	lang := declare.Resource{Name: "x", Locale: &declare.Locale{Lang: "de_DE.UTF-8"}}
	for _, c := range []struct{ conf, deb, debian, wantConf, wantDeb string }{
		{"", "", "", "LANG=de_DE.UTF-8\n", ""},
		{"", "", "12\n", "", "LANG=de_DE.UTF-8\n"},
		{"", "#x\n", "12\n", "", "#x\nLANG=de_DE.UTF-8\n"},
		{"", "X=y", "", "", "X=y\nLANG=de_DE.UTF-8\n"},
		{"LC_TIME=C\n", "-> ../locale.conf", "13\n", "LC_TIME=C\nLANG=de_DE.UTF-8\n", "-> ../locale.conf"},
		{"-> default/locale", "LANG=C\nX=y\nLANG='x'\n", "12\n", "-> default/locale", "LANG=de_DE.UTF-8\nX=y\n"},
	} {
		g.put(t, localeConf, c.conf)
		g.put(t, localeDeb, c.deb)
		g.put(t, "/etc/debian_version", c.debian)
		g.Made(lang)
		if conf, deb := g.see(t, localeConf), g.see(t, localeDeb); conf != c.wantConf || deb != c.wantDeb {
			t.Errorf("%+v: %q, %q", c, conf, deb)
		}
	}
}

// TestLocaleGenerated has the host's own locale-gen compile a small locale.
func TestLocaleGenerated(t *testing.T) {
	if _, err := exec.LookPath("locale-gen"); err != nil {
		t.Skip("needs locale-gen")
	}
	if _, err := os.Stat(localeGen); err != nil {
		t.Skip("needs locale-gen")
	}
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	before := g.see(t, localeGen)
	small := declare.Resource{Name: "x", Locale: &declare.Locale{Lang: "de_DE.UTF-8", Generate: []string{"de_DE.UTF-8", "C.UTF-8"}}}
	if _, err := os.Stat("/usr/share/i18n/locales/de_DE"); err != nil {
		t.Skip("needs the sources of locales")
	}
	res := g.Made(small)
	if !strings.Contains(res.Note, "already") {
		t.Errorf("note: %q", res.Note)
	}
	if list := run(t, "locale", "-a"); !strings.Contains(list, "de_DE.utf8") {
		t.Errorf("locale -a says:\n%s", list)
	}
	after := g.see(t, localeGen)
	if strings.ReplaceAll(before, "# ", "") != strings.ReplaceAll(after, "# ", "") || !strings.Contains(after, "\nde_DE.UTF-8 UTF-8") || !strings.Contains(after, "\nC.UTF-8 UTF-8") {
		t.Errorf("%s was not changed by lines:\n%s", localeGen, after)
	}
	g.Refused(declare.Resource{Name: "x", Locale: &declare.Locale{Generate: []string{"de_DF.UTF-8"}}}, reason.SettingUnknown, "did you mean de_DE.UTF-8?")
	if g.see(t, localeGen) != after {
		t.Error("what there is not was listed")
	}
	g.put(t, localeGen, "")
	g.Refused(declare.Resource{Name: "x", Locale: &declare.Locale{Generate: []string{"de_AT.UTF-8"}}}, reason.SettingUnknown, "de_AT.UTF-8", "glibc-langpack-de")
}

func TestHostEntryNotes(t *testing.T) {
	g := newGround(t, t.TempDir())
	entry := func(address string, names ...string) declare.Resource {
		return declare.Resource{Name: names[0], HostEntry: &declare.HostEntry{Address: address, Names: names}}
	}
	for _, c := range []struct {
		before string
		r      declare.Resource
		after  string
		note   string
	}{
		{"127.0.1.1 web # debian\n::1 web\n", entry("192.0.2.7", "web"), "192.0.2.7\tweb\n127.0.1.1 web # debian\n::1 web\n", "web also leads to 127.0.1.1"},
		{"127.0.1.1\tweb web.example.com\n", entry("127.0.1.1", "web.example.com", "web"), "127.0.1.1\tweb.example.com web\n", ""},
		{"10.0.0.1 a\n10.0.0.2  web   x\t# c\n10.0.0.3 WEB", entry("10.0.0.2", "web", "w2"), "10.0.0.1 a\n10.0.0.2  web w2 x\t# c\n10.0.0.3 WEB", "WEB also leads to 10.0.0.3"},
		{"10.0.0.3 web\n10.0.0.2 web", entry("10.0.0.2", "web"), "10.0.0.2 web\n10.0.0.3 web\n", "web also leads to 10.0.0.3"},
		{"10.0.0.2 other\n", entry("10.0.0.2", "web"), "10.0.0.2 other\n10.0.0.2\tweb\n", ""},
		{"fe80::1%eth0 r\n", entry("fe80::1%eth0", "r", "router"), "fe80::1%eth0 r router\n", ""},
	} {
		g.put(t, hostsFile, c.before)
		res := g.Made(c.r)
		if got := g.see(t, hostsFile); got != c.after || !strings.Contains(res.Note, c.note) || c.note == "" && res.Note != "" {
			t.Errorf("%q: %q, %q", c.before, got, res.Note)
		}
	}
	g.Refused(declare.Resource{Name: "x", Expand: true, HostEntry: &declare.HostEntry{Address: "nothing"}}, reason.InvalidValue, "IP address")
}

// TestBindErrors has each type refuse what is not its own.
func TestBindErrors(t *testing.T) {
	g := newGround(t, t.TempDir())
	for kind, typ := range g.types {
		if _, err := typ.Bind(t.Context(), hosttest.Declared(declare.Resource{Name: "x", File: &declare.File{Path: "/x"}})); !reason.Is(err, reason.InternalFault) {
			t.Errorf("%s: %v", kind, err)
		}
		if lane := typ.Lane(); lane.Parallel != 1 {
			t.Errorf("%s: %+v", kind, lane)
		}
	}
	var _ host.Type = g.types[declare.TypeLocale]
}

// TestTogether has lanes make the same directory at the same time: none takes away what another is making.
func TestTogether(t *testing.T) {
	for range 100 {
		g := newGround(t, t.TempDir())
		var all sync.WaitGroup
		for _, r := range []declare.Resource{
			{Name: "x", HostEntry: &declare.HostEntry{Address: "10.0.0.1"}}, {Name: "x", Locale: &declare.Locale{Lang: "C.UTF-8"}}, {Name: "UTC", Timezone: &declare.Timezone{Zone: "UTC"}},
		} {
			all.Go(func() {
				if res := g.Converge(r); res.Err != nil && !reason.Is(res.Err, reason.SettingUnknown) { // no zones on this machine
					t.Errorf("%s: %s", r.Title(), hosttest.Told(res.Err))
				}
			})
		}
		all.Wait()
	}
}
