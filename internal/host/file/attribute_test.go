package file_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

// needsAttributes skips where the ground's file system keeps no access lists and attributes.
func needsAttributes(t testing.TB, g *ground) {
	t.Helper()
	needsRoot(t)
	for _, tool := range []string{"setfacl", "getfacl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	g.write("probe", "", 0o600)
	defer g.clear("probe")
	if err := unix.Lsetxattr(g.path("probe"), "user.probe", []byte("x"), 0); err != nil {
		t.Skipf("needs extended attributes in %s: %v", g.dir, err)
	}
	if out, err := exec.Command("setfacl", "-m", "u:1:r", g.path("probe")).CombinedOutput(); err != nil {
		t.Skipf("needs access lists in %s: %v, %s", g.dir, err, out)
	}
}

// wholeSight is a sight with attributes, as other programs see them.
type wholeSight struct {
	sight
	list, note string // note is user.note; "none" where there is none
}

func wholeLook(t testing.TB, p string) wholeSight {
	t.Helper()
	s := wholeSight{sight: look(t, p)}
	if s.kind != "file" && s.kind != "directory" {
		return s
	}
	out, err := exec.Command("getfacl", "-cpnE", p).Output()
	if err != nil {
		t.Fatal(err)
	}
	s.list, s.note = strings.Join(strings.Fields(string(out)), ","), "none"
	b := make([]byte, 100)
	if n, err := unix.Lgetxattr(p, "user.note", b); err == nil {
		s.note = string(b[:n])
	}
	return s
}

func (g *ground) setfacl(args ...string) {
	g.Helper()
	if out, err := exec.Command("setfacl", args...).CombinedOutput(); err != nil {
		g.Fatalf("setfacl %v: %v, %s", args, err, out)
	}
}

// TestConformanceAttributes runs the suite on what declares attributes, half a mode, or a content for where nothing is.
func TestConformanceAttributes(t *testing.T) {
	g := newGround(t)
	needsAttributes(t, g)
	no := false
	resources := []declare.Resource{
		{File: &declare.File{Path: g.path("listed"), Content: "as declared\n", Mode: "0640", ACL: []string{"u:1:rw", "g:4:r"}, Xattrs: map[string]string{"user.note": "ours"}}},
		{File: &declare.File{Path: g.path("unlisted"), Content: "as declared\n", ACL: []string{"none"}}},
		{Directory: &declare.Directory{Path: g.path("directory"), Mode: "0750", ACL: []string{"u:1:rx", "d:g:4:rx"}, Xattrs: map[string]string{"user.note": "ours"}}},
		{File: &declare.File{Path: g.path("half"), Content: "as declared\n", Mode: "u+x,o="}},
		{File: &declare.File{Path: g.path("new"), Content: "as declared\n", Mode: "0644", Replace: &no}},
	}
	names := []string{"listed", "unlisted", "directory", "half", "new"}
	gone := make([]any, len(resources))
	s := hosttest.Subject{
		Type: g.Type, Remembers: false, Gone: gone,
		Observe: func(t testing.TB, i int) any { return wholeLook(t, g.path(names[i])) },
		Difference: func(i int, before, after any) []host.Change {
			b, a := before.(wholeSight), after.(wholeSight)
			changes := difference(resources[i], false)(b.sight, a.sight)
			fresh := b.kind != a.kind
			if words := map[string]string{"listed": "u::rw-,u:daemon:rw-,g::r--,g:adm:r--,m::rw-,o::---", "directory": "u::rwx,u:daemon:r-x,g::r-x,m::r-x,o::---", "unlisted": "none"}[names[i]]; words != "" && (fresh && words != "none" || !fresh && besideMode(b.list) != besideMode(a.list)) {
				from := ""
				if !fresh {
					from = listText(b.list)
				}
				changes = append(changes, host.Change{Field: "acl", From: from, To: words})
			}
			if names[i] == "directory" && (fresh || !strings.Contains(b.list, "default:group:4:r-x")) {
				from := ""
				if !fresh {
					from = "none"
				}
				changes = append(changes, host.Change{Field: "default acl", From: from, To: "u::rwx,g::r-x,g:adm:r-x,m::r-x,o::---"})
			}
			if a.note == "ours" && b.note != "ours" {
				changes = append(changes, host.Change{Field: "xattrs user.note", From: b.note, To: "ours"})
			}
			return changes
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir) },
		Disturb: func(t testing.TB) {
			for _, name := range names {
				disturb(t, g.path(name))
			}
		},
	}
	for i, r := range resources {
		s.Declared = append(s.Declared, declared(r))
		gone[i] = wholeSight{sight: sight{kind: "absent"}}
	}
	clear := func() {
		for _, name := range names {
			g.clear(name)
		}
	}
	s.Situations = []hosttest.Situation{
		{Name: "nothing there", Arrange: func(testing.TB) { clear() }},
		{Name: "everything differs", Arrange: func(testing.TB) {
			clear()
			for _, name := range names {
				if name == "directory" {
					g.must(os.Mkdir(g.path(name), 0o755))
				} else {
					g.write(name, "somebody else's\n", 0o606)
				}
				g.must(unix.Lsetxattr(g.path(name), "user.note", []byte("theirs"), 0))
				if name != "half" && name != "new" {
					g.setfacl("-m", "u:2:rwx", g.path(name))
				}
			}
		}},
		{Name: "only attributes differ", Arrange: func(testing.TB) {
			clear()
			g.write("listed", "as declared\n", 0o660)
			g.write("unlisted", "as declared\n", 0o644)
			g.setfacl("-m", "u:2:r", g.path("unlisted"))
			g.must(os.Mkdir(g.path("directory"), 0o750))
			g.write("half", "as declared\n", 0o674)
			g.write("new", "somebody else's\n", 0o600)
		}},
	}
	// Onto a directory that is in the way nothing is tried here: see TestConformance.
	hosttest.Run(t, s)
}

