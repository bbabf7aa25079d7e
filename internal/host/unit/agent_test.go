package unit

import (
	"os"
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
)

// TestExampleOnHost has an agent converge the example, and undo what others change.
func TestExampleOnHost(t *testing.T) {
	h := boots.NewLab(t).Boot(t, "timers")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	example, err := os.ReadFile("../../../examples/timers/timers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h.Put(t, "/root/timers.yaml", string(example), 0o600)
	said := h.MustRun(t, "tako-agent", "converge", "-f", "/root/timers.yaml")
	look := func() string {
		r, err := h.Run(t.Context(), "sh", "-c", `systemctl is-active hello nightly-backup.timer tidy-tmp.timer ctrl-alt-del.target
			systemctl is-enabled hello nightly-backup.timer tidy-tmp.timer ctrl-alt-del.target 2>&1
			systemctl show --property=NeedDaemonReload,Restart,MemoryMax hello; cat /etc/systemd/system/nightly-backup.* /etc/systemd/system/hello.service.d/50-limits.conf | sha256sum`)
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout
	}
	want := look()
	if !strings.HasPrefix(want, "active\nactive\nactive\ninactive\nenabled\nenabled\nenabled\nmasked\nRestart=always\n") || !strings.Contains(want, "NeedDaemonReload=no\nMemoryMax=67108864\n") && !strings.Contains(want, "MemoryMax=67108864\nNeedDaemonReload=no\n") {
		t.Errorf("converged:\n%s\n%s", want, said)
	}
	h.MustRun(t, "systemctl", "start", "nightly-backup.service")
	h.MustRun(t, "test", "-s", "/var/backups/etc.tar.gz")
	h.MustRun(t, "tako-agent", "converge", "-f", "/root/timers.yaml", "--diff")

	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/timers.yaml", "--watch")
	for _, drift := range []string{
		"systemctl disable --now nightly-backup.timer", "systemctl stop tidy-tmp.timer", "rm /etc/systemd/system/nightly-backup.timer; systemctl daemon-reload",
		"echo '# more' >>/etc/systemd/system/nightly-backup.service", "rm -r /etc/systemd/system/hello.service.d", "systemctl unmask ctrl-alt-del.target", "systemctl stop hello",
	} {
		h.MustRun(t, "sh", "-ec", drift)
		boots.Eventually(t, time.Minute, drift+" is undone", func() (string, bool) {
			now := look()
			return now, now == want
		})
	}
	agent.Kill(t)
	agent.Wait(t, time.Minute)
}
