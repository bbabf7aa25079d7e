package account

import (
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
)

// application is a group, a user, his keys, files that belong to him and a service that runs as he does: each needs the one before it, and
// nothing says so but what they are.
const application = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: application}
spec:
  resources:
    - name: app.service
      service: {enabled: true}
    - name: unit
      file:
        path: /etc/systemd/system/app.service
        content: |
          [Service]
          User=app
          ExecStart=/bin/sh -c 'cat /etc/app.conf >/srv/app/data/started; exec sleep infinity'
          [Install]
          WantedBy=multi-user.target
      notify: [app.service]
    - name: app.conf
      file: {path: /etc/app.conf, content: "for app alone\n", owner: app, group: team, mode: "0400"}
      notify: [app.service]
    - name: data
      directory: {path: /srv/app/data, owner: app, group: team, mode: "0750"}
      notify: [app.service]
    - name: keys
      authorizedKeys: {user: app, keys: [` + keyA + `]}
    - name: app
      user: {uid: 4800, group: team, groups: [adm], home: /srv/app, shell: /bin/sh, comment: "An application", passwordHash: "` + hash + `", locked: false, expires: never}
    - name: team
      group: {gid: 4801}
`

// TestAgentCase32_OnHost converges everything about a user in one go, and heals it.
func TestAgentCase32_OnHost(t *testing.T) {
	c := casetest.Start(t)
	h := boots.NewLab(t).Boot(t, "account")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	h.Put(t, "/root/application.yaml", application, 0o600)
	converge := func() string {
		return h.MustRun(t, "tako-agent", "converge", "-f", "/root/application.yaml")
	}
	said := converge()
	good := func() string {
		return h.MustRun(t, "sh", "-ec", `id app; getent passwd app; stat -c '%n %U:%G %a' /srv/app /srv/app/.ssh /srv/app/.ssh/authorized_keys /srv/app/data /etc/app.conf
			grep ^app: /etc/shadow; cat /srv/app/data/started; stat -c "runs as %U" /proc/$(systemctl show --property=MainPID --value app)`)
	}
	want := good()
	for _, line := range []string{
		"uid=4800(app) gid=4801(team) groups=4801(team),4(adm)", "app:x:4800:4801:An application:/srv/app:/bin/sh", "/srv/app app:team 700", "/srv/app/.ssh app:team 700",
		"/srv/app/.ssh/authorized_keys app:team 600", "/srv/app/data app:team 750", "/etc/app.conf app:team 400", "app:" + hash + ":", "for app alone", "runs as app",
	} {
		c.Check(strings.Contains(want, line), "after one run there is no %q in\n%s\n%s", line, want, said)
	}
	journal := h.MustRun(t, "sh", "-c", "journalctl --no-pager | grep -F saltsalt || true")
	c.Check(!strings.Contains(said+journal, "saltsalt"), "a hash is told:\n%s\n%s", said, journal)

	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/application.yaml", "--watch")
	// No more of one resource within a minute than what is taken for a fight.
	for _, drift := range []string{
		"usermod -s /bin/bash -g adm app", "gpasswd -d app adm", "sed -i 's/An application/Somebody/' /etc/passwd", `sed -i 's/^app:[^:]*:/app:*:/' /etc/shadow`,
		"mv /srv/app/.ssh /srv/gone", "echo '" + keyB + "' >>/srv/app/.ssh/authorized_keys", "chmod 644 /srv/app/.ssh/authorized_keys",
	} {
		h.MustRun(t, "sh", "-ec", drift)
		boots.Eventually(t, time.Minute, drift+" is undone", func() (string, bool) {
			now := healing(t, h)
			return now, strings.Contains(now, "groups=4801(team),4(adm)") && strings.Contains(now, "An application:/srv/app:/bin/sh") && strings.Contains(now, "app:"+hash+":") &&
				strings.Contains(now, ":99999:7:::") && strings.HasSuffix(now, "keys "+keyA+"\n600 app\n")
		})
	}
	agent.Kill(t)
	agent.Wait(t, time.Minute)
}

// healing is how the account is while that changes.
func healing(t *testing.T, h *boots.Host) string {
	t.Helper()
	r, err := h.Run(t.Context(), "sh", "-c", "id app; getent passwd app; grep ^app: /etc/shadow; echo keys $(cat /srv/app/.ssh/authorized_keys); stat -c '%a %U' /srv/app/.ssh/authorized_keys")
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout
}
