package part

import (
	"regexp"
	"strings"
	"testing"

	"tako.dev/tako/declare"
)

// FuzzEdit makes edits of every kind of any text: whatever comes out is stable, and can be undone.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{"", "a=1\n[s]\nb: 2\r\n", "# BEGIN name (tako)\nx\n# END name (tako)\n", `{"a": {"b": [1, 2]}}`, "a:\n  - b: 1\n    c: [x, {y: z}] # c\n", "\ufeffPort 22\nMatch all\n", "a: |\n  b\n\nc: &x 'd'\n", "\x00"} {
		for kind := range uint8(16) {
			f.Add(seed, "a", "b", kind)
		}
	}
	f.Fuzz(func(t *testing.T, text, one, two string, kind uint8) {
		var e *declare.Edit
		switch kind & 7 {
		case 0:
			e = lineEdit(one, "", "", "")
		case 1:
			e = lineEdit(one, two, "", two)
		case 2:
			e = blockEdit(one+"\n"+two, two)
		case 3:
			e = iniEdit(one, two, &one)
		case 4:
			e = iniEdit("", one, nil)
		case 5:
			e = &declare.Edit{JSON: &declare.PointerEdit{Pointer: "/" + one, Value: &two}}
		case 6:
			e = &declare.Edit{YAML: &declare.PointerEdit{Pointer: "/" + one, Value: &two}}
		default:
			e = &declare.Edit{YAML: &declare.PointerEdit{Pointer: "/a/" + one, JSON: two}}
		}
		if kind&8 != 0 {
			e.State = declare.EditAbsent
		}
		p, err := New(e, "name")
		if err != nil {
			return
		}
		out, err := p.Edit(text)
		if err != nil {
			return
		}
		if again, err := p.Edit(out); err != nil || again != out {
			t.Fatalf("%+v of %q: %q, then %q, %v", e, text, out, again, err)
		}
		p.Shown(text)
		kept, err := p.Keep(text)
		if err != nil {
			t.Fatalf("keep of %q: %v", text, err)
		}
		_, _ = p.Restore(out, kept)
		_, _ = p.Drop(out)
		_, _ = p.Restore(two, kept)
	})
}

// dangling is an item without a value: the other reader takes a key on the next line for it.
var dangling = regexp.MustCompile(`-\s*(\n|$)`)

// FuzzYAML compares what an edit of any YAML means with another reader's opinion.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"a: 1\n", "a:\n- b\n- c: d\n  e: f\n", "a: {b: c, d: [e]}\n", "a: >-\n  b\n  c\nd: e\n", "'a': \"b\"\n", "a: &x b\nc: *x\n", "a: b\n  c\n\n  d\ne: f\n", "- a\n-   - b\n    - c\n"} {
		f.Add(seed, "/a/b", "1")
		f.Add(seed, "/c", `"x"`)
		f.Add(seed, "/-", "[1]")
	}
	f.Fuzz(func(t *testing.T, text, pointer, value string) {
		p, err := New(yamlEdit(pointer, value), "name")
		if err != nil || strings.ContainsAny(text, "&*!<") || dangling.MatchString(text) {
			return
		}
		out, err := p.Edit(text)
		if err != nil || out == text {
			return
		}
		doc, err := decodeYAML(text)
		if err != nil {
			return // it takes less, or more, than the other reader
		}
		got, err := decodeYAML(out)
		if err != nil {
			t.Skip("the other reader has faults of its own")
		}
		steps, _ := declare.ParsePointer(pointer)
		v, _ := decodeJSON(value)
		want, possible := modelSet(doc, steps, v, false)
		if possible && !same(got, want) {
			t.Errorf("of %q\nmade %q\nwhich means %v, wanted %v", text, out, got, want)
		}
	})
}
