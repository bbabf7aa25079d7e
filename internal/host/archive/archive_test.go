package archive

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/reason"
)

// sight is what is at a path.
type sight struct{ all, kind, mode, uid, gid string }

func sightOf(t testing.TB, p string) any {
	s := sight{all: look(t, p), kind: "absent"}
	st, err := os.Lstat(p)
	if err != nil {
		return s
	}
	sys := st.Sys().(*syscall.Stat_t)
	s.kind = "directory"
	if !st.IsDir() {
		s.kind = "file"
	}
	s.mode, s.uid, s.gid = modeText(sys.Mode&0o7777), number(sys.Uid), number(sys.Gid)
	return s
}

func difference(digest string) func(int, any, any) []host.Change {
	return func(_ int, before, after any) []host.Change {
		b, a := before.(sight), after.(sight)
		var changes []host.Change
		add := func(field, from, to string) {
			if from != to {
				changes = append(changes, host.Change{Field: field, From: from, To: to})
			}
		}
		from := ""
		switch b.kind {
		case a.kind:
			from = "empty"
		case "absent":
			add("", "absent", a.kind)
		default:
			add("type", b.kind, a.kind)
			b = sight{}
		}
		add("content", from, "sha256:"+shortOf(digest))
		add("mode", b.mode, a.mode)
		add("owner", b.uid, a.uid)
		add("group", b.gid, a.gid)
		return changes
	}
}

func TestConformance(t *testing.T) {
	g := newGround(t)
	data := gzipped(t, tarOf(t, program("1")...))
	digest := content.DigestOf(data)
	source := g.source("app.tar.gz", data)
	p := g.path("app")
	clear := func() { g.must(os.RemoveAll(p)) }
	hosttest.Run(t, hosttest.Subject{
		Type: g.Type, Remembers: true, Declared: []host.Declared{declared(declare.Archive{Path: p, From: declare.ArchiveSource{Path: source}, Strip: 1, Umask: "0027"})},
		Observe: func(t testing.TB, _ int) any { return sightOf(t, p) }, Difference: difference(digest.String()), Gone: []any{sight{all: "-", kind: "absent"}},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir, g.sources, g.state) },
		Disturb: func(t testing.TB) {
			clear()
			g.must(os.WriteFile(p, []byte("somebody was here"), 0o644))
		},
		Situations: []hosttest.Situation{
			{Name: "nothing there", Arrange: func(testing.TB) { clear() }},
			{Name: "an empty directory", Arrange: func(testing.TB) { clear(); g.must(os.Mkdir(p, 0o700)) }},
		},
	})
}

// What comes out is what is in it, whatever the archive is.
func TestUnpacked(t *testing.T) {
	g := newGround(t)
	me, mine := strconv.Itoa(os.Geteuid()), strconv.Itoa(os.Getegid())
	owner := " " + me + ":" + mine
	want := `"" drwxr-xr-x` + owner + "\n" +
		`"/bin" drwxr-xr-x` + owner + "\n" +
		`"/bin/run" -rwxr-xr-x` + owner + ` "#!/bin/sh\necho 1\n"` + "\n" +
		`"/empty" drwx------` + owner + "\n" +
		`"/share" drwxr-xr-x` + owner + "\n" +
		`"/share/again" Lrwxrwxrwx` + owner + ` -> "data"` + "\n" +
		`"/share/data" -rw-r--r--` + owner + " " + strconv.Quote(strings.Repeat("1\n", 1000)) + "\n" +
		`"/share/now" Lrwxrwxrwx` + owner + ` -> "../bin/run"` + "\n"
	plain := tarOf(t, program("1")...)
	for name, data := range map[string][]byte{"tar": plain, "tar.gz": gzipped(t, plain), "zip": zipOf(t, program("1")...)} {
		r := g.bind(declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Path: g.source(name, data)}, Strip: 1})
		g.must(os.RemoveAll(g.path("app")))
		g.made(r)
		if got := look(t, g.path("app")); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		if st, err := os.Stat(g.path("app/share/data")); err != nil || st.ModTime().Unix() != 1_700_000_000 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if got := g.names(); len(got) != 1 {
			t.Errorf("%s: beside it: %v", name, got)
		}
	}
}

