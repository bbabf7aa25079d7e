package mount

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

// TestWayOfThePath has mounts over mounts: what a path is on is what the kernel would find.
func TestWayOfThePath(t *testing.T) {
	table := parseTable(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /a rw - tmpfs one rw
31 30 0:31 / /a/b rw - tmpfs hidden-later rw
32 22 0:32 / /ab rw - tmpfs other rw
33 22 0:33 / /c/d rw - tmpfs below-c rw
34 22 0:34 / /c rw - tmpfs over-c rw
35 30 0:35 / /a rw - tmpfs two rw
36 35 0:36 /x\040y /a/e\040f rw master:1 - ext4 /dev/with\040blank rw,errors=remount-ro
37 22 0:37 / /empty rw -  tmpfs
garbage
38 x 0:38 / /bad rw - tmpfs x rw
39 22 0:39 / /nosource rw - tmpfs  rw
40 40 0:40 / /self rw - tmpfs x rw
`)
	for p, want := range map[string]string{
		"/": "/dev/vda", "/x": "/dev/vda", "/a": "two", "/a/b": "two", "/ab": "other", "/abc": "/dev/vda", "/c": "over-c", "/c/d": "over-c",
		"/a/e f": "/dev/with blank", "/a/e f/g": "/dev/with blank", "/nosource": "", "/bad": "/dev/vda", "/self": "/dev/vda",
	} {
		way := table.on(p)
		if got := way[len(way)-1].source; got != want {
			t.Errorf("%s is on %q, want %q", p, got, want)
		}
	}
	if stack := table.at("/a"); len(stack) != 2 || stack[1].source != "two" {
		t.Errorf("on top of one another: %+v", stack)
	}
	if m := table.at("/a/e f"); len(m) != 1 || m[0].root != "/x y" || m[0].super != "rw,errors=remount-ro" {
		t.Errorf("%+v", m)
	}
	if len(table.at("/c/d")) != 0 || len(parseTable("").on("/")) != 0 {
		t.Error("what cannot be seen is mounted")
	}
}

func FuzzTable(f *testing.F) {
	f.Add("22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n23 22 0:1 / /a rw - tmpfs x rw\n24 23 0:1 / /a rw - tmpfs x rw\n", "/a/b")
	f.Add("1 2 0:0 / / rw - x y z\n2 1 0:0 / / rw - x y z\n", "/")
	f.Add("5 5 0:0 / / rw - x y z\n", "/")
	f.Fuzz(func(t *testing.T, body, p string) {
		table := parseTable(body)
		for _, m := range table.at(p) {
			if m.path != p {
				t.Fatalf("%+v is not at %q", m, p)
			}
		}
		if n := len(table.on(p)); n > len(table.all)+1 {
			t.Fatalf("a way over %d of %d mounts", n, len(table.all))
		}
	})
}

func FuzzSwaps(f *testing.F) {
	if got := parseSwaps("Filename\tType\tSize\tUsed\tPriority\n/a\\040b file 1020 4 -2\n"); len(got) != 1 || got[0] != (area{"/a b", 1020 << 10, 4 << 10, -2}) {
		f.Errorf("%+v", got)
	}
	f.Add("Filename\tType\tSize\tUsed\tPriority\n/a\\040b file 1020 4 -2\n")
	f.Fuzz(func(t *testing.T, body string) {
		for _, a := range parseSwaps(body) {
			if a.path == "" {
				t.Fatalf("%+v", a)
			}
		}
		available(body)
	})
}

// lineOf makes a line out of anything.
func lineOf(t *rapid.T, path string) fstabLine {
	word := rapid.StringMatching(`[ -~\t]{1,8}`)
	return fstabLine{source: "x" + word.Draw(t, "source"), path: path, kind: "tmpfs", dump: "0", pass: rapid.IntRange(0, 2).Draw(t, "pass"),
		options: strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z]+(=[a-z /\\]{0,3})?`), 1, 3).Draw(t, "options"), ",")}
}

