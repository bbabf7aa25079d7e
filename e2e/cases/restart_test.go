package cases_test

import (
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// keeperUnit runs the agent as a host does.
const keeperUnit = `[Service]
Type=notify
ExecStart=` + hostAgent + ` converge -f ` + hostConf + ` --watch
Restart=always
RestartSec=100ms
`

// TestAgentCase36_RestartedKilledUpgraded ends an agent in each of the ways in which agents end, and looks at what it manages.
func TestAgentCase36_RestartedKilledUpgraded(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	h := newTinyHost(t, 1)
	refused := file("refused", "/etc/tiny.refused", "x\n")
	refused.File.Check = []string{"/bin/sh", "-c", "echo asked >>/var/tmp/tiny.asked; exit 1", "{}"}
	h.more = []declare.Resource{refused}
	h.declare()
	h.Put(t, "/etc/systemd/system/keeper.service", keeperUnit, 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	h.MustRun(t, "systemctl", "start", "keeper.service")

	var was *agent.Report
	host.Eventually(t, soon, "the service runs, and the refused file has been tried three times", func() (string, bool) {
		was = h.report()
		return show(was) + h.seen(), h.seen() == h.wanted() && resourceOf(was, "file/refused").Attempts >= 3
	})
	workload := func() string {
		return h.MustRun(t, "systemctl", "show", "--property=InvocationID,MainPID,NRestarts", "tiny.service")
	}
	before := workload()
	ways := []struct{ what, command string }{
		{"restarted", "systemctl restart keeper.service"},
		{"killed", "systemctl kill --signal=KILL keeper.service"},
		{"stopped and started", "systemctl stop keeper.service; systemctl start keeper.service"},
		{"upgraded", "cp " + hostAgent + " " + hostAgent + ".new; mv " + hostAgent + ".new " + hostAgent + "; systemctl restart keeper.service"},
	}
	for _, way := range ways {
		pid := h.report().PID
		was = h.report()
		h.MustRun(t, "sh", "-ec", way.command)
		var now *agent.Report
		host.Eventually(t, soon, way.what+": another agent has looked at everything", func() (string, bool) {
			now = h.report()
			return show(now), now.PID != pid && resourceOf(now, "service/tiny").Outcome == reason.Kept
		})
		c.Equal(workload(), before, way.what+": the workload")
		for _, r := range was.Resources {
			if r.Title == "file/refused" {
				continue
			}
			got := resourceOf(now, r.Title)
			c.Check(got.Outcome == reason.Kept || got.Outcome == r.Outcome, "%s: %s is %v, was %v", way.what, r.Title, got.Outcome, r.Outcome)
		}
		// The budget of what fails is kept: neither is it tried at once, nor as if for the first time.
		old, got := resourceOf(was, "file/refused"), resourceOf(now, "file/refused")
		c.Check(got.Attempts >= old.Attempts && got.Outcome == reason.Failed, "%s: the refused file has %d attempts, had %d: %s", way.what, got.Attempts, old.Attempts, show(now))
		asked := strings.Count(h.Get(t, "/var/tmp/tiny.asked"), "asked")
		c.Check(asked <= got.Attempts+1, "%s: the refused file was tried %d times, and %d are counted", way.what, asked, got.Attempts)
	}
	h.MustRun(t, "rm", "/etc/tiny/0")
	host.Eventually(t, soon, "the last agent keeps the host", func() (string, bool) {
		r, err := h.Run(t.Context(), "cat", "/etc/tiny/0")
		return r.Stdout, err == nil && r.Stdout == h.files[0]+"\n"
	})
	c.Check(true, "kept")
}