// A new version takes the place of an old one, and of nothing else.
func TestNextVersion(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	source := g.source("app.tar", tarOf(t, program("1")...))
	r := g.bind(declare.Archive{Path: p, From: declare.ArchiveSource{Path: source}})
	g.made(r)
	one := look(t, p)
	g.source("app.tar", tarOf(t, program("2")...))
	plan := g.check(r, host.Shallow)
	if len(plan.Changes) != 1 || plan.Changes[0].Field != "content" || !strings.HasPrefix(plan.Changes[0].From, "sha256:") {
		t.Errorf("planned %+v", plan.Changes)
	}
	if res := g.made(r); !res.Changed || !strings.Contains(res.Note, "entries") {
		t.Errorf("%+v", res)
	}
	two := look(t, p)
	if one == two || !strings.Contains(two, `echo 2\n`) || len(g.names()) != 1 {
		t.Errorf("%s\nbeside it: %v", two, g.names())
	}
	// A new run of the agent knows what is there.
	again := New(Options{Root: g.root, Objects: g.objects, StateDir: g.state})
	r2, err := again.Bind(t.Context(), declared(declare.Archive{Path: p, From: declare.ArchiveSource{Path: source}}))
	g.must(err)
	for _, depth := range []host.Depth{host.Shallow, host.Deep} {
		if p := again.Check(t.Context(), []host.Resource{r2}, depth)[0]; !p.Empty() {
			t.Errorf("another run finds %+v", p)
		}
	}
	for what, a := range map[string]declare.Archive{
		"strip": {Strip: 1}, "umask": {Umask: "0077"}, "owner": {Owner: strconv.Itoa(os.Geteuid() + 1)},
	} {
		if what == "owner" && os.Geteuid() != 0 {
			continue
		}
		a.Path, a.From.Path = p, source
		if plan := g.check(g.bind(a), host.Shallow); plan.Empty() || plan.Err != nil {
			t.Errorf("another %s: %+v", what, plan)
		}
	}
}

func TestDrift(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	r := g.bind(declare.Archive{Path: p, From: declare.ArchiveSource{Path: g.source("app.tar", tarOf(t, program("1")...))}, Strip: 1})
	g.made(r)
	want := look(t, p)
	for what, spoil := range map[string]func() error{
		"file changed":    func() error { return os.WriteFile(p+"/share/data", []byte("else"), 0o644) },
		"file removed":    func() error { return os.Remove(p + "/bin/run") },
		"file added":      func() error { return os.WriteFile(p+"/share/more", nil, 0o644) },
		"mode":            func() error { return os.Chmod(p+"/bin/run", 0o777) },
		"link":            func() error { return os.Rename(p+"/share/again", p+"/share/now") },
		"a FIFO":          func() error { os.Remove(p + "/bin/run"); return syscall.Mkfifo(p+"/bin/run", 0o755) },
		"deeper":          func() error { return os.MkdirAll(p+strings.Repeat("/d", partsMax+3), 0o755) },
		"all of it":       func() error { return os.RemoveAll(p) },
		"only its mode":   func() error { return os.Chmod(p, 0o700) },
		"another's place": func() error { return os.Rename(p+"/share", p+"/shared") },
	} {
		g.must(spoil())
		if plan := g.check(r, host.Deep); plan.Empty() || plan.Err != nil {
			t.Errorf("%s: %+v", what, plan)
		}
		g.made(r)
		if got := look(t, p); got != want || len(g.names()) != 1 {
			t.Errorf("%s:\n%s\nbeside it: %v", what, got, g.names())
		}
	}
	// What only looks different is left alone, and looked at once.
	g.must(os.Chmod(p+"/bin/run", 0o755))
	later := time.Now().Add(time.Hour)
	g.must(os.Chtimes(p+"/share/data", later, later))
	for range 2 {
		if plan := g.check(r, host.Deep); !plan.Empty() {
			t.Errorf("touched: %+v", plan)
		}
	}
	if r.(*resource).quick == (imprint{}) {
		t.Error("its new look is not remembered")
	}
}

