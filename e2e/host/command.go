package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// runTimeout bounds MustRun, Put, Get and CopyIn: the slowest is the installation of a package.
	runTimeout = 5 * time.Minute
	// outputDelay is how long a command that has ended may keep its output open through children that it left behind.
	outputDelay = 5 * time.Second
)

// environment is what commands in a host see, and all of it: nothing of the test's own leaks in.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
}

// Result is what a command in a host has left.
type Result struct {
	Stdout string
	Stderr string
	Code   int // exit status; 128 and the number of the signal when one ended it, as in a shell
}

// Run runs a command as root in the host and waits for it. A command that exits with another status than 0 is a result,
// not an error; an error says that it did not run or did not end in time.
//
// The command is in all of the host's namespaces, but not below its systemd: it has every capability and is in no unit.
// What has to live as a service lives is to be started as a unit, with systemctl or systemd-run.
func (h *Host) Run(ctx context.Context, args ...string) (Result, error) {
	return h.run(ctx, nil, args...)
}

// MustRun is Run that fails the test when the command exits with another status than 0; it returns the standard output.
func (h *Host) MustRun(t testing.TB, args ...string) string {
	t.Helper()
	return h.mustRun(t, nil, args...)
}

// Put writes a file of the host, with its parent directories, owned by root.
func (h *Host) Put(t testing.TB, path, content string, mode fs.FileMode) {
	t.Helper()
	h.install(t, strings.NewReader(content), path, mode)
}

// CopyIn copies a file of this machine, with its mode, to path in the host.
func (h *Host) CopyIn(t testing.TB, local, path string) {
	t.Helper()
	file, err := os.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	h.install(t, file, path, info.Mode().Perm())
}

// Get returns the content of a file of the host.
func (h *Host) Get(t testing.TB, path string) string {
	t.Helper()
	return h.MustRun(t, "cat", "--", path)
}

func (h *Host) install(t testing.TB, content io.Reader, path string, mode fs.FileMode) {
	t.Helper()
	h.mustRun(t, content, "install", "-D", "-m", strconv.FormatUint(uint64(mode.Perm()), 8), "/dev/stdin", path)
}

func (h *Host) mustRun(t testing.TB, stdin io.Reader, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	result, err := h.run(ctx, stdin, args...)
	if err != nil {
		t.Fatalf("host %s: %q: %v\n%s%s", h.name, args, err, result.Stdout, result.Stderr)
	}
	if result.Code != 0 {
		t.Fatalf("host %s: %q: exit status %d\n%s%s", h.name, args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

func (h *Host) run(ctx context.Context, stdin io.Reader, args ...string) (Result, error) {
	var stdout, stderr bytes.Buffer
	cmd := command(ctx, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := h.startCommand(cmd); err != nil {
		return Result{}, err
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return newResult(cmd.ProcessState, stdout.String(), stderr.String(), err)
}

// command prepares a command for a host. env finds the program by the host's PATH. The command and what it starts are one
// process group, which ends together when ctx does.
func command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"--"}, args...)...)
	cmd.Env = environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	return cmd
}

// startCommand starts a prepared command in the host.
func (h *Host) startCommand(cmd *exec.Cmd) error {
	leader, err := h.leader()
	if err != nil {
		return err
	}
	return startInside(leader, cmd)
}

// newResult makes the result of a command that has ended with err, as exec.Cmd.Wait returns it.
func newResult(state *os.ProcessState, stdout, stderr string, err error) (Result, error) {
	result := Result{Stdout: stdout, Stderr: stderr, Code: -1}
	if state != nil {
		result.Code = state.ExitCode()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			result.Code = 128 + int(status.Signal())
		}
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return result, nil
	}
	return result, err
}

// Process is a command that runs in a host while the test goes on.
type Process struct {
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	ended  chan struct{} // closed after result and err are set
	result Result
	err    error
}

// Start starts a command as root in the host. It is killed when the test ends, and with the host.
func (h *Host) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command(ctx, args)
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := h.startCommand(cmd); err != nil {
		cancel()
		t.Fatalf("host %s: %q: %v", h.name, args, err)
	}
	go func() {
		defer close(p.ended)
		err := cmd.Wait()
		p.result, p.err = newResult(cmd.ProcessState, p.stdout.String(), p.stderr.String(), err)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// Stdout returns what the command has printed until now.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr returns what the command has printed on standard error until now.
func (p *Process) Stderr() string { return p.stderr.String() }

// Kill ends the command and what it has started with SIGKILL. Wait tells when it is gone.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Cancel(); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("kill %q: %v", p.cmd.Args, err)
	}
}

// Signal sends the signal to the command only, not to what it has started.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("signal %q: %v", p.cmd.Args, err)
	}
}

// Wait waits until the command has ended, and fails the test when it has not after deadline.
func (p *Process) Wait(t testing.TB, deadline time.Duration) Result {
	t.Helper()
	late := time.NewTimer(deadline)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		t.Fatalf("%q: still running after %v\n%s%s", p.cmd.Args, deadline, p.Stdout(), p.Stderr())
	}
	if p.err != nil {
		t.Fatalf("%q: %v", p.cmd.Args, p.err)
	}
	return p.result
}

// lockedBuffer is a buffer that is read while a command writes to it.
type lockedBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
