package exec

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// declarations are what the agent of the host is given; it runs as its unit has it.
const declarations = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: commands}
spec:
  resources:
    - name: app.conf
      file: {path: /etc/app.conf, content: "one\n"}
      notify: [reload]
    - name: reload.sh
      file:
        path: /usr/local/sbin/reload-app
        mode: "0755"
        content: |
          #!/bin/sh
          test ! -e /run/broken && echo reloaded >>/root/reloads
    - name: reload
      exec: {command: [/usr/local/sbin/reload-app], refreshOnly: true}
      require: [reload.sh]
    - name: surroundings
      exec:
        command: [/bin/sh, -c, "grep -E 'Seccomp:|NoNewPrivs|CapBnd' /proc/self/status >/root/status; cat /proc/self/oom_score_adj >/root/oom"]
    - name: made
      exec: {command: [/bin/sh, -c, "date +%s%N >>/root/made.log; : >/root/made"], creates: /root/made}
    - name: as-nobody
      exec: {command: [/bin/sh, -c, "id -un >/var/tmp/who"], user: nobody, creates: /var/tmp/who, umask: "0077"}
    - name: timezone
      exec:
        command: [/bin/sh, -c, "echo asked >>/root/asked; mkdir /srv/unit"]
        unless: [test, -d, /srv/unit]
        onlyIf: [systemctl, is-active, --quiet, systemd-journald.service]
    - name: long
      exec: {command: [/bin/sh, -c, "echo began >>/root/long; setsid sleep 4711 & test -e /root/go || sleep 4711; echo ended >>/root/long"]}
`

// TestAgentCase28_OnHost has an agent run commands on a host, as its unit lets it: they are not crippled, drift is noticed, a notification
// outlives a failure and a restart of the agent, and what ran when the agent ended is gone and runs again.
func TestAgentCase28_OnHost(t *testing.T) {
	c := casetest.Start(t)
	h := boots.NewLab(t).Boot(t, "exec")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	h.MustRun(t, "chmod", "755", "/usr/bin/tako-agent")
	unit, err := os.ReadFile("../../../packaging/tako-agent.service")
	c.NoError(err, "read the unit")
	h.Put(t, "/etc/systemd/system/tako-agent.service", string(unit), 0o644)
	h.MustRun(t, "mkdir", "-p", "/etc/tako/conf.d")
	h.Put(t, "/etc/tako/conf.d/commands.yaml", declarations, 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	h.MustRun(t, "systemctl", "start", "--no-block", "tako-agent")
	sh := func(line string) string {
		r, err := h.Run(t.Context(), "/bin/sh", "-c", line)
		c.NoError(err, line)
		return strings.TrimSpace(r.Stdout)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.Journal(context.WithoutCancel(t.Context()), "tako-agent"))
		}
	})
	becomes := func(line, want string) {
		t.Helper()
		boots.Eventually(t, time.Minute, line+" is "+want, func() (string, bool) {
			got := sh(line)
			return got, got == want
		})
	}
	becomes("cat /root/reloads; test -e /root/made && test -d /srv/unit && cat /var/tmp/who", "reloaded\nnobody")
	c.Equal(sh("cat /root/oom"), "0", "the command's oom_score_adj")
	c.Check(strings.Contains(sh("cat /root/status"), "NoNewPrivs:\t0"), "the command may not have new privileges: %s", sh("cat /root/status"))
	c.Equal(sh("stat -c %a:%U /var/tmp/who"), "600:nobody", "what nobody's command made")

	sh("rm /root/made")
	becomes("test -e /root/made && wc -l </root/made.log", "2")

	const sleepers = `for p in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$p; echo; done 2>/dev/null | grep -c '^sleep 4711 $'`

	// The example of the documents.
	example, err := os.ReadFile("../../../examples/exec/exec.yaml")
	c.NoError(err, "read the example")
	h.Put(t, "/etc/tako/conf.d/example.yaml", string(example), 0o644)
	becomes("cd /var/lib/app; cat schema locale; wc -l <reloads; stat -c %a:%U:%s key", "schema 42\nC.UTF-8\n1\n600:nobody:64")

	// A notification that cannot be served outlives the agent.
	sh("touch /run/broken; sed -i s/one/two/ /etc/tako/conf.d/commands.yaml")
	becomes("cat /etc/app.conf; tako-agent why exec/reload | grep -q "+reason.CommandFailed.String()+" && echo failed", "two\nfailed")
	becomes(sleepers, "2")
	sh("systemctl restart tako-agent")
	becomes("grep -c began /root/long; "+sleepers, "2\n2") // the first is gone, and it runs again
	sh("rm /run/broken; touch /root/go; systemctl restart tako-agent")
	becomes("cat /root/reloads | wc -l; grep -c ended /root/long", "2\n1")
	sh("systemctl kill -s KILL --kill-whom=main tako-agent")
	becomes("systemctl is-active tako-agent; tako-agent status >/dev/null && echo converged", "active\nconverged")
	c.Equal(sh("wc -l </root/reloads; grep -c ended /root/long; wc -l </root/asked"), "2\n1\n1", "runs in the end")
	c.Equal(sh("ls -A /var/lib/tako/exec | grep -vc lock"), "10", "records of ten commands")
	c.Equal(sh("tako-agent converge -f /etc/tako/conf.d --diff >/dev/null; echo $?"), "0", "the difference that a preview finds")
}
