//go:build e2e

package path

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

const (
	// soon bounds the wait for what takes milliseconds, or a second for a service, on a busy machine.
	soon = 2 * time.Minute
	// slow bounds the wait for what installs packages, or boots, or what shows in two answers to heartbeats.
	slow = 10 * time.Minute

	takoPath   = "/usr/bin/tako"
	agentPath  = "/usr/bin/tako-agent"
	agentUnit  = "tako-agent.service"
	serverUnit = "tako-server.service"
	kubeconfig = "/var/lib/tako/server/admin.kubeconfig"
)

// agentUnitText is how a host that has joined runs its agent.
const agentUnitText = `[Unit]
Description=tako agent
After=dbus.service

[Service]
Type=notify
ExecStart=/usr/bin/tako-agent run
Restart=always
RestartSec=100ms

[Install]
WantedBy=multi-user.target
`

// serverUnitText is packaging's unit with the listeners where the other hosts reach them.
const serverUnitText = `[Unit]
Description=tako server

[Service]
Type=notify
ExecStart=/usr/bin/tako server --data-dir /var/lib/tako/server --listen 0.0.0.0:6443 --transfer-listen 0.0.0.0:6444 --name %s
Restart=always
RestartSec=100ms

[Install]
WantedBy=multi-user.target
`

// fleet is a server and the hosts that have joined it.
type fleet struct {
	lab   *host.Lab
	ctl   *host.Host // runs the server
	hosts map[string]*host.Host
}

// newFleet boots a server and hosts, by name, and lets them join their environments.
func newFleet(t *testing.T, environments map[string]string) *fleet {
	t.Helper()
	lab := host.NewLab(t)
	f := &fleet{lab: lab, hosts: map[string]*host.Host{}}
	f.ctl = lab.Boot(t, "ctl")
	f.ctl.CopyIn(t, host.TakoBinary(t), takoPath)
	f.ctl.Put(t, "/etc/systemd/system/"+serverUnit, fmt.Sprintf(serverUnitText, f.ctl.Address()), 0o644)
	f.ctl.MustRun(t, "systemctl", "enable", "--now", serverUnit)
	names := map[string]bool{}
	for _, environment := range environments {
		names[environment] = true
	}
	for environment := range names {
		f.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+environment+"}\n")
	}
	for _, name := range slices.Sorted(maps.Keys(environments)) {
		f.hosts[name] = lab.Boot(t, name)
	}
	for name, environment := range environments {
		f.prepare(t, f.hosts[name])
		f.join(t, f.hosts[name], "--environment", environment, "--label", "host="+name)
	}
	return f
}

// prepare puts the agent's program and unit onto a host.
func (f *fleet) prepare(t *testing.T, h *host.Host) {
	t.Helper()
	h.CopyIn(t, host.AgentBinary(t), agentPath)
	h.Put(t, "/etc/systemd/system/"+agentUnit, agentUnitText, 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
}

// token makes a join line.
func (f *fleet) token(t *testing.T, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(f.tako(t, append([]string{"token", "create", "join"}, flags...)...))
}

// join lets a host join with a token of its own, and starts its agent.
func (f *fleet) join(t *testing.T, h *host.Host, flags ...string) {
	t.Helper()
	line := f.token(t, append(flags, "--name", h.Name())...)
	h.Put(t, "/root/join", line, 0o600)
	h.MustRun(t, "sh", "-c", agentPath+" join - --name "+h.Name()+" < /root/join")
	h.MustRun(t, "systemctl", "enable", "--now", agentUnit)
}

// tako runs a command of the administrator that must succeed, and returns what it writes.
func (f *fleet) tako(t testing.TB, args ...string) string {
	t.Helper()
	out, errs, exit := f.try(t, args...)
	if exit != 0 {
		t.Fatalf("tako %s: exit %d\n%s%s", strings.Join(args, " "), exit, out, errs)
	}
	return out
}

// try runs a command of the administrator, whatever comes of it.
func (f *fleet) try(t testing.TB, args ...string) (out, errs string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slow)
	defer cancel()
	r, err := f.ctl.Run(ctx, append([]string{"env", "KUBECONFIG=" + kubeconfig, "HOME=/root", "EDITOR=/root/editor", takoPath}, args...)...)
	if err != nil {
		t.Fatalf("tako %s: %v", strings.Join(args, " "), err)
	}
	return r.Stdout, r.Stderr, r.Code
}

