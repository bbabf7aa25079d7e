// Package server runs the built tako server as a process, for tests that use it as people do: through kubectl, tako and
// controllers.
//
// Start owns one process, and one goroutine that reads the process's log to its end and then waits for it. The test's cleanup
// ends both; the kernel kills the process when the test's own dies before that.
package server

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// readyTime bounds the wait for a server that answers. It takes half a second; the rest is for busy machines.
	readyTime = time.Minute
	// stopTime bounds a graceful stop, with watches open too.
	stopTime = 15 * time.Second
	// logLines is how much of the log is shown with a failure.
	logLines = 40
)

// Program builds a main package into a directory of the test and returns the path of the program. The go command's own cache
// makes every build but the first take seconds.
func Program(t testing.TB, importPath string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(importPath))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, importPath)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", importPath, err, out)
	}
	return path
}

// Start runs a server of the program tako with an empty data directory, waits until it is ready, and returns the path of its
// administrator's kubeconfig. The server runs until the test ends.
func Start(t testing.TB, tako string) (kubeconfig string) {
	t.Helper()
	// No context: the server ends in the cleanup, after the test's own context has ended.
	cmd := exec.CommandContext(context.Background(), tako, "server", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{ready: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.follow(stderr)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		if !p.endsWithin(stopTime) {
			_ = cmd.Process.Kill()
			<-p.ended
		}
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the server ended with %d:\n%s", code, strings.Join(p.log, ""))
		}
	})
	late := time.NewTimer(readyTime)
	defer late.Stop()
	select {
	case kubeconfig = <-p.ready:
	case <-p.ended:
		t.Fatal("the server ended before it was ready")
	case <-late.C:
		t.Fatalf("the server is not ready after %v", readyTime)
	}
	return kubeconfig
}

// process is what is known of a running server.
type process struct {
	ready chan string   // the path of the kubeconfig, once
	ended chan struct{} // closed when the process has been waited for
	log   []string      // its last lines; to be read when ended is closed
}

var readyLine = regexp.MustCompile(`msg=ready .*kubeconfig=(\S+)`)

// follow reads the log to its end.
func (p *process) follow(log io.Reader) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		p.log = append(p.log, line)
		p.log = p.log[max(0, len(p.log)-logLines):]
		if m := readyLine.FindStringSubmatch(line); m != nil {
			p.ready <- m[1]
		}
		if err != nil {
			return
		}
	}
}

func (p *process) endsWithin(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.ended:
		return true
	case <-late.C:
		return false
	}
}
