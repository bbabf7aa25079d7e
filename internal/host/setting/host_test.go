package setting

import (
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
)

// settings are all types in one declaration. The host is a container: of the kernel, it has its network and its name to itself.
const settings = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: settings}
spec:
  resources:
    - name: net.ipv4.ip_forward
      sysctl: {value: "1"}
    - name: me
      hostname: {name: web-1}
    - name: db
      hostEntry: {address: 192.0.2.20, names: [db.example.com, db]}
    - name: time
      timezone: {zone: Asia/Tokyo}
    - name: language
      locale: {lang: C.UTF-8, variables: {LC_TIME: C}}
`

// notHere is what a container cannot have.
const notHere = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: kernel}
spec:
  resources:
    - name: kernel.panic
      sysctl: {value: "7"}
    - name: t_nowhere
      kernelModule: {}
`

// TestAgentCase33_OnHost converges all settings of a host, drifts and heals them, and has a boot carry them out by itself.
func TestAgentCase33_OnHost(t *testing.T) {
	c := casetest.Start(t)
	h := boots.NewLab(t).Boot(t, "settings")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	h.Put(t, "/root/settings.yaml", settings, 0o600)
	h.Put(t, "/root/kernel.yaml", notHere, 0o600)
	if r, err := h.Run(t.Context(), "test", "-e", zoneInfo+"/Asia/Tokyo"); err != nil || r.Code != 0 {
		h.MustRun(t, "sh", "-ec", "mkdir -p "+zoneInfo+"/Asia; printf TZif2 >"+zoneInfo+"/Asia/Tokyo") // the image has no tzdata
	}
	const look = `sysctl -n net.ipv4.ip_forward 2>/dev/null || cat /proc/sys/net/ipv4/ip_forward; uname -n; cat /etc/hostname; getent -s files hosts db; readlink /etc/localtime
		cat /etc/default/locale /etc/locale.conf 2>/dev/null; true`
	now := func() string {
		r, err := h.Run(t.Context(), "sh", "-c", look)
		c.NoError(err, "look")
		return r.Stdout
	}
	said := h.MustRun(t, "tako-agent", "converge", "-f", "/root/settings.yaml")
	want := now()
	for _, line := range []string{"1\n", "web-1\nweb-1\n", "192.0.2.20", "zoneinfo/Asia/Tokyo", "LANG=C.UTF-8\n", "LC_TIME=C\n"} {
		c.Check(strings.Contains(want, line), "after one run there is no %q in\n%s\n%s", line, want, said)
	}

	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/settings.yaml", "--watch")
	for _, drift := range []string{
		"echo 0 >/proc/sys/net/ipv4/ip_forward", "rm /etc/sysctl.d/99-tako-net.ipv4.ip_forward.conf", "echo old >/etc/hostname", "hostname old; echo old >/etc/hostname",
		"sed -i /db/d /etc/hosts", "ln -sf /usr/share/zoneinfo/UTC /etc/localtime", "rm /etc/localtime", "sed -i s/LANG=.*/LANG=x/ /etc/default/locale /etc/locale.conf || true",
	} {
		h.MustRun(t, "sh", "-ec", drift)
		boots.Eventually(t, time.Minute, drift+" is undone", func() (string, bool) {
			r, err := h.Run(t.Context(), "test", "-e", "/etc/sysctl.d/99-tako-net.ipv4.ip_forward.conf")
			seen := now()
			return seen + "\n" + agent.Stderr(), err == nil && r.Code == 0 && seen == want
		})
		c.Check(true, "healed")
	}
	h.MustRun(t, "sed", "-i", "1i 10.9.9.9 db # another", "/etc/hosts")
	boots.Eventually(t, time.Minute, "db leads where it shall, and the line of another stays", func() (string, bool) {
		r, err := h.Run(t.Context(), "cat", hostsFile)
		return r.Stdout, err == nil && strings.HasPrefix(r.Stdout, "192.0.2.20\tdb.example.com db\n10.9.9.9 db # another\n")
	})
	// Another file that is read later: it is named with its line.
	h.Put(t, "/etc/sysctl.d/zz-other.conf", "# other\nnet.ipv4.ip_forward = 0\n", 0o644)
	agent.Kill(t)
	agent.Wait(t, time.Minute)
	r, err := h.Run(t.Context(), "tako-agent", "converge", "-f", "/root/settings.yaml")
	c.NoError(err, "converge")
	c.Check(r.Code != 0 && strings.Contains(r.Stdout+r.Stderr, "/etc/sysctl.d/zz-other.conf:2"), "overridden: %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	h.MustRun(t, "rm", "/etc/sysctl.d/zz-other.conf")

	r, err = h.Run(t.Context(), "tako-agent", "converge", "-f", "/root/kernel.yaml")
	c.NoError(err, "converge")
	for _, words := range []string{"kernel.panic", "read-only file system", "t_nowhere", modulesDir, "in a container"} {
		c.Check(r.Code != 0 && strings.Contains(r.Stdout+r.Stderr, words), "in a container there is no %q: %d\n%s%s", words, r.Code, r.Stdout, r.Stderr)
	}

	// The next boot does all that by itself.
	h.Reboot(t)
	boots.Eventually(t, time.Minute, "the host is as declared after a boot", func() (string, bool) {
		seen := now()
		return seen + h.Journal(t.Context(), "systemd-sysctl.service"), strings.HasPrefix(seen, "1\n") && strings.Contains(seen, "web-1\n")
	})
}
