package mistakes

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
)

// TestCyclesAreToldAsOnHosts: what declare finds without a host is what a host finds where it makes its graph, word for word.
func TestCyclesAreToldAsOnHosts(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		config := drawConfig(t)
		got := declare.Cycles(&config.Spec)
		want := orderMistakes(t, []declare.Document{{File: "site.yaml", Config: config}})
		found += len(want)
		for i := range got { // places are the document's work
			got[i].File = "site.yaml"
			for j := range got[i].Related {
				got[i].Related[j].File = "site.yaml"
			}
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("found\n%v\na host finds\n%v", declare.Faults(got), declare.Faults(want))
		}
	})
	if found == 0 {
		t.Error("no config had a cycle: nothing was compared")
	}
}

// drawConfig draws a config that validates, of services that require and notify one another.
func drawConfig(t *rapid.T) *declare.NodeConfig {
	config := &declare.NodeConfig{APIVersion: declare.APIVersion, Kind: declare.KindNodeConfig, Metadata: declare.Metadata{Name: "site"}}
	n := rapid.IntRange(2, 9).Draw(t, "resources")
	names := rapid.Permutation([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}).Draw(t, "names")[:n]
	for i, name := range names {
		r := declare.Resource{Name: name, Service: &declare.Service{Unit: fmt.Sprintf("u%d.service", (i*7+3)%n*10+i)}}
		for _, other := range names {
			if other == name {
				continue
			}
			switch rapid.IntRange(0, 2*n).Draw(t, name+other) {
			case 0:
				r.Require = append(r.Require, other)
			case 1:
				r.Notify = append(r.Notify, other)
			}
		}
		config.Spec.Resources = append(config.Spec.Resources, r)
	}
	if faults := declare.Validate(config); len(faults) > 0 {
		t.Fatalf("not a config that validates: %v", declare.Faults(faults))
	}
	return config
}

// orderMistakes returns the mistakes that a host finds where it makes its graph.
func orderMistakes(t rapid.TB, documents []declare.Document) []declare.Fault {
	t.Helper()
	entries, faults := catalog.Resolve(documents)
	if len(faults) > 0 {
		return faults
	}
	_, faults = core.Compile(core.Input{
		Entries: entries, Lookup: declare.Scope{NodeName: "host"}.Lookup,
		Lane: func(kind declare.ResourceType) string { return string(kind) },
	})
	return faults
}
