//go:build e2e

package examples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

const agentPath = "/usr/bin/tako-agent"

// onHosts are the examples that are run as they are written, one after the other on one booted host.
var onHosts = []struct {
	name string
	// prepare makes what the example takes for granted.
	prepare string
	// left are resources that a container cannot have. They are planned with the others, and not converged.
	left  []string
	flags []string
	// holds succeeds where the host is as declared, for a look that is not the agent's own.
	holds string
}{
	{name: "access", holds: `visudo -c && sudo -l -U nobody && test -f /etc/sudoers.d/app && test "$(stat -c %a /var/log/app)" = 750`},
	{name: "accounts", prepare: "useradd -m carol", holds: `id -nG alice | grep -q deploy && ! id carol && test -d /home/carol && grep -q laptop /home/alice/.ssh/authorized_keys`},
	{
		name: "archive",
		prepare: `mkdir -p /srv/packages/collector/bin
			printf '#!/bin/sh\nexec sleep infinity\n' >/srv/packages/collector/bin/collector
			chmod 755 /srv/packages/collector/bin/collector
			tar -C /srv/packages -czf /srv/packages/collector.tar.gz collector
			head -c 4096 /dev/urandom >/srv/packages/rules.db`,
		holds: "systemctl is-active collector && cmp /srv/packages/rules.db /etc/collector/rules.db",
	},
	{
		name:  "kernel",
		left:  []string{"net.bridge.bridge-nf-call-iptables", "br_netfilter", "bonding"}, // the modules are the machine's, and not in the container
		holds: `test "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 && test "$(hostname)" = router-1`,
	},
	{
		name:  "mounts",
		left:  []string{"data", "swap"}, // there is no disk but that of the machine, and no swapping
		holds: "findmnt -t tmpfs /srv/cache && findmnt -O ro /srv/www && ! findmnt /mnt/old",
	},
	{name: "packages", holds: `apt-mark showhold | grep -qx postfix && test -f /etc/systemd/system/package-lists.timer`},
	{name: "reboot"},
	{
		name: "windows",
		prepare: `apt-get install --yes --no-install-recommends tzdata
			printf '[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/cron.service
			systemctl daemon-reload`,
		flags: []string{"--now"}, // whatever day it is
		holds: "systemctl is-active cron && grep -q Sundays /etc/motd",
	},
}

// TestExamplesOnHost converges the examples that need a host as they are written, and sees that nothing is left to do.
func TestExamplesOnHost(t *testing.T) {
	t.Parallel()
	lab := host.NewLab(t)
	for _, deb := range []host.Deb{
		{Name: "postfix", Version: "3.7.11-0+deb12u1"}, {Name: "ca-certificates", Version: "20230311"}, {Name: "logrotate", Version: "3.21.0-1"},
	} {
		lab.Repository().Add(t, deb)
	}
	h := lab.Boot(t, "examples")
	h.CopyIn(t, host.AgentBinary(t), agentPath)
	h.MustRun(t, "apt-get", "update")
	for _, e := range onHosts {
		t.Run(e.name, func(t *testing.T) {
			h.MustRun(t, "sh", "-ec", "mkdir -p /root/"+e.name+"/left; "+e.prepare)
			whole, rest := withoutResources(t, e.name, e.left)
			h.Put(t, "/root/"+e.name+"/whole.yaml", whole, 0o644)
			h.Put(t, "/root/"+e.name+"/rest.yaml", rest, 0o644)
			// It exits with 1 where something of it would fail, which may only be what is left out.
			h.MustRun(t, "sh", "-c", agentPath+" converge -f /root/"+e.name+"/whole.yaml --dry-run; test $? -le "+strconv.Itoa(min(1, len(e.left))))
			converge := append([]string{agentPath, "converge", "-f", "/root/" + e.name + "/rest.yaml", "-o", "json"}, e.flags...)
			h.MustRun(t, converge...)
			wantKept(t, h.MustRun(t, converge...))
			if e.holds != "" {
				h.MustRun(t, "sh", "-ec", e.holds)
			}
		})
	}
}

// withoutResources is the text of an example, and the same without some of its resources.
func withoutResources(t *testing.T, name string, left []string) (whole, rest string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(name, "*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has the declarations %v: %v", name, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	const begin = "\n    - name: "
	parts := strings.Split(string(text), begin)
	kept := slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
		line, _, _ := strings.Cut(part, "\n")
		return slices.Contains(left, line)
	})
	if len(kept) != len(parts)-len(left) {
		t.Fatalf("%s does not have all of %v", name, left)
	}
	return string(text), strings.Join(kept, begin) + "\n"
}

// wantKept wants everything to be as declared in a report of the agent, and nothing done.
func wantKept(t *testing.T, out string) {
	t.Helper()
	var report struct {
		Resources []struct{ Title, Outcome string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Resources) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, r := range report.Resources {
		if r.Outcome != "kept" && r.Outcome != "notApplicable" {
			t.Errorf("the second time, %s is %s", r.Title, r.Outcome)
		}
	}
}
