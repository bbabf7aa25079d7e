package unit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
)

// rootVariable tells the test binary where to apply drops once.
const rootVariable = "TAKO_UNIT_TEST_ROOT"

const oldText = "[Service]\nEnvironment=A=old\n"

// drops are a file that replaces one, and a drop-in whose directory is missing.
func drops() []declare.Resource {
	return []declare.Resource{unitOf("t-one", "", sleeper), unitOf("t-two", "50-x", "[Service]\nEnvironment=A=b\n")}
}

// converged applies what is to do below a root, and reports whether anything was.
func converged(t *testing.T, dir string) bool {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	store, err := content.Open(filepath.Join(dir, "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	typ := New(Options{Root: root, Content: store, StateDir: filepath.Join(dir, "state")})
	changed := false
	for _, r := range drops() {
		bound, err := typ.Bind(t.Context(), declared(r))
		if err != nil {
			t.Fatal(err)
		}
		p := typ.Check(t.Context(), []host.Resource{bound}, host.Deep)[0]
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		if p.Empty() {
			continue
		}
		res := typ.Apply(t.Context(), []host.Plan{p})[0]
		if changed = changed || res.Changed; res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	return changed
}

// TestApplyOnce is what TestAgentCase13_KillAtAnySystemCall kills.
func TestApplyOnce(t *testing.T) {
	dir := os.Getenv(rootVariable)
	if dir == "" {
		t.Skip("needs to be run by TestAgentCase13_KillAtAnySystemCall")
	}
	converged(t, dir)
}

// TestAgentCase13_KillAtAnySystemCall kills an agent at each system call that changes something, and converges afterwards.
func TestAgentCase13_KillAtAnySystemCall(t *testing.T) {
	c := casetest.Start(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace")
	}
	exe, err := os.Executable()
	c.NoError(err, "find this program")
	kills := 0
	for _, call := range []string{"mkdirat", "renameat2", "fsync", "unlinkat", "fchmod", "fchown,fchownat", "ftruncate,fallocate"} {
		for n := 1; ; n++ {
			dir := t.TempDir()
			units := filepath.Join(dir, declare.UnitDir)
			c.NoError(os.MkdirAll(units, 0o755), "make the directory")
			one, two := filepath.Join(units, "t-one.service"), filepath.Join(units, "t-two.service.d/50-x.conf")
			c.NoError(os.WriteFile(one, []byte(oldText), 0o644), "write the old file")
			cmd := exec.CommandContext(t.Context(), "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n), exe, "-test.run=^TestApplyOnce$")
			cmd.Env = append(os.Environ(), rootVariable+"="+dir, "TAKO_CASES=")
			_, killed := cmd.CombinedOutput()
			at := fmt.Sprintf("killed at %s %d", call, n)
			text, err := os.ReadFile(one)
			c.Check(err == nil && (string(text) == oldText || string(text) == sleeper), "%s: %v %q", at, err, text)
			if text, err := os.ReadFile(two); err == nil {
				c.Check(strings.HasSuffix(string(text), "A=b\n"), "%s: %q", at, text)
			}
			sweep(t, dir)
			converged(t, dir)
			c.Check(!converged(t, dir), "%s: something is left to do", at)
			var left []string
			err = filepath.WalkDir(units, func(p string, _ os.DirEntry, err error) error {
				left = append(left, strings.TrimPrefix(p, units))
				return err
			})
			c.NoError(err, "walk")
			c.Equal(left, []string{"", "/t-one.service", "/t-two.service.d", "/t-two.service.d/50-x.conf"}, at+": what is there")
			if killed == nil {
				break
			}
			kills++
		}
	}
	c.Check(kills > 10, "only %d kills", kills)
	t.Logf("%d kills", kills)
}

// sweep does what the agent does when it starts: it sweeps the directories of what is declared.
func sweep(t *testing.T, dir string) {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dirs := []string{declare.UnitDir + "/t-two.service.d"}
	if _, err := os.Stat(filepath.Join(dir, declare.UnitDir, "t-one.service")); err == nil {
		dirs = append(dirs, declare.UnitDir)
	}
	if _, err := durable.SweepTemporaries(t.Context(), root, dirs, func(*os.File, disk.Stat) error { return nil }); err != nil {
		t.Fatal(err)
	}
}
