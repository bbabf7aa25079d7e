package assign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

func file(path, content string) declare.Resource {
	return declare.Resource{Name: path[1:], File: &declare.File{Path: path, Content: content}}
}

// fleet is a view with configs of one revision r, which may go everywhere.
func fleet(t *testing.T, configs map[string][]declare.Resource, nodes ...Node) View {
	t.Helper()
	v := View{Nodes: nodes, Revisions: map[RevisionID]*Revision{}}
	for id, resources := range configs {
		r, err := NewRevision(resources)
		if err != nil {
			t.Fatal(err)
		}
		v.Revisions[RevisionID{id, "r", ""}] = r
		c := Config{ID: id, Kind: declare.KindClusterNodeConfig, Newest: Target{"r", 1100, ""}, Release: map[string]Target{}}
		for _, n := range nodes {
			c.Release[n.Name] = c.Newest
		}
		v.Configs = append(v.Configs, c)
	}
	return v
}

func rows(ids ...string) []Row {
	var list []Row
	for _, id := range ids {
		list = append(list, Row{1100, id, "r", ""})
	}
	return list
}

// The older stays whole, a fresh host gets neither, and both say so.
func TestTwoConfigsInConflict(t *testing.T) {
	old := Node{Name: "old", Assigned: rows("a")}
	v := fleet(t, map[string][]declare.Resource{
		"a": {file("/etc/motd", "welcome\nto a"), file("/a", "")},
		"b": {file("/etc/motd", "welcome\nto b"), file("/b", "")},
		"c": {file("/etc/motd", "welcome\nto b"), file("/c", "")},
	}, old, Node{Name: "fresh"})
	v.Configs = slices.DeleteFunc(v.Configs, func(c Config) bool { return c.ID == "c" })
	d := decide(t, v)
	if !slices.Equal(d.Rows["old"], rows("a")) || len(d.Rows["fresh"]) > 0 {
		t.Errorf("rows are %v", d.Rows)
	}
	want := Difference{"file.content, line 2", `"to b"`, `"to a"`}
	told := d.Told["b"].Conflicts
	if len(told) != 1 || told[0].Difference != want || told[0].Claim.ID != "/etc/motd" || told[0].InPlace || !slices.Equal(told[0].Places.Nodes, []string{"fresh", "old"}) {
		t.Errorf("b is told %+v", told)
	}
	told = d.Told["a"].Conflicts
	if len(told) != 2 || told[0].InPlace || told[0].Places.Count != 1 || !told[1].InPlace || !slices.Equal(told[1].Places.Nodes, []string{"old"}) {
		t.Errorf("a is told %+v", told)
	}
	if !strings.Contains(told[0].String(), `want different things of path:/etc/motd at equal priority 1100: file.content, line 2 is "to a" here and "to b" there`) {
		t.Errorf("in words: %s", told[0])
	}
	if len(d.Refused) != 3 {
		t.Errorf("refused are %+v", d.Refused)
	}
}

// Equal desires are one, and another priority is no conflict.
func TestNoConflict(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "1")}, "b": {file("/x", "1")}, "c": {file("/x", "2")}}, Node{Name: "n"})
	for i := range v.Configs {
		if c := &v.Configs[i]; c.ID == "c" {
			c.Newest.Priority = 1200
			c.Release["n"] = c.Newest
		}
	}
	d := decide(t, v)
	if got := fmt.Sprint(d.Rows["n"]); got != "[{1200 c r } {1100 a r } {1100 b r }]" || len(d.Told) > 0 {
		t.Errorf("%v, told %v", got, d.Told)
	}
}

// What a rollout has not let go on yet keeps a config that is new on the node away all the same.
func TestFreshHostGetsNeitherBeforeTheRollout(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "1")}, "b": {file("/x", "2")}}, Node{Name: "n"})
	for i := range v.Configs {
		if v.Configs[i].ID == "b" {
			v.Configs[i].Release = nil
		}
	}
	if d := decide(t, v); len(d.Rows["n"]) > 0 || len(d.Refused) != 2 || len(d.Told["a"].Conflicts) != 1 || len(d.Told["b"].Conflicts) != 1 {
		t.Errorf("%+v", d)
	}
}

