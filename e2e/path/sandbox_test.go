package path

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/transfer/core"
)

// inTime bounds the wait for what takes milliseconds, or a host a few tries to connect, or the half minute after which it is to come
// again, on a busy machine.
const inTime = 2 * time.Minute

// scratch is where programs are built, set by TestMain.
var scratch string

// programs builds both programs as they are shipped, once, and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", scratch+"/", "tako.dev/tako/cmd/tako", "tako.dev/tako/cmd/tako-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return scratch, nil
})

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "tako-path-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	syscall.Umask(0o022)
	code := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// ground is a server and hosts that are directories of this machine: the built programs, and no need of root.
type ground struct {
	*testing.T
	server   *server.Server
	transfer string // where hosts reach the server
	dir      string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the built programs, which -short leaves out")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{T: t, dir: t.TempDir()}
	g.server = server.New(t, filepath.Join(bin, "tako"), filepath.Join(g.dir, "server"))
	name, port, err := net.SplitHostPort(g.server.Listen)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	g.transfer = net.JoinHostPort(name, strconv.Itoa(number+1)) // where it serves hosts when nobody says otherwise
	return g
}

// tako runs a command that must succeed, and returns what it writes.
func (g *ground) tako(args ...string) string {
	g.Helper()
	out, err := g.try(args...)
	if err != nil {
		g.Fatalf("tako %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a command, whatever comes of it.
func (g *ground) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), inTime)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(scratch, "tako"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+g.server.Kubeconfig(), "HOME="+g.dir, "NO_COLOR=1")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return string(out) + errs.String(), err
	}
	return string(out), nil
}

func (g *ground) apply(documents string) {
	g.Helper()
	path := filepath.Join(g.dir, "declared.yaml")
	if err := os.WriteFile(path, []byte(documents), 0o600); err != nil {
		g.Fatal(err)
	}
	g.tako("apply", "-f", path)
}

// get reads an object as JSON; what cannot be read now is left as it is.
func (g *ground) get(into any, args ...string) {
	g.Helper()
	out, err := g.try(append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		g.Fatalf("tako get %v: %v\n%s", args, err, out)
	}
}

// metric sums up the samples of the server whose name and labels begin so.
func (g *ground) metric(prefix string) float64 {
	g.Helper()
	sum := 0.0
	for line := range strings.Lines(g.metrics()) {
		if strings.HasPrefix(line, prefix) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
			if err != nil {
				g.Fatalf("metric %q: %v", line, err)
			}
			sum += value
		}
	}
	return sum
}

func (g *ground) metrics() string {
	g.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", g.server.Kubeconfig())
	if err != nil {
		g.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		g.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(g.Context(), http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		g.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		g.Fatal(err)
	}
	return string(text)
}

// sandbox is a host: a directory that an agent keeps.
type sandbox struct {
	ground *ground
	name   string
	root   string
	log    string // file of all that its agents say
	agent  *exec.Cmd
	ended  chan struct{}
}

// join makes a host, which does not run yet.
func (g *ground) join(name string, flags ...string) *sandbox {
	g.Helper()
	s := &sandbox{ground: g, name: name, root: filepath.Join(g.dir, name), log: filepath.Join(g.dir, name+".log")}
	for _, d := range []string{"etc", "srv"} {
		if err := os.MkdirAll(filepath.Join(s.root, d), 0o755); err != nil {
			g.Fatal(err)
		}
	}
	line := g.tako(append([]string{"token", "create", "join", "--name", name}, flags...)...)
	ctx, cancel := context.WithTimeout(g.Context(), inTime)
	defer cancel()
	join := exec.CommandContext(ctx, filepath.Join(scratch, "tako-agent"), "join", "-", "--root", s.root, "--name", name)
	join.Stdin = strings.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		g.Fatalf("join: %v\n%s", err, out)
	}
	return s
}

// start starts its agent.
func (s *sandbox) start() {
	s.ground.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.ground.Fatal(err)
	}
	defer log.Close()
	agent := exec.CommandContext(context.Background(), filepath.Join(scratch, "tako-agent"), "run", "--root", s.root) // it is ended below
	agent.Stdout, agent.Stderr = log, log
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		s.ground.Fatal(err)
	}
	s.agent, s.ended = agent, make(chan struct{})
	ended := s.ended
	var waited sync.WaitGroup
	waited.Go(func() {
		_ = agent.Wait() // how it ended is what signals have done
		close(ended)
	})
	s.ground.Cleanup(func() {
		_ = agent.Process.Kill() // it may have ended
		waited.Wait()
		if s.ground.Failed() {
			text, _ := os.ReadFile(s.log)
			s.ground.Logf("the agent of %s said:\n%s", s.name, text[max(0, len(text)-8<<10):])
		}
	})
}

