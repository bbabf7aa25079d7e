package file_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
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
	needsStrace(t)
	for _, k := range killedOnes() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			r := k.resource(g.path("thing"))
			k.arrange(g)
			before := g.look("thing")
			g.made(g.bind(r))
			after := g.look("thing")
			if before == after {
				t.Fatal("nothing changes")
			}
			h := &helper{TB: t, order: order{Resource: r, Store: filepath.Join(t.TempDir(), "content"), Apply: true}}
			root, err := disk.OpenRoot("/")
			c.NoError(err, "open root")
			defer root.Close()
			kills := h.killEverywhere(func() { k.arrange(g) }, func(at string) {
				now := g.look("thing")
				c.Check(now == before || now == after, "killed at %s: %+v, neither %+v nor %+v", at, now, before, after)
				store, err := content.Open(h.order.Store, content.Options{})
				c.NoError(err, "open the content store again")
				c.NoError(file.New(file.Options{Root: root, Content: store}).Sweep(t.Context(), []string{g.dir}), "sweep")
				for _, name := range g.entries() {
					c.Check(name == "thing", "killed at %s: %s is left after the sweep", at, name)
				}
				if before.content != "" && now.content != before.content {
					c.Check(store.Has(content.DigestOf([]byte(before.content))), "killed at %s: the old content is lost", at)
				}
			})
			c.Check(kills > 3, "killed at %d places only", kills)
			c.Equal(g.look("thing"), after, "in the end")
			t.Logf("killed at %d system calls", kills)
		})
	}
}

func TestAgentCase08_SecretIsNeverWider(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	needsStrace(t)
	for _, owner := range []string{"root", "nobody"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			r := declare.Resource{File: &declare.File{Path: g.path("secret"), Content: "secret\n", Owner: owner, Mode: "0600"}}
			h := &helper{TB: t, order: order{Resource: r, Store: filepath.Join(t.TempDir(), "content"), Apply: true}}
			moments := 0
			h.killEverywhere(func() {
				for _, name := range g.entries() {
					g.clear(name)
				}
			}, func(at string) {
				for _, name := range g.entries() {
					moments++
					st, err := os.Lstat(g.path(name))
					c.NoError(err, "look")
					uid := st.Sys().(*syscall.Stat_t).Uid
					c.Check(st.Mode().Perm()&0o077 == 0, "at %s: %s has mode %v", at, name, st.Mode())
					c.Check(userName(uid) == "root" || userName(uid) == owner, "at %s: %s belongs to %d", at, name, uid)
				}
			})
			c.Check(moments > 3, "seen at %d moments only", moments)
		})
	}
}

// writing matches a system call that changes something, or runs something, and an open that might.
var writing = regexp.MustCompile(`^(rename|(un)?link|symlink|mk|rm|f?chmod|[lf]?chown|f?truncate|.*utime|[lf]?(set|remove)xattr|p?write|fallocate|f?sync|fdatasync|` +
	`copy_file|sendfile|splice|u?mount|exec|v?fork)\w*\(|^open.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)|^ioctl.*FS_IOC_SET`)

func TestAgentCase29_DryRunWritesNothing(t *testing.T) {
	c := casetest.Start(t)
	needsStrace(t)
	for _, k := range killedOnes() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			k.arrange(g)
			h := &helper{TB: t, order: order{Resource: k.resource(g.path("thing")), Store: filepath.Join(t.TempDir(), "content")}}
			calls, before := h.calls("all")
			c.Check(len(calls) > before, "no system call at all")
			for _, call := range calls[before:] {
				c.Check(!writing.MatchString(call), "a check makes the system call %s", call)
			}
			work := &helper{TB: t, order: h.order}
			work.order.Apply = true
			applied, before := work.calls("all")
			c.Check(slices.ContainsFunc(applied[before:], writing.MatchString), "not even an apply is seen to write")
			k.arrange(g)
			r := g.bind(h.order.Resource)
			planned := g.check(r, host.Explain)
			c.NoError(planned.Err, "check")
			was := g.look("thing")
			g.made(r)
			private := strings.HasSuffix(was.mode, "00")
			c.Equal(plain(planned.Changes), plain(difference(h.order.Resource, private)(was, g.look("thing"))), "planned, and done")
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