// What is refused on a node that has nothing does not depend on which of its targets the rollout tried.
func TestRefusedIsAboutAllTargets(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "1")}, "b": {file("/x", "2")}}, Node{Name: "n", Assigned: rows("a")})
	for name, content := range map[string]string{"worse": "3", "good": "1"} {
		r, err := NewRevision([]declare.Resource{file("/x", content)})
		if err != nil {
			t.Fatal(err)
		}
		v.Revisions[RevisionID{"b", name, ""}] = r
	}
	for i := range v.Configs {
		if c := &v.Configs[i]; c.ID == "b" {
			c.Proven = Target{"worse", 1100, ""}
			for _, release := range []string{"", "r", "worse"} {
				c.Release["n"] = Target{release, 1100, ""}
				if d := decide(t, v); len(d.Refused) != 2 {
					t.Errorf("with %q let go on: %+v", release, d.Refused)
				}
			}
			c.Proven = Target{"good", 1100, ""}
			if d := decide(t, v); len(d.Refused) != 2 || len(d.Rows["n"]) != 1 {
				t.Errorf("%+v", d)
			}
			c.Release["n"] = c.Proven
			if d := decide(t, v); len(d.Rows["n"]) != 2 {
				t.Errorf("what is proven collides with nothing: %+v", d)
			}
		}
	}
}

