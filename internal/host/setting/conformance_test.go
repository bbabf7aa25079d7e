package setting

import (
	"os"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// fields is what a test sees of a resource: field by field what is there.
type fields map[string]string

// difference says which fields differ.
func difference(_ int, before, after any) []host.Change {
	var changes []host.Change
	for name, to := range after.(fields) {
		if from := before.(fields)[name]; from != to {
			changes = append(changes, host.Change{Field: name, From: from, To: to})
		}
	}
	return changes
}

func proc(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }

func TestSysctlConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	run(t, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 131072 6291456", "net.ipv4.ip_forward=0")
	keys := []string{"net.ipv4.ip_forward", "net.ipv4.tcp_rmem"}
	file := func(i int) string { return "/etc/sysctl.d/99-tako-" + keys[i] + ".conf" }
	set := func(values, files []string) func(testing.TB) {
		return func(t testing.TB) {
			for i, key := range keys {
				run(t, "sysctl", "-qw", key+"="+values[i])
				g.put(t, file(i), files[i])
			}
		}
	}
	old, other := []string{"0", "4096 131072 6291456"}, []string{"2", "4096 8192 6291456"}
	hosttest.Run(t, hosttest.Subject{
		Type: g.types[declare.TypeSysctl],
		Declared: []host.Declared{
			hosttest.Declared(declare.Resource{Name: keys[0], Sysctl: &declare.Sysctl{Value: "1"}}),
			hosttest.Declared(declare.Resource{Name: "buffers", Sysctl: &declare.Sysctl{Key: keys[1], Value: "4096 65536 6291456"}}),
		},
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: set(old, []string{"", ""})},
			{Name: "another value", Arrange: set(other, []string{keys[0] + "=2\n", "# x\n" + keys[1] + " = 4096 8192 6291456\n"})},
			{Name: "file removed", Arrange: set([]string{"1", "4096 65536 6291456"}, []string{"", ""})},
			{Name: "value changed", Arrange: set(old, []string{madeBy + keys[0] + " = 1\n", madeBy + keys[1] + " = 4096 65536 6291456\n"})},
		},
		Observe: func(t testing.TB, i int) any {
			_, boot, _ := strings.Cut(g.see(t, file(i)), "=")
			boot, _, _ = strings.Cut(strings.TrimSpace(boot), "\n")
			return fields{fieldValue: strings.Join(strings.Fields(g.see(t, proc(keys[i]))), " "), fieldBoot: boot}
		},
		Difference: difference,
		Gone:       []any{fields{fieldValue: "1", fieldBoot: ""}, fields{fieldValue: "4096 65536 6291456", fieldBoot: ""}},
		Snapshot: func(t testing.TB) string {
			return hosttest.Tree(t, "/etc") + g.see(t, proc(keys[0])) + g.see(t, proc(keys[1]))
		},
		Disturb: func(t testing.TB) {
			run(t, "sysctl", "-qw", "net.ipv4.ip_forward=7", "net.ipv4.tcp_rmem=4097 8193 6291456")
		},
		Remembers: true,
	})
}

func TestModuleConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	names := []string{"t_wanted", "t_blocked", "t_plain"}
	arrange := func(loaded string, files map[string]string) func(testing.TB) {
		return func(t testing.TB) {
			run(t, "sh", "-ec", `rm -rf /sys/module/* /etc/modprobe.d/tako-* /etc/modules-load.d/tako-*; mkdir -p /etc/modprobe.d /etc/modules-load.d
				for m in $1; do mkdir -p /sys/module/$m/holders; echo live >/sys/module/$m/initstate; echo 0 >/sys/module/$m/refcnt; done`, "sh", loaded)
			for p, body := range files {
				g.put(t, p, body)
			}
		}
	}
	hosttest.Run(t, hosttest.Subject{
		Type: g.types[declare.TypeKernelModule],
		Declared: []host.Declared{
			hosttest.Declared(declare.Resource{Name: "t-wanted", KernelModule: &declare.KernelModule{Options: map[string]string{"b": "2", "a": "1"}}}),
			hosttest.Declared(declare.Resource{Name: "x", KernelModule: &declare.KernelModule{Module: "t_blocked", State: declare.ModuleBlocked}}),
			hosttest.Declared(declare.Resource{Name: "t_plain", KernelModule: &declare.KernelModule{State: declare.ModuleUnloaded}}),
		},
		Situations: []hosttest.Situation{
			{Name: "all wrong", Arrange: arrange("t_blocked t_plain", nil)},
			{Name: "files wrong", Arrange: arrange("t_blocked t_plain", map[string]string{
				"/etc/modprobe.d/tako-t_wanted.conf": "options t_wanted a=3\n", "/etc/modules-load.d/tako-t_blocked.conf": "t_blocked\n",
				"/etc/modules-load.d/tako-t_plain.conf": "t_plain\n",
			})},
			{Name: "removed by hand", Arrange: arrange("t_blocked t_plain", map[string]string{
				"/etc/modprobe.d/tako-t_wanted.conf": madeBy + "options t_wanted a=1 b=2\n", "/etc/modules-load.d/tako-t_wanted.conf": madeBy + "t_wanted\n",
				"/etc/modprobe.d/tako-t_blocked.conf": madeBy + "blacklist t_blocked\n",
			})},
		},
		Observe: func(t testing.TB, i int) any {
			f := fields{fieldState: wordUnloaded, fieldBoot: "not loaded", fieldBlocked: "no", fieldOptions: ""}
			if g.see(t, "/sys/module/"+names[i]+"/initstate") != "" {
				f[fieldState] = wordLoaded
			}
			if strings.Contains(g.see(t, "/etc/modules-load.d/tako-"+names[i]+".conf"), names[i]) {
				f[fieldBoot] = wordLoaded
			}
			for line := range strings.Lines(g.see(t, "/etc/modprobe.d/tako-"+names[i]+".conf")) {
				if w := strings.Fields(line); w[0] == "install" {
					f[fieldBlocked] = "yes"
				} else if w[0] == "options" {
					f[fieldOptions] = strings.Join(w[2:], " ")
				}
			}
			return f
		},
		Difference: difference,
		Gone: []any{
			fields{fieldState: wordLoaded, fieldBoot: "not loaded", fieldBlocked: "no", fieldOptions: ""},
			fields{fieldState: wordUnloaded, fieldBoot: "not loaded", fieldBlocked: "no", fieldOptions: ""},
			fields{fieldState: wordUnloaded, fieldBoot: "not loaded", fieldBlocked: "no", fieldOptions: ""},
		},
		Snapshot:  func(t testing.TB) string { return hosttest.Tree(t, "/etc", "/sys/module") },
		Remembers: true,
		Disturb: func(t testing.TB) {
			for _, n := range names {
				g.put(t, "/etc/modprobe.d/tako-"+n+".conf", "options "+n+" c=9\n")
			}
		},
	})
}

func TestHostnameConformance(t *testing.T) {
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	situation := func(name, live, file string) hosttest.Situation {
		return hosttest.Situation{Name: name, Arrange: func(t testing.TB) {
			run(t, "hostname", live)
			g.put(t, hostnameFile, file)
		}}
	}
	hosttest.Run(t, hosttest.Subject{
		Type:     g.types[declare.TypeHostname],
		Declared: []host.Declared{hosttest.Declared(declare.Resource{Name: "me", Hostname: &declare.Hostname{Name: "web-1.example.com"}})},
		Situations: []hosttest.Situation{
			situation("nothing there", "localhost", ""), situation("another name", "old", "# mine\nold\n"), situation("another at boot", "web-1.example.com", "old\n"),
			situation("removed by hand", "web-1.example.com", ""), situation("changed by hand", "x", "web-1.example.com\n"),
		},
		Observe: func(t testing.TB, _ int) any {
			static := ""
			for line := range strings.Lines(g.see(t, hostnameFile)) {
				if line[0] != '#' {
					static = strings.TrimSpace(line)
				}
			}
			return fields{fieldName: run(t, "uname", "-n"), fieldBoot: static}
		},
		Difference: difference,
		Gone:       []any{fields{fieldName: "web-1.example.com", fieldBoot: ""}},
		Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, "/etc") + run(t, "uname", "-n") },
		Disturb:    func(t testing.TB) { run(t, "hostname", "third") },
		Remembers:  true,
	})
}

