//go:build e2e

package workloads

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

const (
	markerPath = "/usr/local/bin/marker"
	marksPath  = "/srv/marks"
	agentUnit  = "tako-agent.service"
	// unwatched: systemd does not end an agent that stands still, as it would after a minute.
	unwatched = "[Service]\nWatchdogSec=0\n"
)

// TestExclusiveUnits: with the runtime Systemd the unit beside it ends a task whose agent stands still on a host that is cut off, before another copy
// begins.
func TestExclusiveUnits(t *testing.T) {
	t.Parallel() // its hosts are its own
	const name = "single"
	labels := []string{name + "=yes"}
	c := newCluster(t, host.NewLab(t), map[string][]string{"first": labels, "spare": labels})
	for _, h := range c.boxes {
		h.CopyIn(t, host.Program(t, "marker", "tako.dev/tako/e2e/workloads/marker"), markerPath)
		h.MustRun(t, "install", "-d", "-m", "0777", marksPath)
		h.Put(t, "/etc/systemd/system/"+agentUnit+".d/unwatched.conf", unwatched, 0o644)
		h.MustRun(t, "systemctl", "daemon-reload")
		h.MustRun(t, "systemctl", "restart", agentUnit)
	}
	c.tako("node", "cordon", "spare")
	c.apply(exclusive(name, markerPath, marksPath, "    runtime: Systemd"))
	first := c.begun(t, "first")[0]
	c.tako("node", "uncordon", "spare")

	h := c.boxes["first"]
	h.MustRun(t, "systemctl", "kill", "--kill-who=main", "--signal=STOP", agentUnit)
	h.CutLink(t)
	neverTwo(t, c.begun(t, "spare"))
	if r, err := h.Run(t.Context(), "test", "-d", "/proc/"+strconv.Itoa(first.pid)); err != nil || r.Code == 0 {
		t.Errorf("another copy runs, and so does process %d of the first: %v", first.pid, err)
	}

	h.RestoreLink(t)
	h.MustRun(t, "systemctl", "kill", "--kill-who=main", "--signal=CONT", agentUnit)
	host.Eventually(t, fenceTime, "the host tells what it has ended", func() (string, bool) {
		out, _ := c.try("history", "node/first")
		return out, strings.Contains(out, leaseOver)
	})
	host.Eventually(t, fenceTime, "nothing of it is left on its host", func() (string, bool) {
		out := h.MustRun(t, "systemctl", "list-units", "--all", "--no-legend", "tako-*.*.*.service")
		return out, strings.TrimSpace(out) == ""
	})
	neverTwo(t, c.begun(t, "spare"))
	c.tako("delete", "workload/"+name, "-n", environment)
	for _, h := range c.boxes {
		host.Eventually(t, fenceTime, "nothing runs on "+h.Name(), func() (string, bool) {
			out := h.MustRun(t, "systemctl", "list-units", "--all", "--no-legend", "tako-*.*.*.service")
			return out, strings.TrimSpace(out) == ""
		})
	}
}

// begun waits until a copy has begun on a host, and returns what all have noted.
func (c *cluster) begun(t *testing.T, node string) (all []mark) {
	t.Helper()
	host.Eventually(t, fenceTime, "a copy has begun on "+node, func() (string, bool) {
		all = nil
		for _, h := range c.boxes {
			for _, file := range strings.Fields(h.MustRun(t, "find", marksPath, "-type", "f")) {
				if m, noted := parseMark(t, path.Base(file), h.MustRun(t, "cat", file)); noted {
					all = append(all, m)
				}
			}
		}
		return fmt.Sprintf("%+v", all), isOn(all, node)
	})
	return all
}
