package part

import (
	"strconv"
	"testing"

	"tako.dev/tako/declare"
)

// TestAnchorsOfYAML: what an anchor belongs to is not guessed, and no alias is left that stands for nothing.
func TestAnchorsOfYAML(t *testing.T) {
	const refused = "!an anchor or a tag stands before"
	rows(t, []row{
		{"anchor of the only key, add", yamlEdit("/b", "1"), "&x a: 1\n", refused},
		{"anchor of the only key, remove", absent(yamlEdit("/a", "")), "&x a: 1\n", refused},
		{"anchor of a key in an item", yamlEdit("/0/b", "1"), "- &x a: 1\n", refused},
		{"tag of a key", yamlEdit("/b", "1"), "!!str a: 1\n", refused},
		{"anchor of a value", yamlEdit("/a/c", "1"), "a: &x\n  b: 1\n", "a: &x\n  b: 1\n  c: 1\n"},
		{"remove what an alias stands for", absent(yamlEdit("/a", "")), "a: &x 1\nb: *x\n", "!&x"},
		{"remove what a merge stands for", absent(yamlEdit("/a", "")), "a: &x\n  c: 1\nb:\n  <<: *x\n", "!&x"},
		{"remove an item that an alias stands for", absent(yamlEdit("/a/-", `"c"`)), "a:\n  - &x c\nb: [*x]\n", "!&x"},
		{"replace what holds an anchor", yamlEdit("/a", "2"), "a:\n  c: &x 1\nb: *x\n", "!&x"},
		{"remove anchor and alias", absent(yamlEdit("/a", "")), "a:\n  c: &x 1\n  d: *x\nb: 1\n", "b: 1\n"},
	})
}

// TestAnchorsThatStay: an edit beside an anchor, of what has one, or of one that nothing stands for.
func TestAnchorsThatStay(t *testing.T) {
	for _, c := range []struct {
		edit       *declare.Edit
		text, want string
	}{
		{yamlEdit("/a", "2"), "a: &x 1\nb: *x\n", "a: &x 2\nb: *x\n"},
		{yamlEdit("/a", "2"), "a: &x {b: 1}\nb: *x\n", "a: &x 2\nb: *x\n"},
		{absent(yamlEdit("/a", "")), "a: &x 1\nb: '&x *y'\n", "b: '&x *y'\n"},
		{absent(yamlEdit("/a", "")), "a: &x 1\nb: &xy 1\nc: *xy\n", "b: &xy 1\nc: *xy\n"},
	} {
		if got, err := made(t, c.edit).Edit(c.text); err != nil || got != c.want {
			t.Errorf("of %q: %q, %v, want %q", c.text, got, err, c.want)
		}
	}
}

// TestTextsOfYAML: a text is written so that every reader of YAML takes it: escapes that only JSON has, and signs that YAML does not allow.
func TestTextsOfYAML(t *testing.T) {
	rows(t, []row{
		{"an escaped slash", yamlEdit("/b", `["a\/b"]`), "a: 1\n", "a: 1\nb: [\"a/b\"]\n"},
		{"a pair of surrogates", yamlEdit("/b", `{"\ud83d\ude00": ["\ud83d\ude00"]}`), "a: 1\n", "a: 1\nb: {\"😀\": [\"😀\"]}\n"},
		{"signs that do not print", yamlEdit("/b", `"\u007f\u0085\u009f\ufeff\u2028\uffff"`), "a: 1\n", "a: 1\nb: \"\\u007f\\u0085\\u009f\\ufeff\\u2028\\uffff\"\n"},
		{"the same in a list", yamlEdit("/b", "[\"\u007f\u0085\u009f\ufeff\"]"), "a: 1\n", "a: 1\nb: [\"\\u007f\\u0085\\u009f\\ufeff\"]\n"},
		{"the same in a key", yamlEdit("/b\u007f", "1"), "a: 1\n", "a: 1\n\"b\\u007f\": 1\n"},
		{"the same in a key between brackets", yamlEdit("/a/b\u007f", "1"), "a: {c: 1}\n", "a: {c: 1, \"b\\u007f\": 1}\n"},
		{"it is there", yamlEdit("/b", `"\u007f\ud83d\ude00"`), "b: \"\\u007f😀\"\n", ""},
		{"JSON keeps its own", jsonEdit("/b", `["a\/b", "\ud83d\ude00"]`), "{}", "{\n  \"b\": [\n    \"a\\/b\",\n    \"\\ud83d\\ude00\"\n  ]\n}"},
	})
}

// TestCommentsInItems: what is said of the next key stays when the first one of an item goes.
func TestCommentsInItems(t *testing.T) {
	gone := absent(yamlEdit("/0/a", ""))
	for i, c := range [][2]string{
		{"- a: 1 # of a\n  # of b\n  b: 2\n", "- # of b\n  b: 2\n"},
		{"- a:\n    x: 1\n  # of b\n  # more\n  b: 2 # x\n", "- # of b\n  # more\n  b: 2 # x\n"},
		{"- a: 1\r\n  # of b\r\n  b: 2\r\n", "- # of b\r\n  b: 2\r\n"},
		{"- a: 1 # of a\n  b: 2\n", "- b: 2\n"},
	} {
		rows(t, []row{{strconv.Itoa(i), gone, c[0], c[1]}})
	}
}

// TestHeadersOfSections: a comment behind a header is not part of the name.
func TestHeadersOfSections(t *testing.T) {
	set := iniEdit("a", "k", ptr("2"))
	rows(t, []row{
		{"a comment with brackets", set, "[a] ; see [b]\nk=1\n", "[a] ; see [b]\nk=2\n"},
		{"a comment with a bracket", set, "[a] # x]\nk=1\n", "[a] # x]\nk=2\n"},
		{"a bracket in the name", set, "[a]\nk=1\n[o \"a] b\"]\nk=1\n", "[a]\nk=2\n[o \"a] b\"]\nk=1\n"},
	})
}