// besideMode is a list as getfacl says it, without what the mode says.
func besideMode(list string) string {
	var words []string
	entries := strings.Split(list, ",")
	for _, w := range entries {
		if !strings.HasPrefix(w, "user::") && !strings.HasPrefix(w, "other::") && !strings.HasPrefix(w, "mask::") && !strings.HasPrefix(w, "default:") {
			words = append(words, w)
		}
	}
	if len(words) == 1 {
		return "" // the group's own, which is the mode's
	}
	return strings.Join(words, ",")
}

// listText is a list as getfacl says it, as a change does.
func listText(list string) string {
	if besideMode(list) == "" {
		return "none"
	}
	list, _, _ = strings.Cut(list, ",default:")
	text := strings.NewReplacer("user::", "u::", "user:2:", "u:bin:", "group::", "g::", "mask::", "m::", "other::", "o::").Replace(list)
	return text
}

func TestSymbolicMode(t *testing.T) {
	g := newGround(t)
	r := g.bindFile(declare.File{Path: g.path("f"), Content: "x\n", Mode: "u+x,o-rwx"})
	g.made(r)
	if got := g.look("f").mode; got != "0740" {
		t.Errorf("new: %s", got)
	}
	for before, want := range map[os.FileMode]string{0o600: "0700", 0o777: "0770", 0o640: "0740"} {
		g.must(os.Chmod(g.path("f"), before))
		if !g.made(r).Changed || g.look("f").mode != want || g.converge(r).Changed {
			t.Errorf("%o became %s, want %s", before, g.look("f").mode, want)
		}
		g.write("f", "other\n", before)
		if g.made(r); g.look("f").mode != want {
			t.Errorf("%o of another content became %s, want %s", before, g.look("f").mode, want)
		}
	}
	d := g.bindDirectory(declare.Directory{Path: g.path("d"), Mode: "u=rwx,g=rx,o="})
	g.made(d)
	g.must(unix.Chmod(g.path("d"), 0o2755))
	if g.made(d); g.look("d").mode != "2750" {
		t.Errorf("a directory: %s", g.look("d").mode)
	}
}

