//go:build e2e

package alone_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

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
