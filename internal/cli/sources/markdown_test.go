package sources

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/reason"
)

func TestMarkdown(t *testing.T) {
	text := markdown("source/fleet -n prod", &comparison{from: "commit 12345678 (fix #3 <b>) by @ann", changes: []difference{
		{"created", "configmap/c in namespace prod", "+a: b\n"}, {"deleted", "node/n", "-```\n-x\n"},
	}})
	for _, want := range []string{"### tako: `source/fleet -n prod`", "2 objects: 1 created, 1 deleted", "- created `configmap/c in namespace prod`", "```diff\n+a: b\n```",
		"````diff\n-```\n-x\n````", "fix \\#\u200b3 \\<b\\>", "by @\u200bann"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := markdown("s", &comparison{from: "x"}); !strings.Contains(text, "nothing") {
		t.Errorf("%s", text)
	}
	faults := markdown("s", &comparison{from: "x", faults: []declare.Fault{{Code: reason.UnknownField, File: "a/b.yaml", Line: 3, Column: 5, Message: "unknown field \"x\"", Hint: "y?"}}})
	if !strings.Contains(faults, "- `a/b.yaml:3:5` TK0412: unknown field \"x\"; y?") || !strings.Contains(faults, "1 mistake;") {
		t.Errorf("%s", faults)
	}
}

// TestMarkdownIsNoMarkup: whatever is in a commit, a name or a message, it calls nobody, links nowhere and is no HTML.
func TestMarkdownIsNoMarkup(t *testing.T) {
	const hostile = `<img src=x onerror=alert(1)> @everyone #1 !2 [a](https://evil.example) www.evil.example &lt; ** </summary></details> ` + "```"
	for name, c := range map[string]*comparison{
		"a commit": {from: hostile, changes: []difference{{"created", "configmap/c", "+a\n"}}},
		"a name":   {from: "x", changes: []difference{{"created", "clusterrole/" + hostile, "+a\n"}}},
		"a fault":  {from: "x", faults: []declare.Fault{{Code: reason.UnknownField, File: hostile, Message: hostile, Hint: hostile}}},
		"a note":   {from: "x", changes: []difference{{"created", "configmap/c", "+a\n"}}, notes: []string{hostile}},
	} {
		spans := 0
		for line := range strings.Lines(markdown("s", c)) {
			if strings.HasPrefix(line, "- ") && strings.Contains(line, "```` ") { // a span of code, in which nothing has a meaning
				before, rest, _ := strings.Cut(line, "```` ")
				_, after, closed := strings.Cut(rest, " ````")
				if line = before + after; !closed {
					t.Errorf("%s: a span is not closed: %s", name, line)
				}
				spans++
			}
			text := strings.NewReplacer(`\<`, "", `\[`, "", `\]`, "", `\*`, "", `\!`, "", `\&`, "", "\\`", "", "<details><summary>", "", "</summary>\n", "\n", "</details>\n", "\n").Replace(line)
			bads := []string{"<img", "@everyone", "#1", "https://evil", "www.evil", "!2", "</"}
			if !strings.HasPrefix(line, "<details>") { // in which Markdown is not read
				bads = append(bads, "](", "**")
			}
			for _, bad := range bads {
				if strings.Contains(text, bad) {
					t.Errorf("%s: %q is in %s", name, bad, line)
				}
			}
		}
		if name == "a name" && spans != 1 {
			t.Errorf("%s: %d spans of code", name, spans)
		}
	}
}

// TestMarkdownOfNoAnswer: a comment is made of a comparison that could not be made, and says nothing of the server's own.
func TestMarkdownOfNoAnswer(t *testing.T) {
	for want, c := range map[string]*comparison{
		"the check may not ask":              {from: "x", faults: []declare.Fault{{Code: reason.NotAllowed, File: "a.yaml", Line: 1, Column: 1, Message: "no"}}},
		"nothing of it would be applied":     {from: "x", faults: []declare.Fault{{Code: reason.NotAllowed, Message: "no"}, {Code: reason.UnknownField, Message: "no"}}},
		"TK1111":                             {failed: &failure.Error{Code: reason.RepositoryUnreachable, Words: "https://inside.example"}},
		"- `a.yaml` TK0407":                  {from: "x", faults: []declare.Fault{{Code: reason.DeclarationUnread, File: "a.yaml", Message: "no"}}},
		"has checked nothing":                {from: "x", readOnly: true},
		"and 2 more that were not looked at": {from: "x", notes: make([]string, notesMax+2)},
	} {
		if text := markdown("s", c); !strings.Contains(text, want) || strings.Contains(text, "inside") {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestMarkdownIsBounded: whatever changes, a comment is not longer than forges take, its blocks are closed, and what is cut off is said.
func TestMarkdownIsBounded(t *testing.T) {
	long := strings.Repeat("+a line of a file that is somewhat long\n", 10_000)
	for name, c := range map[string]*comparison{
		"one large":   {changes: []difference{{"created", "a", long}, {"created", "b", "+b\n"}}},
		"many":        {changes: many(5000, "+x\n")},
		"many larger": {changes: many(200, long[:4000])},
		"faults":      {faults: make([]declare.Fault, 5000)},
		"long faults": {faults: []declare.Fault{{Message: strings.Repeat("é", 100_000)}, {Message: "b"}}},
	} {
		text := markdown("s", c)
		if len(text) > commentMax {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		if strings.Count(text, "<details>") != strings.Count(text, "</details>") || strings.Count(text, "```")%2 != 0 {
			t.Errorf("%s: a block is not closed", name)
		}
		if !strings.Contains(text, "more") {
			t.Errorf("%s: nothing is said of what is left out:\n%.500s", name, text)
		}
	}
}

func many(n int, diff string) []difference {
	list := make([]difference, n)
	for i := range list {
		list[i] = difference{"configured", fmt.Sprint("object-", i), diff}
	}
	return list
}

// FuzzMarkdown: nothing in a name or a diff closes its block or grows the comment over its bound.
func FuzzMarkdown(f *testing.F) {
	f.Add("```\n</details>", "`a`", "+``` ````\n")
	f.Fuzz(func(t *testing.T, from, object, diff string) {
		text := markdown("s", &comparison{from: from, changes: []difference{{"created", object, diff + "\n"}}})
		if len(from) < 1000 && len(object) < 1000 && len(text) > commentMax {
			t.Errorf("%d bytes", len(text))
		}
		if fence := fenceFor(diff); strings.Contains(diff, fence) {
			t.Errorf("%q closes %q", diff, fence)
		}
	})
}
