package remote

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func someKinds() []Kind {
	group := func(name string, versions ...string) *metav1.APIGroup {
		g := &metav1.APIGroup{Name: name}
		for _, v := range versions {
			if name != "" {
				v = name + "/" + v
			}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v})
		}
		g.PreferredVersion = g.Versions[len(g.Versions)-1]
		return g
	}
	list := func(version string, resources ...metav1.APIResource) *metav1.APIResourceList {
		return &metav1.APIResourceList{GroupVersion: version, APIResources: resources}
	}
	node := metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}}
	return kindsOf(
		[]*metav1.APIGroup{group("", "v1"), group("tako.dev", "v1alpha1", "v1beta1"), group("other.org", "v1")},
		[]*metav1.APIResourceList{
			list("v1", metav1.APIResource{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}},
				metav1.APIResource{Name: "configmaps/status", Kind: "ConfigMap"}),
			list("tako.dev/v1alpha1", node), list("tako.dev/v1beta1", node), list("other.org/v1", node), list("a/b/c", node),
		})
}

func TestFind(t *testing.T) {
	kinds := someKinds()
	for text, want := range map[string]string{
		"nodes":                   "tako.dev/v1beta1, Kind=Node", // the preferred version of the first group that has it
		"node":                    "tako.dev/v1beta1, Kind=Node",
		"Node":                    "tako.dev/v1beta1, Kind=Node",
		"no":                      "tako.dev/v1beta1, Kind=Node",
		"nodes.other.org":         "other.org/v1, Kind=Node",
		"node.v1alpha1.tako.dev":  "tako.dev/v1alpha1, Kind=Node",
		"nodes.v1alpha1.tako.dev": "tako.dev/v1alpha1, Kind=Node",
		"cm":                      "/v1, Kind=ConfigMap",
		"configmaps.v1":           "/v1, Kind=ConfigMap",
	} {
		k, ok := find(kinds, text)
		if !ok || k.GroupVersionKind.String() != want {
			t.Errorf("%s is %s (%v), want %s", text, k.GroupVersionKind, ok, want)
		}
	}
	for text, near := range map[string]string{"nodez": "nodes", "nods": "nodes", "confgmap": "configmaps", "x": "", "nodes.nowhere": "nodes", "configmaps/status": "", "": ""} {
		if k, ok := find(kinds, text); ok {
			t.Errorf("%q is %s", text, k.GroupVersionKind)
		}
		if got := nearest(kinds, text); got != near {
			t.Errorf("%q is near %q, want %q", text, got, near)
		}
	}
}

// TestDistance compares with the definition.
func TestDistance(t *testing.T) {
	var naive func(a, b string) int
	naive = func(a, b string) int {
		switch {
		case a == "" || b == "":
			return len(a) + len(b)
		case a[0] == b[0]:
			return naive(a[1:], b[1:])
		}
		return 1 + min(naive(a[1:], b), naive(a, b[1:]), naive(a[1:], b[1:]))
	}
	word := rapid.StringMatching(`[ab]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := distance(a, b), naive(a, b); got != want {
			t.Fatalf("%q to %q is %d, want %d", a, b, got, want)
		}
	})
}

func FuzzReadTable(f *testing.F) {
	f.Add([]byte(`{"kind": "Table", "columnDefinitions": [{"name": "a"}], "rows": [{"cells": [1], "object": {"metadata": {"name": "x"}}}]}`))
	f.Add([]byte(`{"kind": "Status"}`))
	f.Add([]byte(`{"kind": "Table", "rows": [{"cells": null, "object": null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, _, err := readTable(text)
		if err != nil {
			return
		}
		for _, r := range table.Rows {
			_ = r.Object.GetName() // must not panic, whatever the object is
		}
	})
}
