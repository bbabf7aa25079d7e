//go:build e2e

package alone_test

import (
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
)

// watched is what the unit of the agent gets in addition: a watchdog that does not keep a test waiting, and an operator's own limit on memory.
const watched = `[Service]
WatchdogSec=10
RestartSec=50ms
Environment=GOMEMLIMIT=1GiB
`

// kept has a service that runs, a file, and a command that tells what it inherits.
const kept = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: kept
spec:
  resources:
    - name: sleeper-unit
      file: {path: /etc/systemd/system/sleeper.service, content: "[Service]\nExecStart=/bin/sleep infinity\n"}
    - name: sleeper
      service: {}
      require: [sleeper-unit]
    - name: note
      file: {path: /srv/note, content: "kept\n"}
    - name: inherits
      exec: {command: [/bin/sh, -c, "{ env; cat /proc/self/oom_score_adj; } >/root/inherits"], creates: /root/inherits}
`

// TestHung: an agent that hangs is killed by systemd and started again, though nobody looks. What it keeps does not notice, and is kept.
func TestHung(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Put(t, "/etc/systemd/system/tako-agent.service.d/watched.conf", watched, 0o644)
	s.MustRun(t, "systemctl", "daemon-reload")
	s.start(t, kept)
	s.awaitConverged(t)
	s.wantProtection(t)

	sleeper, hung, run := s.mainPID(t, "sleeper.service"), s.mainPID(t, "tako-agent.service"), s.invocation(t, "tako-agent.service")
	s.MustRun(t, "systemctl", "kill", "--kill-who=main", "--signal=STOP", "tako-agent.service")
	s.MustRun(t, "sh", "-c", "echo drift >/srv/note")
	host.Eventually(t, convergeTime, "drift is repaired by another agent", func() (string, bool) {
		got := s.Get(t, "/srv/note")
		return got, got == "kept\n"
	})
	if s.mainPID(t, "tako-agent.service") == hung || s.invocation(t, "tako-agent.service") == run {
		t.Error("the agent that hung runs on")
	}
	s.MustRun(t, "journalctl", "--sync")
	journal := s.MustRun(t, "journalctl", "--no-pager", "--unit=tako-agent")
	for _, want := range []string{"Watchdog timeout", "SIGABRT", "goroutine "} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal lacks %q:\n%s", want, journal)
		}
	}
	s.awaitConverged(t)
	if got := s.mainPID(t, "sleeper.service"); got != sleeper {
		t.Errorf("the service that the agent keeps has process %s, before %s", got, sleeper)
	}
}

func (s *site) mainPID(t *testing.T, unit string) string {
	t.Helper()
	pid := s.property(t, unit, "MainPID")
	if pid == "0" {
		t.Fatalf("%s does not run", unit)
	}
	return pid
}

// property is what systemd has made of a line of a unit.
func (s *site) property(t *testing.T, unit, name string) string {
	t.Helper()
	return strings.TrimSpace(s.MustRun(t, "systemctl", "show", "--property="+name, "--value", unit))
}

// wantProtection checks what the unit does about memory: the agent goes late and takes nobody along, nothing that is below the unit is held to a
// limit of the agent's, and what the agent runs gets neither its protection nor its limit.
func (s *site) wantProtection(t *testing.T) {
	t.Helper()
	for name, want := range map[string]string{"OOMPolicy": "continue", "OOMScoreAdjust": "-500", "Delegate": "yes", "MemoryMax": "infinity", "MemoryHigh": "infinity"} {
		if got := s.property(t, "tako-agent.service", name); got != want {
			t.Errorf("%s of the agent's unit is %s, want %s", name, got, want)
		}
	}
	if got := s.Get(t, "/root/inherits"); strings.Contains(got, "GOMEMLIMIT") || !strings.HasSuffix(got, "\n0\n") {
		t.Errorf("a command has from its agent:\n%s", got)
	}
}
