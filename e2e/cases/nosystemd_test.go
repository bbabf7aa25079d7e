package cases_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// withoutSystemd runs a command as the first process of its own, in a view of the host in which systemd has not booted it: nothing of what systemd has put
// below /run is there, and no bus.
const withoutSystemd = `exec unshare --mount --pid --fork --mount-proc sh -c 'mount -t tmpfs tmpfs /run && exec "$@"' sh "$@"`

// TestAgentCase40_WholeAgent has an agent keep a host without systemd: what needs systemd fails and says why, everything else is made, and is made again after
// drift. What systemd runs outside, out of sight, goes on.
func TestAgentCase40_WholeAgent(t *testing.T) {
	c := casetest.Start(t)
	program := agentProgram(t)
	h := host.NewLab(t).Boot(t, "plain")
	h.CopyIn(t, program, hostAgent)
	h.Put(t, "/etc/systemd/system/steady.service", "[Service]\nExecStart=/bin/sleep infinity\n", 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	h.MustRun(t, "systemctl", "start", "steady.service")
	steady := func() string {
		return h.MustRun(t, "systemctl", "show", "--property=ActiveState,MainPID,InvocationID,NRestarts", "steady.service")
	}
	before := steady()
	c.Check(strings.Contains(before, "ActiveState=active"), "the service to be left alone: %s", before)

	after := declare.Resource{Name: "dependent", File: &declare.File{Path: "/srv/dependent", Content: "made\n"}}
	after.Require = []string{"steady"}
	h.Put(t, hostConf, config(t, "plain",
		file("note", "/srv/note", "kept\n"),
		declare.Resource{Name: "deploy", User: &declare.User{}},
		declare.Resource{Name: "stamp", Exec: &declare.Exec{Command: []string{"/bin/sh", "-c", "echo run >>/srv/stamp"}, Creates: "/srv/stamp"}},
		declare.Resource{Name: "steady", Service: &declare.Service{State: declare.ServiceStopped}},
		after,
	), 0o644)
	for _, round := range []string{"the first time", "after drift"} {
		r, err := h.Run(t.Context(), "sh", "-c", withoutSystemd, "sh", hostAgent, "converge", "-f", hostConf)
		c.NoError(err, "converge "+round)
		c.Equal(reason.Exit(r.Code), reason.ExitFailed, "exit code "+round)
		var rep agent.Report
		status, err := h.Run(t.Context(), hostAgent, "status", "--all", "--json")
		c.NoError(err, "status")
		c.NoError(json.Unmarshal([]byte(status.Stdout), &rep), "status: "+status.Stderr)

		c.Equal(h.Get(t, "/srv/note"), "kept\n", "the file "+round)
		c.Equal(h.Get(t, "/srv/stamp"), "run\n", "runs of the command "+round)
		c.Check(strings.HasPrefix(h.MustRun(t, "getent", "passwd", "deploy"), "deploy:"), "the user is not there %s", round)
		c.Equal(rep.Counts[reason.Failed]+rep.Counts[reason.Blocked], 2, "resources that are not as declared "+round)
		kept := 0
		for outcome, n := range rep.Counts {
			if outcome.Converged() {
				kept += n
			}
		}
		c.Equal(kept, 3, "resources that are as declared "+round)
		res := resourceOf(&rep, "service/steady")
		c.Check(res.Outcome == reason.Failed && res.Detail == reason.Unsupported && codeOf(res) == reason.NoSystemd && res.Problem.Hint != "", "the service %s: %+v", round, res)
		c.Equal(resourceOf(&rep, "file/dependent").Outcome, reason.Blocked, "what requires the service, "+round)
		c.Equal(steady(), before, "the service that systemd runs, "+round)
		h.Put(t, "/srv/note", "drift\n", 0o644)
	}
}
