//go:build e2e

package packaging_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

// TestNames: on a host with the units as packaging installs them, programs that ask by the C library find names by its agent at the default address, and by
// the server at port 53 with the drop-in for that; by the agent also after a restart while no server is there.
func TestNames(t *testing.T) {
	h := host.NewLab(t).Boot(t, "box")
	h.CopyIn(t, host.TakoBinary(t), program)
	h.CopyIn(t, host.AgentBinary(t), "/usr/bin/tako-agent")
	for _, file := range []string{unit, "tako-server.service.d/names.conf", "tako-agent.service", "tako-agent-trial.service", "tako-agent.service.d/joined.conf"} {
		h.MustRun(t, "mkdir", "-p", filepath.Dir("/etc/systemd/system/"+file))
		h.CopyIn(t, filepath.Join("..", "..", "packaging", file), "/etc/systemd/system/"+file)
	}
	h.Put(t, "/etc/systemd/system/"+unit+".d/flags.conf", fmt.Sprintf("[Service]\nExecStart=\nExecStart=%s server --names %s:53\n", program, h.Address()), 0o644)
	h.MustRun(t, "useradd", "--system", "--user-group", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "tako")
	h.MustRun(t, "install", "-d", "-m", "0700", "/var/lib/tako")
	h.MustRun(t, "systemctl", "start", unit)
	resolves(t, h, h.Address(), "tako.internal", h.Address())

	h.Put(t, "/root/join", tako(t, h, "token", "create", "join", "--name", "box", "--environment", "default"), 0o600)
	h.MustRun(t, "sh", "-c", "tako-agent join - < /root/join")
	h.MustRun(t, "systemctl", "start", "tako-agent.service")
	const local = "127.0.0.88"
	for _, by := range []string{local, h.Address()} {
		resolves(t, h, by, "box.node.tako.internal", h.Address())
	}
	host.Eventually(t, readyTime, "the file of endpoints is written", func() (string, bool) {
		r, err := h.Run(t.Context(), "test", "-s", "/run/tako-names/endpoints.json")
		return fmt.Sprint(r, err), err == nil && r.Code == 0
	})
	h.MustRun(t, "systemctl", "stop", unit)
	h.MustRun(t, "systemctl", "restart", "tako-agent.service")
	resolves(t, h, local, "box.node.tako.internal", h.Address())
}

// resolves waits until programs of the host that ask somebody find a name at an address, and that there is no other one.
func resolves(t *testing.T, h *host.Host, by, name, want string) {
	t.Helper()
	h.MustRun(t, "sh", "-c", "echo nameserver "+by+" >/etc/resolv.conf")
	host.Eventually(t, readyTime, name+" is found by "+by, func() (string, bool) {
		found, err := h.Run(t.Context(), "getent", "ahostsv4", name)
		return fmt.Sprintf("%+v, %v", found, err), err == nil && strings.HasPrefix(found.Stdout, want+" ")
	})
	if none, err := h.Run(t.Context(), "getent", "ahostsv4", "nobody."+name); err != nil || none.Stdout != "" {
		t.Errorf("what is not there is found by %s: %+v, %v", by, none, err)
	}
}
