package source

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"tako.dev/tako/api/v1alpha1"
)

// TestRepositoryEscapes: what a repository holds that leads out of it is refused, and said; the server goes on, runs nothing of it, and
// writes and reads nothing beside its own.
func TestRepositoryEscapes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := newRepository(t, f.repositories, "hostile")
	first := r.commit("first", map[string]string{"a.yaml": text("a", "good")})
	f.allow("hostile", "cluster-admin")
	outside := t.TempDir()
	must(t, writeFile(filepath.Join(outside, "canary.yaml"), text("stolen", "canary-of-this-machine")))
	before := digest(t, outside)
	hooks(t, r, outside)

	blob := func(content string) string { return r.object("blob", []byte(content)) }
	good, evil := blob(text("a", "evil")), blob(text("evil", "1"))
	file := func(hash, name string) string { return "100644 blob " + hash + "\t" + name }
	link := func(target, name string) string { return "120000 blob " + blob(target) + "\t" + name }
	tree := func(content string) string {
		hash := r.run([]byte(file(blob(content), "x.yaml")+"\x00"), r.bare, "mktree", "-z")
		return "040000 tree " + hash + "\t"
	}
	attacks := []struct {
		name    string
		entries []string
		says    string // with a part of this
	}{
		{"a link to a file of this machine", []string{file(good, "a.yaml"), link(filepath.Join(outside, "canary.yaml"), "b.yaml")}, "b.yaml"},
		{"a link upwards", []string{file(good, "a.yaml"), link(strings.Repeat("../", 20)+strings.TrimPrefix(outside, "/")+"/canary.yaml", "b.yaml")}, "b.yaml"},
		{"a link to a directory of this machine", []string{file(good, "a.yaml"), link(outside, "dir")}, "dir"},
		{"a submodule", []string{file(good, "a.yaml"), "160000 commit 1234567890123456789012345678901234567890\tsub"}, "sub"},
		{"a huge file", []string{file(good, "a.yaml"), file(blob("# "+strings.Repeat("x", 3<<20)), "b.yaml")}, "b.yaml"},
		{"modules with a command", []string{file(good, "a.yaml"), file(blob("[submodule \"x\"]\n\tpath = x\n\turl = -u./evil\n\tupdate = !touch "+outside+"/modules\n"), ".gitmodules")}, ""},
		{"a git directory", []string{file(good, "a.yaml"), tree(text("evil", "1")) + ".git"}, ""},
		{"a git directory for others", []string{file(good, "a.yaml"), tree(text("evil", "1")) + ".GIT"}, ""},
		{"a parent directory", []string{file(good, "a.yaml"), tree(text("evil", "1")) + ".."}, ""},
		{"a name with a line end", []string{file(good, "a.yaml"), file(evil, "b\nc.yaml")}, ""},
		{"a kustomization that reads this machine", []string{file(blob("resources: ["+outside+"/canary.yaml]\n"), "kustomization.yaml"), file(good, "a.yaml")}, "canary.yaml"},
		{"a kustomization that fetches", []string{file(blob("resources: [\"https://127.0.0.1:1/x.yaml\"]\n"), "kustomization.yaml"), file(good, "a.yaml")}, "https://127.0.0.1:1"},
		{"a kustomization that runs a program", []string{
			file(blob("generators: [generator.yaml]\n"), "kustomization.yaml"),
			file(blob("apiVersion: v1\nkind: Evil\nmetadata:\n  name: evil\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: /bin/sh}\n"), "generator.yaml"),
		}, ""},
	}
	for i, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			f.T = t
			planted := r.plant(fmt.Sprintf("attack-%d", i), a.entries...)
			f.look("hostile", spec(r, "main"))
			f.applies("hostile", first)
			f.look("hostile", spec(r, fmt.Sprintf("attack-%d", i)))
			src := f.refuses("hostile", a.says)
			if src.Status.Applied == nil || src.Status.Applied.ID != first {
				t.Errorf("applied is %+v, not %s; planted was %s", src.Status.Applied, first, planted)
			}
			f.is("a", "good")
			if said := fmt.Sprint(src.Status); strings.Contains(said, "canary-of-this-machine") {
				t.Errorf("it says what is in a file of this machine: %s", said)
			}
			t.Log(meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionReady).Message)
		})
	}
	f.T = t
	for _, name := range []string{"evil", "stolen"} {
		if f.object("configmap/"+name, "prod") != nil {
			t.Errorf("configmap %s was applied", name)
		}
	}
	if digest(t, outside) != before {
		t.Error("something was written outside of the server's own directory")
	}
	f.look("hostile", spec(r, "main")) // and it is as good as before
	f.applies("hostile", first)
}

// spec is a Source of a repository in a directory.
func spec(r *repository, branch string) string {
	return fmt.Sprintf("{url: %q, ref: {branch: %s}}", "file://"+r.bare, branch)
}

// hooks has the repository run something for everything that may be done with it.
func hooks(t *testing.T, r *repository, outside string) {
	t.Helper()
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-upload-pack", "pre-upload"} {
		path := filepath.Join(r.bare, "hooks", hook)
		must(t, writeProgram(path, "#!/bin/sh\ntouch "+outside+"/"+hook+"\n"))
	}
	for _, name := range []string{"uploadpack.packObjectsHook", "core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.alternateRefsCommand", "diff.external", "core.askPass"} {
		r.run(nil, r.bare, "config", name, "touch "+outside+"/"+name)
	}
}
