package file_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func TestAgentCase05_EveryKindOfDrift(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	g := newGround(t)
	p := g.path("file")
	for _, drift := range []struct {
		name  string
		apply func() error
		other bool // of another type then
	}{
		{name: "replaced by rename", apply: func() error {
			g.write("other", "others\n", 0o644)
			return os.Rename(g.path("other"), p)
		}},
		{name: "replaced by the same length", apply: func() error {
			g.write("other", "DECLARED\n", 0o644)
			return os.Rename(g.path("other"), p)
		}},
		{name: "edited in place", apply: func() error { return os.WriteFile(p, []byte("DECLARED\n"), 0o644) }},
		{name: "truncated", apply: func() error { return os.Truncate(p, 0) }},
		{name: "appended", apply: func() error {
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString("more\n")
				err = errors.Join(err, f.Close())
			}
			return err
		}},
		{name: "chmodded", apply: func() error { return os.Chmod(p, 0o666) }},
		{name: "chowned", apply: func() error { return os.Chown(p, nobody, nobody) }},
		{name: "unlinked", apply: func() error { return os.Remove(p) }},
		{name: "made a directory", other: true, apply: func() error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }},
		{name: "made a symlink", other: true, apply: func() error { return errors.Join(os.Remove(p), os.Symlink("other", p)) }},
	} {
		for _, force := range []bool{false, true} {
			g.clear("file")
			r := g.bindFile(declare.File{Path: p, Content: "declared\n", Force: force})
			g.made(r)
			good := g.look("file")
			c.NoError(drift.apply(), drift.name)
			bad := g.look("file")
			res := g.converge(r)
			if drift.other && !force {
				c.Equal(code(res.Err), reason.TypeInTheWay, drift.name+" without force")
				row, _ := reason.Lookup(code(res.Err))
				c.Check(row.Outcome == reason.Failed && row.Detail == reason.Denied, "%s: outcome %v (%v)", drift.name, row.Outcome, row.Detail)
				c.Equal(g.look("file"), bad, drift.name+" without force: what is there")
				continue
			}
			c.Check(res.Err == nil && res.Changed, "%s: %+v", drift.name, res)
			c.Equal(g.look("file"), good, drift.name+": repaired")
		}
	}
}

func TestAgentCase06_PlantedSymlinkIsNotFollowed(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	g := newGround(t)
	g.must(os.Mkdir(g.path("home"), 0o755))
	g.must(os.Chown(g.path("home"), nobody, nobody))
	g.must(os.Mkdir(g.path("etc"), 0o755))
	g.write("etc/passwd", "root\n", 0o644)
	conf := g.path("home/conf")
	resources := []declare.Resource{
		{File: &declare.File{Path: conf + "/passwd", Content: "planted\n", Force: true}},
		{File: &declare.File{Path: conf + "/new", Content: "planted\n"}},
		{Directory: &declare.Directory{Path: conf + "/directory"}},
		{Symlink: &declare.Symlink{Path: conf + "/symlink", Target: "x"}},
	}
	plant := func() {
		g.clear("home/conf")
		g.must(os.Symlink("../etc", conf))
		g.must(os.Lchown(conf, nobody, nobody))
	}
	for _, r := range resources {
		bound := g.bind(r)
		// Planted from the start, and between check and apply.
		plant()
		c.Equal(code(g.check(bound, host.Deep).Err), reason.UntrustedSymlink, "check of "+r.Title())
		g.clear("home/conf")
		g.must(os.Mkdir(conf, 0o755))
		plan := g.check(bound, host.Deep)
		c.NoError(plan.Err, "check on the right way")
		plant()
		res := g.Apply(t.Context(), []host.Plan{plan})[0]
		c.Check(code(res.Err) == reason.UntrustedSymlink && !res.Changed, "apply of %s: %+v", r.Title(), res)
		c.Equal(code(g.Remove(t.Context(), bound, declare.OnRemoveDelete, nil)), reason.UntrustedSymlink, "removal of "+r.Title())
		_, err := g.Original(t.Context(), bound)
		c.Equal(code(err), reason.UntrustedSymlink, "original of "+r.Title())
	}
	list, err := os.ReadDir(g.path("etc"))
	c.NoError(err, "list")
	c.Check(len(list) == 1 && g.look("etc/passwd").content == "root\n", "something was followed out of the tree: %v", list)
}