// TestReplaceFalse: what is there keeps its content, is drift by owner and mode only, and comes back where it is gone.
func TestReplaceFalse(t *testing.T) {
	g := newGround(t)
	no := false
	declaration := declare.File{Path: g.path("f"), Content: "as made\n", Mode: "0644", Replace: &no}
	r := g.bindFile(declaration)
	g.made(r)
	if s := g.look("f"); s.content != "as made\n" {
		t.Fatalf("made %+v", s)
	}
	g.write("f", "edited\n", 0o644)
	if p := g.check(r, host.Explain); !p.Empty() {
		t.Errorf("a content that may be others': %+v", p)
	}
	g.must(os.Chmod(g.path("f"), 0o600))
	if !g.made(r).Changed || g.look("f").mode != "0644" || g.look("f").content != "edited\n" {
		t.Errorf("after a chmod: %+v", g.look("f"))
	}
	g.clear("f")
	if g.made(r); g.look("f").content != "as made\n" {
		t.Errorf("removed by hand: %+v", g.look("f"))
	}
	g.write("f", "before\n", 0o600)
	original, err := g.Original(t.Context(), r)
	g.must(err)
	g.made(r)
	g.write("f", "edited again\n", 0o644)
	g.must(g.Remove(t.Context(), r, declare.OnRemoveRestore, original))
	if s := g.look("f"); s.content != "edited again\n" || s.mode != "0600" {
		t.Errorf("restored: %+v", s)
	}
	g.must(g.Remove(t.Context(), r, declare.OnRemoveDelete, nil))
	if g.look("f").kind != "absent" {
		t.Error("not deleted")
	}
}

func TestLabelNeedsSELinux(t *testing.T) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		t.Skip("needs a kernel without SELinux")
	}
	g := newGround(t)
	f := declare.File{Path: g.path("f"), Selinux: "system_u:object_r:etc_t:s0"}
	_, err := g.Bind(t.Context(), declared(declare.Resource{File: &f}))
	if code(err) != reason.NoSELinux {
		t.Errorf("%v", err)
	}
}

func TestAttributeRefused(t *testing.T) {
	g := newGround(t)
	needsAttributes(t, g)
	g.write("f", "old\n", 0o644)
	r := g.bindFile(declare.File{Path: g.path("f"), Content: "new\n", Xattrs: map[string]string{"security.capability": "0x00"}})
	if res := g.converge(r); code(res.Err) != reason.AttributeRefused || g.look("f").content != "old\n" || len(g.entries()) != 1 {
		t.Errorf("a capability that is none: %v, %+v", res.Err, g.look("f"))
	}
}

// TestCapabilityDeclared: a declared capability is on the new content, also after a change of owner, and it is private no more than that.
func TestCapabilityDeclared(t *testing.T) {
	g := newGround(t)
	needsAttributes(t, g)
	const bind = "0x0100000200040000000000000000000000000000" // cap_net_bind_service, permitted and effective
	r := g.bindFile(declare.File{Path: g.path("f"), Content: "new\n", Mode: "0755", Xattrs: map[string]string{"security.capability": bind}})
	has := func() bool {
		b := make([]byte, 100)
		n, err := unix.Lgetxattr(g.path("f"), "security.capability", b)
		return err == nil && n == 20 && b[5] == 4
	}
	for _, arrange := range []func(){
		func() { g.clear("f") },
		func() { g.write("f", "old\n", 0o755) },
		func() { g.must(os.Chown(g.path("f"), nobody, nobody)) },
		func() { g.must(unix.Lremovexattr(g.path("f"), "security.capability")) },
		func() { g.must(os.Chmod(g.path("f"), 0o600)) },
	} {
		arrange()
		g.made(r)
		if !has() || g.look("f").owner != "root" || g.look("f").content != "new\n" {
			t.Fatalf("capability %v, %+v", has(), g.look("f"))
		}
		if p := g.check(r, host.Deep); !p.Empty() {
			t.Fatalf("made, and then %+v", p.Changes)
		}
	}
	inPlace := g.bindFile(declare.File{Path: g.path("f"), Content: "in place\n", Mode: "0755", InPlace: true, Xattrs: map[string]string{"security.capability": bind}})
	if g.made(inPlace); !has() || g.look("f").content != "in place\n" {
		t.Errorf("in place: capability %v, %+v", has(), g.look("f"))
	}
}

