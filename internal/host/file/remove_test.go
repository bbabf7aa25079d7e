package file_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// kept reports whether the content store has a text.
func (g *ground) kept(text string) bool { return g.store.Has(content.DigestOf([]byte(text))) }

func TestOriginalOfAnything(t *testing.T) {
	g := newGround(t)
	large := strings.Repeat("\x00\xff binary \n", declare.BodyBytesMax/4)
	for _, c := range []struct {
		name    string
		arrange func()
	}{
		{"binary and large", func() { g.write("thing", large, 0o751) }},
		{"empty", func() { g.write("thing", "", 0o600) }},
		{"setuid", func() { g.write("thing", "x", 0); g.must(unix.Chmod(g.path("thing"), 0o4711)) }},
		{"symlink with odd target", func() { g.clear("thing"); g.must(os.Symlink("to\n\xff\x1b", g.path("thing"))) }},
		{"directory", func() { g.clear("thing"); g.must(os.Mkdir(g.path("thing"), 0o711)) }},
		{"nothing", func() { g.clear("thing") }},
	} {
		for _, r := range []declare.Resource{
			{File: &declare.File{Path: g.path("thing"), Content: "declared", Force: true}},
			{Directory: &declare.Directory{Path: g.path("thing"), Force: true}},
			{Symlink: &declare.Symlink{Path: g.path("thing"), Target: "declared", Force: true}},
		} {
			t.Run(c.name+" under "+string(r.Type()), func(t *testing.T) {
				c.arrange()
				before := g.look("thing")
				bound := g.bind(r)
				original, err := g.Original(t.Context(), bound)
				g.must(err)
				g.made(bound)
				g.must(g.Remove(t.Context(), bound, declare.OnRemoveRestore, original))
				if after := g.look("thing"); after != before {
					t.Errorf("restored to %.100v, want %.100v", after, before)
				}
			})
		}
	}
}

func TestOriginalRefuses(t *testing.T) {
	g := newGround(t)
	g.must(unix.Mkfifo(g.path("fifo"), 0o600))
	r := g.bindFile(declare.File{Path: g.path("fifo"), Force: true})
	if _, err := g.Original(t.Context(), r); code(err) != reason.TypeInTheWay {
		t.Errorf("a fifo could be put back: %v", err)
	}
	g.write("file", "old", 0o644)
	r = g.bindFile(declare.File{Path: g.path("file"), Content: "new"})
	original, err := g.Original(t.Context(), r)
	g.must(err)
	g.made(r)
	_, _, err = g.store.Trim(time.Now().Add(365*24*time.Hour), func(content.Digest) bool { return false })
	g.must(err)
	if err := g.Remove(t.Context(), r, declare.OnRemoveRestore, original); code(err) != reason.RestoreLost {
		t.Errorf("restored from nothing: %v", err)
	}
	if got := g.look("file"); got.content != "new" {
		t.Errorf("a restore that is not possible left %+v", got)
	}
	g.clear("file")
	g.must(os.Mkdir(g.path("file"), 0o755))
	if err := g.Remove(t.Context(), r, declare.OnRemoveRestore, original); code(err) != reason.TypeInTheWay || g.look("file").kind != "directory" {
		t.Errorf("restored in the place of something that neither of us made: %v", err)
	}
	if err := g.Remove(t.Context(), r, declare.OnRemoveRestore, []byte("{")); code(err) != reason.RestoreLost {
		t.Errorf("restored from garbage: %v", err)
	}
}

