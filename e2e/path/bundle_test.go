package path

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

// quotas is a file of so many entries, one of which may have another value.
func (g *ground) quotas(count, other int) string {
	g.Helper()
	var b strings.Builder
	for i := range count {
		value := fmt.Sprintf("%0100d", i)
		if i == other {
			value = "other"
		}
		fmt.Fprintf(&b, "{\"key\": \"quota/%d\", \"value\": %q}\n", i, value)
	}
	p := filepath.Join(g.Dir, "quotas.jsonl")
	must(g.T, os.WriteFile(p, []byte(b.String()), 0o600))
	return p
}

// pushed is what a push has come to.
type pushed struct {
	Digest  string `json:"digest"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Moved   struct {
		Changes int   `json:"changes"`
		Bytes   int64 `json:"bytes"`
	} `json:"moved"`
}

func (g *ground) push(args ...string) pushed {
	g.Helper()
	var p pushed
	if err := json.Unmarshal([]byte(g.Tako(append([]string{"bundle", "push", "-n", "prod", "-o", "json"}, args...)...)), &p); err != nil {
		g.Fatal(err)
	}
	return p
}

// data is what the agent's program says of a key on the host.
func (s *sandbox) data(args ...string) string {
	c := exec.CommandContext(s.ground.Context(), filepath.Join(s.ground.Bin, "tako-agent"), append([]string{"--root", s.Root, "data"}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		return err.Error() + " " + string(out)
	}
	return string(out)
}

// TestBundle: a list of 20,000 entries reaches a host, and of a change of one of them what moves is that change, to the server and to the host;
// a bundle that is not there leaves what the host has.
func TestBundle(t *testing.T) {
	t.Parallel()
	const count = 20_000
	g := newGround(t)
	config := func(digest string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: quotas, namespace: prod}
spec:
  rollout: {maxUnavailable: "100%%"}
  bundle: {digest: %q}
  resources:
    - name: motd
      file: {path: /etc/motd, content: "quotas\n"}
    - name: mine
      data: {key: quota/mine, value: "1"}
`, digest)
	}
	// The config comes first: it waits for its bundle, and says so.
	first := "sha256:" + strings.Repeat("0", 64)
	g.Apply(config(first))
	s := g.join("web-1", "--environment", "prod")
	must(t, os.MkdirAll(s.Path("etc"), 0o755))
	s.Start()
	says := func(what string) {
		t.Helper()
		s.Until("the config says "+what, func() (string, bool) {
			var c v1alpha1.NodeConfig
			g.Get(&c, "nodeconfig/quotas", "-n", "prod")
			text := fmt.Sprintf("%+v", c.Status)
			return text, strings.Contains(text, what)
		})
	}
	says("bundle is not on this server")
	one := g.push(g.quotas(count, -1), "--set", "nodeconfig/quotas")
	if one.Entries != count || one.Moved.Changes != count {
		t.Errorf("%+v", one)
	}
	s.Has("etc/motd", "quotas\n")
	n := s.converges()
	if n.Status.Delivered != count+1 || n.Status.Promises.Kept+n.Status.Promises.Repaired != 1 {
		t.Errorf("%d delivered, %+v", n.Status.Delivered, n.Status.Promises)
	}
	if got := s.data("get", "quota/7"); got != fmt.Sprintf("%0100d", 7) {
		t.Errorf("%q", got)
	}
	if got := s.data("get", "quota/mine"); got != "1" {
		t.Errorf("%q", got)
	}
	if got := s.data("list", "quota/1999", "--limit", "3"); !strings.HasPrefix(got, "quota/1999\nquota/19990\nquota/19991\nthere are more") {
		t.Errorf("%q", got)
	}

	// One entry changes.
	const sent = `tako_transfer_sent_bytes_total{call="sync"}`
	before := g.Metric(sent)
	two := g.push(g.quotas(count, 7), "--set", "nodeconfig/quotas")
	if two.Digest == one.Digest || two.Moved.Changes != 1 || two.Moved.Bytes > 500 {
		t.Errorf("to the server: %+v", two)
	}
	s.Until("the value is another", func() (string, bool) { got := s.data("get", "quota/7"); return got, got == "other" })
	s.converges()
	if moved := g.Metric(sent) - before; moved > 2000 {
		t.Errorf("%.0f bytes have moved to the host", moved)
	}

	// A bundle that is nowhere: the host keeps what it has.
	path := filepath.Join(g.Dir, "missing.yaml")
	must(t, os.WriteFile(path, []byte(config("sha256:"+strings.Repeat("1", 64))), 0o600))
	g.Tako("apply", "-f", path, "--force-conflicts") // the push has set the field last
	says("bundle is not on this server")
	if got := s.data("get", "quota/7"); got != "other" {
		t.Errorf("%q", got)
	}
	// A server that starts again has the bundle, and serves a host that lost it.
	g.push(g.quotas(count, 7), "--set", "nodeconfig/quotas")
	s.Stop()
	g.Server.Kill()
	must(t, os.RemoveAll(filepath.Join(s.State(), "layers")))
	g.Server.Start(t)
	s.Start()
	s.Until("it is fetched again", func() (string, bool) { got := s.data("get", "quota/8"); return got, got == fmt.Sprintf("%0100d", 8) })

	if shown := g.push(filepath.Join("..", "..", "examples", "data", "quotas.jsonl")); shown.Entries != 3 {
		t.Errorf("the example: %+v", shown)
	}

	// Most of it goes: the host waits for consent.
	g.push(g.quotas(count/10, 7), "--set", "nodeconfig/quotas")
	s.reports("it withholds", func(n *v1alpha1.Node) bool { return n.Status.Verdict != nil && n.Status.Verdict.Type == "Withheld" })
	if got := s.data("get", "quota/19999"); got != fmt.Sprintf("%0100d", 19999) {
		t.Errorf("%q", got)
	}
}

// TestPushKilled: a server that is killed in the middle of a push goes on where it was.
func TestPushKilled(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n")
	file := g.quotas(90_000, -1) // some nine pieces
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = g.Try("bundle", "push", "-n", "prod", file) // it may have come to its end before
	}()
	parts := filepath.Join(g.Server.Dir, "bundles", "part")
	host.Eventually(t, inTime, "something has come", func() (string, bool) {
		all, err := os.ReadDir(parts)
		return fmt.Sprint(len(all), err), len(all) > 0
	})
	g.Server.Kill()
	<-ended
	g.Server.Start(t)
	p := g.push(file)
	if p.Entries != 90_000 {
		t.Errorf("%+v", p)
	}
	if again := g.push(file); again.Moved.Bytes != 0 {
		t.Errorf("%+v", again)
	}
}
