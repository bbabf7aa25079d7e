package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// TestExample: examples/gitops is what it says: a base and two overlays, a Source for each, each with its own rights.
func TestExample(t *testing.T) {
	t.Parallel()
	const example = "../../examples/gitops"
	f := newFleet(t)
	hosts := f.hosts()
	r := newRepository(t, f.repositories, "fleet")
	for _, dir := range []string{"base", "prod", "qa"} {
		must(t, os.CopyFS(filepath.Join(r.work, dir), os.DirFS(filepath.Join(example, dir))))
	}
	commit := r.commit("first", nil)
	sources, err := os.ReadFile(filepath.Join(example, "server", "sources.yaml"))
	must(t, err)
	f.Apply(strings.ReplaceAll(string(sources), "file:///srv/git/fleet.git", "file://"+r.bare))
	both := func(commit string) {
		t.Helper()
		for _, namespace := range []string{"prod", "qa"} {
			host.Eventually(t, rig.InTime, "the source of "+namespace+" has applied "+commit, func() (string, bool) {
				var s v1alpha1.Source
				f.Get(&s, "source/fleet", "-n", namespace)
				out, _ := f.Try("get", "source/fleet", "-n", namespace, "-o", "yaml")
				return out, s.Status.Applied != nil && s.Status.Applied.ID == commit && ready(&s)
			})
		}
	}
	both(commit)
	for _, h := range hosts {
		h.Has("etc/motd", "kept by a commit\n")
	}
	hosts[0].Has("srv/index.html", "hello of web-1\n")
	hosts[1].Has("srv/index.html", "hello of web-2\n")

	base, err := os.ReadFile(filepath.Join(r.work, "base", "motd.yaml"))
	must(t, err)
	both(r.commit("one change of the base", map[string]string{"base/motd.yaml": strings.Replace(string(base), "kept by a commit", "changed in one place", 1)}))
	for _, h := range hosts {
		h.Has("etc/motd", "changed in one place\n")
	}

	// Whoever may commit to the directory of qa may still do nothing in prod.
	r.commit("beyond its rights", map[string]string{
		"qa/kustomization.yaml": "resources: [../base, beyond.yaml]\n",
		"qa/beyond.yaml":        "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: beyond, namespace: prod}\nspec:\n  resources:\n    - {name: beyond, file: {path: /etc/beyond, content: x}}\n",
	})
	host.Eventually(t, rig.InTime, "the source of qa is refused", func() (string, bool) {
		out, _ := f.Try("get", "source/fleet", "-n", "qa", "-o", "yaml")
		return out, strings.Contains(out, "system:source:qa:fleet") && strings.Contains(out, "stays applied")
	})
	if f.object("nodeconfig/beyond", "prod") != nil {
		t.Error("what is beyond the rights of the source was applied")
	}
	if hosts[0].Read("etc/beyond") != "" {
		t.Error("it has reached a host")
	}
}
