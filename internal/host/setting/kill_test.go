package setting

import (
	"io"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

func TestMain(m *testing.M) { kill.Main(m, openTypes) }

func openTypes(string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	return hosttest.Among(Types(Options{Root: root})), root, nil
}

// subject is a setting, what is there before it, and the files that it is in.
type subject struct {
	resource declare.Resource
	arrange  func(g *ground)
	files    []string
}

func subjects() map[string]subject {
	return map[string]subject{
		"sysctl": {sysctlOf("net.ipv4.ip_forward", "1"), func(g *ground) {
			run(g, "sysctl", "-qw", "net.ipv4.ip_forward=0")
			run(g, "rm", "-rf", "/etc/sysctl.d")
		}, []string{proc("net.ipv4.ip_forward"), "/etc/sysctl.d/99-tako-net.ipv4.ip_forward.conf"}},
		"module": {declare.Resource{Name: "t_x", KernelModule: &declare.KernelModule{State: declare.ModuleBlocked}}, func(g *ground) {
			g.put(g, "/etc/modules-load.d/tako-t_x.conf", "t_x\n")
			g.put(g, "/etc/modprobe.d/tako-t_x.conf", "options t_x a=1\n")
		}, []string{"/etc/modules-load.d/tako-t_x.conf", "/etc/modprobe.d/tako-t_x.conf"}},
		"hostname": {declare.Resource{Name: "x", Hostname: &declare.Hostname{Name: "new"}}, func(g *ground) {
			run(g, "hostname", "old")
			g.put(g, hostnameFile, "old\n")
		}, []string{hostnameLive, hostnameFile}},
		"hostEntry": {declare.Resource{Name: "web", HostEntry: &declare.HostEntry{Address: "10.0.0.1"}}, func(g *ground) { g.put(g, hostsFile, "::1 localhost\n") }, []string{hostsFile}},
		"timezone": {declare.Resource{Name: "x", Timezone: &declare.Timezone{Zone: "Europe/Berlin"}}, func(g *ground) {
			g.put(g, localtime, "TZif2 old")
			g.put(g, timezoneFile, "Old\n")
		}, []string{localtime, timezoneFile}},
		"locale": {declare.Resource{Name: "x", Locale: &declare.Locale{Lang: "C.UTF-8"}}, func(g *ground) {
			g.put(g, localeConf, "")
			g.put(g, localeDeb, "LANG=C\n")
		}, []string{localeDeb}},
	}
}

// row is the subject in the table of a kill test.
func (s subject) row(t testing.TB) kill.Row {
	g := newGround(t, "/")
	r := kill.Row{
		Open: openTypes, Resources: []declare.Resource{s.resource}, Arrange: func(testing.TB) { s.arrange(g) },
		Classes: "%file,%desc,sethostname", Dirs: []string{"/etc"},
	}
	if len(s.files) > 0 {
		r.See = func(t testing.TB) (texts []string) {
			for _, p := range s.files {
				texts = append(texts, g.see(t, p))
			}
			return texts
		}
	}
	return r
}

// TestAgentCase13_KillSettings kills every type at each system call of an apply; another agent then goes on.
func TestAgentCase13_KillSettings(t *testing.T) {
	c := casetest.Start(t)
	kill.NeedsStrace(t)
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects() {
		t.Run(name, func(t *testing.T) {
			kills := kill.Everywhere(t, s.row(t))
			c.Sub(t).Check(kills > 10, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

func TestAgentCase29_DryRunOfSettings(t *testing.T) {
	c := casetest.Start(t)
	kill.NeedsStrace(t)
	if !inside(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	all := subjects()
	all["compiled locale"] = subject{resource: declare.Resource{Name: "x", Locale: &declare.Locale{Generate: []string{"de_DE.UTF-8"}}}, arrange: func(*ground) {}}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			c.Sub(t).Check(kill.LooksOnly(t, s.row(t)) > 0, "no system call at all")
		})
	}
}

// TestShallow counts what a check of something that is as it was costs.
func TestShallow(t *testing.T) {
	kill.NeedsStrace(t)
	if !inside(t) {
		return
	}
	g := newGround(t, "/")
	for name, s := range subjects() {
		typ, r := g.Bound(s.resource)
		g.Made(s.resource)
		for range 50 { // until a tick of the kernel's clock has passed
			if typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0].Recognised {
				break
			}
			run(t, "true")
		}
		allocations := testing.AllocsPerRun(20, func() {
			if p := typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]; !p.Recognised {
				t.Errorf("%s is not recognised: %+v", name, p)
			}
		})
		t.Logf("%s: %.0f allocations", name, allocations)
	}
}
