package edit

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func (g *ground) line(text string) host.Resource {
	g.Helper()
	return g.bind(text, declare.Edit{Path: g.path("file"), Line: &declare.LineEdit{Text: text}})
}

func (g *ground) text() string {
	g.Helper()
	return look(g, g.path("file")).text
}

// TestOneWrite: edits of one file in one batch are one write, so one event for who watches.
func TestOneWrite(t *testing.T) {
	g := newGround(t)
	g.write("file", "x\n", 0o644)
	rs := []host.Resource{g.line("a"), g.line("b"), g.line("c")}
	before, err := g.root.Stat(g.path("file"))
	g.must(err)
	results := g.made(rs...)
	for _, res := range results {
		if !res.Changed || !strings.Contains(res.Note, "old content kept as "+content.DigestOf([]byte("x\n")).String()) {
			t.Errorf("%+v", res)
		}
	}
	if g.text() != "x\na\nb\nc\n" {
		t.Errorf("%q", g.text())
	}
	s := g.site(g.path("file"))
	if !slices.Equal(s.earlier, []disk.Signature{before.Signature}) {
		t.Errorf("%d writes", len(s.earlier))
	}
	if !g.store.Has(content.DigestOf([]byte("x\n"))) {
		t.Error("the old content is not kept")
	}
	for i, p := range g.check(host.Shallow, rs...) {
		if !p.Empty() || !p.Recognised {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

// TestAnotherEditIsNobodyElse: plans that were made before another batch wrote the file are carried out; after somebody else has, not.
func TestAnotherEditIsNobodyElse(t *testing.T) {
	g := newGround(t)
	g.write("file", "x\n", 0o644)
	rs := []host.Resource{g.line("a"), g.line("b"), g.line("c"), g.line("d")}
	plans := g.check(host.Deep, rs...)
	for i, want := range []string{"x\na\n", "x\na\nb\n"} {
		if res := g.Apply(t.Context(), plans[i:i+1])[0]; res.Err != nil || !res.Changed || g.text() != want {
			t.Errorf("%d: %+v: %q", i, res, g.text())
		}
	}
	f, err := os.OpenFile(g.path("file"), os.O_APPEND|os.O_WRONLY, 0)
	g.must(err)
	_, err = f.WriteString("by hand\n")
	g.must(err)
	g.must(f.Close())
	if res := g.Apply(t.Context(), plans[2:3])[0]; code(res.Err) != reason.ConcurrentEdit || res.Changed {
		t.Errorf("after somebody else: %+v", res)
	}
	g.made(rs...)
	if res := g.Apply(t.Context(), plans[3:])[0]; code(res.Err) != reason.ConcurrentEdit {
		t.Errorf("a plan from before somebody else's edit: %+v", res)
	}
	if g.text() != "x\na\nb\nby hand\nc\nd\n" {
		t.Errorf("%q", g.text())
	}
}

// TestNoLostEdit runs many batches at once, while somebody else appends lines, who takes care as the agent does.
func TestNoLostEdit(t *testing.T) {
	g := newGround(t)
	g.write("file", "", 0o644)
	const batches, each = 8, 6
	var all sync.WaitGroup
	for b := range batches {
		all.Go(func() {
			var rs []host.Resource
			for i := range each {
				rs = append(rs, g.line(fmt.Sprintf("line %d of %d", i, b)))
			}
			for range 1000 {
				done := true
				for _, res := range g.converge(rs...) {
					if res.Err != nil && code(res.Err) != reason.ConcurrentEdit {
						t.Errorf("%v", res.Err)
						return
					}
					done = done && res.Err == nil
				}
				if done {
					return
				}
			}
			t.Error("not done after a thousand times")
		})
	}
	all.Wait()
	lines := strings.Split(strings.TrimSpace(g.text()), "\n")
	slices.Sort(lines)
	if len(slices.Compact(lines)) != batches*each || strings.Count(g.text(), "\n") != batches*each {
		t.Errorf("%d lines: %q", len(lines), g.text())
	}
}

// TestCheckOfOne: what one check refuses does not stop the other edits of the file.
func TestCheckOfOne(t *testing.T) {
	g := newGround(t)
	g.write("file", "x\n", 0o644)
	checked := func(text string, check ...string) host.Resource {
		return g.bind(text, declare.Edit{Path: g.path("file"), Line: &declare.LineEdit{Text: text}, Check: check})
	}
	results := g.converge(g.line("a"), checked("bad", "sh", "-c", `! grep -q bad "$0" || { echo no bad >&2; exit 1; }`, "{}"), checked("b", "grep", "-q", "b", "{}"))
	if results[0].Err != nil || results[2].Err != nil || code(results[1].Err) != reason.CheckRejected || results[1].Changed {
		t.Errorf("%+v", results)
	}
	if e := reason.Of(results[1].Err); !strings.Contains(e.Evidence, "no bad") {
		t.Errorf("%+v", e)
	}
	if g.text() != "x\na\nb\n" {
		t.Errorf("%q", g.text())
	}
	if res := g.converge(checked("c", "no-such-program-anywhere", "{}"))[0]; code(res.Err) != reason.CheckNotRun || reason.Of(res.Err).Hint == "" {
		t.Errorf("%+v", res)
	}
	g.write("file", "x\n", 0o600)
	if res := g.converge(checked("s3cret", "sh", "-c", `cat "$0"; exit 1`, "{}"))[0]; code(res.Err) != reason.CheckRejected || reason.Of(res.Err).Evidence != "" {
		t.Errorf("private: %+v", reason.Of(res.Err))
	}
}

// TestStays: owner, mode, attributes and the access list of a file stay.
func TestStays(t *testing.T) {
	needsRoot(t)
	g := newGround(t)
	g.write("file", "x\n", 0o4750)
	p := g.path("file")
	g.must(os.Chown(p, 12, 34))
	g.must(os.Chmod(p, 0o750|os.ModeSetuid))
	attributes := unix.Setxattr(p, "user.tako", []byte("v"), 0) == nil
	acl := false
	if _, err := exec.LookPath("setfacl"); err == nil {
		acl = exec.CommandContext(t.Context(), "setfacl", "-m", "u:65534:r", p).Run() == nil
	}
	before := look(t, p)
	list := func() string {
		out, _ := exec.CommandContext(t.Context(), "getfacl", "-n", p).Output()
		return string(out)
	}
	was := list()
	g.made(g.line("a"))
	after := look(t, p)
	if after.text != "x\na\n" || after.mode != before.mode || after.owner != before.owner {
		t.Errorf("%+v, then %+v", before, after)
	}
	value := make([]byte, 8)
	if n, err := unix.Getxattr(p, "user.tako", value); attributes && (err != nil || string(value[:n]) != "v") {
		t.Errorf("attribute %q, %v", value, err)
	}
	if acl && list() != was {
		t.Errorf("access list:\n%s\nthen\n%s", was, list())
	}
	t.Logf("attributes: %v, access list: %v", attributes, acl)
	// Other names of the file keep the old content, and that is told.
	g.must(os.Link(p, g.path("other")))
	res := g.made(g.line("b"))[0]
	if !strings.Contains(res.Note, "hard links") || look(t, g.path("other")).text != "x\na\n" {
		t.Errorf("%+v", res)
	}
}

// TestRefused: what cannot be edited says why, and stays.
func TestRefused(t *testing.T) {
	g := newGround(t)
	e := func(create bool) host.Resource {
		return g.bind("a", declare.Edit{Path: g.path("file"), JSON: &declare.PointerEdit{Pointer: "/a", JSON: "1"}, Create: create})
	}
	for _, c := range []struct {
		name    string
		arrange func()
		create  bool
		want    reason.Code
		words   string
	}{
		{"no file", func() { g.clear("file") }, false, reason.EditFileMissing, "there is no such file"},
		{"no directory", func() { g.clear("file") }, true, 0, ""},
		{"binary", func() { g.write("file", "{}\x00", 0o644) }, false, reason.EditRefused, "NUL"},
		{"comments", func() { g.write("file", "{ // c\n}", 0o644) }, false, reason.EditRefused, "comment"},
		{"link", func() { g.clear("file"); g.must(os.Symlink("x", g.path("file"))) }, true, reason.TypeInTheWay, "symlink"},
		{"fifo", func() { g.clear("file"); g.must(unix.Mkfifo(g.path("file"), 0o644)) }, true, reason.TypeInTheWay, "fifo"},
		{"directory", func() { g.clear("file"); g.must(os.Mkdir(g.path("file"), 0o755)) }, true, reason.TypeInTheWay, "directory"},
		{"huge", func() { g.write("file", "", 0o644); g.must(os.Truncate(g.path("file"), 16<<20+1)) }, false, reason.EditRefused, "16 MiB"},
	} {
		c.arrange()
		res := g.converge(e(c.create))[0]
		if code(res.Err) != c.want || c.want != 0 && !strings.Contains(res.Err.Error(), c.words) {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
	gone := g.bind("a", declare.Edit{Path: g.path("none/file"), State: declare.EditAbsent, Line: &declare.LineEdit{Text: "a"}})
	if p := g.check(host.Deep, gone)[0]; !p.Empty() {
		t.Errorf("absent from nothing: %+v", p)
	}
	if res := g.converge(g.bind("a", declare.Edit{Path: g.path("none/file"), Create: true, Line: &declare.LineEdit{Text: "a"}}))[0]; code(res.Err) != reason.ParentMissing {
		t.Errorf("no directory: %+v", res)
	}
	root, err := disk.OpenRoot(g.dir)
	g.must(err)
	defer root.Close()
	if _, err := New(Options{Root: root}).Bind(t.Context(), declared("a", declare.Edit{Path: "/f", Line: &declare.LineEdit{Text: "a"}, Check: []string{"true", "{}"}})); code(err) != reason.UnsupportedInRoot {
		t.Errorf("a check in a sandbox: %v", err)
	}
	if _, err := g.Bind(t.Context(), declared("a", declare.Edit{Path: "/f", Ini: &declare.IniEdit{Key: "a", Value: ptr("x\ny")}})); code(err) != reason.InvalidValue {
		t.Errorf("a value that was filled in: %v", err)
	}
}

// TestLargest: 16 MiB are edited.
func TestLargest(t *testing.T) {
	g := newGround(t)
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", 16<<10)
	g.write("file", text[:len(text)-10]+"\n", 0o644)
	g.made(g.line("a"))
	if got := g.text(); !strings.HasSuffix(got, "x\na\n") || len(got) != len(text)-7 {
		t.Errorf("%d bytes", len(got))
	}
	g.write("file", text, 0o644)
	if res := g.converge(g.line("a"))[0]; code(res.Err) != reason.EditRefused || !strings.Contains(res.Err.Error(), "would have more than") {
		t.Errorf("%+v", res)
	}
}

// TestRestoreOfCreated: a file that was made for its part goes with it, unless somebody else has put something in.
func TestRestoreOfCreated(t *testing.T) {
	g := newGround(t)
	r := g.bind("a", declare.Edit{Path: g.path("file"), Create: true, JSON: &declare.PointerEdit{Pointer: "/a/b", JSON: "1"}})
	original, err := g.Original(t.Context(), r)
	g.must(err)
	g.made(r)
	if got := look(t, g.path("file")); got.text != "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n" || got.mode != "644" {
		t.Errorf("%+v", got)
	}
	g.must(g.Remove(t.Context(), r, declare.OnRemoveRestore, original))
	if got := look(t, g.path("file")); got.kind != "absent" {
		t.Errorf("%+v", got)
	}
	g.made(r)
	g.write("file", strings.Replace(g.text(), "{\n", "{\n  \"mine\": true,\n", 1), 0o644)
	g.must(g.Remove(t.Context(), r, declare.OnRemoveRestore, original))
	if got := g.text(); got != "{\n  \"mine\": true\n}\n" {
		t.Errorf("%q", got)
	}
	if err := g.Remove(t.Context(), r, declare.OnRemoveRestore, []byte("{")); code(err) != reason.RestoreLost {
		t.Errorf("%v", err)
	}
}

// TestShallow: what is recognised costs one look, and content that is changed within a tick of the clock is seen.
func TestShallow(t *testing.T) {
	g := newGround(t)
	g.write("file", "x\n", 0o644)
	r := g.line("a")
	g.made(r)
	for range 50 {
		g.made(r)
		before := look(t, g.path("file"))
		g.must(os.WriteFile(g.path("file"), []byte("x\nb\n"), 0o644)) // same length, same inode
		if p := g.check(host.Shallow, r)[0]; p.Empty() {
			t.Fatalf("not seen: %+v", before)
		}
	}
	if w := r.Watches(); len(w) != 1 || w[0] != (host.Watch{Kind: host.WatchPath, Name: g.path("file")}) {
		t.Errorf("%+v", w)
	}
}

// TestDiff shows the whole texts of what is not private.
func TestDiff(t *testing.T) {
	g := newGround(t)
	for _, mode := range []os.FileMode{0o644, 0o600} {
		g.write("file", "x\n", mode)
		p := g.check(host.Explain, g.line("a"))[0]
		if text := p.Changes[0].Text; (text != nil) != (mode == 0o644) || text != nil && (string(text.From) != "x\n" || string(text.To) != "x\na\n") {
			t.Errorf("%o: %+v", mode, p)
		}
	}
}