// A directory that somebody has made in the place of ours may have its number: the file system gives out again what is free.
func TestForeignWithTheSameNumber(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	r := g.bind(declare.Archive{Path: p, From: declare.ArchiveSource{Path: g.source("app.tar", tarOf(t, program("1")...))}})
	for range 20 {
		g.made(r)
		was, err := os.Stat(p)
		g.must(err)
		g.must(os.RemoveAll(p))
		g.must(os.Mkdir(p, 0o755))
		g.must(os.WriteFile(p+"/mine", []byte("mine"), 0o644))
		if now, err := os.Stat(p); err != nil || !os.SameFile(was, now) {
			g.must(os.RemoveAll(p))
			continue
		}
		if res := g.converge(r); !reason.Is(res.Err, reason.DirectoryNotEmpty) {
			t.Errorf("%+v", res)
		}
		if b, err := os.ReadFile(p + "/mine"); string(b) != "mine" {
			t.Errorf("what somebody has put there is gone: %v", err)
		}
		return
	}
	t.Skip("needs a file system that gives out the numbers of directories again")
}

// What was not unpacked here is not replaced, unless that is declared.
func TestForeign(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	a := declare.Archive{Path: p, From: declare.ArchiveSource{Path: g.source("app.tar", tarOf(t, program("1")...))}}
	force := a
	force.Force = true
	for what, c := range map[string]struct {
		make func() error
		want reason.Code
	}{
		"entries": {func() error { return os.MkdirAll(p+"/mine/too", 0o755) }, reason.DirectoryNotEmpty},
		"file":    {func() error { return os.WriteFile(p, []byte("mine"), 0o644) }, reason.TypeInTheWay},
		"link":    {func() error { return os.Symlink(g.sources, p) }, reason.TypeInTheWay},
	} {
		g.must(os.RemoveAll(p))
		g.must(c.make())
		before := look(t, p)
		if res := g.converge(g.bind(a)); !reason.Is(res.Err, c.want) || look(t, p) != before {
			t.Errorf("%s: %+v", what, res)
		}
		r := g.bind(force)
		if _, err := g.Original(t.Context(), r); !reason.Is(err, reason.DirectoryNotEmpty) {
			t.Errorf("%s: it could be put back: %v", what, err)
		}
		g.made(r)
		if got := look(t, p+"/app/bin/run"); !strings.Contains(got, "echo 1") || len(g.names()) != 1 {
			t.Errorf("%s: %s, beside it %v", what, got, g.names())
		}
	}
	if _, err := os.Stat(filepath.Join(g.sources, "app.tar")); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
}

