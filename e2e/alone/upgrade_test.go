//go:build e2e

package alone_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

const (
	nextProgram = "/srv/tako-agent"
	// trialEnds bounds the wait for a program to be put back: a trial takes a minute, and begins anew after a power cut.
	trialEnds = 3 * time.Minute
)

const upgraded = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata:
  name: upgraded
spec:
  resources:
    - name: sleeper-unit
      file: {path: /etc/systemd/system/sleeper.service, content: "[Service]\nExecStart=/bin/sleep infinity\n"}
    - name: sleeper
      service: {}
      require: [sleeper-unit]
    - name: note
      file: {path: /srv/note, content: "kept\n"}
    - name: program
      agent:
        programs:
          - {arch: amd64, path: /srv/tako-agent}
`

// newUpgraded is a host that runs the program that it is to have.
func newUpgraded(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.CopyIn(t, host.AgentBinary(t), nextProgram)
	s.start(t, upgraded)
	s.awaitConverged(t)
	return s
}

// next puts another program where the declared one comes from, whole at once.
func (s *site) next(t *testing.T, program []byte) {
	t.Helper()
	local := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(local, program, 0o755); err != nil {
		t.Fatal(err)
	}
	s.CopyIn(t, local, nextProgram+".new")
	s.MustRun(t, "mv", nextProgram+".new", nextProgram)
}

// runs is the digest of the program that the agent's unit runs.
func (s *site) runs(t *testing.T) string {
	t.Helper()
	r, err := s.Run(t.Context(), "sh", "-c", "sha256sum </proc/$(systemctl show --property=MainPID --value tako-agent)/exe")
	if err != nil {
		t.Fatal(err)
	}
	sum, _, _ := strings.Cut(r.Stdout, " ")
	return sum
}

func digestOf(program []byte) string { return fmt.Sprintf("%x", sha256.Sum256(program)) }

func agentProgram(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(host.AgentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// fails waits until the program is refused for a reason.
func (s *site) fails(t *testing.T, within time.Duration, code reason.Code, words string) {
	t.Helper()
	s.await(t, within, "the program is refused with "+code.String(), func(r *agent.Report) bool {
		for _, res := range r.Resources {
			if res.Title == "agent/program" && res.Outcome == reason.Failed && res.Problem != nil && res.Problem.Code == code {
				return strings.Contains(shown(r), words)
			}
		}
		return false
	})
}

// TestUpgrade puts other programs of the agent in its place. One that fits is taken, and nothing that the agent manages notices; one that
// does not is not even started.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newUpgraded(t)
	first, sleeper := agentProgram(t), s.invocation(t, "sleeper.service")
	if got := s.runs(t); got != digestOf(first) {
		t.Fatalf("%s runs, want %s", got, digestOf(first))
	}

	second := append(first[:len(first):len(first)], "second"...) // behind its end, which changes what it is and not what it does
	s.next(t, second)
	host.Eventually(t, convergeTime, "the second program runs, and stays", func() (string, bool) {
		r, err := s.Run(t.Context(), "sh", "-c", "ls /var/lib/tako/upgrade; systemctl is-active tako-agent tako-agent-trial")
		if err != nil {
			t.Fatal(err)
		}
		return s.runs(t) + " " + r.Stdout, s.runs(t) == digestOf(second) && strings.HasSuffix(r.Stdout, "active\ninactive\n") && !strings.Contains(r.Stdout, "trial")
	})
	s.awaitConverged(t)
	if got := s.invocation(t, "sleeper.service"); got != sleeper {
		t.Error("the upgrade has restarted a service that the agent manages")
	}
	told := s.history(t, "agent/program")
	if !slices.ContainsFunc(told, func(h store.Happening) bool { return h.Outcome == reason.Repaired.String() && len(h.Changes) == 1 }) {
		t.Errorf("the history says of it %+v", told)
	}

	run := s.invocation(t, "tako-agent.service")
	for words, script := range map[string]string{
		"exit status 3":       "#!/bin/sh\necho does not run here\nexit 3\n",
		"it sees 1 resources": "#!/bin/sh\necho '{\"count\":1,\"sum\":\"" + digestOf(nil) + "\"}'\n",
		"no plan":             "#!/bin/sh\necho '{}'\n",
	} {
		s.next(t, []byte(script))
		s.fails(t, convergeTime, reason.AgentUnfit, words)
	}
	s.next(t, []byte("no program at all"))
	s.fails(t, convergeTime, reason.AgentUnfit, "exec format error")
	s.MustRun(t, "sh", "-c", "echo drift >/srv/note")
	host.Eventually(t, repairTime, "drift is repaired meanwhile", func() (string, bool) {
		got := s.Get(t, "/srv/note")
		return got, got == "kept\n"
	})
	s.next(t, second)
	s.awaitConverged(t)
	if got := s.invocation(t, "tako-agent.service"); got != run {
		t.Error("programs that do not fit have had the agent restarted")
	}
}

// TestUpgradeCrashes: a program that plans as it should and then ends is put back within its minute, and not tried again.
func TestUpgradeCrashes(t *testing.T) {
	t.Parallel()
	s := newUpgraded(t)
	first := agentProgram(t)
	s.MustRun(t, "cp", agentPath, "/root/real")
	s.next(t, []byte("#!/bin/sh\ntest \"$1\" = converge || exec /root/real \"$@\"\necho cannot go on\nexit 3\n"))
	s.fails(t, trialEnds, reason.AgentPutBack, "cannot go on")
	if got := s.runs(t); got != digestOf(first) {
		t.Errorf("%s runs, want the program before, %s", got, digestOf(first))
	}
	run := s.invocation(t, "tako-agent.service")
	s.MustRun(t, "sh", "-c", "echo drift >/srv/note")
	host.Eventually(t, repairTime, "the program before keeps the host", func() (string, bool) {
		got := s.Get(t, "/srv/note")
		return got, got == "kept\n"
	})
	// Tried again when a person says so, and well when what was wrong is not any more.
	s.next(t, append(first[:len(first):len(first)], "second"...))
	s.awaitConverged(t)
	if got := s.invocation(t, "tako-agent.service"); got == run {
		t.Error("another program is not tried after one was put back")
	}
}

// TestUpgradeHangs: a program that says that it is ready, and hangs, is put back, though the power is cut while it is on trial.
func TestUpgradeHangs(t *testing.T) {
	t.Parallel()
	s := newUpgraded(t)
	first := agentProgram(t)
	s.MustRun(t, "cp", agentPath, "/root/real")
	s.next(t, []byte("#!/bin/sh\ntest \"$1\" = converge || exec /root/real \"$@\"\nsystemd-notify --ready\nexec sleep infinity\n"))
	host.Eventually(t, convergeTime, "the program is on trial", func() (string, bool) {
		r, err := s.Run(t.Context(), "sh", "-c", "systemctl is-active tako-agent-trial tako-agent")
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout, r.Stdout == "active\nactive\n" && s.runs(t) != digestOf(first)
	})
	s.PowerCut(t)
	s.Boot(t)
	s.fails(t, trialEnds, reason.AgentPutBack, "did not keep this host")
	if got := s.runs(t); got != digestOf(first) {
		t.Errorf("%s runs, want the program before, %s", got, digestOf(first))
	}
	s.awaitTrialOver(t)
}

// awaitTrialOver waits until nothing is left of a trial.
func (s *site) awaitTrialOver(t *testing.T) {
	t.Helper()
	host.Eventually(t, repairTime, "nothing is left of the trial", func() (string, bool) {
		left := s.MustRun(t, "sh", "-c", "ls /var/lib/tako/upgrade; systemctl is-active tako-agent-trial || :")
		return left, left == "previous\nrefused\ninactive\n"
	})
}
