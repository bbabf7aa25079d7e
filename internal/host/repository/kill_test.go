package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
)

// The test binary runs itself as a helper, which applies one repository in a process of its own.
const (
	helperVariable = "TAKO_REPOSITORY_TEST_HELPER"
	// beginMarker is a path that the helper looks for just before it begins, so that this is seen among the system calls.
	beginMarker = "/tako-test-begin"
)

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
	var r declare.Resource
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	root, err := disk.OpenRoot("/")
	if err != nil {
		return err
	}
	typ := New(Options{Root: root})
	bound, err := typ.Bind(context.Background(), declared(r))
	if err != nil {
		return err
	}
	plan := typ.Check(context.Background(), []host.Resource{bound}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	_, _ = os.Lstat(beginMarker)
	return typ.Apply(context.Background(), []host.Plan{plan})[0].Err
}

// traced runs a helper under strace, which follows its main thread alone: what it runs is not killed.
func traced(t testing.TB, r declare.Resource, options ...string) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "strace", append(append([]string{"-qq"}, options...), exe)...)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(text), "GOMAXPROCS=1", "GOGC=off")
	return cmd.CombinedOutput()
}

// writing matches a system call after which a directory is another one, and one that runs something. What is
// written into a temporary file by others is nothing to see.
var writing = regexp.MustCompile(`^(rename|(un)?link|mk|rm|clone|v?fork|openat?.*O_CREAT)`)

// TestAgentCase13_KillRepository kills an apply at each system call with which its main thread changes something, the start of apt-get
// included; another agent then goes on.
func TestAgentCase13_KillRepository(t *testing.T) {
	c := casetest.Start(t)
	needs(t, "strace")
	if !apart(t) {
		c.Check(!t.Failed(), "in a namespace")
		return
	}
	g, s, us := newGround(t, "/"), newServer(t), newSigner(t, "us")
	s.deb("one", "1.0")
	s.suite("stable", us)
	r := aptRepository(s.url, "stable", us.armored)
	arrange := func() {
		run(t, "sh", "-ec", "rm -rf /etc/apt/sources.list.d /etc/apt/keyrings "+aptLists+"/* "+stageDir)
	}
	arrange()
	log := filepath.Join(t.TempDir(), "log")
	if out, err := traced(t, r, "-o", log, "-e", "trace=%file,%desc,%process"); err != nil {
		t.Fatalf("helper: %v: %s", err, out)
	}
	file, key := g.see(labFile), g.see(labKey)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	count, begun, kills := map[string]int{}, false, 0
	for call := range strings.Lines(string(b)) {
		kind, _, _ := strings.Cut(call, "(")
		count[kind]++
		begun = begun || strings.Contains(call, beginMarker)
		if !begun || !writing.MatchString(call) {
			continue
		}
		arrange()
		if out, err := traced(t, r, "-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind])); err == nil {
			c.Check(false, "not killed at %s: %s", call, out)
			continue
		}
		kills++
		for p, want := range map[string]string{labFile: file, labKey: key} {
			got := g.see(p)
			c.Check(got == "" || got == want, "killed at %s: %s has %q", call, p, got)
		}
		c.Check(g.see(labFile) == "" || g.see(labKey) == key, "killed at %s: the file is there without its key", call)
		until(t, "apt-get has ended", func() bool { _, err := attempt(t, "pidof", "apt-get"); return err != nil })
		run(t, "sleep", "0.02") // no agent starts within the tick in which the last one died
		newGround(t, "/").made(r)
		c.Equal(g.see(labFile), file, "in the end, killed at "+call)
		left := run(t, "sh", "-c", "find /etc/apt /run -name '.tako.*'")
		c.Equal(left, "", "left in the end, killed at "+call)
	}
	c.Check(kills > 10, "killed at %d places only", kills)
	t.Logf("killed at %d system calls", kills)
}