// TestFstabKeepsOthers: over any text, a line that was put there is read back, a second time changes nothing, no line of others changes or
// moves among them, and what was there can be put back.
func TestFstabKeepsOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([]string{"/a", "/a b", "/a/b", `/a\040`}).Draw(t, "path")
		mine := func(l fstabLine) bool { return l.isEntry() && l.path == path }
		body := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]string{
			"\n", "# /a\n", "x /a tmpfs ro\n", "x\t/a/ tmpfs ro 0 2 more\n", "y /a/b tmpfs defaults 0 0\n", "y /a\\040b tmpfs\n", "  z /b ext4 rw 1 1\r\n", "/a\n", "x /a/b/c t o",
		}), rapid.String()), 0, 6).Draw(t, "body"), "")
		lines := parseFstab(body)
		if joinFstab(lines) != body {
			t.Fatalf("read and written: %q", joinFstab(lines))
		}
		old := oldLines(lines, mine)
		others := slices.DeleteFunc(parseFstab(body), mine)
		want := lineOf(t, path)
		if !want.says(parseFstabLine(want.text())) {
			t.Fatalf("%+v is written as %q and read as %+v", want, want.text(), parseFstabLine(want.text()))
		}
		text := joinFstab(put(parseFstab(body), mine, want))
		now := parseFstab(text)
		at := slices.IndexFunc(now, mine)
		if at < 0 || !now[at].says(want) || slices.ContainsFunc(now[at+1:], mine) {
			t.Fatalf("put into %q: %q", body, text)
		}
		if again := joinFstab(put(parseFstab(text), mine, want)); again != text {
			t.Fatalf("a second time: %q is %q", text, again)
		}
		sameOthers := func(what string, lines []fstabLine) {
			got, was := strings.TrimSuffix(joinFstab(slices.DeleteFunc(slices.Clone(lines), mine)), "\n"), strings.TrimSuffix(joinFstab(others), "\n")
			if got != was {
				t.Fatalf("%s: of others there is %q, and was %q", what, got, was)
			}
		}
		sameOthers("put", now)
		sameOthers("dropped", drop(now, mine))
		if slices.ContainsFunc(drop(now, mine), mine) {
			t.Fatal("dropped, and still there")
		}
		if back := joinFstab(restore(now, mine, old)); strings.TrimSuffix(back, "\n") != strings.TrimSuffix(body, "\n") {
			t.Fatalf("put back: %q, was %q", back, body)
		}
	})
}

