//go:build e2e

package path

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

// byPeers bounds the wait for what goes from host to host: a minute of silence, some rounds, and a fetch that is tried again.
const byPeers = 5 * time.Minute

// TestPeers: the link of one of three hosts is cut while a version comes, and then the machine of the server is gone. When the link is back, the host gets the version from
// its neighbours. An order that is given to another host reaches all three; one that was altered on the way none. When the server is there again, all are with it, and it knows.
func TestPeers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{"web-1": "qa", "web-2": "qa", "web-3": "qa"})
	all := []string{"web-1", "web-2", "web-3"}
	f.apply(t, relayMotd("one"))
	f.awaitConverged(t, all...)
	for _, name := range all {
		host.Eventually(t, slow, name+" has its peers", func() (string, bool) {
			a := object[v1alpha1.Assignment](t, f, "assignment/"+name)
			return shown(a.Spec.Own), a.Spec.Own != nil && len(a.Spec.Own.Peers) == 2
		})
	}
	f.awaitConverged(t, all...)
	good, bad := f.peersOrders(t, all)

	lost := f.hosts["web-3"]
	before := f.node(t, "web-3")
	lost.CutLink(t)
	f.apply(t, relayMotd("two"))
	f.awaitConverged(t, "web-1", "web-2")
	f.eventually(t, "web-3", "given the version that it has not heard of", func(n *v1alpha1.Node) bool {
		return n.Status.AssignedHead.Version > before.Status.AssignedHead.Version
	})
	for _, name := range all[:2] {
		host.Eventually(t, byPeers, "its head is left with "+name, func() (string, bool) {
			out := f.hosts[name].MustRun(t, agentPath, "status", "--json")
			return out, strings.Contains(strings.ReplaceAll(out, " ", ""), `"kept":1`)
		})
	}
	f.ctl.PowerCut(t)
	wantKept(t, lost, "one\n")
	f.hosts["web-1"].MustRun(t, "sh", "-c", "echo theirs >/etc/motd") // what is removed first may be back before it is made again
	wantFile(t, f.hosts["web-1"], "/etc/motd", "two\n")
	lost.RestoreLink(t)
	wantSpread(t, lost, "two\n")
	host.Eventually(t, soon, "it says from whom", func() (string, bool) {
		out := lost.MustRun(t, "sh", "-c", agentPath+" status || true") // it fails while nothing was heard for long
		return out, strings.Contains(out, "Peers") && (strings.Contains(out, "web-1") || strings.Contains(out, "web-2"))
	})

	first := f.hosts["web-2"]
	first.Put(t, "/root/bad", bad, 0o600)
	if r, err := first.Run(t.Context(), agentPath, "accept", "/root/bad"); err != nil || r.Code == 0 {
		t.Errorf("an order that was altered: %+v, %v", r, err)
	}
	first.Put(t, "/root/good", good, 0o600)
	first.MustRun(t, agentPath, "accept", "/root/good")
	for _, name := range all {
		wantSpread(t, f.hosts[name], "ordered\n")
	}

	f.ctl.Boot(t)
	for _, name := range all {
		f.eventually(t, name, "with the order at the server", func(n *v1alpha1.Node) bool {
			return len(n.Status.Statements) == 1 && n.Status.Statements[0].Number == 5 && n.Status.Statements[0].Code == ""
		})
	}
	f.apply(t, relayMotd("ordered"))
	f.awaitConverged(t, all...)
}

// peersOrders signs an order of an operator that all hosts know, and another one that is altered afterwards.
func (f *fleet) peersOrders(t *testing.T, names []string) (good, bad string) {
	t.Helper()
	public := strings.TrimSpace(f.tako(t, "trust", "new-key", "/root/operator"))
	f.tako(t, "trust", "set-key", "operator", public, "--data-dir", "/var/lib/tako/server")
	for _, name := range names {
		host.Eventually(t, slow, name+" knows the operator", func() (string, bool) {
			out := f.hosts[name].MustRun(t, "cat", "/var/lib/tako/identity/trust.json")
			return out, strings.Contains(out, public)
		})
	}
	f.ctl.Put(t, "/root/trust.json", f.tako(t, "trust", "show", "--data-dir", "/var/lib/tako/server"), 0o600)
	sign := func(content, number string) string {
		f.ctl.Put(t, "/root/ordered.yaml", relayMotd(content), 0o600)
		f.tako(t, "sign", "layer", "-f", "/root/ordered.yaml", "--key", "/root/operator", "--trust", "/root/trust.json", "--number", number, "-o", "/root/order")
		return f.ctl.Get(t, "/root/order")
	}
	return sign("ordered", "5"), strings.Replace(sign("forged", "6"), "forged", "foiled", 1)
}

// wantKept: a host has what it had.
func wantKept(t *testing.T, h *host.Host, content string) {
	t.Helper()
	if out := h.MustRun(t, "cat", "/etc/motd"); out != content {
		t.Fatalf("%s has %q, want %q", h.Name(), out, content)
	}
}

// wantSpread waits until what goes from host to host is there.
func wantSpread(t *testing.T, h *host.Host, content string) {
	t.Helper()
	began := time.Now()
	host.Eventually(t, byPeers, "/etc/motd of "+h.Name(), func() (string, bool) {
		r, err := h.Run(t.Context(), "cat", "/etc/motd")
		return fmt.Sprintf("%q %v", r.Stdout, err), err == nil && r.Stdout == content
	})
	t.Logf("%s has %q after %s", h.Name(), content, time.Since(began).Round(time.Second))
}
