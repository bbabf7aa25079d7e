package core

import (
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// scope is a host for tests.
var scope = declare.Scope{NodeName: "web-1", Labels: map[string]string{"role": "web"}, Fact: func(name string) (any, bool) {
	if name == "facts.cpu.count" {
		return int64(2), true
	}
	return nil, false
}}

// input is the input of declarations that must be right; each text is the body of a config, named a, b, ...
func input(t testing.TB, specs ...string) Input {
	t.Helper()
	var docs []declare.Document
	for i, spec := range specs {
		name := string(rune('a' + i))
		read, faults := declare.Read(name+".yaml", []byte("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: "+name+"}\nspec:\n"+spec))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for j := range read {
			if faults := read[j].Validate(); len(faults) > 0 {
				t.Fatal(faults)
			}
		}
		docs = append(docs, read...)
	}
	entries, faults := catalog.Resolve(docs)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return Input{Entries: entries, Lookup: scope.Lookup, Lane: func(declare.ResourceType) string { return "lane" }}
}

func compile(t testing.TB, in Input) *Compiled {
	t.Helper()
	c, faults := Compile(in)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return c
}

// edges lists what title comes after, "other (kind)", sorted.
func (c *Compiled) edges(title string) []string {
	var list []string
	for i := range c.Items {
		if c.Items[i].Title != title {
			continue
		}
		for _, e := range c.Graph.Before(converge.ID(i)) {
			list = append(list, c.Items[e.From].Title+" ("+e.Kind.String()+")")
		}
	}
	slices.Sort(list)
	return list
}

func TestCompileOrder(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: nginx-package
    package: {package: nginx}
  - name: etc
    directory: {path: /etc}
  - name: conf.d
    directory: {path: /etc/nginx/conf.d}
  - name: site
    file: {path: /etc/nginx/conf.d/site.conf}
    notify: [nginx]
  - name: unit
    file: {path: /etc/systemd/system/nginx.service}
  - name: drop-in
    file: {path: /etc/systemd/system/nginx.service.d/limits.conf}
  - name: nginx
    service: {}
    require: [etc]
`))
	for title, want := range map[string][]string{
		"file/site":        {"directory/conf.d (automatic)", "package/nginx-package (automatic)"},
		"directory/conf.d": {"directory/etc (automatic)", "package/nginx-package (automatic)"},
		"service/nginx": {"directory/etc (require)", "file/drop-in (automatic)", "file/site (notify)", "file/unit (automatic)",
			"package/nginx-package (automatic)"},
		"directory/etc": nil,
	} {
		if got := c.edges(title); !slices.Equal(got, want) {
			t.Errorf("%s comes after %q, want %q", title, got, want)
		}
	}
}

// An explicit order against an automatic one wins.
func TestCompileAutomaticEdgeYields(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: dir
    directory: {path: /srv/app}
    require: [marker]
  - name: marker
    file: {path: /srv/app/marker}
`))
	if got := c.edges("file/marker"); len(got) != 0 {
		t.Errorf("file/marker comes after %q: its parent directory was to come after it", got)
	}
	if got := c.Graph.Dropped(); len(got) != 1 || got[0].Why != declare.ParentDirectory {
		t.Errorf("dropped %+v, want the parent directory", got)
	}
}

