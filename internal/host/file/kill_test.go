package file_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest/kill"
)

// killed is one apply that is killed everywhere.
type killed struct {
	name     string
	resource func(p string) declare.Resource
	arrange  func(g *ground)
}

func killedOnes() []killed {
	old := func(g *ground) { g.write("thing", "old\n", 0o640) }
	none := func(g *ground) { g.clear("thing") }
	return []killed{
		{"create file", func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, Content: "new\n"}}
		}, none},
		{"replace file", func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, Content: "new\n"}}
		}, old},
		{"replace file by another's content", func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, ContentFrom: &declare.ContentSource{Path: "/etc/passwd"}}}
		}, old},
		{"change mode", func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, Content: "old\n"}}
		}, old},
		{"create directory", func(p string) declare.Resource {
			return declare.Resource{Directory: &declare.Directory{Path: p, Mode: "2750"}}
		}, none},
		{"create symlink", func(p string) declare.Resource {
			return declare.Resource{Symlink: &declare.Symlink{Path: p, Target: "new"}}
		}, none},
		{"replace symlink", func(p string) declare.Resource {
			return declare.Resource{Symlink: &declare.Symlink{Path: p, Target: "new"}}
		}, func(g *ground) {
			g.clear("thing")
			g.must(os.Symlink("old", g.path("thing")))
		}},
		{"replace symlink by file", func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, Content: "new\n", Force: true}}
		}, func(g *ground) {
			g.clear("thing")
			g.must(os.Symlink("old", g.path("thing")))
		}},
	}
}

func TestAgentCase13_KillAtAnySystemCall(t *testing.T) {
	c := casetest.Start(t)
	for _, k := range killedOnes() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			row := g.row(k.resource(g.path("thing")), "thing", func() { k.arrange(g) })
			k.arrange(g)
			before := g.look("thing")
			row.Killed = func(t testing.TB, at string) {
				store, err := content.Open(storeOf(row.State), content.Options{})
				c.NoError(err, "open the content store again")
				c.NoError(newType(t, "/", store).Sweep(t.Context(), []string{g.dir}), "sweep")
				for _, name := range g.entries() {
					c.Check(name == "thing", "killed at %s: %s is left after the sweep", at, name)
				}
				if before.content != "" && g.look("thing").content != before.content {
					c.Check(store.Has(content.DigestOf([]byte(before.content))), "killed at %s: the old content is lost", at)
				}
			}
			kills := kill.Everywhere(t, row)
			c.Check(kills > 3, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

func TestAgentCase08_SecretIsNeverWider(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	for _, owner := range []string{"root", "nobody"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			r := declare.Resource{File: &declare.File{Path: g.path("secret"), Content: "secret\n", Owner: owner, Mode: "0600"}}
			row := g.row(r, "secret", func() {
				for _, name := range g.entries() {
					g.clear(name)
				}
			})
			moments := 0
			row.Killed = func(_ testing.TB, at string) {
				for _, name := range g.entries() {
					moments++
					st, err := os.Lstat(g.path(name))
					c.NoError(err, "look")
					uid := st.Sys().(*syscall.Stat_t).Uid
					c.Check(st.Mode().Perm()&0o077 == 0, "at %s: %s has mode %v", at, name, st.Mode())
					c.Check(userName(uid) == "root" || userName(uid) == owner, "at %s: %s belongs to %d", at, name, uid)
				}
			}
			kill.Everywhere(t, row)
			c.Check(moments > 3, "seen at %d moments only", moments)
		})
	}
}

func TestAgentCase29_DryRunWritesNothing(t *testing.T) {
	c := casetest.Start(t)
	for _, k := range killedOnes() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			declared := k.resource(g.path("thing"))
			c.Check(kill.LooksOnly(t, g.row(declared, "thing", func() { k.arrange(g) })) > 0, "no system call at all")
			k.arrange(g)
			r := g.bind(declared)
			planned := g.check(r, host.Explain)
			c.NoError(planned.Err, "check")
			was := g.look("thing")
			g.made(r)
			private := strings.HasSuffix(was.mode, "00")
			c.Equal(plain(planned.Changes), plain(difference(declared, private)(was, g.look("thing"))), "planned, and done")
		})
	}
}

// plain is changes without the texts that a diff shows.
func plain(changes []host.Change) []host.Change {
	for i := range changes {
		changes[i].Text = nil
	}
	return changes
}
