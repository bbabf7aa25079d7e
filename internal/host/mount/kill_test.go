package mount

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
	helperVariable = "TAKO_MOUNT_TEST_HELPER"
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

// traced runs a helper under strace with more options. Programs that it runs are not followed: the agent is what is killed.
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

// subject is a resource, what is there before it, and how to see both.
type subject struct {
	resource declare.Resource
	arrange  string
	path     string
}

func subjects(dir string) map[string]subject {
	const swapsClean = clean + "head -n 1 /proc/swaps >/srv/head; cat /srv/head >/proc/swaps\n"
	return map[string]subject{
		"mounted":   {tmpfsAt("/srv/m", "size=1024k"), clean + "mkdir -p /srv/m", "/srv/m"},
		"remounted": {tmpfsAt("/srv/m", "ro"), clean + "mkdir -p /srv/m; mount -t tmpfs tmpfs /srv/m; echo 'tmpfs /srv/m tmpfs defaults 0 0' >>/etc/fstab", "/srv/m"},
		"unmounted": {absentAt("/srv/m"), clean + "mkdir -p /srv/m; mount -t tmpfs tmpfs /srv/m; echo 'tmpfs /srv/m tmpfs defaults 0 0' >>/etc/fstab", "/srv/m"},
		"swap":      {swapOf(declare.Swap{Path: dir + "/swap", Size: "1Mi"}), swapsClean + "rm -f " + dir + "/swap", dir + "/swap"},
		"swap off": {swapOf(declare.Swap{Path: dir + "/swap", State: declare.SwapAbsent}),
			swapsClean + "cd " + dir + "; rm -f swap; truncate -s 1M swap; mkswap -q swap 2>/dev/null; swapon -- " + dir + "/swap; echo '" + dir + "/swap none swap sw 0 0' >>/etc/fstab", dir + "/swap"},
	}
}

// look is what is at a path: each of its parts is old or new.
func look(t testing.TB, p string) []string {
	swapped := ""
	for line := range strings.Lines(see(t, swapsFile)) {
		if f := strings.Fields(line); f[0] == p {
			swapped = strings.Join(f[1:], " ")
		}
	}
	file := ""
	if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
		file = fmt.Sprintf("%v %d", st.Mode(), st.Size())
	}
	return []string{see(t, fstabFile), shown(t, p, "OPTIONS"), swapped, file}
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

// onDisk is a directory on a file system that takes swap files, the same inside and outside of the namespace.
func onDisk(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TAKO_MOUNT_TEST_DISK")
	if dir == "" {
		dir = t.TempDir()
		if err := os.Setenv("TAKO_MOUNT_TEST_DISK", dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Unsetenv("TAKO_MOUNT_TEST_DISK") })
	}
	swapsToFiles(t, dir)
	return dir
}

// TestAgentCase13_KillMounts kills an apply at each of its system calls that change something, and at the one after it, which is all the states
// that there are: so also before each program that it runs, and while that runs. Another agent then goes on.
func TestAgentCase13_KillMounts(t *testing.T) {
	c := casetest.Start(t)
	needsStrace(t)
	dir := onDisk(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects(dir) {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			g := newGround(t, "/")
			sh(t, s.arrange)
			before := look(t, s.path)
			g.made(s.resource)
			after := look(t, s.path)
			sh(t, s.arrange)
			o := order{Resource: s.resource, Apply: true}
			list, begin := calls(t, o, "%file,%desc,clone,clone3,waitid,pidfd_open,memfd_create")
			count, kills := map[string]int{}, 0
			for i, call := range list {
				kind, _, _ := strings.Cut(call, "(")
				count[kind]++
				changes := changing.MatchString(call) || i > 0 && changing.MatchString(list[i-1])
				if i < begin || !changes || kind == "mmap" || kind == "pwrite64" && count[kind]%8 != 1 { // one piece of a file is as good as another
					continue
				}
				sh(t, s.arrange)
				if out, err := traced(t, o, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind])); err == nil {
					t.Errorf("not killed at %s: %s", call, out)
					continue
				}
				kills++
				settle(t)
				for k, text := range look(t, s.path) {
					c.Check(text == before[k] || text == after[k], "killed at %s: there is %q", call, text)
				}
				for died := time.Now().UnixNano(); disk.Tick() <= died; { // no agent starts within the tick in which the last one died
					sh(t, "true")
				}
				newGround(t, "/").made(s.resource)
				c.Equal(look(t, s.path), after, "in the end, killed at "+call)
				c.Equal(temporaries(t, "/etc", dir), []string(nil), "what is left of it, killed at "+call)
			}
			c.Check(kills >= 8, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

// settle waits for programs that outlive the agent.
func settle(t testing.TB) {
	t.Helper()
	own := readlink("/proc/self/ns/mnt")
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		list, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(dir string) bool {
			return readlink(dir+"/ns/mnt") == own && dir != fmt.Sprintf("/proc/%d", os.Getpid())
		}) {
			return
		}
	}
	t.Error("a program goes on for ever")
}

