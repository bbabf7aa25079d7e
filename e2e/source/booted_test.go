package source

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

const (
	packaging  = "../../packaging"
	serverUnit = "tako-server.service"
	agentUnit  = "tako-agent.service"
	kubeconfig = "/var/lib/tako/server/admin.kubeconfig"
	unitDir    = "/etc/systemd/system/"
)

// site is a config with a service, which shows by a file which content it was started with.
func site(content string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: site}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: site.service
      file:
        path: /etc/systemd/system/site.service
        content: |
          [Service]
          ExecStart=/bin/sh -c 'cp /etc/site.conf /run/site.seen && exec sleep infinity'
          [Install]
          WantedBy=multi-user.target
    - name: site.conf
      file: {path: /etc/site.conf, content: %q}
      notify: [site]
    - name: site
      service: {enabled: true}
      require: [site.service, site.conf]
`, content)
}

// booted is a server and hosts that run as they are installed: systemd, the units of packaging/, and a forge on the network.
type booted struct {
	*testing.T
	lab   *host.Lab
	ctl   *host.Host // runs the server
	hosts []*host.Host
}

// newBooted boots all of them. The server has hostsLine in its /etc/hosts.
func newBooted(t *testing.T, lab *host.Lab, hostsLine string) *booted {
	t.Helper()
	b := &booted{T: t, lab: lab, ctl: lab.Boot(t, "ctl")}
	b.ctl.MustRun(t, "apt-get", "update")
	b.ctl.MustRun(t, "apt-get", "install", "--yes", "--no-install-recommends", "git")
	b.ctl.Put(t, "/etc/hosts", "127.0.0.1 localhost\n"+hostsLine, 0o644)
	b.ctl.MustRun(t, "useradd", "--system", "--user-group", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "tako")
	b.install(b.ctl, "tako", serverUnit, fmt.Sprintf("server --listen 0.0.0.0:6443 --transfer-listen 0.0.0.0:6444 --name %s", b.ctl.Address()))
	b.ctl.MustRun(t, "systemctl", "enable", "--now", serverUnit)
	b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n")
	t.Cleanup(func() {
		if t.Failed() {
			b.explain()
		}
	})
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		h := lab.Boot(t, name)
		b.install(h, "tako-agent", agentUnit, "run")
		h.Put(t, "/root/join", b.tako("token", "create", "join", "--name", name, "--environment", "prod"), 0o600)
		h.MustRun(t, "sh", "-c", "tako-agent join - --name "+name+" </root/join")
		h.MustRun(t, "systemctl", "enable", "--now", agentUnit)
		b.hosts = append(b.hosts, h)
	}
	return b
}

// install puts a program and its unit onto a host, with the arguments that differ.
func (b *booted) install(h *host.Host, program, unit, args string) {
	b.Helper()
	h.CopyIn(b.T, filepath.Join(rig.Programs(b.T), program), "/usr/bin/"+program)
	h.CopyIn(b.T, filepath.Join(packaging, unit), unitDir+unit)
	h.Put(b.T, unitDir+unit+".d/test.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/"+program+" "+args+"\n", 0o644)
	h.MustRun(b.T, "systemctl", "daemon-reload")
}

// explain logs what the server knows of the hosts.
func (b *booted) explain() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.InTime) // that of the test is over
	defer cancel()
	for _, kind := range []string{"sources", "nodeconfigs", "assignments", "nodes"} {
		r, err := b.ctl.Run(ctx, "tako", "--kubeconfig", kubeconfig, "get", kind, "-A", "-o", "yaml")
		b.Logf("%s: %v\n%s%s", kind, err, r.Stdout, r.Stderr)
	}
}

// tako runs a command of the administrator.
func (b *booted) tako(args ...string) string {
	b.Helper()
	return b.ctl.MustRun(b.T, append([]string{"tako", "--kubeconfig", kubeconfig}, args...)...)
}

func (b *booted) apply(documents string) {
	b.Helper()
	b.ctl.Put(b.T, "/root/declared.yaml", documents, 0o600)
	b.tako("apply", "-f", "/root/declared.yaml")
}

// follow waits until all hosts run the service with a content, and the Source says which commit that is.
func (b *booted) follow(commit, content string) {
	b.Helper()
	for _, h := range b.hosts {
		host.Eventually(b.T, rig.InTime, h.Name()+" runs the service with "+content, func() (string, bool) {
			r, err := h.Run(b.Context(), "sh", "-c", "systemctl is-active site.service && systemctl is-enabled site.service && cat /etc/site.conf /run/site.seen")
			return fmt.Sprintf("%q %s %v", r.Stdout, r.Stderr, err), err == nil && r.Stdout == "active\nenabled\n"+content+content
		})
	}
	host.Eventually(b.T, rig.InTime, "the Source says that commit "+commit+" is applied, and on three hosts", func() (string, bool) {
		out := b.tako("get", "source/fleet", "-n", "prod", "-o", `jsonpath={.status.applied.id} {.status.hosts.converged}/{.status.hosts.selected}`)
		return out, strings.TrimSpace(out) == commit+" 3/3"
	})
}

// TestBootedHostsFollow: what is merged reaches three hosts which have booted, a file and the service that reads it, from a forge on the
// network, to a server and agents under their own units; what is reverted goes back; what a host loses comes again.
//
// It runs beside no other test: a lab has threads end, and with a thread the kernel ends what that has ever started, such as the server
// of another test.
func TestBootedHostsFollow(t *testing.T) {
	lab := host.NewLab(t)
	repositories := t.TempDir()
	r := newRepository(t, repositories, "fleet")
	g, line := newForgeInLab(t, lab, repositories, "of-the-forge")
	b := newBooted(t, lab, line)
	first := r.commit("first", map[string]string{"prod/site.yaml": site("first\n")})
	b.apply(strings.Replace(g.secret(), "namespace: ops", "namespace: prod", 1) + fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet, namespace: prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:source:prod:fleet"}]
---
apiVersion: tako.dev/v1alpha1
kind: Source
metadata: {name: fleet, namespace: prod}
spec: {url: %q, ref: {branch: main}, path: prod, credentials: forge, interval: 10s}
`, g.url(r)))
	b.follow(first, "first\n")

	r.git("checkout", "--quiet", "-b", "change")
	r.write(map[string]string{"prod/site.yaml": site("second\n")})
	r.git("commit", "--quiet", "--all", "--message", "a change")
	r.push()
	r.git("checkout", "--quiet", "main")
	r.git("merge", "--quiet", "--no-ff", "--message", "merge the change", "change")
	b.follow(r.push(), "second\n")

	r.git("revert", "--no-edit", "--mainline", "1", "HEAD")
	reverted := r.push()
	b.follow(reverted, "first\n")

	h := b.hosts[0]
	h.MustRun(t, "sh", "-c", "rm /run/site.seen; echo by hand >/etc/site.conf; systemctl stop --no-block site.service")
	b.follow(reverted, "first\n")
	if out := b.tako("trace", "nodeconfig/site", "-n", "prod"); !strings.Contains(out, "prod/site.yaml:1") || !strings.Contains(out, reverted[:8]) {
		t.Errorf("tako trace says\n%s", out)
	}
}