// What is there for the failure of something does not wait for it to succeed, also where its path is below.
func TestCompileRescueDoesNotWait(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: app
    archive: {path: /opt/app, from: {path: /srv/app.tar.gz}}
    onFailure: [fallback]
  - name: fallback
    exec: {command: [/bin/true], creates: /opt/app/run}
`))
	fallback := slices.IndexFunc(c.Items, func(i Item) bool { return i.Title == "exec/fallback" })
	var kinds []converge.EdgeKind
	for _, e := range c.Graph.Before(converge.ID(fallback)) {
		kinds = append(kinds, e.Kind)
	}
	slices.Sort(kinds)
	if want := []converge.EdgeKind{converge.Rescue, converge.Order}; !slices.Equal(kinds, want) {
		t.Errorf("it comes after the archive by edges of the kinds %v, want %v", kinds, want)
	}
}

// TestCompileRepositories wants every repository before every package, and that one that needs a package itself comes after it.
func TestCompileRepositories(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: nginx
    package: {}
  - name: gnupg
    package: {}
  - name: ca-certificates
    package: {}
  - name: own
    repository: {apt: {uris: [http://x/], suites: [./]}}
    require: [gnupg]
`, `  resources:
  - name: other
    repository: {state: absent, apt: {}}
  - name: curl
    package: {}
`))
	for title, want := range map[string][]string{
		"package/nginx":           {"repository/other (automatic)", "repository/own (automatic)"},
		"package/curl":            {"repository/other (automatic)", "repository/own (automatic)"},
		"package/gnupg":           {"repository/other (automatic)"},
		"package/ca-certificates": nil,
		"repository/own":          {"package/ca-certificates (automatic)", "package/gnupg (require)"},
		"repository/other":        {"package/ca-certificates (automatic)"},
	} {
		if got := c.edges(title); !slices.Equal(got, want) {
			t.Errorf("%s comes after %v, want %v", title, got, want)
		}
	}
	for _, e := range c.Graph.Before(0) {
		if e.Kind != converge.Order || e.Why != "repositories before packages" {
			t.Errorf("why: %+v", e)
		}
	}
}

func TestCompileExplainsCycle(t *testing.T) {
	_, faults := Compile(input(t, `  resources:
  - name: one
    file: {path: /one}
    require: [two]
  - name: two
    file: {path: /two}
    require: [three]
  - name: three
    file: {path: /three}
    require: [one]
`))
	if len(faults) != 1 {
		t.Fatalf("faults %v, want one", faults)
	}
	f := faults[0]
	if f.Code != reason.DependencyCycle || f.File != "a.yaml" || f.Line == 0 || len(f.Related) != 2 || f.Related[0].Line == 0 {
		t.Errorf("fault %+v: want a cycle with a place for each of its three", f)
	}
	for _, edge := range []string{"file/one requires file/two", "file/two requires file/three", "file/three requires file/one"} {
		if !strings.Contains(f.Message, edge) {
			t.Errorf("%q does not say %q", f.Message, edge)
		}
	}
}

// Two configs that are right by themselves may close a cycle together, when one wins what the other refers to. That is
// nobody's declaration, so it yields.
func TestCompileCrossCycleYields(t *testing.T) {
	a := "  priority: 20\n  resources:\n  - name: x\n    file: {path: /x}\n  - name: y\n    file: {path: /y}\n    require: [x]\n"
	b := "  priority: 30\n  resources:\n  - name: x\n    file: {path: /x, mode: \"0600\"}\n    require: [y]\n  - name: y\n    file: {path: /y}\n"
	c := "  priority: 40\n  resources:\n  - name: y\n    file: {path: /y, mode: \"0600\"}\n    require: [z]\n  - name: z\n    file: {path: /z}\n"
	compiled := compile(t, input(t, a, b, c))
	if got := compiled.edges("file/x"); !slices.Equal(got, []string{"file/y (automatic)"}) {
		t.Errorf("file/x comes after %q, want file/y, as of config b whose y another has won", got)
	}
}

// Of what configs tell each other, no more yields than closes a cycle: two that do not fit together cost others nothing.
func TestCompileOnlyWhatClosesACycleYields(t *testing.T) {
	piece := "  priority: 20\n  resources:\n  - name: p\n    fragment: {path: /f, content: piece}\n    notify: [s]\n  - name: s\n    service: {}\n    notify: [t]\n  - name: t\n    service: {}\n"
	whole := "  priority: 30\n  resources:\n  - name: f\n    file: {path: /f, fragments: true}\n    require: [t]\n  - name: t\n    service: {enabled: false}\n"
	teller := "  priority: 20\n  resources:\n  - name: u\n    file: {path: /u}\n    notify: [v]\n  - name: v\n    service: {}\n"
	told := "  priority: 30\n  resources:\n  - name: v\n    service: {enabled: false}\n"
	c := compile(t, input(t, piece, whole, teller, told))
	if got := c.edges("service/v"); !slices.Equal(got, []string{"file/u (notify)"}) {
		t.Errorf("service/v comes after %q, want file/u, which has nothing to do with the cycle of others", got)
	}
	if n := len(c.edges("service/s")) + len(c.edges("service/t")); n != 1 {
		t.Errorf("service/s comes after %q and service/t after %q: one of the two yields", c.edges("service/s"), c.edges("service/t"))
	}

	own := "  resources:\n  - name: one\n    file: {path: /one}\n    require: [two]\n  - name: two\n    file: {path: /two}\n    require: [one]\n"
	if _, faults := Compile(input(t, piece, whole, own)); len(faults) != 1 || !strings.Contains(faults[0].Message, "file/one requires file/two") {
		t.Errorf("faults %v, want the cycle of one config and no other", faults)
	}
}

