package cases_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

const (
	hostAgent = "/usr/local/bin/tako-agent"
	hostConf  = "/etc/tako/conf.d/site.yaml"
	unitPath  = "/etc/systemd/system/tiny.service"
	// tinyUnit is a service that notes each start, refuses to start while /etc/tiny.broken is there, and keeps what it was
	// configured with.
	tinyUnit = `[Service]
Environment=EDITION=%s
ExecStartPre=/bin/sh -c 'echo start >>/var/tmp/tiny.starts; exec test ! -e /etc/tiny.broken'
ExecStartPre=/bin/sh -c 'cat /etc/tiny/* >/run/tiny.seen; echo $EDITION >>/run/tiny.seen'
ExecStart=/bin/sleep infinity
`
)

// tinyHost is a host that an agent keeps, with the tiny service.
type tinyHost struct {
	*host.Host
	t       testing.TB
	edition string
	files   []string // content of the files that configure the service
	more    []declare.Resource
}

func newTinyHost(t testing.TB, files int) *tinyHost {
	t.Helper()
	program := agentProgram(t)
	h := &tinyHost{Host: host.NewLab(t).Boot(t, "tiny"), t: t, edition: "one"}
	h.CopyIn(t, program, hostAgent)
	for i := range files {
		h.files = append(h.files, fmt.Sprint("old ", i))
	}
	return h
}

// declare declares the service, its unit file and its configuration.
func (h *tinyHost) declare() {
	h.t.Helper()
	resources := []declare.Resource{
		directory("etc", "/etc/tiny"), file("unit", unitPath, fmt.Sprintf(tinyUnit, h.edition)),
		{Name: "tiny", Service: &declare.Service{}},
	}
	for i, content := range h.files {
		f := file(fmt.Sprint("conf", i), fmt.Sprint("/etc/tiny/", i), content+"\n")
		f.Notify = []string{"tiny"}
		resources = append(resources, f)
	}
	text := config(h.t, "site", append(resources, h.more...)...)
	h.Put(h.t, hostConf+".new", text, 0o644)
	h.MustRun(h.t, "mv", hostConf+".new", hostConf)
}

// converge runs the agent once.
func (h *tinyHost) converge() result {
	h.t.Helper()
	r, err := h.Run(h.t.Context(), hostAgent, "converge", "-f", hostConf)
	if err != nil {
		h.t.Fatal(err)
	}
	return result{code: r.Code, stdout: r.Stdout, stderr: r.Stderr}
}

// report is how the host stands, by the agent that runs, or by what the last one has left.
func (h *tinyHost) report() *agent.Report {
	h.t.Helper()
	out, err := h.Run(h.t.Context(), hostAgent, "status", "--all", "--json")
	if err != nil {
		h.t.Fatal(err)
	}
	var r agent.Report
	if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
		h.t.Fatalf("status: %v: %s%s", err, out.Stdout, out.Stderr)
	}
	return &r
}

// starts is how often the service was started, or tried to be.
func (h *tinyHost) starts() int {
	h.t.Helper()
	return strings.Count(h.Get(h.t, "/var/tmp/tiny.starts"), "start")
}

// seen is what the running service was configured with.
func (h *tinyHost) seen() string {
	h.t.Helper()
	out, err := h.Run(h.t.Context(), "sh", "-c", "systemctl is-active tiny && cat /run/tiny.seen")
	if err != nil {
		h.t.Fatal(err)
	}
	return out.Stdout
}

// wanted is what it should be.
func (h *tinyHost) wanted() string {
	return "active\n" + strings.Join(h.files, "\n") + "\n" + h.edition + "\n"
}

// reloads is how often systemd read its unit files again in this boot.
func (h *tinyHost) reloads() int {
	h.t.Helper()
	h.MustRun(h.t, "journalctl", "--sync")
	return strings.Count(h.MustRun(h.t, "journalctl", "--boot", "--no-pager", "--output=cat", "_PID=1"), "Reloading.\n")
}

