package path

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/rig"
)

// TestServerKilledOnTheWay: what was acknowledged comes to the host, at whatever point on the way the server is killed: before the revision,
// between that and the layer, between the Assignment and the status of its rollout.
func TestServerKilledOnTheWay(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	s := g.join("web-1")
	g.Server.Kill() // the credentials were given, and nothing else is known of the host
	g.Server.Start(t)
	g.Apply(site("one\n"))
	s.Start()
	s.converges()
	for i, on := range []time.Duration{0, 5, 20, 50} { // it takes some 20 ms
		text := fmt.Sprintf("after %d ms\n", on)
		g.Apply(site(text))
		<-time.After(on * time.Millisecond)
		g.Server.Kill()
		s.Stop()
		g.Server.Start(t)
		s.Start() // by itself it would come back within a minute
		s.Has("etc/motd", text)
		n := s.converges()
		if n.Status.AppliedHead.Version <= 0 || t.Failed() {
			t.Fatalf("kill %d: %+v", i, n.Status)
		}
	}
}

// TestServerKilledAfterAnApproval: what a person has approved is not lost with the server that took it.
func TestServerKilledAfterAnApproval(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	old := g.join("web-1")
	line := g.Tako("token", "create", "join", "--name", "web-1")
	fresh := filepath.Join(g.Dir, "fresh")
	if err := os.MkdirAll(filepath.Join(fresh, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	join := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), inTime)
		defer cancel()
		c := exec.CommandContext(ctx, filepath.Join(g.Bin, "tako-agent"), "join", "-", "--root", fresh, "--name", "web-1")
		c.Stdin = strings.NewReader(line)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := join(); err == nil || !strings.Contains(out, "tako node approve web-1") {
		t.Fatalf("before anybody has approved it: %v\n%s", err, out)
	}
	g.Tako("node", "approve", "web-1")
	g.Server.Kill()
	g.Server.Start(t)
	if out, err := join(); err != nil {
		t.Fatalf("what was approved before the server died: %v\n%s", err, out)
	}
	g.Server.Kill()
	g.Server.Start(t)
	g.Apply(site("one\n"))
	s := &sandbox{&rig.Host{Rig: g.Rig, Name: "web-1", Root: fresh, Log: old.Log}, g}
	s.Start()
	s.Has("etc/motd", "one\n")
	s.converges()
}
