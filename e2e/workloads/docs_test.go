//go:build e2e

package workloads

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestComingFromOrchestrators applies what docs/coming-from-orchestrators.md shows, as it stands there, and what its commands do.
func TestComingFromOrchestrators(t *testing.T) {
	t.Parallel()
	const program = "/usr/bin/python3"
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs " + program + ": whether the page's example runs is not known without it")
	}
	text, err := os.ReadFile("../../docs/coming-from-orchestrators.md")
	if err != nil {
		t.Fatal(err)
	}
	example := ""
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, "kind: Workload") {
			example += block
		}
	}
	f := newFleet(t, 3)
	f.Apply(example)
	f.Tako("wait", "workload/site", "-n", environment, "--timeout", "4m")
	instances := f.instances("site")
	if nodes := nodesOf(instances); !slices.Equal(nodes, []string{"host-0", "host-1", "host-2"}) {
		t.Errorf("three instances over three zones are on %v", nodes)
	}
	for _, in := range instances {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(int(in.Status.Ports["http"])))+"/GPL-3", nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(io.LimitReader(reply.Body, 1<<10))
		reply.Body.Close()
		if err != nil || !strings.Contains(string(page), "GNU GENERAL PUBLIC LICENSE") {
			t.Errorf("%s answers %q, %v", in.Name, page, err)
		}
	}
	var before v1alpha1.Workload
	f.Get(&before, "workload/site", "-n", environment)
	f.Apply(strings.Replace(example, "/usr/share/common-licenses", "/usr/share", 1))
	f.Tako("rollout", "status", "workload/site", "-n", environment, "--wait", "--timeout", "4m")
	after := f.workload("site")
	if after.Status.Stable == before.Status.Stable || after.Status.UpdatedReplicas != 3 {
		t.Errorf("a new version was declared: %s", shown(after.Status))
	}
	f.Tako("rollout", "undo", "workload/site", "-n", environment, "--to-revision", before.Status.Stable)
	f.Tako("rollout", "status", "workload/site", "-n", environment, "--wait", "--timeout", "4m")
	if back := f.workload("site"); back.Status.Stable != before.Status.Stable {
		t.Errorf("it has not gone back: %s", shown(back.Status))
	}
	f.end("site")
}
