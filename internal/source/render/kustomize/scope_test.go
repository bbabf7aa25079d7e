package kustomize

import (
	"strings"
	"testing"
	"testing/fstest"

	"tako.dev/tako/declare"
)

// TestScope: the namespace of a kustomization is not for kinds that stand in none; one that a document writes by itself stays, for the
// server to refuse. What one kustomization says of kinds is nothing to another one that is built in the same child.
func TestScope(t *testing.T) {
	document := func(apiVersion, kind, more string) string {
		return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata:\n  name: x\n" + more + "---\n"
	}
	const schema = `{"paths": {"/apis/example.com/v1/things": {"get": {"x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Thing"}}}}}`
	all := document(declare.APIVersion, "ClusterNodeConfig", "") + document(declare.APIVersion, "NodeConfig", "") + document("example.com/v1", "Thing", "") +
		document("v1", "Namespace", "") + document("example.com/v1", "ClusterNodeConfig", "") + document(declare.APIVersion, "Node", "  namespace: own\n")
	files := map[string]string{
		"a/kustomization.yaml": "namespace: prod\nresources: [all.yaml]\nopenapi: {path: schema.json}\n", "a/all.yaml": all, "a/schema.json": schema,
		"b/kustomization.yaml": "namespace: prod\nresources: [all.yaml]\n", "b/all.yaml": all,
	}
	view := fstest.MapFS{}
	for name, text := range files {
		view[name] = &fstest.MapFile{Data: []byte(text)}
	}
	c, faults := Collect(view, []string{"b", "a", "b"}, Limits{})
	if faults = append(faults, c.Load(view)...); len(faults) > 0 {
		t.Fatal(declare.Faults(faults))
	}
	built, err := process(t, Options{}).Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"- prod prod - prod own", "- prod - - prod own", "- prod prod - prod own"} {
		var got []string
		for _, o := range built[i].Objects {
			namespace := "-"
			if _, after, ok := strings.Cut(string(o.Text), "  namespace: "); ok {
				namespace, _, _ = strings.Cut(after, "\n")
			}
			got = append(got, namespace)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("kustomization %d: %s, want %s %s", i, text, want, built[i].Failure)
		}
	}
}
