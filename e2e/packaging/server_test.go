//go:build e2e

// Package packaging_test proves on a real host that the control plane runs under its unit, installed as packaging/README.md
// says. The agent's unit is what the tests of e2e/alone run under.
package packaging_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

const (
	// readyTime bounds the wait for a server that systemd starts again. It takes three seconds; the rest is for busy machines.
	readyTime = time.Minute
	unit      = "tako-server.service"
	program   = "/usr/bin/tako"
	dataDir   = "/var/lib/tako/server"
	// exposureMax is ten times what `systemd-analyze security` of Debian 12 may give the unit; docs/operations.md tells the score.
	exposureMax = "11"
)

// TestServerUnit runs the unit on a host whose agent has closed /var/lib/tako already.
func TestServerUnit(t *testing.T) {
	h := host.NewLab(t).Boot(t, "server")
	h.CopyIn(t, host.TakoBinary(t), program)
	h.CopyIn(t, filepath.Join("..", "..", "packaging", unit), "/etc/systemd/system/"+unit)
	h.MustRun(t, "useradd", "--system", "--user-group", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "tako")
	h.MustRun(t, "install", "-d", "-m", "0700", "/var/lib/tako")
	// Type=notify: it returns when the server answers.
	h.MustRun(t, "systemctl", "enable", "--now", unit)

	h.MustRun(t, "systemd-analyze", "security", "--offline=true", "--threshold="+exposureMax, "/etc/systemd/system/"+unit)
	wantOwners(t, h, map[string]string{
		"/var/lib/tako":               "root 700",
		dataDir:                       "tako 700",
		dataDir + "/machine-secret":   "tako 600",
		dataDir + "/admin.kubeconfig": "tako 600",
		dataDir + "/audit.log":        "tako 600",
	})
	h.Put(t, "/tmp/qa.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: qa}\n", 0o644)
	tako(t, h, "apply", "-f", "/tmp/qa.yaml")

	before := show(t, h, "MainPID")
	h.MustRun(t, "systemctl", "kill", "--signal=KILL", unit)
	host.Eventually(t, readyTime, "another process of the server is ready", func() (string, bool) {
		pid, state := show(t, h, "MainPID"), show(t, h, "ActiveState")
		return state + " with process " + pid, state == "active" && pid != before
	})
	if got := tako(t, h, "get", "namespace", "qa", "-o", "name"); strings.TrimSpace(got) != "namespace/qa" {
		t.Errorf("after a kill of the server its namespace is %q", got)
	}

	rootWorks(t, h)
	sourcesWork(t, h)

	h.MustRun(t, "systemctl", "stop", unit)
	if got := show(t, h, "Result"); got != "success" {
		t.Errorf("stop: result %q, want success\n%s", got, h.Journal(t.Context(), unit))
	}
}

// rootWorks does as root what docs/operations.md tells: the service starts after each of it. The first restore is into a directory that
// is there, the second one makes it.
func rootWorks(t *testing.T, h *host.Host) {
	t.Helper()
	const keys = "/root/keys"
	h.MustRun(t, "install", "-d", "-m", "0700", keys)
	h.MustRun(t, "cp", dataDir+"/machine-secret", keys+"/machine-secret")
	h.MustRun(t, program, "trust", "rotate")
	h.MustRun(t, program, "trust", "export-root", keys+"/root-key")
	h.MustRun(t, program, "trust", "bump-epoch")
	h.MustRun(t, program, "server", "backup", keys+"/backup.tar")
	wantOwners(t, h, map[string]string{
		dataDir + "/trust/root-key": "tako 600",
		keys + "/root-key":          "root 600",
		keys + "/backup.tar":        "root 600",
	})
	h.MustRun(t, "systemctl", "restart", unit)
	for name, directory := range map[string][]string{
		"there":   {"install", "-d", "-m", "0700", "-o", "tako", "-g", "tako", dataDir},
		"missing": {"true"},
	} {
		h.MustRun(t, "systemctl", "stop", unit)
		if got, err := h.Run(t.Context(), program, "server"); err != nil || got.Code == 0 || !strings.Contains(got.Stderr, "TK0804") || !strings.Contains(got.Stderr, "runuser -u tako") {
			t.Errorf("root's own server on the directory of the service: %+v, %v", got, err)
		}
		h.MustRun(t, "mv", dataDir, dataDir+".before-"+name)
		h.MustRun(t, directory...)
		h.MustRun(t, program, "server", "restore", keys+"/backup.tar", "--machine-secret", keys+"/machine-secret", "--root-key", keys+"/root-key")
		h.MustRun(t, "systemctl", "start", unit)
		wantOwners(t, h, map[string]string{dataDir: "tako 700", dataDir + "/machine-secret": "tako 600", dataDir + "/etcd/member": "tako 700"})
		if got := tako(t, h, "get", "namespace", "qa", "-o", "name"); strings.TrimSpace(got) != "namespace/qa" {
			t.Errorf("after a restore by root into a directory that is %s the namespace is %q", name, got)
		}
	}
}