// hostsOf reads /etc/hosts in another way than the type: the canonical name and all names of the first line with an address that has a name.
func hostsOf(body, address, name string) string {
	for line := range strings.Lines(body) {
		entry, _, _ := strings.Cut(line, "#")
		w := strings.Fields(entry)
		for i := 1; i < len(w); i++ {
			if w[i] == name && w[0] == address {
				return strings.Join(w[1:], " ")
			}
		}
	}
	return wordAbsent
}

func TestHostEntryConformance(t *testing.T) {
	dir := t.TempDir()
	g := newGround(t, dir)
	entries := []declare.HostEntry{
		{Address: "192.0.2.7", Names: []string{"web", "web.example.com"}},
		{Address: "2001:db8::7", Names: []string{"web"}},
		{Address: "192.0.2.66", Names: []string{"gone", "away"}, State: declare.EditAbsent},
	}
	const head = "127.0.0.1\tlocalhost # mine\n\n# ::1 not an entry\n"
	texts := map[string]string{
		"nothing there":   "192.0.2.66 gone\n",
		"others there":    head + "192.0.2.66 gone # x\n::1 localhost ip6-localhost\n",
		"partly there":    head + "192.0.2.7   web extra  # by hand\n2001:0db8:0:0::7 other\n192.0.2.66 stays gone\n",
		"no end of line":  head + "192.0.2.66 gone away\n192.0.2.7 web",
		"CRLF and blanks": " 192.0.2.7\tweb\r\n192.0.2.66  gone\r\n\t\r\n",
	}
	subject := hosttest.Subject{
		Type: g.types[declare.TypeHostEntry],
		Observe: func(t testing.TB, i int) any {
			name := entries[i].Names[0]
			body := strings.ReplaceAll(g.see(t, hostsFile), "2001:0db8:0:0::7", "2001:db8::7")
			f := fields{fieldNames: hostsOf(body, entries[i].Address, name)}
			if i == 2 && f[fieldNames] != wordAbsent {
				var had []string
				for _, n := range strings.Fields(f[fieldNames]) {
					if n != "stays" {
						had = append(had, n)
					}
				}
				f[fieldNames] = strings.Join(had, " ")
			}
			return f
		},
		Difference: difference,
		Gone:       []any{fields{fieldNames: wordAbsent}, fields{fieldNames: wordAbsent}, fields{fieldNames: wordAbsent}},
		Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, dir) },
		Disturb: func(t testing.TB) {
			g.put(t, hostsFile, "192.0.2.7 web disturbed\n2001:db8::7 web2 web\n192.0.2.66 gone disturbed\n")
		},
	}
	for name, body := range texts {
		subject.Situations = append(subject.Situations, hosttest.Situation{Name: name, Arrange: func(t testing.TB) { g.put(t, hostsFile, body) }})
	}
	for i := range entries {
		subject.Declared = append(subject.Declared, hosttest.Declared(declare.Resource{Name: "entry", HostEntry: &entries[i]}))
	}
	hosttest.Run(t, subject) // each write of the shared file makes the others look once more
	subject.Declared, subject.Gone, subject.Remembers = subject.Declared[:1], subject.Gone[:1], true
	hosttest.Run(t, subject)
}

