package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

func one(declare.ResourceType) string { return "one" }

// lookup is a host whose role is web.
var lookup = declare.Scope{NodeName: "web-1", Labels: map[string]string{"role": "web"}, Fact: func(string) (any, bool) { return nil, false }}.Lookup

// file is one file resource as text; more goes below it.
func file(name string, more ...string) string {
	text := fmt.Sprintf("    - name: %s\n      file: {path: /srv/%s, content: text of %s}\n", name, name, name)
	for _, m := range more {
		text += "      " + m + "\n"
	}
	return text
}

// declaration writes a NodeConfig of resources, and returns where.
func declaration(t testing.TB, resources ...string) []string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "site.yaml")
	text := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n" + strings.Join(resources, "")
	must(t, os.WriteFile(p, []byte(text), 0o600))
	return []string{p}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	st, err := store.Open(dir, time.Now())
	must(t, err)
	t.Cleanup(func() { st.Close() })
	return st
}

// reopen is what a restart of the agent sees.
func reopen(t testing.TB, st *store.Store, dir string) *store.Store {
	t.Helper()
	must(t, st.Close())
	return open(t, dir)
}

func declared(t testing.TB, st *store.Store, resources ...string) *State {
	t.Helper()
	d, err := Declared(declaration(t, resources...), st, lookup, one)
	must(t, err)
	return d
}

func commit(t testing.TB, st *store.Store, resources ...string) *State {
	t.Helper()
	d := declared(t, st, resources...)
	must(t, d.Commit(st))
	return d
}

// leaving lists the claims of the pending removals.
func leaving(t testing.TB, st *store.Store) string {
	t.Helper()
	list, err := st.Removals()
	must(t, err)
	return listed(list)
}

// listed lists the claims of removals.
func listed(list []store.Removal) string {
	var names []string
	for _, r := range list {
		names = append(names, r.Claim.ID+" "+string(r.OnRemove))
	}
	return strings.Join(names, ", ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestWhatLeavesIsNotedOnce(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	commit(t, st, file("a", "onRemove: delete"), file("b", "onRemove: restore"), file("c"), file("d", "onRemove: delete", `when: node.labels['role'] == "db"`))
	want(t, "at first", leaving(t, st), "")

	next := declared(t, st, file("e"))
	want(t, "before the commit", leaving(t, st), "")
	want(t, "of the state", listed(next.Removals), "/srv/a delete, /srv/b restore")
	if n := next.Compiled.Graph.Len(); n != 3 {
		t.Errorf("%d vertices, want one entry and two removals", n)
	}
	must(t, next.Commit(st))
	st = reopen(t, st, dir)
	want(t, "after a restart", leaving(t, st), "/srv/a delete, /srv/b restore")

	again := commit(t, st, file("e"), file("a"))
	want(t, "with a back", listed(again.Removals), "/srv/b restore")
	st = reopen(t, st, dir)
	want(t, "after a is back", leaving(t, st), "/srv/b restore")
	must(t, st.RemovalDone(declare.Claim{Kind: declare.ClaimPath, ID: "/srv/b"}))
	want(t, "after b is done", listed(declared(t, st, file("e"), file("a")).Removals), "")
}

// TestKilledInTheMiddleOfACommit: what was noted is noted, but the old state is still the active one.
func TestKilledInTheMiddleOfACommit(t *testing.T) {
	old := []string{file("a", "onRemove: delete"), file("b", "onRemove: delete")}
	for name, next := range map[string][]string{"goes on": {file("c")}, "goes back": old, "goes elsewhere": {file("a", "onRemove: delete")}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir)
			commit(t, st, old...)
			must(t, st.AddRemovals(declared(t, st, file("c")).leaving))
			st = reopen(t, st, dir)
			want(t, "while it is active", leaving(t, st), "")
			d := commit(t, st, next...)
			wanted := map[string]string{"goes on": "/srv/a delete, /srv/b delete", "goes back": "", "goes elsewhere": "/srv/b delete"}[name]
			want(t, "of the state", listed(d.Removals), wanted)
			want(t, "in the store", leaving(t, reopen(t, st, dir)), wanted)
		})
	}
}

