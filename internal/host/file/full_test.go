package file_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

// mountSmall mounts a file system of 64 KiB on a directory of the ground.
func (g *ground) mountSmall(name string) {
	g.Helper()
	g.must(unix.Mkdir(g.path(name), 0o755))
	g.must(unix.Mount("tako-test", g.path(name), "tmpfs", 0, "size=64k"))
	g.Cleanup(func() { g.must(unix.Unmount(g.path(name), unix.MNT_DETACH)) })
}

func TestAgentCase12_NoRoomAndNoRight(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	for _, trouble := range []struct {
		name    string
		content string
		make    func(g *ground)
		code    reason.Code
		words   string
	}{
		{"disk full", strings.Repeat("x", 100_000), func(*ground) {}, reason.DiskFull, "no space left on the device"},
		{"read-only", "new\n", func(g *ground) {
			g.must(unix.Mount("", g.path("small"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, reason.ReadOnlyFS, "read-only file system"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			c := c.Sub(t)
			g := newGround(t)
			g.mountSmall("small")
			g.write("small/file", "old\n", 0o644)
			trouble.make(g)
			bad := g.bindFile(declare.File{Path: g.path("small/file"), Content: trouble.content})
			good := g.bindFile(declare.File{Path: g.path("file"), Content: "new\n"})
			g.refused(c, bad, good, trouble.code, trouble.words)
			c.Equal(look(t, g.path("small/file")).content, "old\n", "the old content")
		})
	}
	t.Run("immutable", func(t *testing.T) {
		c := c.Sub(t)
		g := newGround(t)
		g.write("old", "old\n", 0o644)
		immutable(t, g.path("old"))
		bad := g.bindFile(declare.File{Path: g.path("old"), Content: "new\n"})
		good := g.bindFile(declare.File{Path: g.path("file"), Content: "new\n"})
		g.refused(c, bad, good, reason.Immutable, "immutable")
		c.Equal(g.look("old").content, "old\n", "the old content")
	})
	t.Run("errors of the device", func(t *testing.T) { deviceErrors(t, c.Sub(t)) })
	t.Run("backups full", func(t *testing.T) {
		c := c.Sub(t)
		g := newGround(t)
		store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{QuotaBytes: 10})
		c.NoError(err, "open a small store")
		g.Type = newType(t, "/", store)
		g.write("old", "more than ten bytes\n", 0o644)
		bad := g.bindFile(declare.File{Path: g.path("old"), Content: "new\n"})
		good := g.bindFile(declare.File{Path: g.path("file"), Content: "new\n"})
		g.refused(c, bad, good, reason.BackupFailed, "full")
		c.Equal(g.look("old").content, "more than ten bytes\n", "the old content")
	})
}

// refused applies two resources together: one fails as it should, and the other is made all the same.
func (g *ground) refused(c *casetest.Case, bad, good host.Resource, want reason.Code, words string) {
	g.Helper()
	results := g.Apply(g.Context(), g.Check(g.Context(), []host.Resource{bad, good}, host.Shallow))
	e := reason.Of(results[0].Err)
	c.Check(e != nil && e.Code == want && strings.Contains(e.Error(), words) && e.Hint != "" && !results[0].Changed, "%+v, want %v", results[0], want)
	c.Check(results[1].Err == nil && results[1].Changed, "the other one: %+v", results[1])
	row, _ := reason.Lookup(want)
	c.Check(row.Retry == reason.BackOff, "%v is not tried again", want)
}

// deviceErrors lets system calls fail that no file system of ours can make fail.
func deviceErrors(t *testing.T, c *casetest.Case) {
	for _, failing := range []struct {
		inject string
		want   reason.Code
	}{
		{"pwrite64:error=EDQUOT", reason.QuotaExceeded},
		{"pwrite64:error=EIO", reason.InputOutput},
		// The first fsync is that of the new file; those of the backup come when it has its name already.
		{"fsync:error=EIO:when=1", reason.InputOutput},
		{"fsync:error=ENOSPC:when=1", reason.DiskFull},
		{"fsync:error=EIO:when=2", reason.BackupFailed},
		{"fsync:error=ENOSPC:when=3", reason.BackupFailed},
		{"renameat2:error=EDQUOT", reason.QuotaExceeded},
	} {
		g := newGround(t)
		r := declare.Resource{File: &declare.File{Path: g.path("file"), Content: "new\n"}}
		row := g.row(r, "file", func() { g.write("file", "old\n", 0o644) })
		got := kill.Failing(t, row, failing.inject)
		c.Check(got == failing.want.String(), "%s: %q, want %v", failing.inject, got, failing.want)
		c.Equal(g.look("file").content, "old\n", failing.inject+": the old content")
		c.Equal(g.entries(), []string{"file"}, failing.inject+": left beside it")
	}
	// A file system that cannot exchange two names: the backup comes first, and a failure of either leaves the old file.
	for _, failing := range []struct {
		inject, want, content string
	}{
		{"renameat2:error=EINVAL", "", "new\n"},
		{"fsync:error=EIO:when=2", reason.BackupFailed.String(), "old\n"},
		{"renameat:error=EDQUOT:when=2", reason.QuotaExceeded.String(), "old\n"},
	} {
		g := newGround(t)
		r := declare.Resource{File: &declare.File{Path: g.path("file"), Content: "new\n"}}
		row := g.row(r, "file", func() { g.write("file", "old\n", 0o644) })
		got := kill.Failing(t, row, "renameat2:error=EINVAL", failing.inject)
		c.Check(got == failing.want, "%s: %q, want %q", failing.inject, got, failing.want)
		c.Equal(g.look("file").content, failing.content, failing.inject+": the content")
		c.Equal(g.entries(), []string{"file"}, failing.inject+": left beside it")
		store, err := content.Open(storeOf(row.State), content.Options{})
		c.NoError(err, "open the content store")
		c.Check(failing.want != "" || store.Has(content.DigestOf([]byte("old\n"))), "%s: the old content is lost", failing.inject)
	}
}
