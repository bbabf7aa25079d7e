package file_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// wood is a ground with a tree, the directory wood/tree.
type wood struct {
	*ground
	*file.Trees
	places []host.Place
}

func newWood(t testing.TB, keep ...string) *wood {
	g := newGround(t)
	return &wood{ground: g, Trees: file.NewTrees(g.Type, keep...)}
}

// below lists what else is declared.
func (w *wood) below(dir string) []host.Place {
	var list []host.Place
	for _, p := range w.places {
		if strings.HasPrefix(p.Path, strings.TrimSuffix(dir, "/")+"/") {
			list = append(list, p)
		}
	}
	return list
}

// claim notes that something else is declared at paths below the tree.
func (w *wood) claim(paths ...string) {
	for _, p := range paths {
		w.places = append(w.places, host.Place{Path: w.path("tree/" + p)})
	}
	slices.SortFunc(w.places, func(a, b host.Place) int { return strings.Compare(a.Path, b.Path) })
}

func (w *wood) declared(d declare.Directory) host.Declared {
	d.Path = w.path("tree")
	r := declare.Resource{Directory: &d}
	dec := declared(r)
	dec.Below = w.below
	return dec
}

func (w *wood) bindTree(d declare.Directory) host.Resource {
	w.ground.Helper()
	r, err := w.Trees.Bind(w.ground.Context(), w.declared(d))
	w.must(err)
	return r
}

func (w *wood) look(r host.Resource) host.Plan {
	return w.Trees.Check(w.ground.Context(), []host.Resource{r}, host.Shallow)[0]
}

func (w *wood) carryOut(p host.Plan) host.Result {
	return w.Trees.Apply(w.ground.Context(), []host.Plan{p})[0]
}

// fill makes entries below the tree: a name that ends with a slash is a directory.
func (w *wood) fill(names ...string) {
	w.ground.Helper()
	for _, n := range names {
		p := w.path("tree/" + n)
		if strings.HasSuffix(n, "/") {
			w.must(os.MkdirAll(p, 0o755))
			continue
		}
		w.must(os.MkdirAll(filepath.Dir(p), 0o755))
		w.must(os.WriteFile(p, []byte("text of "+n), 0o644))
	}
}

// names lists what is below the tree, directories with a slash.
func (w *wood) names() []string {
	w.ground.Helper()
	names := []string{}
	root := w.path("tree")
	w.must(filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		name, _ := filepath.Rel(root, p)
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
		return nil
	}))
	slices.Sort(names)
	return names
}

