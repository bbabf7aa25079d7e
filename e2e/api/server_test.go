//go:build e2e

package api_test

import (
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"tako.dev/tako/e2e/host"
	starter "tako.dev/tako/e2e/server"
)

const (
	// readyTime bounds the wait for a server that answers, or refuses to.
	readyTime = starter.ReadyTime
	// settleTime bounds the wait for anything that the server does by itself.
	settleTime = time.Minute
)

func TestMain(m *testing.M) {
	// client-go logs each broken connection, and here they are broken on purpose.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctrl.SetLogger(klog.Background())
	m.Run()
}

// server is one tako server, which may be started and ended several times, with clients for it.
type server struct {
	process *starter.Server
	dir     string // the data directory
	listen  string // HOST:PORT, the same after each start
	url     string
	run     *process // nil when it does not run
}

// newServer starts a server with an empty data directory, and waits until it is ready.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	return newServerIn(t, filepath.Join(t.TempDir(), "data"), args...)
}

func newServerIn(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	p := starter.New(t, host.TakoBinary(t), dir, args...)
	return &server{process: p, dir: dir, listen: p.Listen, url: p.URL, run: processOf(p.Run)}
}

// start starts the server, and waits until it is ready.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.process.Start(t)
	s.run = processOf(s.process.Run)
}

// stop ends the server as systemd does, and checks that it goes quietly.
func (s *server) stop(t testing.TB) {
	t.Helper()
	s.process.Stop(t)
	s.run = nil
}

// kill ends the server as the kernel does when memory is short.
func (s *server) kill(testing.TB) {
	s.process.Kill()
	s.run = nil
}

// kubeconfig is the administrator's.
func (s *server) kubeconfig() string { return s.process.Kubeconfig() }

// config is the administrator's, for a client without a limit of its own on requests.
func (s *server) config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// client is an administrator's client.
func (s *server) client(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rss is the memory of the server's process that is resident, in bytes.
func (s *server) rss(t testing.TB) int64 {
	t.Helper()
	return s.process.RSS(t)
}

// process is a running tako.
type process struct {
	cmd   *exec.Cmd
	log   logTail
	ended <-chan struct{} // closed when the process has been waited for

	process *starter.Process
}

func processOf(p *starter.Process) *process {
	return &process{cmd: p.Cmd, log: logTail{p.Log}, ended: p.Ended, process: p}
}

// startTako starts the program, which the caller ends.
func startTako(t testing.TB, args ...string) *process {
	t.Helper()
	return processOf(starter.Launch(t, host.TakoBinary(t), args...))
}

// end sends a signal and waits; it kills what does not end. It returns the exit code, -1 after a signal.
func (p *process) end(signal syscall.Signal) int { return p.process.End(signal) }

// wait waits for the end of the process, and kills it when that is late.
func (p *process) wait(limit time.Duration) int { return p.process.Wait(limit) }

// logTail is the end of a log.
type logTail struct{ log *starter.Log }

func (l logTail) tail() string { return l.log.Tail() }

func itoa(n int) string { return strconv.Itoa(n) }

// command runs a program to its end, and returns what it said. A program that cannot be started fails the test.
func command(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}