// TestAgentCase13_KilledWithAttributes: a file or directory that declares attributes is there with all of them or not at all.
func TestAgentCase13_KilledWithAttributes(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	needsAttributes(t, g)
	note := map[string]string{"user.note": "ours"}
	for name, k := range map[string]struct {
		resource func(p string) declare.Resource
		arrange  func(g *ground)
	}{
		"replace file": {func(p string) declare.Resource {
			return declare.Resource{File: &declare.File{Path: p, Content: "new\n", Mode: "0600", ACL: []string{"u:1:rw"}, Xattrs: note}}
		}, func(g *ground) {
			g.write("thing", "old\n", 0o644)
			g.setfacl("-m", "u:2:r", g.path("thing"))
		}},
		"create directory": {func(p string) declare.Resource {
			return declare.Resource{Directory: &declare.Directory{Path: p, ACL: []string{"d:u:1:rx"}, Xattrs: note}}
		}, func(g *ground) { g.clear("thing") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c.Sub(t)
			g := newGround(t)
			row := g.row(k.resource(g.path("thing")), "thing", func() { k.arrange(g) })
			row.See = func(t testing.TB) []string { return []string{fmt.Sprintf("%+v", wholeLook(t, g.path("thing")))} }
			kills := kill.Everywhere(t, row)
			c.Check(kills > 3, "killed at %d places only", kills)
			t.Logf("killed at %d system calls", kills)
		})
	}
}

// TestListFollowsNames: a name in a list is another number when the host says so, and one that nobody has is told.
func TestListFollowsNames(t *testing.T) {
	g := newGround(t)
	needsAttributes(t, g)
	g.must(os.Mkdir(g.path("etc"), 0o755))
	users := func(text string) { g.write("etc/passwd", text, 0o644) }
	users("root:x:0:0::/:/bin/sh\n")
	typ := newType(t, g.dir, g.store)
	f := declare.File{Path: "/f", Content: "x\n", ACL: []string{"u:web:r", "u:7:rw"}}
	if _, err := typ.Bind(t.Context(), declared(declare.Resource{File: &f})); code(err) != reason.UnknownOwner {
		t.Errorf("nobody has the name: %v", err)
	}
	users("root:x:0:0::/:/bin/sh\nweb:x:1001:1001::/:/bin/sh\n")
	r, err := typ.Bind(t.Context(), declared(declare.Resource{File: &f}))
	g.must(err)
	if w := r.Watches(); len(w) != 2 || w[1].Name != "/etc/passwd" {
		t.Errorf("watches %v", w)
	}
	converge := func() []host.Change {
		t.Helper()
		p := typ.Check(t.Context(), []host.Resource{r}, host.Shallow)[0]
		g.must(p.Err)
		if !p.Empty() {
			g.must(typ.Apply(t.Context(), []host.Plan{p})[0].Err)
		}
		return p.Changes
	}
	converge()
	if got := wholeLook(t, g.path("f")).list; !strings.Contains(got, "user:7:rw-,user:1001:r--,") {
		t.Errorf("made with %s", got)
	}
	users("root:x:0:0::/:/bin/sh\nweb:x:5:5::/:/bin/sh\n")
	changes := converge()
	if got := wholeLook(t, g.path("f")).list; !strings.Contains(got, "user:5:r--,user:7:rw-,group") || len(changes) != 1 || changes[0].Field != "acl" {
		t.Errorf("another number: %s, %+v", got, changes)
	}
	if len(converge()) != 0 {
		t.Error("and again")
	}
	twice := declare.File{Path: "/g", ACL: []string{"u:web:r", "u:5:rw"}}
	if _, err := typ.Bind(t.Context(), declared(declare.Resource{File: &twice})); code(err) != reason.InvalidValue {
		t.Errorf("one user twice: %v", err)
	}
}
