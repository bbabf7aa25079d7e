package file_test

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func TestCheckRefuses(t *testing.T) {
	g := newGround(t)
	g.must(os.Mkdir(g.path("full"), 0o755))
	g.write("full/entry", "", 0o644)
	g.must(os.Mkdir(g.path("empty"), 0o755))
	g.write("file", "a file\n", 0o644)
	g.must(os.Symlink("file", g.path("symlink")))
	g.must(unix.Mkfifo(g.path("fifo"), 0o600))
	file := func(f declare.File) declare.Resource { f.Path = g.path(f.Path); return declare.Resource{File: &f} }
	directory := func(d declare.Directory) declare.Resource {
		d.Path = g.path(d.Path)
		return declare.Resource{Directory: &d}
	}
	symlink := func(l declare.Symlink) declare.Resource {
		l.Path = g.path(l.Path)
		return declare.Resource{Symlink: &l}
	}
	for _, c := range []struct {
		name     string
		resource declare.Resource
		code     reason.Code
		words    string
	}{
		{"parent missing", file(declare.File{Path: "no/file"}), reason.ParentMissing, g.path("no")},
		{"parent is a file", file(declare.File{Path: "file/file"}), reason.TypeInTheWay, "file"},
		{"directory in the way", file(declare.File{Path: "empty"}), reason.TypeInTheWay, "make file " + g.path("empty") + ": something of another type is in the way: a directory is there"},
		{"symlink in the way", file(declare.File{Path: "symlink"}), reason.TypeInTheWay, "a symlink is there"},
		{"fifo in the way", file(declare.File{Path: "fifo"}), reason.TypeInTheWay, "a fifo is there"},
		{"directory with entries", file(declare.File{Path: "full", Force: true}), reason.DirectoryNotEmpty, "make file " + g.path("full")},
		{"in place of a symlink", file(declare.File{Path: "symlink", Force: true, InPlace: true}), reason.TypeInTheWay, "a symlink is there"},
		{"file in the way of a directory", directory(declare.Directory{Path: "file"}), reason.TypeInTheWay, "make directory " + g.path("file") + ": something of another type is in the way: a file is there"},
		{"symlink in the way of a directory", directory(declare.Directory{Path: "symlink"}), reason.TypeInTheWay, "a symlink is there"},
		{"file in the way of a symlink", symlink(declare.Symlink{Path: "file", Target: "x"}), reason.TypeInTheWay, "make symlink " + g.path("file") + ": something of another type is in the way: a file is there"},
		{"directory in the way of a symlink", symlink(declare.Symlink{Path: "full", Target: "x", Force: true}), reason.DirectoryNotEmpty, "make symlink"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := g.check(g.bind(c.resource), host.Deep)
			if code(p.Err) != c.code || !strings.Contains(p.Err.Error(), c.words) || !p.Empty() && len(p.Changes) > 0 {
				t.Errorf("got %v (%v) and %v, want %v with %q", p.Err, code(p.Err), p.Changes, c.code, c.words)
			}
			if e := reason.Of(p.Err); e.Hint == "" {
				t.Errorf("%v has no hint", e)
			}
		})
	}
}