// fleetRepository makes a repository with a kustomization, as somebody else than the server.
const fleetRepository = `set -eu
cd /srv && git init --quiet --bare --initial-branch=main git/fleet.git
git init --quiet --initial-branch=main work && cd work
printf 'namespace: qa\nresources: [a.yaml]\n' >kustomization.yaml
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n' >a.yaml
git add . && git -c user.name=Ann -c user.email=ann@example.com commit --quiet --message first
git push --quiet /srv/git/fleet.git main
ssh-keygen -q -t ed25519 -N '' -f /root/key
`

// fleetSources are one that is applied, and one whose host is not there: what ssh says about that shows that it could run.
const fleetSources = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet, namespace: qa}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:source:qa:fleet"}]
---
apiVersion: v1
kind: Secret
metadata: {name: ssh, namespace: qa}
stringData: {identity: %q, known_hosts: %q}
---
apiVersion: tako.dev/v1alpha1
kind: Source
metadata: {name: fleet, namespace: qa}
spec: {url: "file:///srv/git/fleet.git"}
---
apiVersion: tako.dev/v1alpha1
kind: Source
metadata: {name: nowhere, namespace: qa}
spec: {url: "ssh://git@127.0.0.1:1/fleet.git", credentials: ssh}
`

// sourcesWork: within the unit git runs, what git starts, and the child that builds kustomizations.
func sourcesWork(t *testing.T, h *host.Host) {
	t.Helper()
	h.MustRun(t, "apt-get", "update")
	h.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "git", "openssh-client")
	h.MustRun(t, "sh", "-c", fleetRepository)
	h.Put(t, "/etc/systemd/system/"+unit+".d/sources.conf", "[Service]\nExecStart=\nExecStart="+program+" server --source-dir /srv/git\n", 0o644)
	h.MustRun(t, "systemctl", "daemon-reload")
	h.MustRun(t, "systemctl", "restart", unit)
	known := "[127.0.0.1]:1 " + h.MustRun(t, "cat", "/root/key.pub")
	h.Put(t, "/tmp/sources.yaml", fmt.Sprintf(fleetSources, h.MustRun(t, "cat", "/root/key"), known), 0o600)
	tako(t, h, "apply", "-f", "/tmp/sources.yaml")
	for name, want := range map[string]string{"fleet": "is applied", "nowhere": "Connection refused"} {
		host.Eventually(t, readyTime, "source "+name+" says "+want, func() (string, bool) {
			got := tako(t, h, "get", "source/"+name, "-n", "qa", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
			return got, strings.Contains(got, want)
		})
	}
	if got := tako(t, h, "get", "configmap", "a", "-n", "qa", "-o", "name"); strings.TrimSpace(got) != "configmap/a" {
		t.Errorf("the kustomization makes %q", got)
	}
}

// tako runs the command line as the administrator of the host.
func tako(t *testing.T, h *host.Host, args ...string) string {
	t.Helper()
	return h.MustRun(t, append([]string{program, "--kubeconfig", dataDir + "/admin.kubeconfig"}, args...)...)
}

// show returns a property of the unit.
func show(t *testing.T, h *host.Host, property string) string {
	t.Helper()
	return strings.TrimSpace(h.MustRun(t, "systemctl", "show", "--property="+property, "--value", unit))
}

// wantOwners compares owner and mode of files with what they are to be.
func wantOwners(t *testing.T, h *host.Host, want map[string]string) {
	t.Helper()
	for path, want := range want {
		if got := strings.TrimSpace(h.MustRun(t, "stat", "--format=%U %a", path)); got != want {
			t.Errorf("%s has owner and mode %q, want %q", path, got, want)
		}
	}
}
