package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Fleet is a running `tako up`: a server and one agent.
type Fleet struct {
	Server
	Root  string // what stands for / on the host
	Agent int    // process
	Node  string
}

// StartFleet starts `tako up`, the program at a path, in a directory, with files to apply, and waits until it has said that the host
// is as declared. The caller ends it with Stop.
func StartFleet(ctx context.Context, program, dir string, files ...string) (*Fleet, error) {
	const node = "bench"
	args := []string{"up", "--dir", dir, "--node", node}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	said := &awaited{prefix: "Server and agent run.", at: make(chan time.Time, 1)}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = serverStopMax
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "server")
	f := &Fleet{Server: Server{PID: cmd.Process.Pid, dir: data, cmd: cmd, said: &saying{}, ended: make(chan error, 1)}, Root: filepath.Join(dir, "host"), Node: node}
	go func() { f.ended <- cmd.Wait() }()
	late := time.NewTimer(readyMax)
	defer late.Stop()
	select {
	case at := <-said.at:
		f.Took = at.Sub(start)
	case err := <-f.ended:
		return nil, fmt.Errorf("tako up ended: %v: %s", errors.Join(err, ctx.Err()), said)
	case <-late.C:
		return nil, errors.Join(fmt.Errorf("tako up is not ready after %v: %s", readyMax, said), f.Kill())
	}
	if err := f.enterFleet(ctx); err != nil {
		return nil, errors.Join(err, f.Kill())
	}
	return f, nil
}

func (f *Fleet) enterFleet(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig())
	if err != nil {
		return err
	}
	if f.trust, err = rest.TLSConfigFor(config); err != nil {
		return err
	}
	f.url = config.Host
	if f.Agent, err = childOf(f.PID); err != nil {
		return err
	}
	c := f.Client()
	defer c.Leave()
	return c.do(ctx, http.MethodGet, "/readyz", nil)
}

// childOf is the only child of a process, whichever of its threads has started it.
func childOf(process int) (int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process))
	if err != nil {
		return 0, err
	}
	var children []string
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a thread that has ended has none
			return 0, err
		}
		children = append(children, strings.Fields(string(text))...)
	}
	if len(children) != 1 {
		return 0, fmt.Errorf("process %d has the children %v, want one", process, children)
	}
	return strconv.Atoi(children[0])
}

// fileMax is how long a file may take to have what was declared: far above the bar.
const fileMax = 30 * time.Second

// AwaitFile waits until a file has a content.
func AwaitFile(ctx context.Context, path, content string) error {
	ctx, cancel := context.WithTimeout(ctx, fileMax)
	defer cancel()
	for {
		got, err := os.ReadFile(path)
		if err == nil && string(got) == content {
			return nil
		}
		// As fine as what is measured needs, and far from keeping a core busy.
		if waitErr := Pause(ctx, 200*time.Microsecond); waitErr != nil {
			return fmt.Errorf("%s is %q, want %q: %w", path, got, content, errors.Join(err, waitErr))
		}
	}
}

// Kubeconfig is the path of the administrator's.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "admin.kubeconfig") }

// Put creates or replaces an object.
func (c *Client) Put(ctx context.Context, path string, body []byte) error {
	return c.do(ctx, http.MethodPut, path, body)
}

// Post creates an object.
func (c *Client) Post(ctx context.Context, path string, body []byte) error {
	return c.do(ctx, http.MethodPost, path, body)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, path, nil)
}

// errNoMetric is the error of a metric without a sample.
var errNoMetric = errors.New("the server has no metric")

// NoMetric reports whether an error is that of a metric without a sample.
func NoMetric(err error) bool { return errors.Is(err, errNoMetric) }

// Sum adds up the samples of a metric of the server, whatever their labels.
func (c *Client) Sum(ctx context.Context, metric string) (float64, error) {
	text, err := c.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, metric+"{") {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("%w %s", errNoMetric, metric)
	}
	return sum, nil
}

// Value is the value of one series of a metric, with its labels as the server writes them; 0 when there is none.
func (c *Client) Value(ctx context.Context, series string) (float64, error) {
	text, err := c.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// awaited waits for a line, and keeps all that was said.
type awaited struct {
	prefix string
	at     chan time.Time // gets one value

	mu   sync.Mutex // guards all
	all  bytes.Buffer
	told bool
}

// Write takes what the program says.
func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.Write(p)
	if !a.told && bytes.Contains(a.all.Bytes(), []byte(a.prefix)) {
		a.told = true
		a.at <- time.Now()
	}
	return len(p), nil
}

// String is what was said.
func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all.String()
}
