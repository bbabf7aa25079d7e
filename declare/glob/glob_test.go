package glob

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern   string
		good, bad []string
	}{
		{"a", []string{"a"}, []string{"b", "a/a", "aa", ""}},
		{"*.log", []string{"x.log", ".log"}, []string{"a/x.log", "x.logs"}},
		{"**/*.log", []string{"x.log", "a/x.log", "a/b/c/x.log"}, []string{"x.log/a"}},
		{"a/**", []string{"a", "a/b", "a/b/c"}, []string{"b", "ab"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b", "a/b/b"}, []string{"a", "b", "a/b/c"}},
		{"**", []string{"a", "a/b"}, nil},
		{"**/**", []string{"a", "a/b"}, nil},
		{"a?c/[x-z]", []string{"abc/x", "a\xffc/z", "aéc/y"}, []string{"ac/x", "abc/a"}},
		{`\*`, []string{"*"}, []string{"a"}},
		{"[^a]", []string{"b"}, []string{"a", ""}},
		{"..a", []string{"..a"}, nil},
	} {
		p, mistake := Parse(c.pattern)
		if mistake != "" {
			t.Errorf("%q: %s", c.pattern, mistake)
		}
		for _, s := range c.good {
			if !p.Match(s) {
				t.Errorf("%q does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.bad {
			if p.Match(s) {
				t.Errorf("%q matches %q", c.pattern, s)
			}
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "./a", "a/..", "a**", "**a", "[", "a/[", `a\`, "a\x00", strings.Repeat("a", 1025), strings.Repeat("a/", 64) + "a"} {
		if _, mistake := Parse(bad); mistake == "" {
			t.Errorf("%q is taken", bad)
		}
	}
	if (Pattern{}).Match("") {
		t.Error("no pattern matches")
	}
}

// TestAgainstRegexp compares with another program that knows patterns.
func TestAgainstRegexp(t *testing.T) {
	translate := strings.NewReplacer("*", "[^/]*", "?", "[^/]")
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"**", "*", "a", "a*", "*b", "?", "ab", "*a*b*"}), 1, 6).Draw(t, "pattern")
		at := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "aab", "ba"}), 1, 7).Draw(t, "path"), "/")
		expression := "^"
		for _, n := range names {
			if n == "**" {
				expression += "(/[^/]+)*"
				continue
			}
			expression += "/" + translate.Replace(n)
		}
		want := regexp.MustCompile(expression + "$").MatchString("/" + at)
		pattern := strings.Join(names, "/")
		p, mistake := Parse(pattern)
		if got := p.Match(at); mistake != "" || got != want {
			t.Fatalf("%q on %q: %v (%s), want %v", pattern, at, got, mistake, want)
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"**/*.log", "a/[b-c]/**", `\`, "[", "a**", "**/**/**/x"} {
		f.Add(s, "a/b/c.log")
	}
	f.Fuzz(func(t *testing.T, pattern, at string) {
		p, mistake := Parse(pattern)
		if matched := p.Match(at); matched && mistake != "" {
			t.Errorf("%q cannot be read (%s) and matches", pattern, mistake)
		}
	})
}
