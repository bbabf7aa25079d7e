package ignore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		rules string
		path  string
		isDir bool
		want  bool
	}{
		{"", "a", false, false},
		{"*.md\n", "docs/README.md", false, true},
		{"/*.md\n", "docs/README.md", false, false},
		{"docs/*.md", "docs/README.md", false, true},
		{"docs/", "docs", true, true},
		{"docs/", "docs", false, false},
		{"docs/", "a/docs", true, true},
		{"a/**/z", "a/z", false, true},
		{"a/**/z", "a/b/c/z", false, true},
		{"**/z", "a/b/z", false, true},
		{"a/**", "a/b/c", false, true},
		{"a/**", "a", true, false},
		{"*\n!keep.yaml", "keep.yaml", false, false},
		{"!keep.yaml\n*", "keep.yaml", false, true},
		{"# no rule\n\\#a", "#a", false, true},
		{"\\!a", "!a", false, true},
		{"a  ", "a", false, true},
		{"a\\ ", "a ", false, true},
		{"a\r\n", "a", false, true},
		{"[a-c]x", "bx", false, true},
		{"[!a-c]x", "bx", false, false},
		{"[[:digit:]]x", "7x", false, true},
		{"[ü]", "ü", false, true},
		{"a?b/c", "a/b/c", false, false},
		{"a[+-9]b/c", "a/b/c", false, false},
		{"[", "[", false, false},
	} {
		r, err := Parse(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Match(c.path, c.isDir); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.rules, c.path, got, c.want)
		}
	}
}

func TestWith(t *testing.T) {
	first, _ := Parse("*.yaml")
	later, _ := Parse("!a.yaml")
	if both := first.With(later); both.Match("a.yaml", false) || !both.Match("b.yaml", false) || !first.Match("a.yaml", false) {
		t.Error("later rules do not have the last word, or change the earlier ones")
	}
}

func TestBounds(t *testing.T) {
	for text, line := range map[string]int{"a\n" + strings.Repeat("x", ruleBytesMax+1): 2, strings.Repeat("a\n", RulesMax+1): RulesMax + 1} {
		var m *Mistake
		if _, err := Parse(text); !errors.As(err, &m) || m.Line != line {
			t.Errorf("%v, want a mistake on line %d", err, line)
		}
	}
}

// TestLikeGit compares with git itself, over rules and paths of few characters, so that they often nearly match.
func TestLikeGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	dir := t.TempDir()
	run := func(t rapid.TB, stdin string, args ...string) []byte {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, git, append([]string{"-C", dir, "-c", "core.excludesFile=/dev/null"}, args...)...)
		cmd.Stdin, cmd.Env = strings.NewReader(stdin), []string{"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: nothing is ignored
			t.Fatalf("git %v: %v %s", args, err, exit.Stderr)
		}
		return out
	}
	run(t, "", "init", "-q")
	element := rapid.SampledFrom([]string{"a", "b", "ab", "*", "**", "?", "/", "/**/", "**/", "/**", "[ab]", "[!a]", "[a-", "[^]a]", "[+-9]", "[[:alpha:]]", "[[:no:]]", "[b-a]", "\\a", "\\*", "!", "#", " ", "\\ ", "."})
	rules := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(element, 1, 5), func(s []string) string { return strings.Join(s, "") }), 1, 4)
	name := rapid.StringMatching(`[ab*! ]{1,3}|a\.b|#a`)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rules.Draw(t, "rules"), "\n") + "\n"
		paths := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(name, 1, 3), func(s []string) string { return strings.Join(s, "/") }), 20, 20).Draw(t, "paths")
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// Of a path that does not exist git believes that it is a file; a slash at its end makes a directory of it.
		list, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		out := run(t, strings.Join(paths, "\x00")+"\x00", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin")
		fields := bytes.Split(out, []byte{0})
		for i, p := range paths {
			if len(fields) < 4*i+4 {
				t.Fatalf("git said %q", out)
			}
			want := len(fields[4*i]) > 0 && !bytes.HasPrefix(fields[4*i+2], []byte("!"))
			if got := excluded(list, p); got != want {
				t.Fatalf("%q leaves out %q: %v, git says %v by %q", text, p, got, want, fields[4*i+2])
			}
		}
	})
}

// excluded asks for the directories of a path first, as whoever walks a tree does.
func excluded(r Rules, path string) bool {
	for i, c := range path {
		if c == '/' && r.Match(path[:i], true) {
			return true
		}
	}
	return r.Match(path, false)
}

func FuzzParse(f *testing.F) {
	f.Add("*.md\n!a[b-\n/x/**/y\\ ", "a/b/c")
	f.Add("[[:alpha:]-\\", "\xff")
	f.Fuzz(func(t *testing.T, text, path string) {
		r, err := Parse(text)
		if err == nil {
			r.Match(path, false)
			return
		}
		var m *Mistake
		if !errors.As(err, &m) || m.Line < 1 || m.Line > strings.Count(text, "\n")+1 {
			t.Errorf("%v has no place", err)
		}
	})
}
