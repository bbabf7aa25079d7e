package file_test

import (
	"os"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

// TestIgnore: what is others' is as declared when the thing is made, and never touched afterwards, also when something else is.
func TestIgnore(t *testing.T) {
	needsRoot(t)
	g := newGround(t)
	declaredAs := func(content, mode string, ignore ...string) host.Resource {
		return g.bind(declare.Resource{Name: "f", Ignore: ignore,
			File: &declare.File{Path: g.path("f"), Content: content, Mode: declare.Mode(mode), Owner: "7", Group: "8"}})
	}
	is := func(when, content, mode, owner, group string) {
		t.Helper()
		if s := g.look("f"); s.content != content || s.mode != mode || s.owner != owner || s.group != group {
			t.Errorf("%s: %+v", when, s)
		}
	}
	ours, theirs := [2]string{userName(7), groupName(8)}, [2]string{userName(1), groupName(2)}
	all := []string{"content", "mode", "owner", "group"}
	g.made(declaredAs("one\n", "0640", all...))
	is("made", "one\n", "0640", ours[0], ours[1])

	g.write("f", "theirs\n", 0o600)
	g.must(os.Chown(g.path("f"), 1, 2))
	g.must(os.Chmod(g.path("f"), 0o604))
	if p := g.check(declaredAs("one\n", "0640", all...), host.Deep); !p.Empty() {
		t.Errorf("all is ignored: %+v", p)
	}
	g.converge(declaredAs("two\n", "0640", "owner", "group", "mode"))
	is("another content", "two\n", "0604", theirs[0], theirs[1])
	g.converge(declaredAs("three\n", "0644", "owner", "content"))
	is("mode and group", "two\n", "0644", theirs[0], ours[1])
	g.converge(declaredAs("three\n", "0644"))
	is("nothing is ignored", "three\n", "0644", ours[0], ours[1])

	g.must(os.Mkdir(g.path("d"), 0o700))
	g.must(os.Symlink("old", g.path("l")))
	g.must(os.Lchown(g.path("l"), 1, 2))
	g.converge(g.bind(declare.Resource{Name: "d", Ignore: []string{"mode"}, Directory: &declare.Directory{Path: g.path("d"), Mode: "0755", Owner: "7"}}))
	g.converge(g.bind(declare.Resource{Name: "l", Ignore: []string{"owner"}, Symlink: &declare.Symlink{Path: g.path("l"), Target: "new", Owner: "7", Group: "8"}}))
	if d, l := g.look("d"), g.look("l"); d.mode != "0700" || d.owner != ours[0] || l.owner != theirs[0] || l.group != ours[1] || l.target != "new" {
		t.Errorf("directory %+v, symlink %+v", d, l)
	}
}