func temporaries(t testing.TB, dirs ...string) (found []string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && disk.IsTemporary(d.Name()) {
				found = append(found, p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// writing matches a system call that changes something, or runs something, and an open that might.
var writing = regexp.MustCompile(`^(rename|(un)?link|symlink|mk|rm|f?chmod|[lf]?chown|f?truncate|.*utime|[lf]?(set|remove)xattr|p?write|fallocate|f?sync|fdatasync|` +
	`copy_file|sendfile|splice|u?mount|swapo|exec|v?fork|fsconfig|fsmount|move_mount)\w*\(|^open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^ioctl.*FS_IOC_SET`)

// changing matches what has a trace, or begins a program.
var changing = regexp.MustCompile(writing.String() + `|^clone3?\(`)

func TestAgentCase29_DryRunOfMounts(t *testing.T) {
	c := casetest.Start(t)
	needsStrace(t)
	dir := onDisk(t)
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	for name, s := range subjects(dir) {
		t.Run(name, func(t *testing.T) {
			c := c.Sub(t)
			sh(t, s.arrange)
			list, begin := calls(t, order{Resource: s.resource}, "all")
			c.Check(len(list) > begin, "no system call at all")
			for _, call := range list[begin:] {
				c.Check(!writing.MatchString(call), "a check makes the system call %s", call)
			}
			list, begin = calls(t, order{Resource: s.resource, Apply: true}, "all")
			c.Check(slices.ContainsFunc(list[begin:], writing.MatchString), "not even an apply is seen to write")
		})
	}
}

// TestShallow counts what a check of something that is as it was costs: one question to the kernel's list, one look at fstab for all, and one
// at a swap file.
func TestShallow(t *testing.T) {
	needsStrace(t)
	dir := onDisk(t)
	if !apart(t) {
		return
	}
	sh(t, "mkdir /srv/m")
	g := newGround(t, "/")
	for _, r := range []declare.Resource{tmpfsAt("/srv/m"), swapOf(declare.Swap{Path: dir + "/swap", Size: "1Mi"})} {
		g.made(r)
		typ := g.types[r.Type()]
		bound, err := typ.Bind(t.Context(), declared(r))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 { // until a tick of the kernel's clock has passed
			sh(t, "true")
			if typ.Check(t.Context(), []host.Resource{bound}, host.Shallow)[0].Recognised {
				break
			}
		}
		rs := slices.Repeat([]host.Resource{bound}, laneBatch)
		allocations := testing.AllocsPerRun(20, func() {
			for _, p := range typ.Check(t.Context(), rs, host.Shallow) {
				if !p.Recognised {
					t.Fatalf("%s is not recognised: %+v", r.Title(), p)
				}
			}
		})
		t.Logf("%s: %.1f allocations each", r.Title(), allocations/laneBatch)
	}
	// A mount somewhere is noticed, and looked at.
	bound, err := g.types[declare.TypeMount].Bind(t.Context(), declared(tmpfsAt("/srv/m")))
	if err != nil {
		t.Fatal(err)
	}
	g.types[declare.TypeMount].Check(t.Context(), []host.Resource{bound}, host.Shallow)
	sh(t, "umount /srv/m")
	if p := g.types[declare.TypeMount].Check(t.Context(), []host.Resource{bound}, host.Shallow)[0]; len(p.Changes) != 1 {
		t.Errorf("a shallow check does not see that it was unmounted: %+v", p)
	}
}