// end ends its agent by a signal.
func (s *sandbox) end(signal syscall.Signal) {
	s.ground.Helper()
	_ = s.agent.Process.Signal(signal) // it may have ended
	late := time.NewTimer(inTime)
	defer late.Stop()
	select {
	case <-s.ended:
	case <-late.C:
		s.ground.Fatalf("the agent of %s does not end", s.name)
	}
}

// stop ends its agent as systemd does, kill as the kernel does when memory is short.
func (s *sandbox) stop() { s.ground.Helper(); s.end(syscall.SIGTERM) }
func (s *sandbox) kill() { s.ground.Helper(); s.end(syscall.SIGKILL) }

func (s *sandbox) path(p string) string { return filepath.Join(s.root, p) }
func (s *sandbox) state() string        { return s.path("var/lib/tako") }

// read is what a file has; empty where there is none.
func (s *sandbox) read(p string) string {
	text, _ := os.ReadFile(s.path(p)) // what is not there has no text
	return string(text)
}

// count is how many files a directory has.
func (s *sandbox) count(p string) int {
	all, _ := os.ReadDir(s.path(p)) // what is not there has none
	return len(all)
}

// until waits until something of the host is so.
func (s *sandbox) until(what string, look func() (string, bool)) {
	s.ground.Helper()
	host.Eventually(s.ground.T, inTime, s.name+": "+what, look)
}

// has waits until a file has a content.
func (s *sandbox) has(p, content string) {
	s.ground.Helper()
	s.until(p+" is as declared", func() (string, bool) {
		got := s.read(p)
		return strconv.Quote(got[:min(len(got), 200)]), got == content
	})
}

// keeps proves that an agent which runs keeps a file: what somebody else writes there is repaired.
func (s *sandbox) keeps(p, content string) {
	s.ground.Helper()
	s.has(p, content)
	if err := os.WriteFile(s.path(p), []byte("drift\n"), 0o600); err != nil {
		s.ground.Fatal(err)
	}
	s.has(p, content)
}

// node reads its Node.
func (s *sandbox) node() v1alpha1.Node {
	s.ground.Helper()
	var n v1alpha1.Node
	s.ground.get(&n, "node/"+s.name)
	return n
}

// assignment reads what it is assigned.
func (s *sandbox) assignment() v1alpha1.Assignment {
	s.ground.Helper()
	var a v1alpha1.Assignment
	s.ground.get(&a, "assignment/"+s.name)
	return a
}

// reports waits until its Node says something.
func (s *sandbox) reports(what string, is func(*v1alpha1.Node) bool) v1alpha1.Node {
	s.ground.Helper()
	var n v1alpha1.Node
	s.until(what, func() (string, bool) {
		n = s.node()
		text, err := json.Marshal(n.Status)
		return fmt.Sprintf("%s %v", text, err), is(&n)
	})
	return n
}

// converges waits until the newest that it is assigned is applied.
func (s *sandbox) converges() v1alpha1.Node {
	s.ground.Helper()
	return s.reports("it is converged", func(n *v1alpha1.Node) bool {
		var e everything
		s.ground.get(&e.assignment, "assignment/"+s.name)
		s.ground.get(&e.configs, "nodeconfigs", "-A")
		s.ground.get(&e.cluster, "clusternodeconfigs")
		return e.assigned(n) && converged(n)
	})
}

// kept is what it holds durably: read from a copy, because an agent may have the original.
func (s *sandbox) kept() core.Kept {
	s.ground.Helper()
	copied := s.ground.TempDir()
	text, err := os.ReadFile(filepath.Join(s.state(), "heads"))
	if os.IsNotExist(err) {
		return core.Kept{}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "heads"), text, 0o600)
	}
	if err != nil {
		s.ground.Fatal(err)
	}
	store, err := held.Open(copied, time.Now())
	if err != nil {
		s.ground.Fatal(err)
	}
	defer store.Close()
	kept, err := store.Kept()
	if err != nil {
		s.ground.Fatal(err)
	}
	return kept
}
