package assignments

import (
	"errors"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
)

// TestSize: whatever does not compile any more, hosts are told of at least as much as they are to take, and of no more than that when
// all compiles; and nothing is written again for it.
func TestSize(t *testing.T) {
	all := &fakeLayers{missing: map[string]error{}, salt: map[string]string{}}
	layerOf := func(config, revision string) *layers.Layer {
		l, err := all.Of(t.Context(), config, revision)
		if err != nil {
			t.Fatal(err)
		}
		l.Entries, l.Bytes = map[string]int{"a": 1, "b": 20, "b2": 25, "c": 300}[revision], map[string]int64{"a": 10, "b": 200, "b2": 250, "c": 3000}[revision]
		return l
	}
	row := func(config, revision string) v1alpha1.AssignedLayer {
		return v1alpha1.AssignedLayer{Config: config, Revision: revision, Root: layerOf(config, revision).Root.String()}
	}
	a, b, b2, c := row("a", "a"), row("b", "b"), row("b", "b2"), row("c", "c")
	for _, test := range []struct {
		what           string
		was, rows      []v1alpha1.AssignedLayer
		entries, bytes int64    // that was has
		broken         []string // do not compile
		want           [2]int64
	}{
		{"nothing", nil, nil, 0, 0, nil, [2]int64{0, 0}},
		{"all compile", []v1alpha1.AssignedLayer{a}, []v1alpha1.AssignedLayer{a, b}, 999, 9999, nil, [2]int64{21, 210}},
		{"nothing changes", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a, b}, 21, 210, []string{"a"}, [2]int64{21, 210}},
		{"another one comes", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a, b, c}, 21, 210, []string{"a"}, [2]int64{321, 3210}},
		{"the other one grows", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a, b2}, 21, 210, []string{"a"}, [2]int64{26, 260}},
		{"the other one goes", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a}, 21, 210, []string{"a"}, [2]int64{1, 10}},
		{"the other one goes, and does not compile either", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a}, 21, 210, []string{"a", "b"}, [2]int64{21, 210}},
		{"an earlier server has counted wrong", []v1alpha1.AssignedLayer{a, b}, []v1alpha1.AssignedLayer{a}, 0, 0, []string{"a"}, [2]int64{0, 0}},
	} {
		all.missing = map[string]error{}
		for _, config := range test.broken {
			all.missing[config] = errors.New("it does not compile")
		}
		all.kept = map[catalog.Digest]*layers.Layer{}
		for i := range test.was {
			if config, revision := test.was[i].Config, test.was[i].Revision; all.missing[config] == nil {
				layerOf(config, revision) // kept
			}
		}
		compiled := map[string]*layers.Layer{}
		for i := range test.rows {
			if config := test.rows[i].Config; all.missing[config] == nil {
				compiled[config] = layerOf(config, test.rows[i].Revision)
			}
		}
		p := &planner{layers: all, was: &v1alpha1.AssignmentSpec{Layers: test.was, Entries: test.entries, Bytes: test.bytes}}
		entries, bytes := p.size(t.Context(), test.rows, compiled)
		if got := [2]int64{entries, bytes}; got != test.want {
			t.Errorf("%s: %d, want %d", test.what, got, test.want)
		}
		p.was = &v1alpha1.AssignmentSpec{Layers: test.rows, Entries: entries, Bytes: bytes}
		if again, bytesAgain := p.size(t.Context(), test.rows, compiled); again != entries || bytesAgain != bytes {
			t.Errorf("%s: the same rows come to %d entries the next time, after %d", test.what, again, entries)
		}
	}
}
