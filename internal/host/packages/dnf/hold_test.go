package dnf

import (
	"slices"
	"strings"
	"testing"
)

// lockLines are lines of versionlock, with the package that each is about.
var lockLines = []struct{ line, name string }{
	{"", ""},
	{"# Added lock on Mon", ""},
	{"!nginx-0:1.20.1-1.el9.*", ""},
	{"nginx", "nginx"},
	{"nginx-core", "nginx-core"},
	{"nginx-mod-stream", "nginx-mod-stream"},
	{"nginx-all-modules-extra", "nginx-all-modules-extra"},
	{"java-1.8.0-openjdk", "java-1.8.0-openjdk"},
	{"java-1.8.0-openjdk-1:1.8.0.402.b06-2.el9.*", "java-1.8.0-openjdk"},
	{"nginx-mod-stream-1:1.20.1-14.el9.*", "nginx-mod-stream"},
	{"nginx-1:1.20.1-*", "nginx"},
	{"nginx-1:*-*", "nginx"},
	{"nginx-1.20.1-14.el9.x86_64", "nginx"},
	{" nginx-0:1.20.1-14.el9.* ", "nginx"},
	{"nginx-one:1.20.1-14.el9", "nginx-one:1.20.1-14.el9"},
	{"nginx-:1.20.1-14.el9", "nginx-:1.20.1-14.el9"},
	{"nginx-0:-14.el9", "nginx-0:-14.el9"},
	{"nginx-0:1-", "nginx-0:1-"},
	{"nginx--", "nginx--"},
	{"-0:1-1", "-0:1-1"},
	{"-", "-"},
}

func TestLockedName(t *testing.T) {
	for _, c := range lockLines {
		if got := lockedName(c.line); got != c.name {
			t.Errorf("%q is about %q, want %q", c.line, got, c.name)
		}
	}
}

// TestLocksKeepOthers: what is held and let go leaves lines of packages whose names begin in the same way.
func TestLocksKeepOthers(t *testing.T) {
	const others = "# by hand\nnginx-mod-stream\nnginx-mod-mail-1:1.20.1-14.el9.*\n"
	names := []string{"nginx"}
	held := locksText(others, names, []string{"1:1.20.1-14.el9"}, true)
	if want := others + "nginx-1:1.20.1-14.el9.*\n"; held != want {
		t.Errorf("held: %q, want %q", held, want)
	}
	if free := locksText(held, names, []string{""}, false); free != others {
		t.Errorf("let go: %q, want %q", free, others)
	}
}

// FuzzLockedName: a line's package is the whole line, or what is before a version; and a hold is read back, and takes no line of others.
func FuzzLockedName(f *testing.F) {
	for _, c := range lockLines {
		f.Add(c.line, "nginx")
	}
	f.Add("nginx-mod-stream", "nginx-mod")
	f.Fuzz(func(t *testing.T, line, name string) {
		if strings.ContainsAny(line+name, "\n") {
			return
		}
		got, text := lockedName(line), strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(text, got)
		if !ok || got != "" && rest != "" && (rest[0] != '-' || strings.Count(rest, "-") != 2) {
			t.Fatalf("%q is about %q", line, got)
		}
		if name == "" || strings.TrimSpace(name) != name || name[0] == '#' || name[0] == '!' {
			return
		}
		held := locksText(line+"\n", []string{name}, []string{"2.0-1.el9"}, true)
		lines := strings.Split(strings.TrimSuffix(held, "\n"), "\n")
		if last := lines[len(lines)-1]; lockedName(last) != name {
			t.Fatalf("%q is held by %q, which is about %q", name, last, lockedName(last))
		}
		if got != name && !slices.Contains(lines, line) {
			t.Fatalf("a hold of %q took %q away", name, line)
		}
	})
}
