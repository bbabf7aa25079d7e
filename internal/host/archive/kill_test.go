package archive

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// groundVariable tells the test binary where to unpack once, and workVariable whether to remove instead.
const (
	groundVariable = "TAKO_ARCHIVE_TEST_GROUND"
	workVariable   = "TAKO_ARCHIVE_TEST_WORK"
)

// TestHelperUnpack is what the kill test kills.
func TestHelperUnpack(t *testing.T) {
	dir := os.Getenv(groundVariable)
	if dir == "" {
		t.Skip("needs to be run by the kill test")
	}
	typ, r := opened(t, dir)
	_, _ = os.Lstat("/tako-test-begin")
	if os.Getenv(workVariable) == "remove" {
		if err := typ.Remove(t.Context(), r, declare.OnRemoveDelete, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	p := typ.Check(t.Context(), []host.Resource{r}, host.Deep)[0]
	if p.Err != nil || p.Empty() {
		t.Fatalf("%+v", p)
	}
	if res := typ.Apply(t.Context(), []host.Plan{p})[0]; res.Err != nil {
		t.Fatal(res.Err)
	}
}

// opened is the Type and the resource of a ground that a kill test has made.
func opened(t testing.TB, dir string) (*Type, host.Resource) {
	t.Helper()
	root, err := disk.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	typ := New(Options{Root: root, StateDir: dir + "/state"})
	r, err := typ.Bind(t.Context(), declared(declare.Archive{Path: dir + "/there/app", From: declare.ArchiveSource{Path: dir + "/sources/app.tar"}}))
	if err != nil {
		t.Fatal(err)
	}
	return typ, r
}

func TestAgentCase13_KillWhileUnpacking(t *testing.T) {
	c := casetest.Start(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	small := func(version string) []byte {
		return tarOf(t, entry{name: "bin/run", mode: 0o755, body: version}, entry{name: "share/now", kind: '2', link: "../bin/run"})
	}
	for _, work := range []string{"make", "replace", "remove"} {
		t.Run(work, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			dir := t.TempDir()
			arrange := func() {
				for _, d := range []string{"state", "there", "sources"} {
					c.NoError(os.RemoveAll(dir+"/"+d), "clear")
					c.NoError(os.Mkdir(dir+"/"+d, 0o755), "make")
				}
				c.NoError(os.WriteFile(dir+"/sources/app.tar", small("old"), 0o644), "old archive")
				if work != "make" {
					converged(t, dir)
				}
				if work != "remove" {
					c.NoError(os.WriteFile(dir+"/sources/app.tar", small("new"), 0o644), "new archive")
				}
			}
			arrange()
			before := look(t, dir+"/there/app")
			calls, begin := straced(t, dir, work)
			after := look(t, dir+"/there/app")
			if before == after {
				t.Fatal("nothing changes")
			}
			count, kills := map[string]int{}, 0
			for i, call := range calls {
				kind, _, _ := strings.Cut(call, "(")
				count[kind]++
				if i < begin || kind == "mmap" || kind == "fcntl" || kind == "epoll_ctl" {
					continue // the first is of the runtime, the others change nothing
				}
				arrange()
				if err := helper(t, dir, work, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind])); err == nil {
					continue // the runtime has made other calls this time
				}
				kills++
				now := look(t, dir+"/there/app")
				c.Check(now == before || now == after, "killed at %s:\n%s\nneither\n%s\nnor\n%s", call, now, before, after)
				typ, r := opened(t, dir)
				c.NoError(typ.Forget(t.Context(), nil), "forget")
				left, err := os.ReadDir(dir + "/there")
				c.NoError(err, "list")
				for _, e := range left {
					c.Check(e.Name() == "app" || emptyTemporary(dir+"/there/"+e.Name()), "killed at %s: %s is left", call, e.Name())
				}
				if work == "remove" {
					c.NoError(typ.Remove(t.Context(), r, declare.OnRemoveDelete, nil), "remove again")
				} else {
					converged(t, dir)
				}
				c.Equal(look(t, dir+"/there/app"), after, "in the end")
			}
			c.Check(kills > 20, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

// emptyTemporary reports whether something is a directory that the sweep of files takes.
func emptyTemporary(p string) bool {
	list, err := os.ReadDir(p)
	return disk.IsTemporary(filepath.Base(p)) && err == nil && len(list) == 0
}

func converged(t testing.TB, dir string) {
	t.Helper()
	typ, r := opened(t, dir)
	p := typ.Check(t.Context(), []host.Resource{r}, host.Deep)[0]
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	if p.Empty() {
		return
	}
	if res := typ.Apply(t.Context(), []host.Plan{p})[0]; res.Err != nil {
		t.Fatal(res.Err)
	}
}

func helper(t *testing.T, dir, work string, options ...string) error {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-f", "--seccomp-bpf", "-qq"}, options...)
	cmd := exec.CommandContext(t.Context(), "strace", append(args, exe, "-test.run=^TestHelperUnpack$")...)
	cmd.Env = append(os.Environ(), groundVariable+"="+dir, workVariable+"="+work, "GOMAXPROCS=1", "GOGC=off")
	return cmd.Run()
}

// straced does the work, and returns the system calls of the thread that did it, and how many of them came before.
func straced(t *testing.T, dir, work string) (calls []string, before int) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	if err := helper(t, dir, work, "-o", log, "-e", "trace=%file,%desc"); err != nil {
		t.Fatal(err)
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
	for _, calls := range byThread {
		for i, call := range calls {
			if strings.Contains(call, "/tako-test-begin") {
				return calls, i + 1
			}
		}
	}
	t.Fatalf("it did not begin:\n%s", b)
	return nil, 0
}

// TestRace: a user whose directory it is unpacked in swaps what is there for links of his, as fast as he can. What they lead to stays as it
// is, and every error has a code.
func TestRace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	g := newGround(t)
	dir, err := os.MkdirTemp("", "race")
	g.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.must(os.Chmod(dir, 0o755))
	his, roots := dir+"/his", dir+"/root"
	g.must(os.Mkdir(his, 0o755))
	const nobody = 65534
	g.must(os.Chown(his, nobody, nobody))
	g.must(os.MkdirAll(roots+"/bin", 0o755))
	g.must(os.WriteFile(roots+"/bin/run", []byte("a root's own\n"), 0o644))
	want := look(t, roots)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `cd "$0" || exit 1
while :; do
  for t in .tako.app.*; do mv -T "$t" moved; ln -s ../root "$t"; done
  mv -T app gone; ln -s ../root app; rm app; mkdir app; rmdir app; mv -T gone app
done 2>/dev/null`, his)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
	g.must(cmd.Start())
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	data := func(version string) []byte { return tarOf(t, entry{name: "bin/run", mode: 0o755, body: version}) }
	done, refused := 0, map[reason.Code]int{}
	r := g.bind(declare.Archive{Path: his + "/app", From: declare.ArchiveSource{Path: g.source("app.tar", data("0"))}, Force: true})
	for i, until := 0, time.Now().Add(8*time.Second); time.Now().Before(until) && (done < 30 || len(refused) < 2); i++ {
		g.source("app.tar", data(fmt.Sprint(i)))
		if res := g.converge(r); res.Err == nil {
			done++
		} else {
			refused[reason.Of(res.Err).Code]++
		}
	}
	t.Logf("made %d times, refused %v", done, refused)
	if got := look(t, roots); got != want {
		t.Errorf("what a link leads to:\n%s\nwant\n%s", got, want)
	}
	if refused[reason.InternalFault] > 0 {
		t.Errorf("refused %v", refused)
	}
}