func TestTimezoneConformance(t *testing.T) {
	dir := t.TempDir()
	g := newGround(t, dir)
	if _, err := os.Stat(zoneInfo + "/Europe/Berlin"); err != nil {
		t.Skip("needs tzdata")
	}
	situation := func(name, link, file string) hosttest.Situation {
		return hosttest.Situation{Name: name, Arrange: func(t testing.TB) {
			g.put(t, localtime, link)
			g.put(t, timezoneFile, file)
		}}
	}
	for _, files := range []bool{false, true} {
		now, utc := "", ""
		if files {
			now, utc = "Europe/London\n", "Etc/UTC"
		}
		gone := fields{fieldZone: "nothing"}
		if files {
			gone[timezoneFile] = utc
		}
		hosttest.Run(t, hosttest.Subject{
			Type:     g.types[declare.TypeTimezone],
			Declared: []host.Declared{hosttest.Declared(declare.Resource{Name: "zone", Timezone: &declare.Timezone{Zone: "Europe/Berlin"}})},
			Situations: []hosttest.Situation{
				situation("nothing there", "", now), situation("absolute", "-> /usr/share/zoneinfo/Etc/UTC", now), situation("relative", "-> ../usr/share/zoneinfo/UTC", now),
				situation("a file", "TZif2 of an old host", now), situation("elsewhere", "-> /srv/zone", now),
			},
			Observe: func(t testing.TB, _ int) any {
				seen := g.see(t, localtime)
				zone := "file"
				switch target, link := strings.CutPrefix(seen, "-> "); {
				case seen == "":
					zone = "nothing"
				case link:
					zone = target
					if _, after, ok := strings.Cut(target, "/zoneinfo/"); ok {
						zone = after
					}
				}
				f := fields{fieldZone: zone}
				if text := strings.TrimSpace(g.see(t, timezoneFile)); text != "" {
					f[timezoneFile] = text
				}
				return f
			},
			Difference: difference,
			Gone:       []any{gone},
			Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, dir) },
			Disturb:    func(t testing.TB) { g.put(t, localtime, "-> /usr/share/zoneinfo/Asia/Tokyo") },
			Remembers:  true,
		})
	}
}

func TestLocaleConformance(t *testing.T) {
	dir := t.TempDir()
	g := newGround(t, dir)
	for _, p := range []string{localeConf, localeDeb} {
		other := map[string]string{localeConf: localeDeb, localeDeb: localeConf}[p]
		situation := func(name, body string) hosttest.Situation {
			return hosttest.Situation{Name: name + " " + p, Arrange: func(t testing.TB) {
				g.put(t, other, "")
				g.put(t, p, body)
			}}
		}
		hosttest.Run(t, hosttest.Subject{
			Type: g.types[declare.TypeLocale],
			Declared: []host.Declared{hosttest.Declared(declare.Resource{Name: "language", Locale: &declare.Locale{
				Lang: "de_DE.UTF-8", Variables: map[string]string{"LC_TIME": "C.UTF-8", "LANGUAGE": "de:en"}}})},
			Situations: []hosttest.Situation{
				situation("others", "# mine\nLC_PAPER=en_US.UTF-8"), situation("another", "LANG=\"en_US.UTF-8\"\nLC_TIME=x\nLANGUAGE=\nLANG=C\n"),
				situation("half", "LANG=de_DE.UTF-8\nLC_TIME=C.UTF-8\n"),
			},
			Observe: func(t testing.TB, _ int) any {
				f := fields{"LANG": "", "LC_TIME": "", "LANGUAGE": "", "LC_PAPER": ""}
				for line := range strings.Lines(g.see(t, p)) {
					if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
						f[name] = strings.Trim(value, `"`)
					}
				}
				delete(f, "LC_PAPER")
				return f
			},
			Difference: difference,
			Gone:       []any{fields{"LANG": "", "LC_TIME": "", "LANGUAGE": ""}},
			Snapshot:   func(t testing.TB) string { return hosttest.Tree(t, dir) },
			Disturb:    func(t testing.TB) { g.put(t, p, "LANG=fr_FR.UTF-8\n") },
			Remembers:  true,
		})
	}
}