// apply declares documents.
func (f *fleet) apply(t testing.TB, documents string, flags ...string) {
	t.Helper()
	f.ctl.Put(t, "/root/declared.yaml", documents, 0o600)
	f.tako(t, append([]string{"apply", "-f", "/root/declared.yaml"}, flags...)...)
}

// object reads one object of the server.
func object[T any](t testing.TB, f *fleet, args ...string) T {
	t.Helper()
	var o T
	text, errs, exit := f.try(t, append([]string{"get", "-o", "json"}, args...)...)
	if exit != 0 {
		return o // it is looked at again
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("tako get %v: %v\n%s%s", args, err, text, errs)
	}
	return o
}

func (f *fleet) node(t testing.TB, name string) v1alpha1.Node {
	t.Helper()
	return object[v1alpha1.Node](t, f, "node/"+name)
}

func (f *fleet) config(t testing.TB, namespace, name string) v1alpha1.NodeConfig {
	t.Helper()
	return object[v1alpha1.NodeConfig](t, f, "nodeconfig/"+name, "-n", namespace)
}

// eventually waits until a node is as it should be.
func (f *fleet) eventually(t testing.TB, name, what string, ok func(*v1alpha1.Node) bool) v1alpha1.Node {
	t.Helper()
	var n v1alpha1.Node
	host.Eventually(t, slow, name+" is "+what, func() (string, bool) {
		n = f.node(t, name)
		return shown(n.Status), ok(&n)
	})
	return n
}

// awaitConverged waits until nodes have the newest state, and all of it is as declared.
func (f *fleet) awaitConverged(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		f.eventually(t, name, "converged", func(n *v1alpha1.Node) bool {
			e := everything{assignment: object[v1alpha1.Assignment](t, f, "assignment/"+name), configs: object[v1alpha1.NodeConfigList](t, f, "nodeconfigs", "-A"),
				cluster: object[v1alpha1.ClusterNodeConfigList](t, f, "clusternodeconfigs")}
			return e.assigned(n) && converged(n)
		})
	}
}

// awaitConfig waits until a config is as it should be.
func (f *fleet) awaitConfig(t testing.TB, namespace, name, what string, ok func(*v1alpha1.NodeConfig) bool) v1alpha1.NodeConfig {
	t.Helper()
	var c v1alpha1.NodeConfig
	host.Eventually(t, slow, name+" is "+what, func() (string, bool) {
		c = f.config(t, namespace, name)
		return shown(c.Status), c.Generation > 0 && c.Status.ObservedGeneration == c.Generation && ok(&c)
	})
	return c
}

func phase(want string) func(*v1alpha1.NodeConfig) bool {
	return func(c *v1alpha1.NodeConfig) bool {
		r := c.Status.Rollout
		return r != nil && r.Phase == want && r.Target == c.Status.Revision
	}
}

func has(kind string, status metav1.ConditionStatus) func(*v1alpha1.Node) bool {
	return func(n *v1alpha1.Node) bool {
		return meta.IsStatusConditionPresentAndEqual(n.Status.Conditions, kind, status)
	}
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// wantFile waits until a file of a host has a content.
func wantFile(t testing.TB, h *host.Host, path, content string) {
	t.Helper()
	host.Eventually(t, soon, path+" of "+h.Name(), func() (string, bool) {
		r, err := h.Run(t.Context(), "cat", path)
		return fmt.Sprintf("%q %s %v", r.Stdout, r.Stderr, err), err == nil && r.Code == 0 && r.Stdout == content
	})
}

// page fetches the front page of a host's web server.
func (f *fleet) page(t testing.TB, h *host.Host) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DialContext: f.lab.Dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Address()+"/", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return string(text), err
}

func (f *fleet) wantPage(t testing.TB, h *host.Host, content string) {
	t.Helper()
	host.Eventually(t, soon, "the page of "+h.Name(), func() (string, bool) {
		text, err := f.page(t, h)
		return fmt.Sprintf("%q %v", text, err), err == nil && strings.Contains(text, content)
	})
}

// invocation names one run of a unit.
func invocation(t testing.TB, h *host.Host, unit string) string {
	t.Helper()
	return strings.TrimSpace(h.MustRun(t, "systemctl", "show", "--value", "-p", "InvocationID", unit))
}
