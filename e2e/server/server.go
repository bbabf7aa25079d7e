// Package server runs the built tako server as a process, for tests that use it as people do: through kubectl, tako and
// controllers. They may stop it, kill it and start it again on the same data and port.
//
// A Process owns one process, and one goroutine that reads its log to the end and then waits for it. The test's cleanup ends
// both; the kernel kills the process when the test's own dies before that.
package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

const (
	// ReadyTime bounds the wait for a server that answers. It takes half a second; the rest is for busy machines.
	ReadyTime = time.Minute
	// StopTime bounds a graceful stop, with watches open too: a restart for an upgrade is no outage. It takes a second; the rest is for busy machines.
	StopTime = time.Minute
)

// Server is one tako server, which may be started and ended several times.
type Server struct {
	// Dir is the data directory.
	Dir string
	// Listen is HOST:PORT of the API; hosts are served at the port after it, unless an argument says otherwise.
	Listen string
	// URL is where the API is.
	URL string
	// Run is the running process, nil when there is none.
	Run *Process

	program string
	args    []string
}

// New starts a server of the program tako on a data directory, which may be new, and waits until it is ready. Further
// arguments stand behind `tako server`. What still runs when the test ends is killed; if it has ended by itself, the test fails.
func New(t testing.TB, tako, dir string, args ...string) *Server {
	t.Helper()
	s := &Server{Dir: dir, Listen: host.FreeAddress(t), program: tako, args: args}
	t.Cleanup(func() {
		if s.Run == nil {
			return
		}
		select {
		case <-s.Run.Ended:
			t.Errorf("the server ended by itself (%v):\n%s", s.Run.Cmd.ProcessState, s.Run.Log.Tail())
		default:
			s.Run.End(syscall.SIGKILL)
		}
	})
	s.Start(t)
	return s
}

// Start runs a server of the program tako with an empty data directory until the test ends, when it must go quietly, and
// returns the path of its administrator's kubeconfig.
func Start(t testing.TB, tako string) (kubeconfig string) {
	t.Helper()
	s := New(t, tako, filepath.Join(t.TempDir(), "data"))
	t.Cleanup(func() { s.Stop(t) })
	return s.Kubeconfig()
}

// Start starts the server again, and waits until it is ready.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.Run = Launch(t, s.program, append([]string{"server", "--data-dir", s.Dir, "--listen", s.Listen}, s.args...)...)
	s.URL = s.Run.AwaitReady(t)
}

// Stop ends the server as systemd does, and checks that it goes quietly.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if code := s.Run.End(syscall.SIGTERM); code != 0 {
		t.Errorf("the server ended with %d when it was asked to stop:\n%s", code, s.Run.Log.Tail())
	}
	s.Run = nil
}

// Kill ends the server as the kernel does when memory is short.
func (s *Server) Kill() {
	s.Run.End(syscall.SIGKILL)
	s.Run = nil
}

// Kubeconfig is the path of the administrator's.
func (s *Server) Kubeconfig() string { return filepath.Join(s.Dir, "admin.kubeconfig") }

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// RSS is the memory of the server's process that is resident, in bytes.
func (s *Server) RSS(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Run.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := residentLine.FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS in\n%s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
