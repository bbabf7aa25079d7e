package setting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
)

// The test binary runs itself as a helper, which checks or applies one resource in a process of its own: where that is stopped or watched at
// each system call.
const (
	helperVariable = "TAKO_SETTING_TEST_HELPER"
	// beginMarker is a path that the helper looks for just before it begins, so that this is seen among the system calls.
	beginMarker = "/tako-test-begin"
)

// order is what a helper does.
type order struct {
	Resource declare.Resource
	Apply    bool // otherwise only check, at every depth
}

func TestMain(m *testing.M) {
	if text := os.Getenv(helperVariable); text != "" {
		if err := help(text); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func help(text string) error {
	runtime.LockOSThread()
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		return err
	}
	typ := Types(Options{Root: root})[o.Resource.Type()]
	ctx := context.Background()
	r, err := typ.Bind(ctx, declared(o.Resource))
	if err != nil {
		return err
	}
	if !o.Apply {
		_, _ = os.Lstat(beginMarker)
		for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
			err = errors.Join(err, typ.Check(ctx, []host.Resource{r}, depth)[0].Err)
		}
		return err
	}
	plan := typ.Check(ctx, []host.Resource{r}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	_, _ = os.Lstat(beginMarker)
	return typ.Apply(ctx, []host.Plan{plan})[0].Err
}

// traced runs a helper under strace with more options.
func traced(t testing.TB, o order, options ...string) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-f", "--seccomp-bpf", "-qq"}, options...)
	cmd := exec.CommandContext(t.Context(), "strace", append(args, exe)...)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	return cmd.CombinedOutput()
}

// calls returns the system calls of the thread that does the work, and how many of them come before the beginning.
func calls(t testing.TB, o order, class string) (list []string, before int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	if out, err := traced(t, o, "-o", log, "-e", "trace="+class); err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	byThread := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		thread, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		if call = strings.TrimSpace(call); !strings.HasPrefix(call, "<...") && !strings.HasPrefix(call, "+++") && !strings.HasPrefix(call, "---") {
			byThread[thread] = append(byThread[thread], call)
		}
	}
	for _, list := range byThread {
		if i := slices.IndexFunc(list, func(call string) bool { return strings.Contains(call, beginMarker) }); i >= 0 {
			return list, i + 1
		}
	}
	t.Fatalf("the helper did not begin:\n%s", b)
	return nil, 0
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

func needsStrace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// TestAgentCase13_KillSettings kills every type at each system call of an apply; another agent then goes on.
func TestAgentCase13_KillSettings(t *testing.T) {
	c := casetest.Start(t)
	needsStrace(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects() {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			g := newGround(t, "/")
			see := func() (texts []string) {
				for _, p := range s.files {
					texts = append(texts, g.see(t, p))
				}
				return texts
			}
			s.arrange(g)
			before := see()
			g.made(s.resource)
			after := see()
			s.arrange(g)
			o := order{Resource: s.resource, Apply: true}
			list, begin := calls(t, o, "%file,%desc,sethostname")
			count, kills := map[string]int{}, 0
			for i, call := range list {
				kind, _, _ := strings.Cut(call, "(")
				count[kind]++
				if i < begin || kind == "mmap" { // that is of the Go runtime, as it pleases
					continue
				}
				s.arrange(g)
				if out, err := traced(t, o, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind])); err == nil {
					t.Errorf("not killed at %s: %s", call, out)
					continue
				}
				kills++
				for k, text := range see() {
					c.Check(text == before[k] || text == after[k], "killed at %s: %s has %q", call, s.files[k], text)
				}
				for died := time.Now().UnixNano(); disk.Tick() <= died; { // no agent starts within the tick in which the last one died
					run(t, "true")
				}
				newGround(t, "/").made(s.resource)
				c.Equal(see(), after, "in the end, killed at "+call)
				c.Equal(temporaries(t), []string(nil), "what is left of it, killed at "+call)
			}
			c.Check(kills > 20, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

func temporaries(t testing.TB) (found []string) {
	t.Helper()
	err := filepath.WalkDir("/etc", func(p string, d fs.DirEntry, err error) error {
		if err == nil && disk.IsTemporary(d.Name()) {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// writing matches a system call that changes something, or runs something, and an open that might.
var writing = regexp.MustCompile(`^(rename|(un)?link|symlink|mk|rm|f?chmod|[lf]?chown|f?truncate|.*utime|[lf]?(set|remove)xattr|p?write|fallocate|f?sync|fdatasync|` +
	`copy_file|sendfile|splice|u?mount|exec|v?fork|sethostname|delete_module|f?init_module)\w*\(|^open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^ioctl.*FS_IOC_SET`)

func TestAgentCase29_DryRunOfSettings(t *testing.T) {
	c := casetest.Start(t)
	needsStrace(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	all := subjects()
	all["compiled locale"] = subject{resource: declare.Resource{Name: "x", Locale: &declare.Locale{Generate: []string{"de_DE.UTF-8"}}}, arrange: func(*ground) {}}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			g := newGround(t, "/")
			s.arrange(g)
			list, begin := calls(t, order{Resource: s.resource}, "all")
			c.Check(len(list) > begin, "no system call at all")
			for _, call := range list[begin:] {
				c.Check(!writing.MatchString(call), "a check makes the system call %s", call)
			}
			if len(s.files) > 0 {
				list, begin = calls(t, order{Resource: s.resource, Apply: true}, "all")
				c.Check(slices.ContainsFunc(list[begin:], writing.MatchString), "not even an apply is seen to write")
			}
		})
	}
}

// TestShallow counts what a check of something that is as it was costs.
func TestShallow(t *testing.T) {
	needsStrace(t)
	if !apart(t) {
		return
	}
	g := newGround(t, "/")
	for name, s := range subjects() {
		typ, r := g.bind(s.resource)
		g.made(s.resource)
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
