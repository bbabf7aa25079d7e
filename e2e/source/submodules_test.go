package source

import (
	"fmt"
	"testing"
)

// TestSubmodules: what a submodule holds is refused until it is asked for, and is then applied as if it stood in the repository, in a
// directory and as the base of a kustomization. The namespace of that is not for a kind that stands in none.
func TestSubmodules(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	part, top := newRepository(t, f.repositories, "part"), newRepository(t, f.repositories, "top")
	part.commit("first", map[string]string{"b.yaml": text("b", "of the submodule"), "kustomization.yaml": "resources: [b.yaml, everywhere.yaml]\n",
		"everywhere.yaml": "apiVersion: tako.dev/v1alpha1\nkind: ClusterNodeConfig\nmetadata: {name: everywhere}\nspec: {resources: [{name: etc, directory: {path: /etc}}]}\n"})
	inner := part.git("rev-parse", "HEAD")
	top.write(map[string]string{"plain/a.yaml": text("a", "own"), "built/kustomization.yaml": "namespace: prod\nresources: [../plain/part]\n",
		".gitmodules": "[submodule \"part\"]\n\tpath = plain/part\n\turl = ../part.git\n"})
	top.git("add", "--all")
	top.git("update-index", "--add", "--cacheinfo", "160000,"+inner+",plain/part")
	top.git("commit", "--quiet", "--message", "with a submodule")
	commit := top.push()
	f.allow("parts", "cluster-admin")
	of := func(path, more string) string {
		return fmt.Sprintf("{url: %q, ref: {branch: main}, path: %s%s}", "file://"+top.bare, path, more)
	}
	f.look("parts", of("plain", ""))
	f.refuses("parts", "plain/part", "spec.submodules")
	if f.object("configmap/a", "prod") != nil {
		t.Error("a part of the commit was applied")
	}
	f.look("parts", of("plain/part", ""))
	f.refuses("parts", "spec.submodules")
	for _, path := range []string{"plain", "built", "plain/part"} {
		f.look("parts", of(path, ", submodules: true"))
		f.applies("parts", commit)
		f.is("b", "of the submodule")
	}
	if f.object("clusternodeconfig/everywhere", "") == nil {
		t.Error("what stands in no namespace was not applied")
	}
}
