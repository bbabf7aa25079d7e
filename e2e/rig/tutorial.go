package rig

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tutorialTime bounds the whole of a tutorial. It takes some twenty seconds.
const tutorialTime = 5 * time.Minute

// Tutorial runs every shell command of a document, in one shell, as a reader does, with the programs of a directory. It returns all that
// is printed.
func Tutorial(t *testing.T, document, bin string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
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
	return string(out)
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