func TestDelete(t *testing.T) {
	g := newGround(t)
	file := func(name string) host.Resource {
		return g.bindFile(declare.File{Path: g.path(name), Content: "declared\n"})
	}
	directory := g.bindDirectory(declare.Directory{Path: g.path("directory")})
	for _, c := range []struct {
		name     string
		resource host.Resource
		arrange  func()
		code     reason.Code
		left     string // kind
		kept     string
		notKept  string
	}{
		{name: "as left", resource: file("a"), arrange: func() { g.write("a", "declared\n", 0o644) }, left: "absent", notKept: "declared\n"},
		{name: "edited", resource: file("b"), arrange: func() { g.write("b", "edited by hand\n", 0o644) }, left: "absent", kept: "edited by hand\n"},
		{name: "edited, same length", resource: file("c"), arrange: func() { g.write("c", "DECLARED\n", 0o644) }, left: "absent", kept: "DECLARED\n"},
		{name: "gone", resource: file("d"), arrange: func() {}, left: "absent"},
		{name: "way gone", resource: file("no/such/way"), arrange: func() {}, left: "absent"},
		{name: "became a directory", resource: file("e"), arrange: func() { g.must(os.Mkdir(g.path("e"), 0o755)) }, code: reason.TypeInTheWay, left: "directory"},
		{name: "became a symlink", resource: file("f"), arrange: func() { g.must(os.Symlink("x", g.path("f"))) }, code: reason.TypeInTheWay, left: "symlink"},
		{name: "full", resource: directory, arrange: func() { g.must(os.Mkdir(g.path("directory"), 0o755)); g.write("directory/entry", "", 0o644) }, code: reason.DirectoryNotEmpty, left: "directory"},
		{name: "empty again", resource: directory, arrange: func() { g.clear("directory/entry") }, left: "absent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.arrange()
			err := g.Remove(t.Context(), c.resource, declare.OnRemoveDelete, nil)
			path := c.resource.Watches()[0].Name
			if got := look(t, path); code(err) != c.code || got.kind != c.left {
				t.Errorf("%v, and left is %+v; want %v and %s", err, got, c.code, c.left)
			}
			if c.kept != "" && !g.kept(c.kept) {
				t.Errorf("%q was not kept", c.kept)
			}
			if c.notKept != "" && g.kept(c.notKept) {
				t.Errorf("%q was kept", c.notKept)
			}
		})
	}
	if err := g.Remove(t.Context(), directory, declare.OnRemoveKeep, nil); code(err) != reason.InternalFault {
		t.Errorf("a removal that keeps: %v", err)
	}
}

// Whatever a file is replaced by, its content is kept, and the note says as what.
func TestReplacedContentIsKept(t *testing.T) {
	g := newGround(t)
	for _, r := range []declare.Resource{
		{File: &declare.File{Path: g.path("thing"), Content: "declared"}},
		{File: &declare.File{Path: g.path("thing"), Content: "declared", InPlace: true}},
		{Directory: &declare.Directory{Path: g.path("thing"), Force: true}},
		{Symlink: &declare.Symlink{Path: g.path("thing"), Target: "declared", Force: true}},
	} {
		old := "replaced by a " + string(r.Type())
		g.write("thing", old, 0o644)
		res := g.made(g.bind(r))
		if want := content.DigestOf([]byte(old)).String(); !g.kept(old) || !strings.Contains(res.Note, want) {
			t.Errorf("%s: the note is %q", old, res.Note)
		}
		g.write("thing", "secret "+old, 0o600)
		res = g.made(g.bind(r))
		if !g.kept("secret "+old) || !strings.Contains(res.Note, "kept") || strings.Contains(res.Note, "sha256") {
			t.Errorf("secret %s: the note is %q", old, res.Note)
		}
	}
}

// A plan is void when its declaration has been replaced.
func TestDeclarationReplaced(t *testing.T) {
	g := newGround(t)
	f := declare.File{Path: g.path("file"), Content: "declared"}
	d := declared(declare.Resource{File: &f})
	d.Body = func() (declare.Resource, error) {
		return declare.Resource{File: &declare.File{Path: f.Path, Content: "replaced"}}, nil
	}
	r, err := g.Bind(t.Context(), d)
	g.must(err)
	if res := g.converge(r); code(res.Err) != reason.ConcurrentEdit || res.Changed || g.look("file").kind != "absent" {
		t.Errorf("applied: %+v", res)
	}
	if p := g.check(r, host.Explain); code(p.Err) != reason.ConcurrentEdit {
		t.Errorf("explained: %+v", p)
	}
}