func TestCheckExplains(t *testing.T) {
	g := newGround(t)
	large := bytes.Repeat([]byte("x"), declare.BodyBytesMax+1)
	for _, c := range []struct {
		name, path   string
		arrange      func()
		private      bool
		from         []byte
		hasText      bool
		contentWords string
	}{
		{name: "new", path: "new", hasText: true},
		{name: "other", path: "other", arrange: func() { g.write("other", "old", 0o644) }, from: []byte("old"), hasText: true, contentWords: "3 B sha256:"},
		{name: "private when declared", path: "declared-private", arrange: func() { g.write("declared-private", "old", 0o644) }, private: true, contentWords: "3 B, not shown"},
		{name: "private until now", path: "was-private", arrange: func() { g.write("was-private", "old", 0o600) }, contentWords: "3 B, not shown"},
		{name: "too large to show", path: "large", arrange: func() { g.write("large", string(large), 0o644) }, contentWords: "1048577 B"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.arrange != nil {
				c.arrange()
			}
			f := declare.File{Path: g.path(c.path), Content: "new content"}
			if c.private {
				f.Mode = "0600"
			}
			p := g.check(g.bindFile(f), host.Explain)
			for _, change := range p.Changes {
				if change.Field != "content" {
					continue
				}
				switch {
				case (change.Text != nil) != c.hasText:
					t.Errorf("text %v, want %v", change.Text, c.hasText)
				case c.hasText && (!bytes.Equal(change.Text.From, c.from) || string(change.Text.To) != f.Content):
					t.Errorf("text %q, want %q and %q", change.Text, c.from, f.Content)
				}
				if !strings.HasPrefix(change.From, c.contentWords) {
					t.Errorf("from %q, want %q", change.From, c.contentWords)
				}
				return
			}
			t.Errorf("no change of content: %+v", p)
		})
	}
}

// A directory whose entries come and go all the time is not a concurrent edit of the directory itself.
func TestCheckDirectoryApartFromEntries(t *testing.T) {
	g := newGround(t)
	g.must(os.Mkdir(g.path("busy"), 0o700))
	r := g.bindDirectory(declare.Directory{Path: g.path("busy")})
	plan := g.check(r, host.Shallow)
	g.write("busy/entry", "", 0o644)
	if res := g.Apply(t.Context(), []host.Plan{plan})[0]; res.Err != nil {
		t.Fatal(res.Err)
	}
	g.write("busy/another", "", 0o644)
	if p := g.check(r, host.Shallow); !p.Recognised {
		t.Errorf("a new entry made the directory another one: %+v", p)
	}
}

