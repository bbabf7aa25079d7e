package sources

import (
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func TestMarkdown(t *testing.T) {
	text := markdown("source/fleet -n prod", &comparison{from: "commit 12345678 (fix #3 <b>) by @ann", changes: []difference{
		{"created", "configmap/c in namespace prod", "+a: b\n"}, {"deleted", "node/n", "-```\n-x\n"},
	}})
	for _, want := range []string{"### tako: `source/fleet -n prod`", "2 objects: 1 created, 1 deleted", "- created `configmap/c in namespace prod`", "```diff\n+a: b\n```",
		"````diff\n-```\n-x\n````", `fix \#3 \<b\>`, "by @\u200bann"} {
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
