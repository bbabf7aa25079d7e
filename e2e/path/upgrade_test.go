//go:build e2e

package path

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/reason"
)

// trialUnit watches over a new program of the agent.
const trialUnit = "tako-agent-trial.service"

// crashes plans what the real program plans, and ends when it is to keep the host.
const crashes = `#!/bin/sh
test "$1" = run || exec /root/real "$@"
echo cannot go on
exit 3
`

// TestUpgrade upgrades the agents of a fleet: a program that is no good is put back on the first host and gets no further, and one that is
// goes to all.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	names := []string{"a", "b"}
	f.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n")
	first, err := os.ReadFile(host.AgentBinary(t))
	must(t, err)
	f.apply(t, f.program(t, first), "-n", "prod")
	for _, name := range names {
		h := f.lab.Boot(t, name)
		f.hosts[name] = h
		f.prepare(t, h)
		for from, to := range map[string]string{agentUnit: agentUnit, trialUnit: trialUnit, "tako-agent.service.d/joined.conf": agentUnit + ".d/joined.conf"} {
			h.MustRun(t, "mkdir", "-p", filepath.Dir("/etc/systemd/system/"+to))
			h.CopyIn(t, filepath.Join("..", "..", "packaging", from), "/etc/systemd/system/"+to)
		}
		h.MustRun(t, "systemctl", "daemon-reload")
		h.MustRun(t, "cp", agentPath, "/root/real")
		f.join(t, h, "--environment", "prod")
	}
	f.awaitConverged(t, names...)

	f.apply(t, f.program(t, []byte(crashes)), "-n", "prod")
	c := f.awaitConfig(t, "prod", "program", "halted", phase("Halted"))
	if len(c.Status.Rollout.Culprits) != 1 {
		t.Fatalf("halted by %+v, want one node", c.Status.Rollout.Culprits)
	}
	culprit := c.Status.Rollout.Culprits[0].Node
	f.eventually(t, culprit, "kept by the program before", func(n *v1alpha1.Node) bool {
		return strings.Contains(shown(n.Status), reason.AgentPutBack.String())
	})
	if why := f.tako(t, "why", "node/"+culprit); !strings.Contains(why, "cannot go on") {
		t.Errorf("why does not quote it: %s", why)
	}
	for _, name := range names {
		if got := f.runs(t, name); got != objectDigest(first) {
			t.Errorf("%s runs %s, want the first program, %s", name, got, objectDigest(first))
		}
		if r, err := f.hosts[name].Run(t.Context(), "test", "-e", "/var/lib/tako/upgrade"); err != nil || (r.Code == 0) != (name == culprit) {
			t.Errorf("%s has tried the program: %v, %v", name, r.Code == 0, err)
		}
	}

	second := append(first[:len(first):len(first)], "second"...)
	f.apply(t, f.program(t, second), "-n", "prod")
	f.awaitConfig(t, "prod", "program", "complete", phase("Complete"))
	for _, name := range names {
		if got := f.runs(t, name); got != objectDigest(second) {
			t.Errorf("%s runs %s, want the second program, %s", name, got, objectDigest(second))
		}
	}
	f.awaitConverged(t, names...)
}

// program declares a program of the agent, which is put on the server.
func (f *fleet) program(t *testing.T, data []byte) string {
	t.Helper()
	local := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(local, data, 0o755))
	f.ctl.CopyIn(t, local, "/root/program")
	out := f.tako(t, "content", "put", "/root/program")
	_, reference, found := strings.Cut(out, "object: ")
	if !found || !strings.Contains(out, objectDigest(data)) {
		t.Fatalf("put the program: %s", out)
	}
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: program}
spec:
  rollout: {maxUnavailable: 1}
  resources:
    - name: program
      agent:
        programs:
          - {arch: amd64, object: %s}
`, strings.TrimSpace(reference))
}

// runs is the digest of the program that the agent's unit of a host runs.
func (f *fleet) runs(t *testing.T, name string) string {
	t.Helper()
	out := f.hosts[name].MustRun(t, "sh", "-c", "sha256sum </proc/$(systemctl show --property=MainPID --value tako-agent)/exe")
	sum, _, _ := strings.Cut(out, " ")
	return "sha256:" + sum
}