func TestEnvironment(t *testing.T) {
	prod := declare.Selector{MatchLabels: map[string]string{"role": "web"}}
	for _, c := range []struct {
		kind, namespace, environment, role string
		want                               bool
	}{
		{declare.KindNodeConfig, "prod", "prod", "web", true},
		{declare.KindNodeConfig, "prod", "prod", "db", false},
		{declare.KindNodeConfig, "prod", "qa", "web", false},
		{declare.KindNodeConfig, "", "", "web", false},
		{declare.KindClusterNodeConfig, "", "", "web", true},
		{declare.KindClusterNodeConfig, "", "qa", "web", true},
		{declare.KindClusterNodeConfig, "", "qa", "db", false},
	} {
		config := Config{Kind: c.kind, Namespace: c.namespace, Selector: prod}
		if got := config.Selects(&Node{Environment: c.environment, Labels: map[string]string{"role": c.role}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Above 256 layers, who is there stays; of the others the highest priority and then the oldest get in.
func TestCrowdedNode(t *testing.T) {
	configs := map[string][]declare.Resource{}
	for i := range catalog.LayersMax + 4 {
		configs[fmt.Sprintf("c%03d", i)] = []declare.Resource{file(fmt.Sprintf("/f%d", i), "")}
	}
	v := fleet(t, configs, Node{Name: "n", Assigned: rows("c259")})
	for i := range v.Configs {
		c := &v.Configs[i]
		c.Created = time.Unix(int64(1000-i), 0)
		switch c.ID {
		case "c000":
			c.Newest.Priority = 1000
		case "c001", "c002", "c003":
			c.Created = time.Unix(2000, 0)
		}
		c.Release["n"] = c.Newest
	}
	d := decide(t, v)
	var out []string
	for _, r := range d.Refused {
		if r.Why != Crowded || d.Told[r.Config].Crowded.Count != 1 {
			t.Errorf("%+v, told %+v", r, d.Told[r.Config])
		}
		out = append(out, r.Config)
	}
	if len(d.Rows["n"]) != catalog.LayersMax || !slices.Equal(out, []string{"c000", "c001", "c002", "c003"}) {
		t.Errorf("%d rows, without %v", len(d.Rows["n"]), out)
	}
	v.Nodes[0].Assigned = d.Rows["n"]
	if again := decide(t, v); !slices.Equal(again.Rows["n"], d.Rows["n"]) || len(again.Refused) != 4 {
		t.Errorf("again %d rows, refused %v", len(again.Rows["n"]), again.Refused)
	}
}

// Nobody knows what an unknown revision claims: it stays where it is, and nothing of its priority joins it.
func TestUnknownRevision(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/a", "")}, "b": {file("/b", "")}}, Node{Name: "n", Assigned: rows("a")}, Node{Name: "o"})
	delete(v.Revisions, RevisionID{"a", "r", ""})
	d := decide(t, v)
	if !slices.Equal(d.Rows["n"], rows("a")) || !slices.Equal(d.Rows["o"], rows("b")) || !slices.Equal(d.Unknown, []RevisionID{{"a", "r", ""}}) {
		t.Errorf("%+v", d)
	}
	if told := d.Told["b"].Conflicts; len(told) != 1 || !strings.Contains(told[0].String(), "it is not known what") {
		t.Errorf("b is told %+v", told)
	}
}

// No decision leaves two rows that collide; if there are some, the config that was made first stays, and that is told.
func TestAssignedRowsThatCollide(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "1")}, "b": {file("/x", "2")}}, Node{Name: "n", Assigned: rows("a", "b")})
	for i := range v.Configs {
		if v.Configs[i].ID == "a" {
			v.Configs[i].Created = time.Unix(5, 0)
		}
	}
	d := decide(t, v)
	if !slices.Equal(d.Rows["n"], rows("b")) || len(d.Told["a"].Conflicts) != 1 || len(d.Told["b"].Conflicts) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestToldIsBounded(t *testing.T) {
	configs := map[string][]declare.Resource{}
	var nodes []Node
	for i := range 30 {
		configs[fmt.Sprintf("c%02d", i)] = []declare.Resource{file("/x", fmt.Sprint(i))}
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%02d", i)})
	}
	for id, told := range decide(t, fleet(t, configs, nodes...)).Told {
		if p := told.Conflicts[0].Places; len(told.Conflicts) != ConflictsMax || told.More != 29-ConflictsMax || len(p.Nodes) != PlacesMax || p.Count != 30 {
			t.Errorf("%s: %d conflicts and %d more, %+v", id, len(told.Conflicts), told.More, p)
		}
	}
}

func TestDifference(t *testing.T) {
	secret := func(content string) *declare.File {
		return &declare.File{Path: "/x", Content: content, Mode: "0600"}
	}
	enabled := true
	for name, c := range map[string]struct {
		a, b declare.Resource
		want Difference
	}{
		"type":    {file("/x", ""), declare.Resource{Directory: &declare.Directory{Path: "/x"}}, Difference{"type", "file", "directory"}},
		"private": {declare.Resource{File: secret("one")}, declare.Resource{File: secret("two")}, Difference{"file.content", "(private)", "(private)"}},
		"half private": {declare.Resource{File: secret("one")}, file("/x", "two"),
			Difference{"file.content", "(private)", "(private)"}},
		"mode":   {declare.Resource{File: &declare.File{Path: "/x", Mode: "0640"}}, file("/x", ""), Difference{"file.mode", `"0640"`, "(not set)"}},
		"longer": {file("/x", "one"), file("/x", "one\ntwo"), Difference{"file.content, line 2", "(not set)", `"two"`}},
		"when":   {declare.Resource{When: "a", Package: &declare.Package{}}, declare.Resource{Package: &declare.Package{}}, Difference{"when", `"a"`, "(not set)"}},
		"flag": {declare.Resource{Service: &declare.Service{Enabled: &enabled}}, declare.Resource{Service: &declare.Service{}},
			Difference{"service.enabled", "true", "(not set)"}},
		"long":  {file("/x", strings.Repeat("é", 100)), file("/x", ""), Difference{"file.content", `"` + strings.Repeat("é", 39) + "...", "(not set)"}},
		"names": {declare.Resource{Name: "a", Package: &declare.Package{}}, declare.Resource{Name: "b", Package: &declare.Package{}}, Difference{}},
	} {
		if got, err := DifferenceOf(c.a, c.b); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// configOf finds a config of a view.
func configOf(v *View, id string) *Config {
	return &v.Configs[slices.IndexFunc(v.Configs, func(c Config) bool { return c.ID == id })]
}

// Two configs that swap what they claim go on together. The older chooses where; until then the younger is refused, as what comes later.
func TestSwap(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "a")}, "b": {file("/y", "b")}},
		Node{Name: "n", Assigned: rows("a", "b")}, Node{Name: "o", Assigned: rows("a", "b")})
	for id, path := range map[string]string{"a": "/y", "b": "/x"} {
		r, err := NewRevision([]declare.Resource{file(path, id)})
		if err != nil {
			t.Fatal(err)
		}
		v.Revisions[RevisionID{id, "s", ""}] = r
		c := configOf(&v, id)
		c.Newest, c.Release = Target{"s", 1100, ""}, map[string]Target{}
	}
	a, b := configOf(&v, "a"), configOf(&v, "b")
	refusals := func(nodes ...string) (all []Refusal) {
		for _, n := range nodes {
			all = append(all, Refusal{n, "b", b.Newest, Later})
		}
		return all
	}
	for _, c := range []struct {
		a, b     []string // where they are let go on
		refused  []Refusal
		together int
		moved    []string
	}{
		{nil, nil, refusals("n", "o"), 0, nil},
		{nil, []string{"o"}, refusals("n", "o"), 0, nil},
		{[]string{"n"}, nil, refusals("o"), 2, nil},
		{[]string{"n"}, []string{"o"}, refusals("o"), 2, nil},
		{[]string{"n"}, []string{"n"}, refusals("o"), 0, []string{"n"}},
	} {
		a.Release, b.Release = map[string]Target{}, map[string]Target{}
		for _, n := range c.a {
			a.Release[n] = a.Newest
		}
		for _, n := range c.b {
			b.Release[n] = b.Newest
		}
		d := decide(t, v)
		if !slices.Equal(d.Refused, c.refused) || len(d.Together) != c.together {
			t.Errorf("%v and %v: refused %v, together %v", c.a, c.b, d.Refused, d.Together)
		}
		for _, n := range v.Nodes {
			if moved := d.Rows[n.Name][0].Revision == "s" && d.Rows[n.Name][1].Revision == "s"; moved != slices.Contains(c.moved, n.Name) {
				t.Errorf("%v and %v: %s has %v", c.a, c.b, n.Name, d.Rows[n.Name])
			}
		}
	}
}

