package file_test

import (
	"context"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// difference says in Changes what lies between two looks at a resource's path.
func difference(r declare.Resource, private bool) func(before, after sight) []host.Change {
	return func(before, after sight) []host.Change {
		var changes []host.Change
		add := func(field, from, to string) {
			if from != to {
				changes = append(changes, host.Change{Field: field, From: from, To: to})
			}
		}
		fresh := before.kind != after.kind
		if fresh {
			field := "type"
			if before.kind == "absent" {
				field = ""
			}
			add(field, before.kind, after.kind)
			before = sight{}
		}
		if before.content != after.content || fresh && after.kind == "file" {
			from := ""
			if !fresh {
				from = contentWords(before.content, private || strings.HasSuffix(before.mode, "00"))
			}
			changes = append(changes, host.Change{Field: "content", From: from, To: contentWords(after.content, private || strings.HasSuffix(before.mode, "00"))})
			if r.File != nil && r.File.Check != nil {
				add("check", "", "must accept it: "+strings.Join(r.File.Check, " "))
			}
		}
		add("target", before.target, after.target)
		add("mode", before.mode, after.mode)
		add("owner", before.owner, after.owner)
		add("group", before.group, after.group)
		return changes
	}
}

func contentWords(text string, private bool) string {
	n := strconv.Itoa(len(text)) + " B"
	if private {
		return n + ", not shown"
	}
	return n + " " + content.DigestOf([]byte(text)).String()[:len("sha256:01234567")]
}

// conform runs the suite on resources, whose situations are made by name of the last element of their path.
func conform(t *testing.T, g *ground, resources []declare.Resource, situations []hosttest.Situation, secrets ...string) {
	t.Helper()
	s := hosttest.Subject{
		Type: g.Type, Situations: situations, Remembers: true, Secrets: secrets,
		Observe: func(t testing.TB, i int) any { return look(t, resources[i].Claim().ID) },
		Difference: func(i int, before, after any) []host.Change {
			r := resources[i]
			return difference(r, r.File != nil && r.File.Private())(before.(sight), after.(sight))
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir) },
		Disturb: func(t testing.TB) {
			for _, r := range resources {
				disturb(t, r.Claim().ID)
			}
		},
	}
	for _, r := range resources {
		s.Declared = append(s.Declared, declared(r))
		s.Gone = append(s.Gone, sight{kind: "absent"})
	}
	hosttest.Run(t, s)
}

// disturb changes what is at a path, or makes something there.
func disturb(t testing.TB, p string) {
	t.Helper()
	_ = os.Remove(p)
	if err := os.WriteFile(p, []byte("somebody was here"), 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	g := newGround(t)
	resources := []declare.Resource{
		{File: &declare.File{Path: g.path("file"), Content: "as declared\n", Mode: "0640", Force: true}},
		{File: &declare.File{Path: g.path("checked"), Content: "as declared\n", Check: []string{"grep", "-q", "declared", "{}"}, Force: true}},
		{File: &declare.File{Path: g.path("empty"), Force: true}},
		{Directory: &declare.Directory{Path: g.path("directory"), Mode: "2750", Force: true}},
		{Symlink: &declare.Symlink{Path: g.path("symlink"), Target: "file", Force: true}},
	}
	each := func(arrange func(name string)) func(testing.TB) {
		return func(testing.TB) {
			for _, name := range []string{"file", "checked", "empty", "directory", "symlink"} {
				g.clear(name)
				arrange(name)
			}
		}
	}
	conform(t, g, resources, []hosttest.Situation{
		{Name: "nothing there", Arrange: each(func(string) {})},
		{Name: "everything differs", Arrange: each(func(name string) {
			switch name {
			case "directory":
				g.must(os.Mkdir(g.path(name), 0o700))
			case "symlink":
				g.must(os.Symlink("elsewhere", g.path(name)))
			default:
				g.write(name, "somebody else's\n", 0o4755)
			}
		})},
		{Name: "same length", Arrange: each(func(name string) {
			switch name {
			case "directory":
				g.must(os.Mkdir(g.path(name), 0o755))
			case "symlink":
				g.must(os.Symlink("life", g.path(name)))
			case "empty":
				g.write(name, "", 0o666)
			default:
				g.write(name, "AS DECLARED\n", 0o644)
			}
		})},
		{Name: "only the owner may read what is there", Arrange: each(func(name string) {
			switch name {
			case "directory", "symlink":
			default:
				g.write(name, "not for everybody\n", 0o600)
			}
		})},
		{Name: "files in the way", Arrange: each(func(name string) {
			switch name {
			case "directory", "symlink":
				g.write(name, "a file\n", 0o644)
			default:
				g.must(os.Symlink("a target", g.path(name)))
			}
		})},
		{Name: "directories in the way", Arrange: each(func(name string) {
			if name == "directory" {
				g.must(os.Symlink("a target", g.path(name)))
				return
			}
			g.must(os.Mkdir(g.path(name), 0o711))
		})},
	})
}

func TestConformancePrivate(t *testing.T) {
	const secret, old = "tr0ub4dor", "correct horse"
	g := newGround(t)
	resources := []declare.Resource{
		{File: &declare.File{Path: g.path("secret"), Content: secret, Mode: "0400"}},
		{File: &declare.File{Path: g.path("checked"), Content: secret, Mode: "0600", Check: []string{"grep", "-q", "r0u", "{}"}}},
	}
	conform(t, g, resources, []hosttest.Situation{
		{Name: "nothing there", Arrange: func(testing.TB) { g.clear("secret"); g.clear("checked") }},
		{Name: "another secret there", Arrange: func(testing.TB) { g.write("secret", old, 0o644); g.write("checked", old, 0o600) }},
	}, secret, old, content.DigestOf([]byte(secret)).String()[:15], content.DigestOf([]byte(old)).String()[:15])
}

func TestConformanceInPlace(t *testing.T) {
	g := newGround(t)
	resources := []declare.Resource{{File: &declare.File{Path: g.path("file"), Content: "as declared\n", InPlace: true}}}
	conform(t, g, resources, []hosttest.Situation{
		{Name: "nothing there", Arrange: func(testing.TB) { g.clear("file") }},
		{Name: "longer", Arrange: func(testing.TB) { g.write("file", "much longer than declared\n", 0o600) }},
	})
}

func TestConformanceSandbox(t *testing.T) {
	g := newGround(t)
	g.must(os.Mkdir(g.path("etc"), 0o755))
	g.Type = newType(t, g.dir, g.store)
	r := declare.Resource{File: &declare.File{Path: "/etc/motd", Content: "in the sandbox\n"}}
	g.made(g.bind(r))
	if got := g.look("etc/motd"); got.content != "in the sandbox\n" {
		t.Errorf("in the sandbox: %+v", got)
	}
	if reflect.DeepEqual(look(t, "/etc/motd").content, "in the sandbox\n") {
		t.Error("the host's own file was written")
	}
}

// TestAsOrdinaryUser runs the tests that make sense without root rights as a user who has none.
func TestAsOrdinaryUser(t *testing.T) {
	needsRoot(t)
	dir, err := os.MkdirTemp("", "ordinary")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^(TestConformance|TestOwner|TestOrdinary|TestOriginal|TestCheck)", "-test.v", "-test.short")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestConformance ") || !strings.Contains(string(out), "PASS: TestOrdinaryUserOwners ") {
		t.Errorf("as uid %d: %v\n%s", nobody, err, out)
	}
}