func TestAgentCase14_RestartStaysPending(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	h := newTinyHost(t, 1)
	h.declare()
	c.Equal(h.converge().code, 0, "exit code of the first converge")
	c.Equal(h.seen(), h.wanted(), "the service")

	h.MustRun(t, "touch", "/etc/tiny.broken")
	h.files[0] = "new 0"
	h.declare()
	pending := func(when string) {
		r := h.converge()
		c.Check(r.code != 0, "%s: the agent says that all is well: %v", when, r)
		rep := h.report()
		res := resourceOf(rep, "service/tiny")
		c.Check(!rep.Converged && slices.Contains(res.Owes, "file/conf0"), "%s: what the service waits for: %s", when, show(rep))
		c.Check(res.Outcome == reason.Failed, "%s: the service is %v", when, res.Outcome)
		c.Equal(h.Get(t, "/etc/tiny/0"), "new 0\n", when+": the file")
	}
	pending("when the restart fails")
	pending("after a restart of the agent")
	h.Reboot(t)
	pending("after a reboot")
	h.PowerCut(t)
	h.Boot(t)
	pending("after a power cut")
	h.MustRun(t, "rm", "/etc/tiny.broken")
	c.Equal(h.converge().code, 0, "exit code after the cure")
	c.Equal(h.seen(), h.wanted(), "the service after the cure")
	rep := h.report()
	c.Check(rep.Converged && len(resourceOf(rep, "service/tiny").Owes) == 0, "after the cure: %s", show(rep))
	before := h.starts()
	c.Equal(h.converge().code, 0, "exit code of another converge")
	c.Equal(h.starts(), before, "starts after another converge")

	// Killed between the change and the restart: the service runs all the time, so only the journal knows.
	h.files[0] = "newest 0"
	h.declare()
	h.MustRun(t, "mkdir", "-p", "/run/systemd/system/tiny.service.d")
	h.Put(t, "/run/systemd/system/tiny.service.d/slow.conf", "[Service]\nExecStop=/bin/sleep 5\n", 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	run := h.Start(t, hostAgent, "converge", "-f", hostConf)
	host.Eventually(t, soon, "the file is new and the restart has begun", func() (string, bool) {
		state := h.MustRun(t, "sh", "-c", "cat /etc/tiny/0; systemctl show --property=ActiveState tiny")
		return state, state == "newest 0\nActiveState=deactivating\n"
	})
	run.Kill(t)
	run.Wait(t, soon)
	// What systemd is still stopping is left alone until it has stopped.
	c.Eventually(soon, "converged after the kill", func() (string, bool) {
		r := h.converge()
		return r.String(), r.code == 0
	})
	c.Equal(h.seen(), h.wanted(), "the service after the kill")
}

func TestAgentCase16_TenFilesOneRestart(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	h := newTinyHost(t, 10)
	h.declare()
	c.Equal(h.converge().code, 0, "exit code of the first converge")
	c.Equal(h.starts(), 1, "starts at first")
	change := func(to string) {
		for i := range h.files {
			h.files[i] = fmt.Sprint(to, " ", i)
		}
		h.declare()
	}
	change("once")
	c.Equal(h.converge().code, 0, "exit code")
	c.Equal(h.seen(), h.wanted(), "the service")
	c.Equal(h.starts(), 2, "starts after ten files changed")

	h.Start(t, hostAgent, "converge", "-f", hostConf, "--watch")
	settled := func(what string, drift uint64) {
		host.Eventually(t, soon, what, func() (string, bool) {
			rep := h.report()
			return show(rep) + h.seen(), settledAndConverged(rep) && rep.Totals.Drift == drift && h.seen() == h.wanted()
		})
	}
	settled("the resident agent has settled", 0)
	c.Equal(h.starts(), 2, "starts by an agent that finds all as declared")
	change("resident")
	settled("the resident agent has taken in ten changes", 0)
	c.Equal(h.starts(), 3, "starts after ten files changed again")
	h.MustRun(t, "sh", "-c", "for i in 0 1 2 3 4 5 6 7 8 9; do echo drift >/etc/tiny/$i; done")
	settled("ten drifted files are repaired", 10)
	c.Check(h.starts() >= 4 && h.starts() <= 5, "%d starts after the drift of ten files, which an agent may see in two steps", h.starts()-3)
}

func TestAgentCase17_UnitFileOneReload(t *testing.T) {
	c := casetest.Start(t)
	t.Parallel()
	h := newTinyHost(t, 1)
	reloads := h.reloads()
	h.declare()
	c.Equal(h.converge().code, 0, "exit code of the first converge")
	c.Equal(h.seen(), h.wanted(), "the service")
	// systemd looks for a unit that it does not know when it is asked for.
	c.Check(h.reloads()-reloads <= 1, "%d reloads for a new unit file", h.reloads()-reloads)

	// The unit file and the configuration change together: the restart must see both.
	reloads = h.reloads()
	h.edition, h.files[0] = "two", "new 0"
	h.declare()
	c.Equal(h.converge().code, 0, "exit code of the change")
	c.Equal(h.seen(), h.wanted(), "the service after the change")
	c.Equal(h.reloads()-reloads, 1, "reloads for a changed unit file")
	c.Equal(h.starts(), 2, "starts")
	c.Equal(h.MustRun(t, "systemctl", "show", "--property=NeedDaemonReload", "tiny"), "NeedDaemonReload=no\n", "systemd's view")

	c.Equal(h.converge().code, 0, "exit code of another converge")
	c.Equal(h.reloads()-reloads, 1, "reloads without a change")
}
