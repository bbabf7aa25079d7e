package server

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

// logLines is how much of a log is kept to be shown with a failure.
const logLines = 40

// Process is a running tako.
type Process struct {
	Cmd *exec.Cmd
	Log *Log
	// Ended is closed when the process has been waited for; how it ended is in Cmd.ProcessState then.
	Ended <-chan struct{}

	ready chan string // where it answers, once it is ready
}

// Launch starts a program. It does not end with the test by itself: the caller ends it, or the kernel when the test dies.
func Launch(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	ended := make(chan struct{})
	p := &Process{Log: &Log{}, Ended: ended, ready: make(chan string, 1)}
	// No context: a server outlives the test function in cleanups.
	p.Cmd = exec.CommandContext(context.Background(), program, args...)
	stderr, err := p.Cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.StartBound(p.Cmd, func() {
		defer close(ended)
		p.follow(stderr)
		_ = p.Cmd.Wait() // how it ended is in ProcessState
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// readyLine is what a server says when it answers at a URL, and a relay at an address.
var readyLine = regexp.MustCompile(`msg=ready (?:url|relay=\S+ address)=(\S+)`)

// follow reads the log to its end.
func (p *Process) follow(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		p.Log.add(line)
		if m := readyLine.FindStringSubmatch(line); m != nil {
			p.ready <- m[1]
		}
		if err != nil {
			return
		}
	}
}

// AwaitReady waits until the program says where it answers, and returns that: the URL of a server, the address of a relay.
func (p *Process) AwaitReady(t testing.TB) (where string) {
	t.Helper()
	late := time.NewTimer(ReadyTime)
	defer late.Stop()
	select {
	case where = <-p.ready:
	case <-p.Ended:
		t.Fatalf("it ended with %d before it was ready:\n%s", p.Cmd.ProcessState.ExitCode(), p.Log.Tail())
	case <-late.C:
		p.End(syscall.SIGKILL)
		t.Fatalf("it is not ready after %v:\n%s", ReadyTime, p.Log.Tail())
	}
	return where
}

// End sends a signal and waits; it kills what does not end within StopTime. It returns the exit code, -1 after a signal.
func (p *Process) End(signal syscall.Signal) int {
	_ = p.Cmd.Process.Signal(signal) // it may have ended by itself
	return p.Wait(StopTime)
}

// Wait waits for the end of the process, kills it when that is late, and returns the exit code, -1 after a signal.
func (p *Process) Wait(limit time.Duration) int {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.Ended:
	case <-late.C:
		_ = p.Cmd.Process.Kill()
		<-p.Ended
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Log is the end of a log. It may be read while it grows.
type Log struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if over := len(l.lines) - logLines; over > 0 {
		l.lines = slices.Delete(l.lines, 0, over)
	}
}

// Tail returns the last lines.
func (l *Log) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}