func TestPurge(t *testing.T) {
	for _, c := range []struct {
		name      string
		directory declare.Directory
		claims    []string
		whole     []string
		entries   []string
		left      []string
		says      string
	}{
		{name: "all of it", entries: []string{"a", "b/c", "b/d/", "e/"}, left: []string{}, says: "5 entries"},
		{name: "nothing to do", claims: []string{"a"}, entries: []string{"a"}, left: []string{"a"}},
		{name: "claimed deep down", claims: []string{"b/c/d"}, entries: []string{"a", "b/c/d", "b/c/e", "b/f"}, left: []string{"b/", "b/c/", "b/c/d"}},
		{name: "the way to what is not there yet", claims: []string{"b/c/d"}, entries: []string{"b/c/x", "b/e/"}, left: []string{"b/", "b/c/"}},
		{name: "a claimed directory is about itself", claims: []string{"b"}, entries: []string{"b/c", "b/d/e"}, left: []string{"b/"}},
		{name: "a tree of its own", whole: []string{"b"}, entries: []string{"a", "b/c", "b/d/e"}, left: []string{"b/", "b/c", "b/d/", "b/d/e"}},
		{name: "ignored", directory: declare.Directory{Ignore: []string{"*.bak", "keep/**", "**/x"}},
			entries: []string{"a.bak", "b/a.bak", "keep/a/b", "keep/", "c/d/x", "c/e", "x/y"}, left: []string{"a.bak", "c/", "c/d/", "c/d/x", "keep/", "keep/a/", "keep/a/b", "x/", "x/y"}},
		{name: "depth", directory: declare.Directory{Depth: 2}, entries: []string{"a", "b/c", "b/d/e", "b/f/"}, left: []string{"b/", "b/d/", "b/d/e", "b/f/"}},
		{name: "our own temporaries", entries: []string{"a", ".tako.a.0123456789ab"}, left: []string{".tako.a.0123456789ab"}},
		{name: "names that look alike", claims: []string{"b", "b-"}, entries: []string{"b-c", "b", "b-", "b0", "b.d/x"}, left: []string{"b", "b-"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWood(t)
			w.fill(c.entries...)
			w.must(os.MkdirAll(w.path("tree"), 0o755))
			w.claim(c.claims...)
			for _, p := range c.whole {
				w.places = append(w.places, host.Place{Path: w.path("tree/" + p), Whole: true})
			}
			c.directory.Purge = true
			r := w.bindTree(c.directory)
			p := w.look(r)
			w.must(p.Err)
			if !p.Empty() {
				if c.says != "" && p.Changes[0].From != c.says {
					t.Errorf("says %+v", p.Changes)
				}
				if res := w.carryOut(p); res.Err != nil || !res.Changed {
					t.Errorf("%+v", res)
				}
			}
			if got := w.names(); !slices.Equal(got, c.left) {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if p := w.look(r); !p.Empty() || p.Err != nil || !p.Recognised {
				t.Errorf("again: %+v", p)
			}
		})
	}
}

// TestPurgeKeepsWhatItRemoves: each old content can be found again.
func TestPurgeKeepsWhatItRemoves(t *testing.T) {
	w := newWood(t)
	w.fill("a", "b/c")
	w.must(os.Symlink("/etc/passwd", w.path("tree/link")))
	w.must(unix.Mkfifo(w.path("tree/pipe"), 0o600))
	p := w.look(w.bindTree(declare.Directory{Purge: true}))
	res := w.carryOut(p)
	if res.Err != nil || len(w.names()) != 0 {
		t.Fatalf("%+v, left %q", res, w.names())
	}
	for _, name := range []string{"a", "b/c"} {
		if !w.store.Has(content.DigestOf([]byte("text of " + name))) {
			t.Errorf("the content of %s is lost", name)
		}
	}
	if !strings.Contains(res.Note, "old contents kept: 2") {
		t.Errorf("note: %q", res.Note)
	}
}

func TestPurgeLimit(t *testing.T) {
	w := newWood(t)
	for i := range 101 {
		w.fill(fmt.Sprintf("%03d", i))
	}
	w.claim("d")
	w.fill("d/")
	r := w.bindTree(declare.Directory{Purge: true, Mode: "0700", Recurse: &declare.Recurse{FileMode: "0600"}})
	p := w.look(r)
	if p.Err != nil || len(p.Changes) != 1 {
		t.Fatalf("what is not refused goes on: %+v", p)
	}
	res := w.carryOut(p)
	if !reason.Is(res.Err, reason.PurgeOverLimit) || !res.Changed || len(w.names()) != 102 {
		t.Errorf("%+v, %d are left", res, len(w.names()))
	}
	e := reason.Of(w.look(r).Err)
	if e == nil || e.Code != reason.PurgeOverLimit || !strings.Contains(e.Evidence, "000, 001") || !strings.Contains(e.Evidence, "and 61 more") || !strings.Contains(e.Hint, "limit: 101") {
		t.Errorf("refused with %v; %+v", e, e)
	}
	for _, limit := range []int{100, 101} {
		r := w.bindTree(declare.Directory{Purge: true, Mode: "0700", Limit: limit})
		if p := w.look(r); (p.Err == nil) != (limit == 101) {
			t.Errorf("limit %d: %v", limit, p.Err)
		}
	}
}

func TestRecurse(t *testing.T) {
	w := newWood(t)
	needsRoot(t)
	w.fill("a", "b/c", "b/d/e", "mine/f", "theirs")
	w.claim("theirs")
	w.must(os.Symlink("/etc/passwd", w.path("tree/link")))
	w.must(os.Chmod(w.path("tree/b"), 0o2777))
	w.must(os.Chmod(w.path("tree/a"), 0o4755))
	recurse := &declare.Recurse{Owner: "nobody", Group: "nogroup", FileMode: "u=rw,g=r,o=", DirectoryMode: "0750"}
	r := w.bindTree(declare.Directory{Recurse: recurse, Ignore: []string{"mine"}})
	p := w.look(r)
	w.must(p.Err)
	if res := w.carryOut(p); res.Err != nil || !res.Changed {
		t.Fatalf("%+v", res)
	}
	for name, want := range map[string]string{
		"": "0755 root root", "a": "0640 nobody nogroup", "b": "0750 nobody nogroup", "b/c": "0640 nobody nogroup", "b/d": "0750 nobody nogroup", "b/d/e": "0640 nobody nogroup",
		"mine": "0755 root root", "mine/f": "0644 root root", "theirs": "0644 root root", "link": " nobody nogroup",
	} {
		s := look(t, strings.TrimSuffix(w.path("tree/"+name), "/"))
		if got := s.mode + " " + s.owner + " " + s.group; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if p := w.look(r); !p.Empty() || p.Err != nil {
		t.Errorf("again: %+v", p)
	}
}

// TestRecurseTakesSetIDsAway: a program that somebody has made to run as himself does not run as who gets it.
func TestRecurseTakesSetIDsAway(t *testing.T) {
	needsRoot(t)
	w := newWood(t)
	w.fill("his")
	w.must(os.Chown(w.path("tree/his"), nobody, nobody))
	w.must(os.Chmod(w.path("tree/his"), 0o777|os.ModeSetuid|os.ModeSetgid))
	for _, c := range []struct {
		recurse declare.Recurse
		want    string
	}{
		{declare.Recurse{FileMode: "o-w"}, "6775 nobody"},
		{declare.Recurse{Owner: "root", FileMode: "u+x"}, "0775 root"},
	} {
		if res := w.carryOut(w.look(w.bindTree(declare.Directory{Recurse: &c.recurse}))); res.Err != nil {
			t.Error(res.Err)
		}
		if s := w.ground.look("tree/his"); s.mode+" "+s.owner != c.want {
			t.Errorf("%+v: %s %s, want %s", c.recurse, s.mode, s.owner, c.want)
		}
	}
}

// TestRecurseSparesHardLinks: who may write below a tree may link to a file that is nobody's business here.
func TestRecurseSparesHardLinks(t *testing.T) {
	needsRoot(t)
	w := newWood(t)
	w.fill("a")
	w.write("shadow", "secret", 0o600)
	w.must(os.Link(w.path("shadow"), w.path("tree/link")))
	r := w.bindTree(declare.Directory{Recurse: &declare.Recurse{Owner: "nobody"}})
	res := w.carryOut(w.look(r))
	if !reason.Is(res.Err, reason.EntryRefused) || !res.Changed {
		t.Errorf("%+v", res)
	}
	if s := w.ground.look("shadow"); s.owner != "root" {
		t.Errorf("given away: %+v", s)
	}
	if s := w.ground.look("tree/a"); s.owner != "nobody" {
		t.Errorf("the other entry: %+v", s)
	}
	if p := w.look(r); !reason.Is(p.Err, reason.EntryRefused) {
		t.Errorf("again: %+v", p)
	}
}

// TestTreeSparesTheAgentsOwn: its state may be anywhere.
func TestTreeSparesTheAgentsOwn(t *testing.T) {
	g := newGround(t)
	w := &wood{ground: g, Trees: file.NewTrees(g.Type, g.path("tree/var/lib/tako"))}
	w.fill("var/lib/tako/state", "var/lib/else")
	res := w.carryOut(w.look(w.bindTree(declare.Directory{Purge: true})))
	if want := []string{"var/", "var/lib/", "var/lib/tako/", "var/lib/tako/state"}; res.Err != nil || !slices.Equal(w.names(), want) {
		t.Errorf("%+v, left %q", res, w.names())
	}
}

// TestAliasesAreSpared: what is declared by a way through a symlink is declared.
func TestAliasesAreSpared(t *testing.T) {
	w := newWood(t)
	w.fill("a", "b/c", "d")
	w.must(os.Symlink("tree", w.path("way")))
	w.must(os.Symlink("tree/b", w.path("short")))
	w.places = []host.Place{{Path: w.path("short/c")}, {Path: w.path("way/a")}}
	res := w.carryOut(w.look(w.bindTree(declare.Directory{Purge: true})))
	if want := []string{"a", "b/", "b/c"}; res.Err != nil || !slices.Equal(w.names(), want) {
		t.Errorf("%+v, left %q, want %q", res, w.names(), want)
	}
}

// TestPurgeOfWhatHasChanged: what somebody has changed since the check is not removed, the rest is.
func TestPurgeOfWhatHasChanged(t *testing.T) {
	w := newWood(t)
	w.fill("a", "b", "c/d")
	r := w.bindTree(declare.Directory{Purge: true})
	p := w.look(r)
	w.fill("b", "c/new", "new")
	res := w.carryOut(p)
	if want := []string{"b", "c/", "c/new", "new"}; !reason.Is(res.Err, reason.ConcurrentEdit) || !res.Changed || !slices.Equal(w.names(), want) {
		t.Errorf("%+v, left %q, want %q", res, w.names(), want)
	}
}

func TestFollow(t *testing.T) {
	w := newWood(t)
	w.fill("a/b/", "c/", "skip/d/")
	r := w.bindTree(declare.Directory{Purge: true, Ignore: []string{"skip"}, Recurse: &declare.Recurse{FileMode: "0600"}})
	w.claim("a/b/x", "c/x", "e/x")
	e := r.(host.Enclosing)
	if p := w.look(r); p.Err != nil {
		t.Fatal(p.Err)
	}
	entries := func(names ...string) []host.Watch {
		list := []host.Watch{}
		for _, n := range names {
			list = append(list, host.Watch{Kind: host.WatchNames, Name: w.path("tree" + n)})
		}
		return list
	}
	own := 2 // the directory itself, and its entries
	if got := r.Watches(); len(got) != own {
		t.Errorf("before it is followed: %v", got)
	}
	drop, add := e.Follow()
	if len(drop) != 0 || !slices.Equal(add, entries("/a", "/a/b", "/c")) || len(r.Watches()) != own+3 {
		t.Errorf("drop %v, add %v, then %v", drop, add, r.Watches())
	}
	w.clear("tree/c")
	w.fill("e/")
	w.look(r)
	if drop, add := e.Follow(); !slices.Equal(drop, entries("/c")) || !slices.Equal(add, entries("/e")) {
		t.Errorf("drop %v, add %v", drop, add)
	}
	if drop, add := e.Follow(); drop != nil || add != nil {
		t.Errorf("drop %v, add %v", drop, add)
	}
}

// TestTreeConformance: the suite observes what is below, and removes nothing, because a tree is not put back as a whole.
func TestTreeConformance(t *testing.T) {
	w := newWood(t)
	w.claim("declared")
	arrange := func(mode os.FileMode, names ...string) func(testing.TB) {
		return func(testing.TB) {
			w.clear("tree")
			w.must(os.Mkdir(w.path("tree"), mode))
			w.must(os.Chmod(w.path("tree"), mode))
			w.fill(append(names, "declared")...)
		}
	}
	hosttest.Run(t, hosttest.Subject{
		Type: w.Trees, Declared: []host.Declared{w.declared(declare.Directory{Purge: true})}, Remembers: true, Lasting: true,
		Observe: func(t testing.TB, _ int) any { return append(w.names(), look(t, w.path("tree")).mode) },
		Difference: func(_ int, before, after any) []host.Change {
			was, is := before.([]string), after.([]string)
			var changes []host.Change
			if a, b := was[len(was)-1], is[len(is)-1]; a != b {
				changes = append(changes, host.Change{Field: "mode", From: a, To: b})
			}
			var gone []string
			for _, n := range was[:len(was)-1] {
				if !slices.Contains(is, n) {
					gone = append(gone, strings.TrimSuffix(n, "/"))
				}
			}
			if n := len(gone); n == 1 {
				changes = append(changes, host.Change{Field: "purge", From: "1 entry", To: "removed: " + gone[0]})
			} else if n > 1 {
				changes = append(changes, host.Change{Field: "purge", From: strconv.Itoa(n) + " entries", To: "removed: " + strings.Join(gone, ", ")})
			}
			return changes
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, w.dir) },
		Disturb: func(t testing.TB) {
			w.clear("tree")
			w.write("tree", "somebody was here", 0o640)
		},
		Situations: []hosttest.Situation{
			{Name: "more than declared", Arrange: arrange(0o755, "x", "y")},
			{Name: "other mode, too", Arrange: arrange(0o700, "x")},
		},
	})
}