func TestCompileWhenAndExpand(t *testing.T) {
	c := compile(t, input(t, `  resources:
  - name: big
    file: {path: /big}
    when: facts.cpu.count > 8
  - name: here
    file: {path: /here, content: "I am $(node.name), $(node.labels['role']), not $$(me)"}
    expand: true
  - name: plain
    file: {path: /plain, content: "$(node.name)"}
  - name: nowhere
    file: {path: /nowhere, content: "$(facts.hostname)"}
    expand: true
`))
	item := func(name string) (*Item, *converge.Vertex) {
		at := slices.IndexFunc(c.Items, func(it Item) bool { return it.Title == "file/"+name })
		return &c.Items[at], &c.Graph.Vertices[at]
	}
	if it, v := item("big"); !v.NotApplicable || it.When != "facts.cpu.count > 8" {
		t.Errorf("big: %+v, applicable %v", it, !v.NotApplicable)
	}
	if it, _ := item("here"); it.Resource.File.Content != "I am web-1, web, not $(me)" {
		t.Errorf("here: %q", it.Resource.File.Content)
	}
	if it, _ := item("plain"); it.Resource.File.Content != "$(node.name)" {
		t.Errorf("plain: %q", it.Resource.File.Content)
	}
	if it, v := item("nowhere"); it.Err == nil || v.NotApplicable {
		t.Errorf("nowhere: error %v: a fact that the host does not know must be said", it.Err)
	}
}

// A digest follows what is wanted here: it changes with an expanded fact, not with one that the resource does not use.
func TestCompileDigestFollowsFacts(t *testing.T) {
	in := input(t, "  resources:\n  - name: f\n    file: {path: /f, content: $(node.name)}\n    expand: true\n  - name: g\n    file: {path: /g}\n")
	before := compile(t, in)
	other := scope
	other.NodeName = "web-2"
	in.Lookup = other.Lookup
	after := compile(t, in)
	if before.Graph.Vertices[0].Digest == after.Graph.Vertices[0].Digest {
		t.Error("another node name left the digest of what it is expanded into")
	}
	if before.Graph.Vertices[1].Digest != after.Graph.Vertices[1].Digest {
		t.Error("another node name changed the digest of what does not use it")
	}
}

// Removals run in the reverse of the order that they once had.
func TestCompileReversesRemovals(t *testing.T) {
	in := input(t, "  resources:\n  - name: other\n    file: {path: /other}\n")
	claim := func(p string) declare.Claim { return declare.Claim{Kind: declare.ClaimPath, ID: p} }
	in.Removals = []Removal{
		{Claim: claim("/d"), Title: "directory/d", Type: declare.TypeDirectory, OnRemove: declare.OnRemoveDelete},
		{Claim: claim("/d/f"), Title: "file/f", Type: declare.TypeFile, OnRemove: declare.OnRemoveDelete, After: []declare.Claim{claim("/d"), claim("/other")}},
	}
	c := compile(t, in)
	if got := c.edges("directory/d"); !slices.Equal(got, []string{"file/f (automatic)"}) {
		t.Errorf("the removal of directory/d comes after %q, want that of file/f", got)
	}
	if got := c.edges("file/other"); len(got) != 0 {
		t.Errorf("file/other, which stays, comes after %q", got)
	}
	for i, it := range c.Items {
		if (it.Removal >= 0) == (it.Entry >= 0) {
			t.Errorf("item %d is an entry %d and a removal %d", i, it.Entry, it.Removal)
		}
	}
}