// What one gives up another one takes: it waits, and is told so, but not for good.
func TestTakenOver(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/x", "a")}, "b": {file("/x", "b")}}, Node{Name: "n", Assigned: rows("a")})
	none, err := NewRevision(nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Revisions[RevisionID{"a", "without", ""}] = none
	a := configOf(&v, "a")
	a.Newest, a.Release = Target{"without", 1100, ""}, nil
	if d := decide(t, v); len(d.Refused) != 1 || d.Refused[0].Why != Later || d.Refused[0].Config != "b" || len(d.Told["b"].Conflicts) != 1 {
		t.Errorf("%+v", d)
	}
	a.Release = map[string]Target{"n": a.Newest}
	if d := decide(t, v); len(d.Refused) != 0 || len(d.Rows["n"]) != 2 || len(d.Told) != 0 {
		t.Errorf("%+v", d)
	}
}

// Of two that are there and want to go on to what collides, the older goes, whichever is let go on first; also where a config gets what is
// proven, what is newest stays refused.
func TestOlderGoesFirst(t *testing.T) {
	v := fleet(t, map[string][]declare.Resource{"a": {file("/a", "")}, "b": {file("/b", "")}}, Node{Name: "n", Assigned: rows("a", "b")}, Node{Name: "fresh", Assigned: rows("a")})
	for _, id := range []string{"a", "b"} {
		r, err := NewRevision([]declare.Resource{file("/x", id)})
		if err != nil {
			t.Fatal(err)
		}
		v.Revisions[RevisionID{id, "x", ""}] = r
		c := configOf(&v, id)
		c.Proven, c.Newest, c.Release = c.Newest, Target{"x", 1100, ""}, nil
	}
	b := configOf(&v, "b")
	for _, release := range []map[string]Target{nil, {"n": b.Newest, "fresh": b.Newest}, {"fresh": b.Proven}} {
		b.Release = release
		d := decide(t, v)
		want := []Refusal{{"fresh", "b", b.Newest, Conflicting}, {"n", "b", b.Newest, Conflicting}}
		if !slices.Equal(d.Refused, want) || !slices.Equal(d.Rows["n"], rows("a", "b")) {
			t.Errorf("with %v: %+v", release, d)
		}
	}
}

// Contents from elsewhere are compared as they are, and not told. What is not known stays where it is.
func TestContentsFromElsewhere(t *testing.T) {
	taken := func() []declare.Resource {
		f := &declare.File{Path: "/x", ContentFrom: &declare.ContentSource{ConfigMap: &declare.KeySelector{Name: "m", Key: "k"}}}
		return []declare.Resource{{Name: "x", File: f}}
	}
	v := fleet(t, map[string][]declare.Resource{"a": nil, "b": nil}, Node{Name: "n"})
	for _, id := range []string{"a", "b"} {
		for _, root := range []string{"old", "new", "unknown"} {
			r, err := NewRevisionWith(taken(), func(declare.Claim) (catalog.Desired, bool) {
				return catalog.Desired{Resource: file("/x", root)}, root != "unknown"
			})
			if err != nil {
				t.Fatal(err)
			}
			v.Revisions[RevisionID{id, "r", root}] = r
		}
	}
	a, b := configOf(&v, "a"), configOf(&v, "b")
	for _, c := range []struct {
		a, b string
		both bool
	}{{"old", "old", true}, {"old", "new", false}, {"unknown", "unknown", true}, {"unknown", "new", false}} {
		a.Newest, b.Newest = Target{"r", 1100, c.a}, Target{"r", 1100, c.b}
		a.Release, b.Release = map[string]Target{"n": a.Newest}, map[string]Target{"n": b.Newest}
		v.Nodes[0].Assigned = nil
		d := decide(t, v)
		if both := len(d.Rows["n"]) == 2; both != c.both {
			t.Errorf("%+v: %+v", c, d)
		}
		for _, told := range d.Told {
			if told.Conflicts[0].Difference != (Difference{"file.content", "(private)", "(private)"}) {
				t.Errorf("%+v: told %+v", c, told)
			}
		}
		v.Nodes[0].Assigned = []Row{{1100, "a", "r", c.a}, {1100, "b", "r", c.b}}
		if d, stays := decide(t, v), c.both || c.a == "unknown"; (len(d.Rows["n"]) == 2) != stays {
			t.Errorf("%+v in place: %+v", c, d)
		}
	}
}
