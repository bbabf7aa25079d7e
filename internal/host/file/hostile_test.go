package file_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// exposed makes the ground a directory of an ordinary user.
func exposed(t *testing.T) *ground {
	needsRoot(t)
	g := newGround(t)
	g.must(os.Chown(g.dir, nobody, nobody))
	return g
}

// TestBitsOfAnotherOwner: what a user has put where a file of root's is declared does not become a program that runs as root, whatever of its
// content and mode is left to others.
func TestBitsOfAnotherOwner(t *testing.T) {
	g := exposed(t)
	for name, r := range map[string]declare.Resource{
		"mode and content ignored": {File: &declare.File{Content: "declared\n", Mode: "0644"}, Ignore: []string{"mode", "content"}},
		"mode ignored":             {File: &declare.File{Content: "declared\n", Mode: "0644"}, Ignore: []string{"mode"}},
		"symbolic mode":            {File: &declare.File{Content: "declared\n", Mode: "u=rwx,g=rx,o=rx"}},
		"kept":                     {File: &declare.File{Content: "declared\n", Mode: "u=rwx,g=rx,o=rx", Replace: new(bool)}},
		"part of a mode, kept":     {File: &declare.File{Content: "declared\n", Mode: "o-w", Replace: new(bool)}},
		"same content":             {File: &declare.File{Content: "theirs\n", Mode: "u=rwx,g=rx,o=rx"}},
	} {
		g.write("f", "theirs\n", 0o755)
		g.must(os.Chown(g.path("f"), nobody, nobody))
		g.must(os.Chmod(g.path("f"), 0o755|os.ModeSetuid|os.ModeSetgid))
		r.Name, r.File.Path = "f", g.path("f")
		bound := g.bind(r)
		g.made(bound)
		if s := g.look("f"); s.owner != "root" || s.mode != "0755" {
			t.Errorf("%s: %+v", name, s)
		}
		if p := g.check(bound, host.Deep); !p.Empty() {
			t.Errorf("%s: just made, and %+v", name, p)
		}
	}
	// Of an owner who stays they are his own.
	g.write("f", "theirs\n", 0o755)
	g.must(os.Chmod(g.path("f"), 0o755|os.ModeSetuid))
	if p := g.check(g.bind(declare.Resource{Name: "f", File: &declare.File{Path: g.path("f"), Content: "theirs\n", Mode: "0644"}, Ignore: []string{"mode"}}), host.Deep); !p.Empty() {
		t.Errorf("setuid of the declared owner: %+v", p)
	}
}

// TestRightsAreForNewFiles: what would run with rights that its owner does not have is never the file that he had, and may have open.
func TestRightsAreForNewFiles(t *testing.T) {
	g := exposed(t)
	for name, f := range map[string]declare.File{
		"setuid":     {Mode: "4755"},
		"capability": {Mode: "0755", Xattrs: map[string]string{"security.capability": "0x0100000200040000000000000000000000000000"}},
	} {
		g.write("f", "declared\n", 0o755)
		g.must(os.Chown(g.path("f"), nobody, nobody))
		inode := g.inode("f")
		held, err := os.OpenFile(g.path("f"), os.O_RDWR, 0)
		g.must(err)
		defer held.Close() // so that its number is not given out again
		f.Path, f.Content = g.path("f"), "declared\n"
		r := g.bindFile(f)
		g.made(r)
		if s := g.look("f"); g.inode("f") == inode || s.owner != "root" {
			t.Errorf("%s: the file that was there has got rights: %+v", name, s)
		}
		if p := g.check(r, host.Deep); !p.Empty() {
			t.Errorf("%s: just made, and %+v", name, p)
		}
	}
}

// TestRightsAreNotForOthersContent: where a content is left to others, what they have put there does not get rights that they do not have.
func TestRightsAreNotForOthersContent(t *testing.T) {
	const capability = "0x0100000200040000000000000000000000000000"
	g := exposed(t)
	for name, c := range map[string]struct {
		file    declare.File
		owner   int    // of what is there
		mode    uint32 // of what is there
		dir     int    // owner of the directory
		refused bool
	}{
		"setuid":                               {declare.File{Mode: "4755"}, nobody, 0o755, nobody, true},
		"setgid":                               {declare.File{Mode: "2755", Owner: "65534", Group: "42"}, nobody, 0o755, nobody, true},
		"capability":                           {declare.File{Mode: "0755", Owner: "65534", Xattrs: map[string]string{"security.capability": capability}}, nobody, 0o755, nobody, true},
		"owner only":                           {declare.File{Mode: "4755"}, nobody, 0o4755, 0, true},
		"writable by others":                   {declare.File{Mode: "4755"}, 0, 0o757, 0, true},
		"moved there":                          {declare.File{Mode: "4755"}, 0, 0o755, nobody, true},
		"setuid of his own":                    {declare.File{Mode: "4755", Owner: "65534", Group: "65534"}, nobody, 0o755, nobody, false},
		"root's, and nobody else writes there": {declare.File{Mode: "4755"}, 0, 0o755, 0, false},
	} {
		g.must(os.Chown(g.dir, c.dir, c.dir))
		g.clear("f")
		g.write("f", "theirs\n", 0o755)
		g.must(os.Chown(g.path("f"), c.owner, c.owner))
		g.must(unix.Chmod(g.path("f"), c.mode))
		before := g.look("f")
		c.file.Path, c.file.Content, c.file.Replace = g.path("f"), "declared\n", new(bool)
		r := g.bindFile(c.file)
		res := g.converge(r)
		if refused := reason.Is(res.Err, reason.EntryRefused); refused != c.refused || refused && (res.Changed || g.look("f") != before) {
			t.Errorf("%s: %+v, and there is %+v", name, res, g.look("f"))
		} else if refused && reason.Of(res.Err).Hint == "" {
			t.Errorf("%s: no hint", name)
		}
		// One that is made here has the declared content.
		g.clear("f")
		g.made(r)
		if p := g.check(r, host.Deep); !p.Empty() {
			t.Errorf("%s: just made, and %+v", name, p)
		}
	}
}

