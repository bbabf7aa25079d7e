package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
)

// dirVariable tells the test binary where it is to upgrade, until it is killed.
const dirVariable = "TAKO_UPGRADE_TEST_DIR"

// changing are the system calls after which something is there or gone, or durable. What is written in between is in files that have no
// name yet that counts.
var changing = []string{"openat", "mkdirat", "mkdir", "fchmod", "fsync", "renameat2", "renameat", "rename", "unlinkat", "unlink", "linkat"}

// TestHelperUpgrade is not a test: TestAgentCase13_KillWhileUpgrading runs it.
func TestHelperUpgrade(t *testing.T) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		t.Skip("needs to be run by the kill test")
	}
	s := stageIn(t, dir)
	must(t, s.upgrade(s.bound()).Err)
}

func TestAgentCase13_KillWhileUpgrading(t *testing.T) {
	c := casetest.Start(t)
	if testing.Short() {
		t.Skip("needs half a minute: twenty upgrades are killed")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	next := script(planned)
	dir := t.TempDir()
	arrange := func() {
		c.NoError(os.RemoveAll(dir), "clear")
		makeStage(t, dir)
		c.NoError(os.WriteFile(filepath.Join(dir, "srv/next"), []byte(next), 0o755), "the next program")
	}
	run := func(flags ...string) error {
		args := append([]string{"-f", "-qq", "-e", "trace=" + strings.Join(changing, ",")}, flags...)
		cmd := exec.CommandContext(t.Context(), strace, append(args, os.Args[0], "-test.run=^TestHelperUpgrade$")...)
		cmd.Env = append(os.Environ(), dirVariable+"="+dir, "GOMAXPROCS=1")
		return cmd.Run()
	}
	arrange()
	log := filepath.Join(t.TempDir(), "calls")
	c.NoError(run("-o", log), "upgrade")
	text, err := os.ReadFile(log)
	c.NoError(err, "read the calls")
	count, kills := map[string]int{}, 0
	for line := range strings.Lines(string(text)) {
		_, call, _ := strings.Cut(strings.TrimSpace(line), " ")
		kind, rest, _ := strings.Cut(strings.TrimSpace(call), "(")
		if strings.HasPrefix(kind, "<") || rest == "" {
			continue // the end of one that was begun before
		}
		count[kind]++
		if !strings.Contains(rest, "/upgrade") && !strings.Contains(rest, ".tako.") && !strings.Contains(rest, "O_CREAT") && kind == "openat" {
			continue // it only reads
		}
		arrange()
		if err := run("-o", os.DevNull, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", kind, count[kind])); err == nil {
			continue // the runtime has made other calls this time
		}
		kills++
		killed := disk.Tick()
		c.Eventually(time.Minute, "the clock moves on: what was written in the same tick might be somebody else's", func() (string, bool) {
			return fmt.Sprint(disk.Tick()), disk.Tick() > killed+int64(10*time.Millisecond)
		})
		s := stageIn(t, dir)
		program, err := os.ReadFile(s.typ.program)
		c.NoError(err, "the program")
		c.Check(string(program) == "the first" || string(program) == next, "killed at %s: the program is half %.40q", call, program)
		var on trial
		noted, err := s.typ.read(trialName, &on)
		c.NoError(err, "the note")
		if string(program) == next {
			c.Check(noted && on.To == content.DigestOf(program), "killed at %s: the program is exchanged without a trial", call)
		}
		if noted {
			c.NoError(s.typ.drop(trialName), "end the trial")
		}
		if string(program) != next || s.runs != content.DigestOf(program) {
			c.NoError(s.upgrade(s.bound()).Err, "upgrade again")
		}
		for _, sub := range []string{"bin", "state/upgrade"} {
			left, err := filepath.Glob(filepath.Join(dir, sub, ".tako.*"))
			c.Check(err == nil && len(left) == 0, "killed at %s: %q are left", call, left)
		}
		got, err := os.ReadFile(s.typ.program)
		c.Check(err == nil && string(got) == next, "in the end the program is %.40q, %v", got, err)
	}
	c.Check(kills > 15, "killed at %d places only", kills)
	t.Logf("killed at %d system calls", kills)
}