func TestAgentCase07_NoTornRead(t *testing.T) {
	c := casetest.Start(t)
	const size, repairs = 400_000, 200
	g := newGround(t)
	declaredText, driftText := strings.Repeat("d", size), strings.Repeat("x", size)
	r := g.bindFile(declare.File{Path: g.path("file"), Content: declaredText})
	g.made(r)
	ctx, stop := context.WithCancel(t.Context())
	reads, torn := 0, []string{}
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil && len(torn) == 0 {
			b, err := os.ReadFile(g.path("file"))
			reads++
			if err != nil || len(b) != size || bytes.Count(b, b[:1]) != size {
				torn = append(torn, errorText(err, len(b)))
			}
		}
	})
	for range repairs {
		g.write("other", driftText, 0o644)
		g.must(os.Rename(g.path("other"), g.path("file")))
		res := g.converge(r)
		c.Check(res.Err == nil && res.Changed, "repair: %+v", res)
	}
	stop()
	reader.Wait()
	c.Equal(torn, []string{}, "torn, empty or missing reads")
	c.Check(reads > 10, "only %d reads", reads)
	t.Logf("%d reads during %d repairs", reads, repairs)
}

func errorText(err error, n int) string {
	if err != nil {
		return err.Error()
	}
	return strings.Repeat("b", min(n, 1)) + "ytes of two contents"
}

func TestAgentCase10_OwnRepairIsRecognised(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	g.write("replaced", "old\n", 0o644)
	g.write("chmodded", "declared\n", 0o600)
	g.must(os.Mkdir(g.path("directory-chmodded"), 0o700))
	g.must(os.Symlink("old", g.path("symlink-replaced")))
	for _, r := range []host.Resource{
		g.bindFile(declare.File{Path: g.path("created"), Content: "declared\n"}),
		g.bindFile(declare.File{Path: g.path("replaced"), Content: "declared\n"}),
		g.bindFile(declare.File{Path: g.path("chmodded"), Content: "declared\n"}),
		g.bindDirectory(declare.Directory{Path: g.path("directory")}),
		g.bindDirectory(declare.Directory{Path: g.path("directory-chmodded")}),
		g.bindSymlink(declare.Symlink{Path: g.path("symlink"), Target: "x"}),
		g.bindSymlink(declare.Symlink{Path: g.path("symlink-replaced"), Target: "x"}),
	} {
		res := g.made(r)
		c.Check(res.Changed, "%v: nothing was repaired", r.Watches())
		for range 3 {
			p := g.check(r, host.Shallow)
			c.Check(p.Recognised && p.Empty(), "%v: its own repair is news to it: %+v", r.Watches(), p)
		}
	}
}

func TestAgentCase11_CheckRejects(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	g.write("nginx.conf", "good\n", 0o644)
	before := g.look("nginx.conf")
	check := []string{"sh", "-c", `grep -q good "$1" || { echo "$1: unknown directive in line 12"; exit 1; }`, "sh", "{}"}
	r := g.bindFile(declare.File{Path: g.path("nginx.conf"), Content: "bad\n", Check: check})
	for range 2 {
		res := g.converge(r)
		c.Equal(code(res.Err), reason.CheckRejected, "applied")
		c.Check(!res.Changed, "it says that something changed")
		c.Equal(g.look("nginx.conf"), before, "the old file")
		c.Equal(g.entries(), []string{"nginx.conf"}, "what is in the directory")
		e := reason.Of(res.Err)
		c.Check(strings.Contains(e.Evidence, "unknown directive in line 12"), "the command's words are not in %q", e.Evidence)
		_, text, _ := strings.Cut(e.Hint, "sha256:")
		digest, err := content.ParseDigest("sha256:" + text)
		c.NoError(err, "digest in the hint "+e.Hint)
		kept, err := g.store.ReadAll(digest, 100)
		c.NoError(err, "read what was kept")
		c.Equal(string(kept), "bad\n", "the rejected text")
	}
	g.made(g.bindFile(declare.File{Path: g.path("nginx.conf"), Content: "good again\n", Check: check}))
	c.Equal(g.look("nginx.conf").content, "good again\n", "accepted")
}

