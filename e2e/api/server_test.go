//go:build e2e

package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// readyTime bounds the wait for a server that answers. It takes half a second; the rest is for busy machines.
	readyTime = 30 * time.Second
	// stopTime bounds a graceful stop, with watches open too: a restart for an upgrade is no outage.
	stopTime = 10 * time.Second
	// buildTime bounds the build of the program, of a cold cache too.
	buildTime = 10 * time.Minute
	// settleTime bounds the wait for anything that the server does by itself.
	settleTime = 30 * time.Second
	// logLines is how much of a server's log is shown with a failure.
	logLines = 40
)

// takoPath is the built program.
var takoPath string

func TestMain(m *testing.M) {
	// client-go logs each broken connection, and here they are broken on purpose.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctrl.SetLogger(klog.Background())
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tako-e2e-api-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	takoPath = filepath.Join(dir, "tako-e2e-api") // so that process lists tell whose it is
	build := exec.CommandContext(ctx, "go", "build", "-o", takoPath, "tako.dev/tako/cmd/tako")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build tako: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// server is one tako server, which may be started and ended several times.
type server struct {
	dir    string   // the data directory
	args   []string // beside --data-dir and --listen
	listen string   // HOST:PORT; after the first start with the port that was free then
	url    string
	run    *process // nil when it does not run
}

// newServer starts a server with an empty data directory, and waits until it is ready.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	return newServerIn(t, filepath.Join(t.TempDir(), "data"), args...)
}

func newServerIn(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := &server{dir: dir, args: args, listen: "127.0.0.1:0"}
	t.Cleanup(func() {
		if s.run == nil {
			return
		}
		select {
		case <-s.run.ended:
			t.Errorf("the server ended by itself (%v):\n%s", s.run.cmd.ProcessState, s.run.log.tail())
		default:
			s.run.end(syscall.SIGKILL)
		}
	})
	s.start(t)
	return s
}

// start starts the server, and waits until it is ready.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.run = startTako(t, append([]string{"server", "--data-dir", s.dir, "--listen", s.listen}, s.args...)...)
	s.url = s.run.awaitReady(t)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.listen = u.Host
}

// stop ends the server as systemd does, and checks that it goes quietly.
func (s *server) stop(t testing.TB) {
	t.Helper()
	if code := s.run.end(syscall.SIGTERM); code != 0 {
		t.Errorf("the server ended with %d when it was asked to stop:\n%s", code, s.run.log.tail())
	}
	s.run = nil
}

// kill ends the server as the kernel does when memory is short.
func (s *server) kill(testing.TB) {
	s.run.end(syscall.SIGKILL)
	s.run = nil
}

// kubeconfig is the administrator's.
func (s *server) kubeconfig() string { return filepath.Join(s.dir, "admin.kubeconfig") }

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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.run.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS in\n%s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// process is a running tako.
type process struct {
	cmd   *exec.Cmd
	log   *logTail
	ready chan string   // the URL, once it is ready
	ended chan struct{} // closed when the process has been waited for
}

// startTako starts the program. Its standard error is read to the end by one goroutine, which then waits for the process.
func startTako(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{log: &logTail{}, ready: make(chan string, 1), ended: make(chan struct{})}
	// No context: a server outlives the test function in cleanups, and is ended by end or by the kernel.
	p.cmd = exec.CommandContext(context.Background(), takoPath, args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.follow(stderr)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	return p
}

var readyLine = regexp.MustCompile(`msg=ready url=(\S+)`)

func (p *process) follow(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		p.log.add(line)
		if m := readyLine.FindStringSubmatch(line); m != nil {
			p.ready <- m[1]
		}
		if err != nil {
			return
		}
	}
}

func (p *process) awaitReady(t testing.TB) string {
	t.Helper()
	late := time.NewTimer(readyTime)
	defer late.Stop()
	select {
	case u := <-p.ready:
		return u
	case <-p.ended:
		t.Fatalf("the server ended with %d before it was ready:\n%s", p.cmd.ProcessState.ExitCode(), p.log.tail())
	case <-late.C:
		p.end(syscall.SIGKILL)
		t.Fatalf("the server is not ready after %v:\n%s", readyTime, p.log.tail())
	}
	return ""
}

// end sends a signal and waits; it kills what does not end. It returns the exit code, -1 after a signal.
func (p *process) end(signal syscall.Signal) int {
	_ = p.cmd.Process.Signal(signal) // it may have ended by itself
	return p.wait(stopTime)
}

// wait waits for the end of the process, and kills it when that is late.
func (p *process) wait(limit time.Duration) int {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	return p.cmd.ProcessState.ExitCode()
}

func itoa(n int) string { return strconv.Itoa(n) }

// logTail is the end of a log.
type logTail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *logTail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == logLines {
		l.lines = l.lines[1:]
	}
	l.lines = append(l.lines, line)
}

func (l *logTail) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

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
