package archive

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// inSandbox is a ground whose declared paths begin below its directory, with users and groups of its own.
func inSandbox(t *testing.T) *ground {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	g := newGround(t)
	root, err := disk.OpenRoot(g.dir)
	g.must(err)
	t.Cleanup(func() { root.Close() })
	g.Type = New(Options{Root: root, Objects: g.objects, StateDir: g.state})
	g.must(os.Mkdir(g.path("etc"), 0o755))
	g.accounts("app:x:1001:1001::/:/bin/sh\n", "app:x:1002:\n")
	g.must(os.WriteFile(g.path("a.tar"), tarOf(g, entry{name: "f", body: "text"}), 0o644))
	return g
}

// accounts replaces both files, as the tools for accounts do.
func (g *ground) accounts(users, groups string) {
	g.Helper()
	for name, text := range map[string]string{"passwd": users, "group": groups} {
		g.must(os.WriteFile(g.path("etc/new"), []byte(text), 0o644))
		g.must(os.Rename(g.path("etc/new"), g.path("etc/"+name)))
	}
}

func (g *ground) ownersOf(name string) [2]uint32 {
	g.Helper()
	st, err := os.Lstat(g.path(name))
	g.must(err)
	sys := st.Sys().(*syscall.Stat_t)
	return [2]uint32{sys.Uid, sys.Gid}
}

// TestOwnerFollowsNames: the files of users and groups tell when a name comes to mean another number, and any check sees it.
func TestOwnerFollowsNames(t *testing.T) {
	g := inSandbox(t)
	a := declare.Archive{Path: "/app", From: declare.ArchiveSource{Path: "/a.tar"}, Owner: "app", Group: "app"}
	r := g.bind(a)
	for _, path := range []string{"/etc/passwd", "/etc/group"} {
		if !slices.Contains(r.Watches(), host.Watch{Kind: host.WatchPath, Name: path}) {
			t.Errorf("%s is not watched: %v", path, r.Watches())
		}
	}
	g.made(r)
	if got := g.ownersOf("app/f"); got != [2]uint32{1001, 1002} {
		t.Errorf("unpacked for %v", got)
	}
	g.accounts("app:x:2001:1001::/:/bin/sh\n", "app:x:2002:\n")
	g.made(r)
	if got := [2][2]uint32{g.ownersOf("app"), g.ownersOf("app/f")}; got != [2][2]uint32{{2001, 2002}, {2001, 2002}} {
		t.Errorf("the names mean other numbers, and it is still of %v", got)
	}
	g.accounts("", "")
	if p := g.check(r, host.Shallow); !reason.Is(p.Err, reason.UnknownOwner) {
		t.Errorf("nobody has the name: %+v", p)
	}
	leaving := declared(a)
	leaving.Leaving = true
	r, err := g.Bind(t.Context(), leaving)
	g.must(err)
	g.must(g.Remove(t.Context(), r, declare.OnRemoveDelete, nil))
	if got := look(t, g.path("app")); got != "-" {
		t.Errorf("left: %s", got)
	}
	a.Owner, a.Group = "1001", "root"
	if w := g.bind(a).Watches(); len(w) != 2 {
		t.Errorf("numbers never mean anything else: %v", w)
	}
}