func TestCommitOfWhatIsActiveWritesNothing(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	files := declaration(t, file("a"), file("b"))
	for i := range 2 {
		d, err := Declared(files, st, lookup, one)
		must(t, err)
		if active := d.Active(st); active != (i > 0) {
			t.Fatalf("round %d: active is %v", i, active)
		}
		if i > 0 {
			must(t, os.RemoveAll(filepath.Join(dir, "active"))) // a write would bring it back
		}
		must(t, d.Commit(st))
	}
	if _, err := os.Lstat(filepath.Join(dir, "active")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the active state was written again: %v", err)
	}
	// The same resources at other lines are not the active state: what they are shown with must be true.
	must(t, os.WriteFile(files[0], append([]byte("# a comment\n"), read(t, files[0])...), 0o600))
	if d, err := Declared(files, st, lookup, one); err != nil || d.Active(st) {
		t.Errorf("moved by a line: %v", err)
	}
}

func read(t testing.TB, p string) []byte {
	t.Helper()
	b, err := os.ReadFile(p)
	must(t, err)
	return b
}

func TestMistakesComeTogetherAndChangeNothing(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	commit(t, st, file("a", "onRemove: delete"))
	root := st.Active().Root()
	for name, resources := range map[string][]string{
		"two unknown fields": {file("a", "colour: red"), file("b", "taste: sour")},
		"two claims":         {file("a"), file("x"), file("y"), "    - name: z\n      file: {path: /srv/x}\n", "    - name: w\n      file: {path: /srv/y}\n"},
		"a cycle":            {file("a", "require: [b]"), file("b", "require: [a]")},
	} {
		_, err := Declared(declaration(t, resources...), st, lookup, one)
		var faults declare.Faults
		if !errors.As(err, &faults) || strings.HasPrefix(name, "two") && len(faults) != 2 || name == "a cycle" && faults[0].Code != reason.DependencyCycle {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st.Active().Root() != root || leaving(t, st) != "" {
		t.Error("a mistake changed the store")
	}
}

// TestLastGoodIsWhatWasCommitted: for any declaration, and what it replaced, the graph that is read back after a restart is the
// one that was committed.
func TestLastGoodIsWhatWasCommitted(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		st, err := store.Open(dir, time.Now())
		must(t, err)
		defer func() { st.Close() }()
		var last *State
		for range rapid.IntRange(1, 3).Draw(rt, "states") {
			last = commit(t, st, drawn(rt)...)
		}
		must(t, st.Close())
		st, err = store.Open(dir, time.Now())
		must(t, err)
		good, err := LastGood(st, lookup, one)
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := shape(good), shape(last); got != want {
			rt.Fatalf("read back:\n%swant:\n%s", got, want)
		}
		if !good.Active(st) || !good.Wants(last.Compiled.Graph) {
			rt.Fatal("the last good state is not the active one")
		}
	})
}

// drawn is a declaration of some files, each with its text, its end and its order.
func drawn(rt *rapid.T) []string {
	var resources []string
	var names []string
	for _, name := range []string{"a", "b", "c", "d"} {
		if !rapid.Bool().Draw(rt, "has "+name) {
			continue
		}
		more := []string{"onRemove: " + rapid.SampledFrom([]string{"keep", "delete", "restore"}).Draw(rt, "end")}
		if len(names) > 0 && rapid.Bool().Draw(rt, "ordered") {
			more = append(more, "require: ["+rapid.SampledFrom(names).Draw(rt, "after")+"]")
		}
		if rapid.Bool().Draw(rt, "conditional") {
			more = append(more, `when: node.labels['role'] == "`+rapid.SampledFrom([]string{"web", "db"}).Draw(rt, "role")+`"`)
		}
		names = append(names, name)
		resources = append(resources, file(name, more...))
	}
	if resources == nil {
		return []string{file("last")}
	}
	return resources
}

