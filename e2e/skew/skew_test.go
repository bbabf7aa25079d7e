//go:build e2e

package skew

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/server"
)

// inTime bounds what a host does once its server is there: after a few attempts in vain it pauses up to a minute before the next.
const inTime = 5 * time.Minute

// version is a pair of programs.
type version struct{ tako, agent string }

// build builds the programs of a version: of this source, or of one that knows one more schema.
func build(t *testing.T, later bool) version {
	t.Helper()
	if !later {
		return version{host.TakoBinary(t), host.AgentBinary(t)}
	}
	dir := t.TempDir()
	v := version{filepath.Join(dir, "tako"), filepath.Join(dir, "tako-agent")}
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/", "-overlay", overlay(t), "tako.dev/tako/cmd/tako", "tako.dev/tako/cmd/tako-agent")
	c.Env = append(c.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return v
}

// overlay replaces the source of the schema's number.
func overlay(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "internal", "catalog", "layer.go"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const this, next = "const Schema = 1\n", "const Schema = 2\n"
	if bytes.Count(source, []byte(this)) != 1 {
		t.Fatalf("%s does not have %q once", path, this)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "layer.go")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err == nil {
		err = os.WriteFile(changed, bytes.Replace(source, []byte(this), []byte(next), 1), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "overlay.json")
}

const site = `apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: site}
spec:
  resources:
    - name: etc
      directory: {path: /etc}
    - name: motd
      expand: true
      file: {path: /etc/motd, content: %q}
    - name: link
      symlink: {path: /etc/link, target: motd}
      require: [motd]
`

// fleet is a server and a host, both of which may change their version.
type fleet struct {
	t      *testing.T
	tako   string // of the command line
	server *server.Server
	root   string
	agent  *exec.Cmd
}

func (f *fleet) run(args ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), inTime)
	defer cancel()
	c := exec.CommandContext(ctx, f.tako, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+f.server.Kubeconfig())
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		f.t.Fatalf("tako %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return string(out)
}

// runAgent starts the agent of a version.
func (f *fleet) runAgent(program string) {
	f.t.Helper()
	f.agent = exec.Command(program, "run", "--root", f.root)
	if err := f.agent.Start(); err != nil {
		f.t.Fatal(err)
	}
	agent := f.agent
	f.t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() }) // it may have ended
}

func (f *fleet) stopAgent() {
	f.t.Helper()
	if err := f.agent.Process.Signal(os.Interrupt); err != nil {
		f.t.Fatal(err)
	}
	if err := f.agent.Wait(); err != nil {
		f.t.Fatalf("the agent ended with %v", err)
	}
}

// declare declares a content and waits until the host has it.
func (f *fleet) declare(content string) {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "site.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, site, content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.run("apply", "-f", path)
	f.run("wait", "clusternodeconfig/site", "--timeout", "4m")
	want := strings.ReplaceAll(content, "$(node.name)", "host")
	host.Eventually(f.t, inTime, "the content on the host", func() (string, bool) {
		got, err := os.ReadFile(filepath.Join(f.root, "etc/motd"))
		return fmt.Sprintf("%q %v", got, err), string(got) == want
	})
}

func (f *fleet) assignment() v1alpha1.Assignment {
	f.t.Helper()
	var a v1alpha1.Assignment
	if err := json.Unmarshal([]byte(f.run("get", "assignment/host", "-o", "json")), &a); err != nil {
		f.t.Fatal(err)
	}
	return a
}

// TestOneVersionApart: an earlier agent under a later server, a later one under an earlier server, and an upgrade of both.
func TestOneVersionApart(t *testing.T) {
	this, later := build(t, false), build(t, true)
	f := &fleet{t: t, tako: this.tako, root: t.TempDir()}
	dir := t.TempDir()
	f.server = server.New(t, this.tako, dir)
	line := f.run("token", "create", "join", "--name", "host", "--label", "role=web")
	join := exec.Command(this.agent, "join", "-", "--root", f.root, "--name", "host")
	join.Stdin = strings.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		t.Fatalf("join: %v\n%s", err, out)
	}
	f.runAgent(this.agent)
	f.declare("one of $(node.name)\n")

	t.Log("a later agent under an earlier server")
	f.stopAgent()
	f.runAgent(later.agent)
	f.declare("two of $(node.name)\n")

	t.Log("the server is upgraded: nothing moves")
	before := f.assignment()
	f.server.Stop(t)
	f.server = server.New(t, later.tako, dir, "--transfer-listen", transferOf(t, line))
	f.run("wait", "node/host", "--timeout", "4m")
	after := f.assignment()
	if before.ResourceVersion != after.ResourceVersion || before.Spec.Layers[0].Root != after.Spec.Layers[0].Root || before.Spec.Own.Root != after.Spec.Own.Root {
		t.Errorf("an upgrade of the server moved a root: %+v, before %+v", after.Spec, before.Spec)
	}

	t.Log("an earlier agent under a later server")
	f.stopAgent()
	f.runAgent(this.agent)
	f.declare("three of $(node.name)\n")
	f.stopAgent()
}

// transferOf is where hosts reach the server, as a join line says.
func transferOf(t *testing.T, line string) string {
	t.Helper()
	_, rest, ok := strings.Cut(line, "tako://")
	address, _, found := strings.Cut(rest, "/")
	if !ok || !found {
		t.Fatalf("join line %q", line)
	}
	return address
}
