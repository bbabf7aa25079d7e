package path

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/rig"
	"tako.dev/tako/internal/reason"
)

// operator makes a key of an operator, and has the hosts know it. It returns where key and trust documents are.
func (g *ground) operator(hosts ...*sandbox) (key string) {
	g.Helper()
	key = filepath.Join(g.Dir, "operator-key")
	public := strings.TrimSpace(g.Tako("trust", "new-key", key))
	g.Tako("trust", "set-key", "operator", public, "--data-dir", g.Server.Dir)
	g.write(filepath.Join(g.Dir, "trust.json"), g.Tako("trust", "show", "--data-dir", g.Server.Dir))
	for _, s := range hosts {
		s.Until("it knows the operator", func() (string, bool) {
			text := s.Read("var/lib/tako/identity/trust.json")
			return text, strings.Contains(text, public)
		})
	}
	return key
}

func (g *ground) write(path, text string) {
	g.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		g.Fatal(err)
	}
}

// order signs what a text declares, and returns the file.
func (g *ground) order(key, text string, flags ...string) string {
	g.Helper()
	declared, order := filepath.Join(g.Dir, "ordered.yaml"), filepath.Join(g.Dir, "site.order")
	g.write(declared, text)
	g.Tako(append([]string{"sign", "layer", "-f", declared, "--key", key, "-o", order}, flags...)...)
	return order
}

// accept brings something to a host.
func (s *sandbox) accept(path string) (said string, err error) {
	s.ground.Helper()
	ctx, cancel := context.WithTimeout(s.ground.Context(), inTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(s.ground.Bin, "tako-agent"), "accept", path, "--root", s.Root).CombinedOutput()
	return string(out), err
}

// TestOrderWithoutServers: every server is dead. An operator signs a layer, and brings the file to one host, which enforces it, over a kill of its
// agent; another host has not heard of it. When there is a server again it knows, and declaring the same ends it.
func TestOrderWithoutServers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	one, two := g.join("web-1"), g.join("web-2")
	one.Start()
	two.Start()
	g.Apply(site("declared\n"))
	one.converges()
	two.converges()
	key := g.operator(one, two)
	g.Server.Kill()

	order := g.order(key, site("ordered\n"), "--number", "5")
	said, err := one.accept(order)
	if err != nil || !strings.Contains(said, "In force  statement 5 about ClusterNodeConfig/site") {
		t.Fatalf("%v\n%s", err, said)
	}
	one.Has("etc/motd", "ordered\n")
	if err := os.WriteFile(one.Path("etc/motd"), []byte("theirs\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	one.Has("etc/motd", "ordered\n")
	one.Kill()
	one.Start()
	one.Keeps("etc/motd", "ordered\n")
	two.Keeps("etc/motd", "declared\n")

	// Nobody else's word counts, nor an older one.
	for what, flags := range map[string][]string{"an older one": {"--number", "4"}, "another of the same number": {"--number", "5"}, "another epoch": {"--number", "9", "--epoch", "7"}} {
		if said, err := one.accept(g.order(key, site("forged\n"), flags...)); err == nil || !strings.Contains(said, reason.StatementRefused.String()) {
			t.Errorf("%s: %v\n%s", what, err, said)
		}
	}
	stranger := filepath.Join(g.Dir, "stranger-key")
	g.Tako("trust", "new-key", stranger)
	if said, err := g.Try("sign", "layer", "-f", filepath.Join(g.Dir, "ordered.yaml"), "--key", stranger, "--trust", filepath.Join(g.Dir, "trust.json"), "-o", filepath.Join(g.Dir, "x")); err == nil ||
		!strings.Contains(said, reason.TrustRefused.String()) {
		t.Errorf("a key that nobody knows signs: %v\n%s", err, said)
	}
	one.Keeps("etc/motd", "ordered\n")

	g.Server.Start(t)
	n := one.reports("it tells of the order", func(n *v1alpha1.Node) bool { return len(n.Status.Statements) == 1 })
	if s := n.Status.Statements[0]; s.Config != "ClusterNodeConfig/site" || s.Number != 5 || s.Code != "" {
		t.Errorf("it tells %+v", s)
	}
	if why := g.Tako("why", "node/web-1"); !strings.Contains(why, "Ordered") {
		t.Errorf("why says\n%s", why)
	}
	g.Apply(site("ordered\n"))
	one.reports("the order has ended", func(n *v1alpha1.Node) bool { return len(n.Status.Statements) == 0 && converged(n) })
	two.Has("etc/motd", "ordered\n")
	g.Apply(site("declared again\n"))
	one.Has("etc/motd", "declared again\n")
}

// TestStickWithoutServers: every server is dead, and a host that has not heard the newest gets it from a directory; one that lies changes nothing.
func TestStickWithoutServers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	one := g.join("web-1")
	one.Start()
	g.Apply(site("first\n"))
	first := one.converges()
	old := filepath.Join(g.Dir, "old")
	g.Tako("export", "heads", "--node", "web-1", "-o", old)
	one.Stop()
	g.Apply(site("second\n"))
	var second v1alpha1.Node
	one.Until("there is a newer state", func() (string, bool) {
		second = one.Node()
		h := second.Status.AssignedHead
		return "", h != nil && h.Version > first.Status.AssignedHead.Version
	})
	stick := filepath.Join(g.Dir, "stick")
	g.Tako("export", "heads", "--all", "-o", stick)
	g.Server.Kill()
	one.Start()
	one.Keeps("etc/motd", "first\n")

	layers, err := filepath.Glob(filepath.Join(stick, "layers", "*"))
	if err != nil || len(layers) == 0 {
		t.Fatalf("%d layers are on the stick, %v", len(layers), err)
	}
	whole := map[string]string{}
	for _, path := range layers {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[path] = string(text)
		g.write(path, strings.Replace(string(text), "second", "forged", 1))
	}
	if said, err := one.accept(old); err != nil || !strings.Contains(said, "Accepted") {
		t.Errorf("the state that it has: %v\n%s", err, said)
	}
	one.Keeps("etc/motd", "first\n")
	for path, text := range whole {
		g.write(path, text)
	}
	said, err := one.accept(stick)
	if err != nil || !strings.Contains(said, "Accepted") {
		t.Fatalf("%v\n%s", err, said)
	}
	one.Has("etc/motd", "second\n")
	if said, err := one.accept(old); err == nil || !strings.Contains(said, reason.HeadRefused.String()) {
		t.Errorf("an old state: %v\n%s", err, said)
	}
	one.Keeps("etc/motd", "second\n")
}

// TestWithoutServersDocument runs every command of docs/without-servers.md, in one shell, as a reader does.
func TestWithoutServersDocument(t *testing.T) {
	t.Parallel()
	bin := newGround(t).Bin
	out := rig.Tutorial(t, filepath.Join("..", "..", "docs", "without-servers.md"), bin)
	for _, want := range []string{"In force  statement", "the control plane is down, call 112", "Ordered", "Accepted  version", "from a stick"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
}