// shape is a state as text: every vertex with what is wanted of it and what it comes after.
func shape(d *State) string {
	var lines []string
	for i, v := range d.Compiled.Graph.Vertices {
		it := &d.Compiled.Items[i]
		var after []string
		for _, e := range d.Compiled.Graph.Before(converge.ID(i)) {
			after = append(after, string(d.Compiled.Graph.Vertices[e.From].Key))
		}
		slices.Sort(after)
		lines = append(lines, fmt.Sprintf("%s %x applies %v, removal %v, %s, after %v\n", v.Key, v.Digest[:4], !v.NotApplicable, it.Removal >= 0, it.OnRemove, after))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func TestBodiesOfAnotherStateAreRefused(t *testing.T) {
	st := open(t, t.TempDir())
	bodies := NewBodies(st)
	d := commit(t, st, file("a"), file("b"), "    - name: host\n      expand: true\n      file: {path: /srv/host, content: $(node.name)}\n")
	bodies.Swap(d)
	for i, it := range d.Compiled.Items {
		r, err := bodies.Read(core.Key(it.Claim), d.Compiled.Graph.Vertices[i].Digest)
		if err != nil || r.Title() != it.Title {
			t.Errorf("%s: %+v, %v", it.Title, r, err)
		}
		if it.Title == "file/host" && r.File.Content != "web-1" {
			t.Errorf("not expanded: %q", r.File.Content)
		}
	}
	digest := func(d *State, name string) converge.Digest {
		return d.Compiled.Graph.Vertices[d.Compiled.Graph.ID(converge.Key("path:/srv/"+name))].Digest
	}
	old := digest(d, "a")
	bodies.Swap(commit(t, st, "    - name: a\n      file: {path: /srv/a, content: another}\n"))
	for name, of := range map[string]converge.Digest{"a": old, "b": digest(d, "b"), "none": {}} {
		if _, err := bodies.Read(converge.Key("path:/srv/"+name), of); !reason.Is(err, reason.ConcurrentEdit) {
			t.Errorf("%s of the old state: %v", name, err)
		}
	}
}

// TestDamagedBodyIsNotEnforced: a body that is not what was written is an error, never another resource.
func TestDamagedBodyIsNotEnforced(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	d := commit(t, st, file("a"))
	p := filepath.Join(dir, "active")
	b := read(t, p)
	at := strings.Index(string(b), "text of a")
	if at < 0 {
		t.Fatal("the body is not in the active state")
	}
	b[at] = 'T'
	must(t, os.WriteFile(p, b, 0o600)) // in place: the store has it open
	bodies := NewBodies(st)
	bodies.Swap(d)
	if r, err := bodies.Read(converge.Key("path:/srv/a"), d.Compiled.Graph.Vertices[0].Digest); err == nil {
		t.Errorf("a damaged body was read: %+v", r.File)
	}
	if _, err := LastGood(st, lookup, one); err == nil {
		t.Error("a damaged state is the last good one")
	}
}

// TestWantsSeesWhatFactsChange: another role makes another resource apply, and another name another content.
func TestWantsSeesWhatFactsChange(t *testing.T) {
	st := open(t, t.TempDir())
	files := declaration(t, file("a", "when: node.labels['role'] == 'web'"), "    - name: b\n      expand: true\n      file: {path: /srv/b, content: $(node.name)}\n")
	on := func(name, role string) (*State, declare.Lookup) {
		at := declare.Scope{NodeName: name, Labels: map[string]string{"role": role}, Fact: func(string) (any, bool) { return nil, false }}.Lookup
		d, err := Declared(files, st, at, one)
		must(t, err)
		return d, at
	}
	web, at := on("web-1", "web")
	for other, want := range map[[2]string]bool{{"web-1", "web"}: true, {"web-2", "web"}: false, {"web-1", "db"}: false} {
		d, _ := on(other[0], other[1])
		if d.Wants(web.Compiled.Graph) != want {
			t.Errorf("%v wants what web-1 does: %v, want %v", other, !want, want)
		}
	}
	if !SameFacts(at, at) {
		t.Error("a host's facts are not its own")
	}
	for _, f := range declare.FactNames() {
		known := declare.Scope{NodeName: "web-1", Fact: func(name string) (any, bool) { return "known", name == f.Name }}.Lookup
		if SameFacts(at, known) {
			t.Errorf("%s became known, and nobody notices", f.Name)
		}
	}
}
