package declare

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// ordered makes a spec of services that are called, and claim, a, b, c and so on, from what each requires and notifies.
func ordered(require, notify map[string][]string, n int) *NodeConfigSpec {
	s := &NodeConfigSpec{}
	for i := range n {
		name := vertexName(i)
		s.Resources = append(s.Resources, Resource{Name: name, Service: &Service{Unit: name + ".service"}, Require: require[name], Notify: notify[name]})
	}
	return s
}

func vertexName(i int) string { return fmt.Sprintf("%c", 'a'+i) }

func TestCycles(t *testing.T) {
	type names = map[string][]string
	for _, c := range []struct {
		name            string
		require, notify names
		want            []string
		paths           []string
	}{
		{name: "none", require: names{"b": {"a"}, "c": {"a", "b"}}, notify: names{"a": {"b", "c"}}},
		{name: "two", require: names{"a": {"b"}, "b": {"a"}}, want: []string{"service/b requires service/a; service/a requires service/b"}, paths: []string{"spec.resources[0]"}},
		{name: "require and notify", require: names{"a": {"b"}}, notify: names{"a": {"b"}}, want: []string{"service/a notifies service/b; service/a requires service/b"}, paths: []string{"spec.resources[0]"}},
		{name: "the shortest of a tangle", require: names{"a": {"d"}, "b": {"a"}, "c": {"b"}, "d": {"c", "e"}, "e": {"d"}},
			want: []string{"service/e requires service/d; service/d requires service/e"}, paths: []string{"spec.resources[3]"}},
		{name: "two tangles and what is between", require: names{"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": {"e", "c"}, "e": {"d"}},
			want:  []string{"service/b requires service/a; service/a requires service/b", "service/e requires service/d; service/d requires service/e"},
			paths: []string{"spec.resources[0]", "spec.resources[3]"}},
		{name: "to nothing and to itself", require: names{"a": {"b"}, "b": {"nobody", "b"}}, notify: names{"c": {"nobody", "c"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, paths []string
			for _, f := range Cycles(ordered(c.require, c.notify, 5)) {
				if f.Code != reason.DependencyCycle || f.Hint == "" || len(f.Related) == 0 {
					t.Errorf("%+v lacks the code, a hint or the other places", f)
				}
				got, paths = append(got, f.Message[len("dependency cycle: "):]), append(paths, f.Path)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(paths, c.paths) {
				t.Errorf("got %q at %q, want %q at %q", got, paths, c.want, c.paths)
			}
		})
	}
}

// TestCyclesTakeLongChains: one chain of as many resources as there may be, closed at its end.
func TestCyclesTakeLongChains(t *testing.T) {
	s := &NodeConfigSpec{Resources: make([]Resource, ResourcesMax)}
	for i := range s.Resources {
		s.Resources[i] = Resource{Name: fmt.Sprint("r", i), Directory: &Directory{Path: fmt.Sprintf("/%06d", i)}}
		if i > 0 {
			s.Resources[i].Require = []string{fmt.Sprint("r", i-1)}
		}
	}
	if faults := Cycles(s); len(faults) != 0 {
		t.Errorf("an open chain: %.200v", faults)
	}
	s.Resources[0].Require = []string{fmt.Sprint("r", ResourcesMax-1)}
	if faults := Cycles(s); len(faults) != 1 || len(faults[0].Related) != ResourcesMax-1 {
		t.Errorf("a closed chain: %d faults, want one cycle of everything", len(faults))
	}
}

// TestCyclesModel compares with a naive model: who comes after whom, step by step.
func TestCyclesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "resources")
		require, notify := map[string][]string{}, map[string][]string{}
		var after [8][8]bool
		for range rapid.IntRange(0, 14).Draw(t, "references") {
			from, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			if from == to {
				continue // Validate refuses it
			}
			after[from][to] = true
			if rapid.Bool().Draw(t, "notify") {
				notify[vertexName(from)] = append(notify[vertexName(from)], vertexName(to))
			} else {
				require[vertexName(to)] = append(require[vertexName(to)], vertexName(from))
			}
		}
		for by := range n {
			for from := range n {
				for to := range n {
					after[from][to] = after[from][to] || after[from][by] && after[by][to]
				}
			}
		}
		tangles := 0
		for v := range n {
			first := after[v][v]
			for other := range v {
				first = first && !(after[v][other] && after[other][v])
			}
			if first {
				tangles++
			}
		}
		if faults := Cycles(ordered(require, notify, n)); len(faults) != tangles {
			t.Fatalf("%d faults, want %d: %v", len(faults), tangles, faults)
		}
	})
}
