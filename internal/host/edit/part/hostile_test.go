package part

import (
	"strings"
	"testing"

	"tako.dev/tako/declare"
)

// TestHostile edits texts that somebody has made to keep the agent busy, or to fill its memory or stack. Each must come to an end.
func TestHostile(t *testing.T) {
	full := func(s string) string { return strings.Repeat(s, BytesMax/len(s)-1) }
	many := func(s string, n int) string { return strings.Repeat(s, n) }
	for _, c := range []struct {
		name string
		edit *declare.Edit
		text string
	}{
		{"empty lines", absent(lineEdit("", "^$", "", "")), full("\n")},
		{"many lines", absent(lineEdit("", "^$", "", "")), many("\n", linesMax)},
		{"one line", lineEdit("x", "(a*)*(a|aa)*$", "", ""), full("a")},
		{"many blocks", absent(blockEdit("", "")), many("# BEGIN name (tako)\n# END name (tako)\n", linesMax/2)},
		{"many keys", iniEdit("", "a", ptr("2")), many("a=1\n", linesMax/10)},
		{"a long continuation", iniEdit("", "a", ptr("2")), "a=" + many("\\\n", linesMax)},
		{"many sections", iniEdit("s", "a", ptr("2")), many("[s]\n", linesMax)},
		{"a long list", jsonEdit("/a/-", "2"), `{"a": [1` + full(",1")[:8<<20] + "]}"},
		{"equal items", absent(jsonEdit("/a/-", "1")), `{"a": [1` + many(",1", entriesMax/10) + "]}"},
		{"deep JSON", jsonEdit("/a/b", "2"), `{"a": ` + many("[", 9000) + many("]", 9000) + "}"},
		{"deep brackets", yamlEdit("/a", "[1]"), "a: " + many("[", 30000) + many("]", 30000) + "\n"},
		{"very deep brackets", yamlEdit("/b", "[1]"), "a: " + many("[", 1<<20) + many("]", 1<<20) + "\n"},
		{"deep dashes", yamlEdit("/a", "1"), "a:\n " + many("- ", 1<<20) + "\n"},
		{"a long mapping", yamlEdit("/a", `{"b": 1}`), "a:\n" + many("  b: 1\n", 9000)},
		{"a long mapping between brackets", yamlEdit("/a", `{"b": 1}`), "a: {" + many("b: 1,", 12000) + "}\n"},
		{"a long document", yamlEdit("/b", "1"), many("a: 1\n", entriesMax)},
		{"quotes", yamlEdit("/b", "1"), "a: " + many("'", 1<<20) + "\n"},
		{"aliases", yamlEdit("/z", "[1]"), "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nz: [*b,*b,*b,*b,*b,*b]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := made(t, c.edit)
			out, err := p.Edit(c.text)
			t.Logf("%d bytes, then %d: %v", len(c.text), len(out), err)
			p.Shown(c.text)
			_, _ = p.Keep(c.text)
			_, _ = p.Drop(c.text)
		})
	}
}