func TestRemoveRefused(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	r := g.bind(declare.Archive{Path: p, From: declare.ArchiveSource{Path: g.source("app.tar", tarOf(t, program("1")...))}})
	g.made(r)
	g.must(os.WriteFile(p+"/app/mine", nil, 0o644))
	if err := g.Remove(t.Context(), r, declare.OnRemoveDelete, nil); !reason.Is(err, reason.DirectoryNotEmpty) {
		t.Errorf("something was added: %v", err)
	}
	g.must(os.Remove(p + "/app/mine"))
	g.must(os.Rename(p, p+"-moved"))
	g.must(os.MkdirAll(p+"/else", 0o755))
	if err := g.Remove(t.Context(), r, declare.OnRemoveDelete, nil); !reason.Is(err, reason.TypeInTheWay) {
		t.Errorf("another directory: %v", err)
	}
	if err := g.Forget(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(g.records); len(entries) != 0 {
		t.Errorf("the record of what is gone stays: %v", entries)
	}
}

// What an Apply that was killed has left goes, and nothing else of the same name.
func TestForgetLeft(t *testing.T) {
	g := newGround(t)
	p := g.path("app")
	r := g.bind(declare.Archive{Path: p, From: declare.ArchiveSource{Path: g.source("app.tar", tarOf(t, program("1")...))}})
	g.made(r)
	c, err := g.read(p)
	g.must(err)
	ours, others := g.path(".tako.app.000000000000"), g.path(".tako.app.000000000001")
	for _, dir := range []string{ours, others} {
		g.must(os.MkdirAll(dir+"/a/b/c", 0o755))
		g.must(os.WriteFile(dir+"/a/b/file", nil, 0o000))
		g.must(os.Symlink(g.sources, dir+"/a/link"))
	}
	st, err := g.root.Stat(ours)
	g.must(err)
	inodes := []durable.Inode{durable.InodeOf(st.Signature)}
	c.Left = []left{{filepath.Base(ours), inodes}, {filepath.Base(others), inodes}}
	g.must(g.write(t.Context(), &c))
	g.must(g.Forget(t.Context(), nil))
	if got := g.names(); !slices.Equal(got, []string{filepath.Base(others), "app"}) {
		t.Errorf("names: %v", got)
	}
	if _, err := os.Stat(g.sources + "/app.tar"); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
	if plan := g.check(r, host.Deep); !plan.Empty() {
		t.Errorf("%+v", plan)
	}
}

func TestObject(t *testing.T) {
	g := newGround(t)
	data := zipOf(t, program("1")...)
	digest := content.DigestOf(data)
	a := declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Object: &declare.ObjectReference{Digest: digest.String(), SizeBytes: int64(len(data))}}}
	r := g.bind(a)
	g.objects.Fetched()
	if res := g.converge(r); !reason.Is(res.Err, reason.ObjectComing) || len(g.names()) != 0 {
		t.Errorf("%+v, and %v", res, g.names())
	}
	if w := g.objects.Wanted(); len(w) != 1 || w[0].Claim != "path:"+g.path("app") {
		t.Errorf("wanted %+v", w)
	}
	f, _, err := g.objects.Part(digest)
	g.must(err)
	_, err = f.Write(data)
	g.must(err)
	g.must(f.Close())
	g.must(g.objects.Add(t.Context(), content.Wanted{Digest: digest, Size: int64(len(data))}))
	g.made(r)
	if got := g.names(); len(got) != 1 || got[0] != "app" {
		t.Errorf("names: %v", got)
	}
}

func TestSource(t *testing.T) {
	g := newGround(t)
	source := g.sources + "/app.tar"
	r := g.bind(declare.Archive{Path: g.path("app"), From: declare.ArchiveSource{Path: source}})
	fails := func(what string, want reason.Code) {
		t.Helper()
		if res := g.converge(r); !reason.Is(res.Err, want) {
			t.Errorf("%s: %v", what, res.Err)
		}
	}
	fails("none", reason.SourceMissing)
	g.source("app.tar", []byte(strings.Repeat("no archive", 100)))
	fails("no archive", reason.ArchiveUnreadable)
	g.source("app.tar", tarOf(t, entry{name: "f", body: "1"}))
	g.must(os.Chmod(source, 0o666))
	fails("others may write it", reason.SourceUntrusted)
	g.must(os.Chmod(source, 0o644))
	p := g.check(r, host.Shallow)
	g.source("app.tar", tarOf(t, entry{name: "f", body: "2"}))
	if res := g.Apply(t.Context(), []host.Plan{p})[0]; !reason.Is(res.Err, reason.ConcurrentEdit) || len(g.names()) != 0 {
		t.Errorf("it has changed since: %+v, %v", res, g.names())
	}
	g.made(r)
}
