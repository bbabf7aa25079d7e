//go:build e2e

package workloads

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// TestLogs: what instances on two hosts print is read in one place.
func TestLogs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	more := filepath.Join(t.TempDir(), "more")
	f.Apply(fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: Workload
metadata: {name: web, namespace: %s}
spec:
  replicas: 2
  placement: {antiAffinity: [{selector: {matchLabels: {app: web}}}]}
  template:
    labels: {app: web}
    runtime: Process
    restart: {backoff: 100ms}
    tasks:
    - name: main
      user: root
      command: [/bin/sh, -c, 'echo "$WHO begins as $$"; echo "a warning" >&2; while [ ! -e %s ]; do sleep 0.1; done; echo "$WHO has more"; exec sleep 1000']
      env: [{name: WHO, valueFrom: {field: instance.name}}]
`, environment, more))
	f.until("complete", complete(2))
	// Running is ready here, and nothing says when what runs has printed.
	host.Eventually(t, rig.InTime, "both have printed", func() (string, bool) {
		out, err := f.Try("logs", "workload/web", "-n", environment)
		return out, err == nil && strings.Count(out, " begins as ") == 2 && strings.Count(out, "a warning") == 2
	})
	out := f.Tako("logs", "workload/web", "-n", environment)
	for _, name := range []string{"web-0", "web-1"} {
		if !strings.Contains(out, name+"  2") || !strings.Contains(out, "  "+name+" begins as ") {
			t.Errorf("%s is not among what was printed:\n%s", name, out)
		}
	}
	if out := f.Tako("logs", "instance/web-1", "main", "-n", environment, "--tail", "1", "-o", "json"); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, `{"instance":"web-1","task":"main","at":"`) {
		t.Errorf("the last line of one instance: %s", out)
	}

	ctx, cancel := context.WithTimeout(t.Context(), rig.InTime)
	defer cancel()
	follow := exec.CommandContext(ctx, filepath.Join(f.Bin, "tako"), "logs", "workload/web", "-n", environment, "--follow")
	follow.Env = append(os.Environ(), "KUBECONFIG="+f.Server.Kubeconfig(), "HOME="+f.Dir, "NO_COLOR=1")
	pipe, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.StartBound(follow, func() { _ = follow.Wait() }); err != nil { // how it ends is what cancel does
		t.Fatal(err)
	}
	came := map[string]int{}
	for lines := bufio.NewScanner(pipe); came["web-0 has more"]+came["web-1 has more"] < 2 && lines.Scan(); {
		if _, text, ok := strings.Cut(lines.Text(), "  web-"); ok {
			came["web-"+text]++
		}
		if len(came) == 2 {
			if err := os.WriteFile(more, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(came) != 4 {
		t.Errorf("followed were %v", came)
	}
	for text, n := range came {
		if n != 1 {
			t.Errorf("%q came %d times", text, n)
		}
	}
	cancel()

	first := strings.TrimSpace(f.Tako("logs", "instance/web-0", "-n", environment))
	pid := strings.Fields(first[strings.Index(first, "begins as ")+len("begins as "):])[0]
	if err := exec.CommandContext(t.Context(), "kill", "-9", pid).Run(); err != nil {
		t.Fatal(err)
	}
	host.Eventually(t, rig.InTime, "the attempt before can be read", func() (string, bool) {
		out, err := f.Try("logs", "instance/web-0", "-n", environment, "--previous")
		return out, err == nil && strings.TrimSpace(out) == first
	})
	if out := f.Tako("logs", "instance/web-0", "-n", environment); strings.Contains(out, "begins as "+pid+"\n") {
		t.Errorf("the newest attempt has printed %s", out)
	}

	f.hosts["host-1"].Kill()
	host.Eventually(t, rig.InTime, "a host that is gone hides nothing of the other", func() (string, bool) {
		out, err := f.Try("logs", "workload/web", "-n", environment)
		return out, err == nil && strings.Count(out, " begins as ") == 1
	})
	f.hosts["host-1"].Start()
	f.end("web")
}