// Many resources of many directories are answered each in its own place.
func TestCheckKeepsPlaces(t *testing.T) {
	g := newGround(t)
	var rs []host.Resource
	for _, name := range []string{"b/2", "a/1", "c/3", "a/2", "missing/1", "b/1", "a/0"} {
		if !strings.HasPrefix(name, "missing") {
			g.must(os.MkdirAll(g.path(name[:1]), 0o755))
		}
		rs = append(rs, g.bindFile(declare.File{Path: g.path(name), Content: name}))
	}
	plans := g.Check(t.Context(), rs, host.Shallow)
	var good []host.Plan
	for i, p := range plans {
		if p.Resource != rs[i] {
			t.Errorf("plan %d is of another resource", i)
		}
		if i == 4 {
			if code(p.Err) != reason.ParentMissing {
				t.Errorf("plan %d: %v", i, p.Err)
			}
			continue
		}
		good = append(good, p)
	}
	for i, res := range g.Apply(t.Context(), good) {
		if res.Err != nil || !res.Changed {
			t.Errorf("result %d: %+v", i, res)
		}
	}
	for _, name := range []string{"b/2", "a/1", "c/3", "a/2", "b/1", "a/0"} {
		if got := g.look(name); got.content != name {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBindRefuses(t *testing.T) {
	g := newGround(t)
	sandbox := newType(t, g.dir, g.store)
	check := declare.Resource{File: &declare.File{Path: "/f", Check: []string{"true", "{}"}}}
	if _, err := sandbox.Bind(t.Context(), declared(check)); code(err) != reason.UnsupportedInRoot {
		t.Errorf("a check command in a sandbox: %v", err)
	}
	if _, err := g.Bind(t.Context(), declared(declare.Resource{Package: &declare.Package{}})); err == nil {
		t.Error("a package was bound")
	}
	unknown := declare.Resource{File: &declare.File{Path: "/f", Owner: "tako-nobody-has-this"}}
	want := reason.UnknownOwner
	if os.Geteuid() != 0 {
		want = reason.OwnerNeedsRoot
	}
	if _, err := g.Bind(t.Context(), declared(unknown)); code(err) != want {
		t.Errorf("an unknown owner: %v, want %v", err, want)
	}
}

// Owners of a sandbox are those of the sandbox.
func TestOwnerInSandbox(t *testing.T) {
	needsRoot(t)
	g := newGround(t)
	g.must(os.Mkdir(g.path("etc"), 0o755))
	g.write("etc/passwd", "somebody:x:4321:99::/:\n", 0o644)
	g.write("etc/group", "somegroup:x:1234:\n", 0o644)
	g.Type = newType(t, g.dir, g.store)
	g.made(g.bindFile(declare.File{Path: "/file", Owner: "somebody", Group: "somegroup", Mode: "6755"}))
	g.made(g.bindDirectory(declare.Directory{Path: "/directory", Owner: "4321", Group: "root"}))
	g.made(g.bindSymlink(declare.Symlink{Path: "/symlink", Target: "x", Owner: "somebody"}))
	for name, want := range map[string][3]uint32{"file": {4321, 1234, 0o6755}, "directory": {4321, 0, 0o755}, "symlink": {4321, 0, 0o777}} {
		st, err := os.Lstat(g.path(name))
		g.must(err)
		sys := st.Sys().(*syscall.Stat_t)
		if got := [3]uint32{sys.Uid, sys.Gid, sys.Mode & 0o7777}; got != want {
			t.Errorf("%s: %d:%d %04o, want %d:%d %04o", name, got[0], got[1], got[2], want[0], want[1], want[2])
		}
	}
}

func TestOrdinaryUserOwners(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an ordinary user: TestAsOrdinaryUser runs it as one")
	}
	g := newGround(t)
	for _, c := range []struct {
		owner, group string
		want         reason.Code
	}{
		{"", "", 0},
		{"nobody", "", 0},
		{"", "nogroup", 0},
		{"65534", "65534", 0},
		{"root", "", reason.OwnerNeedsRoot},
		{"", "root", reason.OwnerNeedsRoot},
		{"0", "", reason.OwnerNeedsRoot},
	} {
		_, err := g.Bind(t.Context(), declared(declare.Resource{File: &declare.File{Path: g.path("f"), Owner: c.owner, Group: c.group}}))
		if code(err) != c.want {
			t.Errorf("owner %q, group %q: %v, want %v", c.owner, c.group, err, c.want)
		}
	}
	g.made(g.bindFile(declare.File{Path: g.path("f"), Content: "mine\n"}))
	if got := g.look("f"); got.owner != "nobody" || got.group != "nogroup" {
		t.Errorf("made as %+v", got)
	}
	// A directory that somebody else owns and a file that cannot be read.
	if p := g.check(g.bindFile(declare.File{Path: "/etc/tako-test"}), host.Deep); p.Err != nil {
		t.Errorf("look at /etc: %v", p.Err)
	} else if res := g.Apply(t.Context(), []host.Plan{p})[0]; code(res.Err) != reason.PermissionDenied || res.Changed {
		t.Errorf("write in /etc: %+v", res)
	}
}

func TestMountedFile(t *testing.T) {
	needsRoot(t)
	g := newGround(t)
	g.write("source", "old\n", 0o644)
	g.write("mounted", "", 0o644)
	g.must(unix.Mount(g.path("source"), g.path("mounted"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { g.must(unix.Unmount(g.path("mounted"), 0)) })
	f := declare.File{Path: g.path("mounted"), Content: "new\n"}
	if p := g.check(g.bindFile(f), host.Deep); code(p.Err) != reason.MountPointFile || !strings.Contains(reason.Of(p.Err).Hint, "inPlace") {
		t.Errorf("a mounted file: %v", p.Err)
	}
	f.InPlace = true
	r := g.bindFile(f)
	g.made(r)
	if got := g.look("source"); got.content != "new\n" {
		t.Errorf("in place: %+v", got)
	}
	if err := g.Remove(t.Context(), r, declare.OnRemoveDelete, nil); code(err) != reason.MountPointFile {
		t.Errorf("remove a mounted file: %v", err)
	}
}
