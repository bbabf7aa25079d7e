//go:build e2e

package path

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

// tutorialTime bounds the whole of it. It takes some twenty seconds.
const tutorialTime = 5 * time.Minute

// TestTutorial runs every command of docs/tutorial.md, in one shell, as a reader does.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(buildTako(t))
	if err := os.Symlink(host.AgentBinary(t), filepath.Join(bin, "tako-agent")); err != nil {
		t.Fatal(err)
	}
	script := "set -euxo pipefail\n" + strings.Join(blocks(string(text)), "\n")
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", script)
	c.Dir = t.TempDir()
	c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+c.Dir, "XDG_CONFIG_HOME="+c.Dir, "XDG_STATE_HOME="+c.Dir)
	// What it has started ends with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	out, err := c.CombinedOutput()
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // where it failed, some may be left
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"hello of web-1\n", "hello of web-2\n", "kept by tako\n", "nothing needs attention", "Halted", "Repaired (drift)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
}

// blocks are the shell commands of a document.
func blocks(text string) []string {
	var all []string
	for {
		_, rest, ok := strings.Cut(text, "```sh\n")
		if !ok {
			return all
		}
		block, rest, _ := strings.Cut(rest, "```")
		all, text = append(all, block), rest
	}
}