// TestLinksInAnothersDirectory: who may write beside a file may link it to one that is nobody's business here.
func TestLinksInAnothersDirectory(t *testing.T) {
	g := exposed(t)
	no := false
	for name, f := range map[string]declare.File{
		"kept":        {Content: "declared\n", Owner: "65534", Mode: "0644", Replace: &no},
		"in place":    {Content: "declared\n", Owner: "65534", Mode: "0644", InPlace: true},
		"same text":   {Content: "secret\n", Owner: "65534", Mode: "0644"},
		"other text":  {Content: "declared\n", Owner: "65534", Mode: "0644"},
		"only a list": {Content: "secret\n", Mode: "0600", ACL: []string{"u:65534:r"}},
	} {
		g.clear("f")
		g.write("shadow", "secret\n", 0o600)
		g.must(os.Link(g.path("shadow"), g.path("f")))
		f.Path = g.path("f")
		res := g.converge(g.bindFile(f))
		if s := g.look("shadow"); s.owner != "root" || s.mode != "0600" || s.content != "secret\n" {
			t.Errorf("%s: %+v, and elsewhere %+v", name, res, s)
		}
		if name != "other text" && !reason.Is(res.Err, reason.EntryRefused) {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestOthersDoNotFillTheStore: who may write to a file can have his content kept as often as he likes, and the room is everybody's: without
// it nothing is repaired.
func TestOthersDoNotFillTheStore(t *testing.T) {
	g := exposed(t)
	store, err := content.Open(g.olds, content.Options{QuotaBytes: 8 << 20})
	g.must(err)
	g.Type = newType(t, "/", store)
	r := g.bindFile(declare.File{Path: g.path("f"), Content: "declared\n", Owner: "65534"})
	g.made(r)
	random := rand.NewChaCha8([32]byte{1})
	for range 12 {
		text := make([]byte, 1<<20)
		_, _ = random.Read(text)
		g.must(os.WriteFile(g.path("f"), text, 0o644))
		if res := g.converge(r); res.Err != nil || g.look("f").content != "declared\n" {
			t.Fatalf("not repaired: %+v", res)
		}
	}
	large, err := os.Create(g.path("f"))
	g.must(err)
	g.must(large.Truncate(1 << 40))
	g.must(large.Chown(nobody, nobody))
	g.must(large.Close())
	if res := g.converge(r); res.Err != nil || !strings.Contains(res.Note, "not kept") {
		t.Errorf("a huge file: %+v", res)
	}
	// What looks as if a killed run had left it is anybody's too.
	for range 12 {
		text := make([]byte, 1<<20)
		_, _ = random.Read(text)
		name := disk.TempName("f")
		g.must(os.WriteFile(g.path(name), text, 0o600))
		g.must(os.Chown(g.path(name), nobody, nobody))
	}
	if err := g.Sweep(t.Context(), []string{g.dir}); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if used := store.Size(); used > 4<<20 {
		t.Errorf("%d bytes of 8 MiB are in use", used)
	}
	// Nor does what is to be put back one day.
	for i := range 12 {
		text := make([]byte, 1<<20)
		_, _ = random.Read(text)
		g.must(os.WriteFile(g.path("f"), text, 0o644))
		before := store.Size()
		_, err := g.Original(t.Context(), r)
		if grew := store.Size() > before; err != nil && (grew || code(err) != reason.BackupFailed || reason.Of(err).Hint == "") || err == nil && !grew {
			t.Errorf("original %d: %v, %d bytes more", i, err, store.Size()-before)
		}
	}
	if used := store.Size(); used > 4<<20 {
		t.Errorf("originals: %d bytes of 8 MiB are in use", used)
	}
	// A file of root's is kept.
	g.write("own", strings.Repeat("x", 3<<20), 0o644)
	if res := g.made(g.bindFile(declare.File{Path: g.path("own"), Content: "declared\n"})); !strings.Contains(res.Note, "kept as") {
		t.Errorf("a file of root's: %+v", res)
	}
	if n := bytes.Count([]byte(strings.Join(g.entries(), " ")), []byte(disk.TempPrefix)); n > 0 {
		t.Errorf("%d temporaries are left", n)
	}
}
