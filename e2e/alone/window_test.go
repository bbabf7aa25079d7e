//go:build e2e

package alone_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// windowed declares a service that is restarted in a window, with a configuration.
func windowed(generation int, opens time.Time) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: app}
spec:
  windows: [{opens: "%s UTC", duration: 1h}]
  resources:
    - name: app-unit
      unit: {unit: app.service, content: "[Unit]\nDescription=App\n[Service]\nExecStart=/bin/sleep infinity\n"}
    - name: conf
      file: {path: /etc/app.conf, content: "generation %d\n"}
      notify: [app]
    - name: app
      service: {}
`, opens.UTC().Format("2006-01-02 15:04:05"), generation)
}

// TestWindow changes a configuration outside of the window in which its service may be restarted.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tomorrow := time.Now().Add(24 * time.Hour)
	s.start(t, windowed(1, tomorrow))
	s.awaitConverged(t) // its first start is later than the file, so nothing is owed
	run := s.invocation(t, "app")

	waits := func(generation int) {
		t.Helper()
		s.await(t, repairTime, "the restart waits", func(r *agent.Report) bool {
			return r.Settled && resource(t, r, "service/app").Detail == reason.Window
		})
		s.MustRun(t, "grep", fmt.Sprint("generation ", generation), "/etc/app.conf")
		if now := s.invocation(t, "app"); now != run {
			t.Fatalf("it was restarted outside of its window: %s, then %s", run, now)
		}
	}
	restarted := func() {
		t.Helper()
		s.awaitConverged(t)
		now := s.invocation(t, "app")
		if now == run {
			t.Fatal("it was not restarted")
		}
		run = now
	}
	s.change(t, windowed(2, tomorrow))
	waits(2)
	s.MustRun(t, "systemctl", "kill", "--signal=KILL", "tako-agent")
	s.await(t, repairTime, "the agent is back", func(r *agent.Report) bool { return r.Settled })
	waits(2)

	s.MustRun(t, "systemctl", "restart", "app") // an operator
	restarted()
	s.awaitConverged(t)

	s.change(t, windowed(3, tomorrow))
	waits(3)
	s.MustRun(t, agentPath, "converge", "--now")
	restarted()

	opens := time.Now().Add(10 * time.Second).Truncate(time.Second)
	s.change(t, windowed(4, opens))
	restarted()
	began := strings.TrimSpace(s.MustRun(t, "systemctl", "show", "--property=ActiveEnterTimestamp", "--value", "--timestamp=unix", "app"))
	if at, err := strconv.ParseInt(strings.TrimPrefix(began, "@"), 10, 64); err != nil || at < opens.Unix() {
		t.Errorf("restarted at %s, %v; its window opened at %d", began, err, opens.Unix())
	}
}

// rebootRequest is where Debian's packages say that the host wants a reboot.
const rebootRequest = "/run/reboot-required"

// rebooted declares that a host which asks for it is rebooted in a window, as docs/spec/nodeconfig.md says.
func rebooted(opens time.Time, with string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: reboot}
spec:
  windows: [{opens: "%s UTC", duration: 1h}]
  windowFor: changes
  resources:
    - name: reboot
      exec:
        command: %s
        onlyIf: [test, -e, %s]
`, opens.UTC().Format("2006-01-02 15:04:05"), with, rebootRequest)
}

// TestRebootInWindow: a host that asks for a reboot waits for its window, is booted once in it, and is converged before, when nobody asks,
// and after. So it is where the command has ended when the host goes down, and where the end of the host ends it.
func TestRebootInWindow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const asks, stays = "[systemctl, reboot]", `[/bin/sh, -c, "systemctl reboot && exec sleep infinity"]`
	tomorrow := time.Now().UTC().Add(24 * time.Hour)
	s.start(t, rebooted(tomorrow, asks))
	s.awaitConverged(t) // nobody asks, so nothing waits
	boot := s.bootID(t)

	waits := func() {
		t.Helper()
		s.await(t, repairTime, "the reboot waits", func(r *agent.Report) bool {
			return r.Settled && slices.ContainsFunc(r.Resources, func(res agent.Resource) bool { return res.Title == "exec/reboot" && res.Detail == reason.Window })
		})
		want := "it opens at " + tomorrow.Format("2006-01-02T") // an agent that has just been started first knows nothing
		host.Eventually(t, repairTime, "status says "+want, func() (string, bool) {
			said := s.MustRun(t, "sh", "-c", agentPath+" status; test $? -le 1")
			return said, strings.Contains(said, want)
		})
		if now := s.bootID(t); now != boot {
			t.Fatal("it was rebooted outside of its window")
		}
	}
	// once waits for the boot, and that it was the only one.
	once := func() {
		t.Helper()
		s.Rebooted(t)
		before := boot
		if boot = s.bootID(t); boot == before {
			t.Fatal("it was not rebooted")
		}
		s.awaitConverged(t)
		if res := resource(t, s.status(t), "exec/reboot"); res.Outcome != reason.Kept {
			t.Errorf("after the boot it is %s: %+v", res.Outcome, res)
		}
		s.MustRun(t, "systemctl", "restart", "tako-agent") // it looks at everything once more
		s.awaitConverged(t)
		if now := s.bootID(t); now != boot {
			t.Fatal("it was rebooted once more")
		}
		for _, h := range s.history(t, "exec/reboot") {
			if h.Outcome == reason.Failed.String() {
				t.Errorf("its history has a failure: %+v", h)
			}
		}
	}
	s.MustRun(t, "touch", rebootRequest)
	waits()
	s.MustRun(t, "systemctl", "restart", "tako-agent") // and knows nothing of the guard
	waits()
	s.MustRun(t, "rm", rebootRequest) // somebody has changed his mind
	s.awaitConverged(t)
	s.MustRun(t, "touch", rebootRequest)
	waits()

	_, _ = s.Run(t.Context(), agentPath, "converge", "--now") // how it ends is decided by the end of the host
	once()

	for _, command := range []string{asks, stays} {
		tomorrow = tomorrow.Add(time.Minute)
		s.change(t, rebooted(tomorrow, command))
		s.MustRun(t, "touch", rebootRequest)
		waits()
		s.put(t, rebooted(time.Now().Add(5*time.Second), command)) // from then on it is open for an hour
		once()
	}
}

// bootID is the kernel's name of the present boot; a container has that of its first process.
func (s *site) bootID(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(s.MustRun(t, "systemctl", "show", "--property=UserspaceTimestampMonotonic", "--value"))
}
