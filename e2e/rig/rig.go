package rig

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
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
)

// InTime bounds the wait for what takes milliseconds, or a host a few tries to connect, or the half minute after which it is to
// come again, on a busy machine.
const InTime = 5 * time.Minute

// Programs builds both programs, as they are shipped, and returns the directory where they are.
func Programs(t testing.TB) string {
	t.Helper()
	host.TakoBinary(t)
	return filepath.Dir(host.AgentBinary(t))
}

// Rig is a server and a place for hosts.
type Rig struct {
	*testing.T
	Server   *server.Server
	Transfer string // where hosts reach the server
	Dir      string // of the test: all that there is, is below
	Bin      string // where the programs are
}

// New builds both programs and starts a server. Further arguments are those of `tako server`.
func New(t *testing.T, args ...string) *Rig {
	t.Helper()
	g := &Rig{T: t, Dir: t.TempDir(), Bin: Programs(t)}
	g.Server = server.New(t, filepath.Join(g.Bin, "tako"), filepath.Join(g.Dir, "server"), args...)
	name, port, err := net.SplitHostPort(g.Server.Listen)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	g.Transfer = net.JoinHostPort(name, strconv.Itoa(number+1)) // where it serves hosts when nobody says otherwise
	return g
}

// Tako runs a command that must succeed, and returns what it writes.
func (g *Rig) Tako(args ...string) string {
	g.Helper()
	out, err := g.Try(args...)
	if err != nil {
		g.Fatalf("tako %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Try runs a command, whatever comes of it. Where it fails, what it says on standard error is returned too.
func (g *Rig) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), InTime)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(g.Bin, "tako"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+g.Server.Kubeconfig(), "HOME="+g.Dir, "NO_COLOR=1")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return string(out) + errs.String(), err
	}
	return string(out), nil
}

// Apply applies documents as the administrator.
func (g *Rig) Apply(documents string) {
	g.Helper()
	path := filepath.Join(g.Dir, "declared.yaml")
	if err := os.WriteFile(path, []byte(documents), 0o600); err != nil {
		g.Fatal(err)
	}
	g.Tako("apply", "-f", path)
}

// Get reads an object as JSON; what cannot be read now is left as it is.
func (g *Rig) Get(into any, args ...string) {
	g.Helper()
	out, err := g.Try(append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		g.Fatalf("tako get %v: %v\n%s", args, err, out)
	}
}

// Metric sums up the samples of the server whose name and labels begin so.
func (g *Rig) Metric(prefix string) float64 {
	g.Helper()
	sum := 0.0
	for line := range strings.Lines(g.Metrics()) {
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

// Quiet waits until nothing that a metric counts has come for so long. What is counted when it ends may have begun before.
func (g *Rig) Quiet(metric string, long time.Duration) {
	g.Helper()
	last, since := -1.0, time.Now()
	host.Eventually(g.T, InTime, metric+" is quiet", func() (string, bool) {
		if n := g.Metric(metric); n != last {
			last, since = n, time.Now()
		}
		return fmt.Sprint(last), time.Since(since) > long
	})
}

// Metrics are all metrics of the server.
func (g *Rig) Metrics() string {
	g.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", g.Server.Kubeconfig())
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
