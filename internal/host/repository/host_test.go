package repository

import (
	"path"
	"strings"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
)

// TestAgentCase23_RepositoryAndPackage converges a repository and a package that only this one has, in one run, on a host of its own; and has
// the agent heal what others do to it.
func TestAgentCase23_RepositoryAndPackage(t *testing.T) {
	c := casetest.Start(t)
	for _, tool := range []string{"apt-ftparchive", "dpkg-deb", "gpg", "gpg-agent"} {
		needs(t, tool)
	}
	s, us := newServer(t), newSigner(t, "us")
	s.deb("only-here", "1.0")
	s.flat(us)
	h := boots.NewLab(t).Boot(t, "repository")
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	for _, name := range []string{"Packages", "Release", "InRelease", "only-here_1.0_all.deb"} {
		h.CopyIn(t, path.Join(s.dir, name), "/srv/repository/"+name)
	}
	h.MustRun(t, "chmod", "-R", "a+rX", "/srv")
	key := "            " + strings.ReplaceAll(strings.TrimSpace(us.armored), "\n", "\n            ")
	h.Put(t, "/root/lab.yaml", `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: lab}
spec:
  resources:
    - name: only-here
      package: {}
    - name: local
      repository:
        apt:
          uris: [file:///srv/repository]
          suites: [./]
          key: |
`+key+"\n", 0o600)
	said := h.MustRun(t, "tako-agent", "converge", "-f", "/root/lab.yaml")
	status := h.MustRun(t, "dpkg-query", "--show", "--showformat=${Status}", "only-here")
	c.Equal(status, "install ok installed", "the package that only the new repository has, after "+said)
	file := h.Get(t, "/etc/apt/sources.list.d/local.sources")

	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/lab.yaml", "--watch")
	for _, drift := range []string{
		"rm /etc/apt/sources.list.d/local.sources", "rm /etc/apt/keyrings/local.gpg", "echo Trusted: yes >>/etc/apt/sources.list.d/local.sources", "chmod 600 /etc/apt/keyrings/local.gpg",
	} {
		h.MustRun(t, "sh", "-ec", drift)
		boots.Eventually(t, time.Minute, drift+" is undone", func() (string, bool) {
			r, err := h.Run(t.Context(), "sh", "-c", "cat /etc/apt/sources.list.d/local.sources; stat -c %a /etc/apt/keyrings/local.gpg")
			return r.Stdout + r.Stderr + agent.Stderr(), err == nil && r.Stdout == file+"644\n"
		})
		c.Check(true, "healed")
	}
	why := h.MustRun(t, "tako-agent", "why", "only-here")
	c.Check(strings.Contains(why, "repositories before packages") && strings.Contains(why, "repository/local"), "why:\n%s", why)
	update := h.MustRun(t, "sh", "-c", "apt-get update 2>&1")
	c.Check(!strings.Contains(update, "W:") && !strings.Contains(update, "E:"), "apt itself:\n%s", update)
}
