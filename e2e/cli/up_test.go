//go:build e2e

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// lastWords are what tako up says last, when everything is converged.
const lastWords = "Ctrl-C stops both"

// sandbox is a directory of tako up with a person beside it.
type sandbox struct {
	*person
	up string // the directory
}

// newSandbox starts nothing. What still runs in it when the test ends is killed.
func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	dir := t.TempDir()
	hello, err := filepath.Abs("../../examples/hello")
	if err == nil {
		err = os.Symlink(hello, filepath.Join(dir, "hello"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{up: filepath.Join(dir, "up")}
	t.Cleanup(func() { s.awaitSilence(t) }) // the last of all, but before the directory goes
	s.person = &person{dir: dir, env: []string{"PATH=" + rig.Programs(t) + ":" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8",
		"KUBECONFIG=" + filepath.Join(s.up, "server", "admin.kubeconfig"), "UP=" + s.up}}
	return s
}

// must runs a script that succeeds, and returns what it says.
func (s *sandbox) must(t *testing.T, script string) string {
	t.Helper()
	out, errs, code := s.run(t, script)
	if code != 0 {
		t.Fatalf("%s: exit %d: %s%s", script, code, out, errs)
	}
	return out
}

// program is a process that runs beside the test.
type program struct {
	cmd   *exec.Cmd
	out   string        // file with all that it says
	ended chan struct{} // closed when it has been waited for
}

// start runs a command until the test ends. One goroutine waits for its end.
func (s *sandbox) start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	out, err := os.CreateTemp(s.dir, "said-*.txt")
	if err != nil {
		t.Fatal(err)
	}
	// No context: what it has started is to end with it, not before.
	p := &program{cmd: exec.CommandContext(context.Background(), filepath.Join(rig.Programs(t), name), args...), out: out.Name(), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = s.dir, s.env, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := errors.Join(p.cmd.Start(), out.Close()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	return p
}

// startUp runs tako up until it says that everything is converged.
func (s *sandbox) startUp(t *testing.T, args ...string) *program {
	t.Helper()
	p := s.start(t, "tako", append([]string{"up", "--dir", s.up, "--node", "one"}, args...)...)
	host.Eventually(t, stepTime, "tako up to be ready", func() (string, bool) {
		said := p.said(t)
		select {
		case <-p.ended:
			t.Fatalf("tako up has ended (%v):\n%s", p.cmd.ProcessState, said)
		default:
		}
		return said, strings.Contains(said, lastWords)
	})
	return p
}

func (p *program) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitEnd waits until the program has ended by itself.
func (p *program) awaitEnd(t *testing.T) (code int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(stepTime):
		t.Fatalf("%s has not ended:\n%s", p.cmd, p.said(t))
	}
	return p.cmd.ProcessState.ExitCode()
}

// agents are the processes of tako-agent in the sandbox.
func (s *sandbox) agents() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, file := range files {
		line, gone := os.ReadFile(file)
		if gone == nil && bytes.Contains(line, []byte("tako-agent\x00run\x00")) && bytes.Contains(line, []byte(s.dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found, err
}

func (s *sandbox) awaitAgents(t *testing.T, want int) {
	t.Helper()
	host.Eventually(t, settleTime, fmt.Sprintf("%d agents", want), func() (string, bool) {
		found, err := s.agents()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(found, "\n"), len(found) == want
	})
}

// awaitSilence waits until no agent is left, when everything that has started one has been killed.
func (s *sandbox) awaitSilence(t *testing.T) {
	end := time.NewTimer(settleTime) // the test's context is over
	defer end.Stop()
	for {
		found, err := s.agents()
		if len(found) == 0 && err == nil {
			return
		}
		select {
		case <-end.C:
			t.Errorf("these are left: %q (%v)", found, err)
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// identity is what stays of a node for as long as the same host is it.
func (s *sandbox) identity(t *testing.T) string {
	t.Helper()
	return s.must(t, "tako get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.status.identity.key} {.status.identity.joined}{end}'; tako get tokens -o name")
}

// awaitFile waits until a managed file is there with a text.
func (s *sandbox) awaitFile(t *testing.T, path, text string) {
	t.Helper()
	host.Eventually(t, settleTime, path+" to be as declared", func() (string, bool) {
		have, err := os.ReadFile(path)
		if err != nil {
			return err.Error(), false
		}
		return string(have), strings.Contains(string(have), text)
	})
}

const (
	motdText  = "This host is kept as it is declared."
	converged = "tako wait node/one --for=converged --timeout=4m"
)

// TestUp: a fleet of one is started twice in the same directory, and is the same one; two at once are refused; nothing is left of it
// in the end.
func TestUp(t *testing.T) {
	s := newSandbox(t)
	motd := filepath.Join(s.up, "host", "etc", "motd")
	p := s.startUp(t, "-f", "hello")
	if said := p.said(t); !strings.Contains(said, "\n  /etc/motd\n") || strings.Contains(said, "var/lib") {
		t.Errorf("what was made is told as\n%s", said)
	}
	s.awaitFile(t, motd, motdText) // at once
	s.must(t, converged)

	out, errs, code := s.run(t, "tako up --dir $UP")
	if code == 0 || !strings.Contains(errs, "help: tako down --dir "+s.up) || out != "" {
		t.Errorf("a second one at the same time: exit %d: %s%s", code, out, errs)
	}
	before := s.identity(t)
	s.must(t, "tako down --dir $UP")
	if code := p.awaitEnd(t); code != 0 {
		t.Errorf("tako up ended with %d:\n%s", code, p.said(t))
	}
	if found, err := s.agents(); len(found) > 0 || err != nil {
		t.Errorf("these are left: %q (%v)", found, err)
	}
	s.must(t, "tako down --dir $UP") // nothing runs there

	if err := os.Remove(motd); err != nil {
		t.Fatal(err)
	}
	p = s.startUp(t)
	s.awaitFile(t, motd, motdText)
	s.must(t, converged)
	if after := s.identity(t); after != before {
		t.Errorf("the node was\n%sand is\n%s", before, after)
	}
	host.Eventually(t, rig.InTime, "the agent has started twice", func() (string, bool) {
		starts := s.must(t, "tako get node/one -o jsonpath={.status.agent.starts}")
		return starts, strings.TrimSpace(starts) == "2"
	})
	s.must(t, "tako down --purge --dir $UP")
	if code := p.awaitEnd(t); code != 0 {
		t.Errorf("tako up ended with %d:\n%s", code, p.said(t))
	}
	if _, err := os.Lstat(s.up); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", s.up, err)
	}
}

// TestUpKilled: the agent does not outlive a tako up that was killed, and the next one goes on where that one was.
func TestUpKilled(t *testing.T) {
	s := newSandbox(t)
	p := s.startUp(t, "-f", "hello")
	before := s.identity(t)
	s.awaitAgents(t, 1)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t)
	s.awaitAgents(t, 0)
	s.startUp(t)
	s.awaitAgents(t, 1)
	s.must(t, converged)
	if after := s.identity(t); after != before {
		t.Errorf("the node was\n%sand is\n%s", before, after)
	}
	motd := filepath.Join(s.up, "host", "etc", "motd")
	if err := os.Remove(motd); err != nil {
		t.Fatal(err)
	}
	s.awaitFile(t, motd, motdText)
	s.must(t, "tako down --dir $UP")
	s.awaitAgents(t, 0)
}

// TestUpRefusals: what is wrong is told at once, in words, and nothing is left of it.
func TestUpRefusals(t *testing.T) {
	s := newSandbox(t)
	for _, c := range []struct{ script, says string }{
		{"tako up --dir $UP -f nowhere.yaml", "nowhere.yaml"},
		{"mkdir other && tako down --purge --dir other", "nothing in it says that tako up made it"},
	} {
		out, errs, code := s.run(t, c.script)
		if code == 0 || !strings.Contains(errs, c.says) {
			t.Errorf("$ %s\nexit %d, want a refusal that says %q:\n%s%s", c.script, code, c.says, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "other")); err != nil {
		t.Errorf("a directory of somebody else was removed: %v", err)
	}
	s.awaitAgents(t, 0)
}