func FuzzFstab(f *testing.F) {
	f.Add("LABEL=\"a b\" /x\\040y ext4 defaults,context=\"a,b\" 0 1\n")
	f.Add("\\0 / / \\400\n")
	f.Fuzz(func(t *testing.T, body string) {
		lines := parseFstab(body)
		if joinFstab(lines) != body {
			t.Fatalf("%q is not %q", joinFstab(lines), body)
		}
		for _, l := range lines {
			if l.isEntry() && !strings.ContainsAny(l.source+l.path+l.kind+l.options, "\"\v\f\u0085") {
				if again := parseFstabLine(l.text()); !again.says(l) {
					t.Fatalf("%+v is written as %q", l, l.text())
				}
			}
		}
	})
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		options, flags, super, kind string
		bind                        bool
		is, want                    string
	}{
		{"", "rw,relatime", "rw", "ext4", false, "", ""},
		{"defaults", "rw,nosuid,nodev", "rw", "fuse.x", false, "", ""}, // more than was asked for, by the program that mounts it
		{"ro", "rw,relatime", "rw", "ext4", false, "rw", "ro"},
		{"", "ro,relatime", "ro", "ext4", false, "ro", "rw"},
		{"bind", "ro,nosuid", "rw", "ext4", true, "", ""},
		{"bind,rw", "ro", "rw", "ext4", true, "ro", "rw"},
		{"bind,ro", "rw", "rw", "ext4", true, "rw", "ro"},
		{"nosuid,noexec", "rw,noexec", "rw", "ext4", false, "suid", "nosuid"},
		{"noexec,exec", "rw,noexec", "rw", "ext4", false, "noexec", "exec"},
		{"user,exec", "rw", "rw", "vfat", false, "suid,dev", "nosuid,nodev"},
		{"noatime", "rw,relatime", "rw", "ext4", false, "relatime", "noatime"},
		{"strictatime", "rw", "rw", "ext4", false, "", ""},
		{"size=10M,mode=755,uid=0", "rw", "rw,size=10240k,mode=755", "tmpfs", false, "", ""},
		{"size=20m,mode=0700,uid=5", "rw", "rw,size=10240k,mode=755", "tmpfs", false, "size=10240k,mode=755,uid=", "size=20m,mode=0700,uid=5"},
		{"size=50%,nr_inodes=1k", "rw", "rw,size=10240k,nr_inodes=1024", "tmpfs", false, "", ""},
		{"size=10M", "rw", "rw,size=1k", "ext4", false, "", ""}, // not of tmpfs: the words may mean anything
		{"mode=1777", "rw", "rw", "tmpfs", false, "", ""},
	} {
		is, want := unlike(optionList(c.options), c.bind, mounted{flags: c.flags, super: c.super, kind: c.kind})
		if got := strings.Join(is, ",") + ">" + strings.Join(want, ","); got != c.is+">"+c.want {
			t.Errorf("%q of %q %q: %s, want %s>%s", c.options, c.flags, c.super, got, c.is, c.want)
		}
	}
	for text, want := range map[string]int{"": 0, "a,b": 2, `context="x:c1,c2",ro`: 2, ",a,,": 1, `"`: 1} {
		if got := optionList(text); len(got) != want {
			t.Errorf("%q are %q", text, got)
		}
	}
	for _, c := range []struct {
		old, now string
		want     bool
	}{{"defaults", "nofail", false}, {"noatime,x-a", "nofail,noatime", false}, {"data=ordered", "data=journal", true}, {"ro", "", true}} {
		if got := reaches(optionList(c.old), optionList(c.now)); got != c.want {
			t.Errorf("from %q to %q: %v", c.old, c.now, got)
		}
	}
	if frozen(nil, mounted{flags: "ro", super: "ro"}) || !frozen(nil, mounted{flags: "rw", super: "ro,x"}) || frozen([]string{"ro"}, mounted{flags: "rw", super: "ro"}) {
		t.Error("what the kernel has made read-only")
	}
}

func TestNames(t *testing.T) {
	for p, want := range map[string]string{"/data": "data.mount", "/srv/a b": `srv-a\x20b.mount`, "/a-b/.c": `a\x2db-.c.mount`, "/.a": `\x2ea.mount`, "/é": `\xc3\xa9.mount`} {
		if got := unitOf(p, ".mount"); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	if got := tagName("my disk/é"); got != `my\x20disk\x2fé` {
		t.Errorf("a label: %s", got)
	}
	for now, declared := range map[string]string{"nfs4": "nfs", "fuse.sshfs": "sshfs", "fuseblk": "ntfs-3g", "xfs": "auto", "ext4": "ext4"} {
		if !sameKind(now, declared) {
			t.Errorf("%s is not %s", now, declared)
		}
	}
	if sameKind("ext4", "xfs") {
		t.Error("all kinds are one")
	}
	export := origin{text: "nas:/x"}
	if !export.is(mounted{source: "nas:/x/", kind: "nfs4", root: "/"}, "nfs") || export.is(mounted{source: "nas:/y", kind: "nfs4"}, "nfs") {
		t.Error("exports")
	}
}

// TestSwapLine leaves alone what others have written into the line.
func TestSwapLine(t *testing.T) {
	five := 5
	for _, c := range []struct{ now, want string }{
		{"", "/swap none swap sw,pri=5 0 0"},
		{"/swap none swap defaults,pri=7,nofail 0 0", "/swap none swap nofail,pri=5 0 0"},
		{"/swap swap swap noauto,discard 0 0", "/swap swap swap discard,pri=5 0 0"},
	} {
		now := parseFstabLine(c.now)
		if got := bindSwap(&declare.Swap{Path: "/swap", Priority: &five}).line(&now).text(); got != c.want {
			t.Errorf("%q: %s, want %s", c.now, got, c.want)
		}
	}
	now := parseFstabLine("/swap none swap noauto 0 0")
	if got := bindSwap(&declare.Swap{Path: "/swap"}).line(&now).options; got != optDefaults {
		t.Errorf("options %s", got)
	}
}