func TestAgentCase30_RemovedFromTheDeclaration(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	none := func(name string) { g.clear(name) }
	old := func(name string) { g.write(name, "old\n", 0o600) }
	for _, r := range []declare.Resource{
		{File: &declare.File{Path: g.path("thing"), Content: "declared\n", Force: true}},
		{Directory: &declare.Directory{Path: g.path("thing"), Mode: "0700", Force: true}},
		{Symlink: &declare.Symlink{Path: g.path("thing"), Target: "declared", Force: true}},
	} {
		for _, arrange := range []func(string){none, old} {
			for _, how := range []declare.OnRemove{declare.OnRemoveRestore, declare.OnRemoveDelete} {
				arrange("thing")
				before := g.look("thing")
				bound := g.bind(r)
				original, err := g.Original(t.Context(), bound)
				c.NoError(err, "original")
				g.made(bound)
				want := sight{kind: "absent"}
				if how == declare.OnRemoveRestore {
					want = before
				}
				for range 2 {
					c.NoError(g.Remove(t.Context(), bound, how, original), "remove "+r.Title())
					c.Equal(g.look("thing"), want, r.Title()+" after "+string(how))
				}
			}
		}
	}
}

// oddNames are names that exist on real hosts and break programs.
var oddNames = []string{
	"with\nnewline", "with\x1b[31mescape", "not-utf8-\xff\xfe", "-dash", "trailing.", " space ", "quote\"'`$(x)", "*", "..hidden", "\u202eevil",
	strings.Repeat("n", 255), strings.Repeat("é", 127),
}

func TestAgentCase38_OddNames(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	for _, name := range oddNames {
		for _, r := range []declare.Resource{
			{File: &declare.File{Path: g.path(name), Content: "declared\n", Check: []string{"grep", "-q", "declared", "{}"}}},
			{Directory: &declare.Directory{Path: g.path(name)}},
			{Symlink: &declare.Symlink{Path: g.path(name), Target: name}},
		} {
			bound := g.bind(r)
			g.made(bound)
			made := g.look(name)
			c.Equal(made.kind, string(r.Type()), "made")
			g.clear(name)
			c.Check(g.made(bound).Changed, "%q: drift was not repaired", name)
			c.Equal(g.look(name), made, "repaired")
			g.clear(name)
			g.must(unix.Mkfifo(g.path(name), 0o600))
			err := g.check(bound, host.Deep).Err
			c.Equal(code(err), reason.TypeInTheWay, "something in the way")
			c.Check(!strings.ContainsAny(err.Error(), "\n\x1b\u202e") && !strings.Contains(err.Error(), "\xff"), "an error that plays with the terminal: %q", err)
			g.clear(name)
			g.made(bound)
			c.NoError(g.Remove(t.Context(), bound, declare.OnRemoveDelete, nil), "remove")
			c.Equal(g.entries(), []string{}, "left")
		}
	}
	long := g.bindFile(declare.File{Path: g.path(strings.Repeat("n", 256))})
	c.Equal(code(g.check(long, host.Deep).Err), reason.NameTooLong, "a name that no file system takes")
}

