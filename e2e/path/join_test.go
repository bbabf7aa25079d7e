//go:build e2e

package path

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

// tryJoin lets a host try to join, and returns what its agent says.
func tryJoin(t *testing.T, h *host.Host, line, name string) (out string, code int) {
	t.Helper()
	h.Put(t, "/root/join", line, 0o600)
	r, err := h.Run(t.Context(), "sh", "-c", agentPath+" join - --name "+name+" < /root/join")
	if err != nil {
		t.Fatal(err)
	}
	if token := line[strings.LastIndexByte(line, '/')+1:]; strings.Contains(r.Stdout+r.Stderr, token) {
		t.Errorf("the token is in what the agent says: %s%s", r.Stdout, r.Stderr)
	}
	return r.Stdout + r.Stderr, r.Code
}

// joins tries every way in that must be closed, and the one that a person opens.
func joins(t *testing.T, f *fleet) {
	h := f.lab.Boot(t, "new-1")
	f.prepare(t, h)
	refused := func(what, line, name, says string) {
		t.Helper()
		out, code := tryJoin(t, h, line, name)
		if code == 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit %d, want a refusal that says %q:\n%s", what, code, says, out)
		}
	}
	line := f.token(t, "--pattern", "new-*", "--environment", "qa")
	refused("another name than the pattern's", line, "old-1", "new-*")
	wrong := []byte(line)
	at := strings.Index(line, "sha256:") + len("sha256:")
	if wrong[at]++; wrong[at] > '9' && wrong[at] < 'a' || wrong[at] > 'f' {
		wrong[at] = '0'
	}
	refused("another trust", string(wrong), "new-1", "trust")
	refused("an existing name", f.token(t, "--name", "web-1"), "web-1", "web-1")
	if n := f.node(t, "web-1"); n.Status.JoinRequest == nil {
		t.Errorf("nobody is told who wanted to be web-1: %s", shown(n.Status))
	}
	if out, code := tryJoin(t, h, line, "new-1"); code != 0 {
		t.Fatalf("the good one: exit %d\n%s", code, out)
	}
	h.MustRun(t, "systemctl", "enable", "--now", agentUnit)
	f.awaitConverged(t, "new-1")
	out, code := tryJoin(t, f.hosts["qa-1"], line, "new-2")
	if code == 0 {
		t.Errorf("a host that has joined joins again:\n%s", out)
	}
	second := f.lab.Boot(t, "new-2")
	f.prepare(t, second)
	if out, code := tryJoin(t, second, line, "new-2"); code == 0 || !strings.Contains(out, "token") {
		t.Errorf("a token for one host admits two: exit %d\n%s", code, out)
	}

	// A copy of a host is told from the host.
	second.MustRun(t, "sh", "-c", "rm -rf /var/lib/tako")
	copied := h.MustRun(t, "sh", "-c", "tar -C /var/lib -c tako | base64 -w0")
	second.Put(t, "/root/copy", copied, 0o600)
	second.MustRun(t, "sh", "-c", "base64 -d < /root/copy | tar -C /var/lib -x")
	second.MustRun(t, "systemctl", "enable", "--now", agentUnit)
	f.eventually(t, "new-1", "known as cloned", has("Cloned", metav1.ConditionTrue))
	if out := f.tako(t, "why", "node/new-1"); !strings.Contains(out, "Cloned") {
		t.Errorf("why says nothing of the copy:\n%s", out)
	}
	second.Poweroff(t)

	// A host that was lost is replaced under its name, when a person says so.
	h.Poweroff(t)
	fresh := f.lab.Boot(t, "new-3")
	f.prepare(t, fresh)
	again := f.token(t, "--name", "new-1")
	if out, code := tryJoin(t, fresh, again, "new-1"); code == 0 {
		t.Fatalf("another key gets in without approval:\n%s", out)
	}
	f.tako(t, "node", "approve", "new-1")
	if out, code := tryJoin(t, fresh, again, "new-1"); code != 0 {
		t.Fatalf("approved, and not let in: exit %d\n%s", code, out)
	}
	fresh.MustRun(t, "systemctl", "enable", "--now", agentUnit)
	f.eventually(t, "new-1", "there again", func(n *v1alpha1.Node) bool { return has("Ready", metav1.ConditionTrue)(n) && converged(n) })
	f.tako(t, "delete", "node/new-1")
	fresh.Poweroff(t)
}
