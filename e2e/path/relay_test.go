//go:build e2e

package path

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

const relayUnit = "tako-relay.service"

// TestRelay: hosts that have no route to the server at all join through a relay, converge, get changes, are asked questions, and go on when the relay
// is killed and comes back; when its token is revoked they are not served any more, and keep what they have.
func TestRelay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"direct-1": "qa"})
	edge := f.relay(t)
	names := []string{"behind-1", "behind-2"}
	f.behind(t, edge, names...)
	all := append([]string{"direct-1"}, names...)
	f.apply(t, relayMotd("one"))
	f.awaitConverged(t, all...)
	for _, name := range all {
		wantFile(t, f.hosts[name], "/etc/motd", "one\n")
	}
	for _, name := range names {
		f.eventually(t, name, "heard through the relay", func(n *v1alpha1.Node) bool { return n.Status.Through == "edge-1" })
	}
	if n := f.node(t, "direct-1"); n.Status.Through != "" {
		t.Errorf("the other host is heard through %q", n.Status.Through)
	}
	if out := f.tako(t, "why", "node/behind-1"); !strings.Contains(out, "through relay edge-1") {
		t.Errorf("why does not say so:\n%s", out)
	}
	if out := f.tako(t, "history", "node/behind-1"); !strings.Contains(out, "file/motd") {
		t.Errorf("its history is\n%s", out)
	}

	edge.MustRun(t, "systemctl", "kill", "-s", "KILL", relayUnit)
	f.apply(t, relayMotd("two"))
	for _, name := range all {
		wantFile(t, f.hosts[name], "/etc/motd", "two\n")
	}
	f.awaitConverged(t, all...)

	f.tako(t, "token", "revoke", "edge-1")
	host.Eventually(t, slow, "a relay that was removed", func() (string, bool) {
		out := edge.MustRun(t, "journalctl", "-u", relayUnit, "-o", "cat", "--no-pager")
		return out, strings.Contains(out, "TK1031") || strings.Contains(out, "not this node any more")
	})
	f.apply(t, relayMotd("three"))
	wantFile(t, f.hosts["direct-1"], "/etc/motd", "three\n")
	for _, name := range names {
		if out := f.hosts[name].MustRun(t, "cat", "/etc/motd"); out != "two\n" {
			t.Errorf("%s has %q from a relay that was removed", name, out)
		}
	}
}

// relay boots a host that is a relay, edge-1.
func (f *fleet) relay(t *testing.T) *host.Host {
	t.Helper()
	edge := f.lab.Boot(t, "edge")
	edge.CopyIn(t, host.TakoBinary(t), takoPath)
	unit, err := os.ReadFile("../../packaging/" + relayUnit)
	if err != nil {
		t.Fatal(err)
	}
	edge.MustRun(t, "useradd", "--system", "--user-group", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "tako")
	edge.Put(t, "/etc/systemd/system/"+relayUnit, string(unit), 0o644)
	edge.MustRun(t, "install", "-d", "-m", "0755", "/var/lib/tako")
	edge.MustRun(t, "install", "-d", "-m", "0700", "-o", "tako", "-g", "tako", "/var/lib/tako/relay")
	line := strings.TrimSpace(f.tako(t, "token", "create", "relay", "edge-1"))
	edge.Put(t, "/root/join", line, 0o600)
	edge.MustRun(t, "sh", "-c", "runuser -u tako -- "+takoPath+" relay join - --state /var/lib/tako/relay < /root/join")
	edge.MustRun(t, "systemctl", "enable", "--now", relayUnit)
	return edge
}

// behind boots hosts that have no route to the server, and lets them join environment qa through a relay.
func (f *fleet) behind(t *testing.T, edge *host.Host, names ...string) {
	t.Helper()
	for _, name := range names {
		h := f.lab.Boot(t, name)
		f.hosts[name] = h
		h.MustRun(t, "ip", "route", "add", "unreachable", f.ctl.Address()+"/32")
		if r, err := h.Run(t.Context(), "ping", "-c", "1", "-W", "1", f.ctl.Address()); err == nil && r.Code == 0 {
			t.Fatalf("%s reaches the server", name)
		}
		f.prepare(t, h)
		f.join(t, h, "--environment", "qa", "--label", "host="+name, "--through", edge.Address()+":6444")
	}
}

// TestPeersBehindRelay: at a site that reaches the server through a relay alone, the link of one host is cut while a version comes; then the machines of server and
// relay are gone. When the link is back, the host gets the version from its neighbour.
func TestPeersBehindRelay(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	f.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: qa}\n")
	edge := f.relay(t)
	f.behind(t, edge, "behind-1", "behind-2")
	f.apply(t, relayMotd("one"))
	f.awaitConverged(t, "behind-1", "behind-2")
	for _, name := range []string{"behind-1", "behind-2"} {
		host.Eventually(t, slow, name+" has its peer", func() (string, bool) {
			a := object[v1alpha1.Assignment](t, f, "assignment/"+name)
			return shown(a.Spec.Own), a.Spec.Own != nil && len(a.Spec.Own.Peers) == 1
		})
	}
	f.awaitConverged(t, "behind-1", "behind-2")

	lost := f.hosts["behind-2"]
	lost.CutLink(t)
	f.apply(t, relayMotd("two"))
	f.awaitConverged(t, "behind-1")
	host.Eventually(t, byPeers, "its head is left with behind-1", func() (string, bool) {
		out := f.hosts["behind-1"].MustRun(t, agentPath, "status", "--json")
		return out, strings.Contains(strings.ReplaceAll(out, " ", ""), `"kept":1`)
	})
	f.ctl.PowerCut(t)
	edge.PowerCut(t)
	wantKept(t, lost, "one\n")
	lost.RestoreLink(t)
	wantSpread(t, lost, "two\n")
	host.Eventually(t, soon, "it says from whom", func() (string, bool) {
		out := lost.MustRun(t, "sh", "-c", agentPath+" status || true") // it fails while nothing was heard for long
		return out, strings.Contains(out, "Peers") && strings.Contains(out, "behind-1")
	})
}

func relayMotd(content string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: motd, namespace: qa}
spec:
  rollout: {maxUnavailable: 100%%}
  resources:
    - name: motd
      file: {path: /etc/motd, content: "%s\n"}
`, content)
}