func TestAgentCase39_Attributes(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	g := newGround(t)
	p := g.path("file")
	const acl, capability, label = "system.posix_acl_access", "security.capability", "security.selinux"
	// user::rw- user:65534:r-- group::r-- mask::r-- other::r--, see acl(5): version 2, then tag, permissions and id each.
	list := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 254, 255, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255,
		16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255}
	// CAP_NET_BIND_SERVICE, permitted and effective: version 2 of struct vfs_cap_data.
	right := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	get := func(name string) []byte {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(p, name, b)
		if err != nil {
			return nil
		}
		return b[:n]
	}
	r := g.bindFile(declare.File{Path: p, Content: "declared\n"})

	g.write("file", "old\n", 0o644)
	g.must(os.Link(p, g.path("other")))
	if err := errors.Join(unix.Lsetxattr(p, "user.note", []byte("mine"), 0), unix.Lsetxattr(p, acl, list, 0)); err != nil {
		t.Skipf("needs extended attributes in %s: %v", g.dir, err)
	}
	g.must(unix.Lsetxattr(p, capability, right, 0))
	labelled := unix.Lsetxattr(p, label, []byte("system_u:object_r:etc_t:s0\x00"), 0) == nil // a kernel with another policy may refuse it
	plan := g.check(r, host.Deep)
	c.Check(len(plan.Changes) == 2 && plan.Changes[1] == host.Change{Field: "links", From: "2", To: "1"}, "the plan does not say that a link is broken: %+v", plan.Changes)
	res := g.Apply(t.Context(), []host.Plan{plan})[0]
	c.NoError(res.Err, "replace")
	c.Check(strings.Contains(res.Note, "hard link"), "the note does not say that a link was broken: %q", res.Note)
	c.Equal(g.look("other").content, "old\n", "the other name")
	c.Equal(g.look("file").content, "declared\n", "the file")
	c.Equal(string(get("user.note")), "mine", "user attribute")
	c.Equal(get(acl), list, "access list")
	c.Check(!labelled || string(get(label)) == "system_u:object_r:etc_t:s0\x00", "the label: %q", get(label))
	c.Check(get(capability) == nil, "the new content has the capability of the old one")

	// What is declared takes the place of what was there, on the inode that is there where the content stays.
	declared := g.bindFile(declare.File{Path: p, Content: "declared\n", Xattrs: map[string]string{"user.note": "ours"}, ACL: []string{"none"}})
	changes := g.check(declared, host.Deep).Changes
	c.Equal(changes, []host.Change{{Field: "xattrs user.note", From: "mine", To: "ours"}, {Field: "acl", From: "u::rw-,u:nobody:r--,g::r--,m::r--,o::r--", To: "none"}}, "planned")
	inode := g.inode("file")
	g.made(declared)
	c.Check(g.inode("file") == inode, "attributes alone have replaced the file")
	c.Check(string(get("user.note")) == "ours" && get(acl) == nil, "declared attributes: %q, %x", get("user.note"), get(acl))
	g.must(unix.Lsetxattr(p, "user.note", []byte("drift"), 0))
	c.Check(g.converge(declared).Changed && string(get("user.note")) == "ours", "a changed attribute is not noticed by a shallow check")

	// A mode alone is set on the inode that is there, whatever names it has.
	g.clear("other")
	g.must(os.Link(p, g.path("other")))
	g.must(os.Chmod(p, 0o666))
	c.Check(g.made(r).Changed, "mode not repaired")
	c.Equal([]string{g.look("file").mode, g.look("other").mode}, []string{"0644", "0644"}, "modes of both names")
	g.clear("other")

	// Sparse: what has a hole is a file like any other.
	g.clear("file")
	f, err := os.Create(p)
	c.NoError(err, "create")
	c.NoError(errors.Join(f.Truncate(1<<30), f.Close()), "make a hole")
	c.Check(g.check(r, host.Deep).Changes[0].From == "1073741824 B", "a hole of 1 GiB is not shown by its size")
	g.clear("file")

	g.write("file", "old\n", 0o644)
	immutable(t, p)
	res = g.converge(r)
	c.Check(code(res.Err) == reason.Immutable && !res.Changed, "immutable: %+v", res)
	c.Equal(g.look("file").content, "old\n", "immutable content")
	c.Equal(g.entries(), []string{"file"}, "left beside it")
}

// immutable gives a file the immutable attribute until the test ends.
func immutable(t testing.TB, p string) {
	t.Helper()
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Skipf("needs file attributes in %s: %v", filepath.Dir(p), err)
	}
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	const immutableFlag = 0x10 // FS_IMMUTABLE_FL, linux/fs.h
	if err := set(flags | immutableFlag); err != nil {
		t.Skipf("needs the immutable attribute in %s: %v", filepath.Dir(p), err)
	}
	t.Cleanup(func() {
		if err := set(flags); err != nil {
			t.Error(err)
		}
	})
}
