//go:build e2e

package workloads

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

const (
	kubeconfig = "/var/lib/tako/server/admin.kubeconfig"
	serverUnit = `[Service]
Type=notify
ExecStart=/usr/bin/tako server --data-dir /var/lib/tako/server --listen 0.0.0.0:6443 --transfer-listen 0.0.0.0:6444 --name %s
`
)

// cluster is a server and hosts that have booted. The hosts run the agent as packaging installs it.
type cluster struct {
	t     *testing.T
	lab   *host.Lab
	ctl   *host.Host
	boxes map[string]*host.Host
}

// newCluster boots a server, and hosts with labels.
func newCluster(t *testing.T, lab *host.Lab, labels map[string][]string) *cluster {
	t.Helper()
	c := &cluster{t: t, lab: lab, ctl: lab.Boot(t, "ctl"), boxes: map[string]*host.Host{}}
	c.ctl.CopyIn(t, host.TakoBinary(t), "/usr/bin/tako")
	c.ctl.Put(t, "/etc/systemd/system/tako-server.service", fmt.Sprintf(serverUnit, c.ctl.Address()), 0o644)
	c.ctl.MustRun(t, "systemctl", "start", "tako-server.service")
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + environment + "}\n")
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		h := lab.Boot(t, name)
		c.boxes[name] = h
		h.CopyIn(t, host.AgentBinary(t), "/usr/bin/tako-agent")
		for _, unit := range []string{"tako-agent.service", "tako-agent-trial.service", "tako-agent.service.d/joined.conf"} {
			h.CopyIn(t, filepath.Join("..", "..", "packaging", unit), "/etc/systemd/system/"+unit)
		}
		join := []string{"token", "create", "join", "--name", name, "--environment", environment}
		for _, label := range labels[name] {
			join = append(join, "--label", label)
		}
		h.Put(t, "/root/join", c.tako(join...), 0o600)
		h.MustRun(t, "sh", "-c", "tako-agent join - < /root/join")
		h.MustRun(t, "systemctl", "enable", "--now", "tako-agent.service")
	}
	return c
}

func (c *cluster) tako(args ...string) string {
	c.t.Helper()
	out, code := c.try(args...)
	if code != 0 {
		c.t.Fatalf("tako %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// try runs a command of the administrator, whatever comes of it.
func (c *cluster) try(args ...string) (string, int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), rig.InTime)
	defer cancel()
	r, err := c.ctl.Run(ctx, append([]string{"env", "KUBECONFIG=" + kubeconfig, "HOME=/root", "tako"}, args...)...)
	if err != nil {
		c.t.Fatalf("tako %s: %v", strings.Join(args, " "), err)
	}
	if r.Code != 0 {
		return r.Stdout + r.Stderr, r.Code
	}
	return r.Stdout, 0
}

func (c *cluster) apply(documents string) {
	c.t.Helper()
	c.ctl.Put(c.t, "/root/declared.yaml", documents, 0o600)
	c.tako("apply", "-f", "/root/declared.yaml")
}

// get reads an object; what cannot be read now is left as it is.
func (c *cluster) get(into any, args ...string) {
	c.t.Helper()
	text, code := c.try(append([]string{"get", "-o", "json"}, args...)...)
	if code != 0 {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		c.t.Fatalf("tako get %v: %v\n%s", args, err, text)
	}
}
