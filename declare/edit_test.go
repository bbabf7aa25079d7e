package declare

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidateEdit(t *testing.T) {
	one := func(e Edit) []Resource {
		if e.Path == "" {
			e.Path = "/etc/f"
		}
		return []Resource{{Name: "a", Edit: &e}}
	}
	value := func(s string) *string { return &s }
	line := &LineEdit{Text: "x"}
	const at = "spec.resources[0].edit"
	for _, c := range []struct {
		name      string
		resources []Resource
		want      string
	}{
		{"line", one(Edit{Line: &LineEdit{Text: "a b", Match: "^a", After: "^x"}, Create: true, State: EditPresent, Check: []string{"/usr/sbin/sshd", "-t", "-f", "{}"}}), ""},
		{"no line, by pattern", one(Edit{Line: &LineEdit{Match: "^a"}, State: EditAbsent}), ""},
		{"block", one(Edit{Block: &BlockEdit{Content: "a\nb\n", Mark: "my block", Comment: "//", After: "^x$"}}), ""},
		{"empty block", one(Edit{Block: &BlockEdit{}}), ""},
		{"ini", one(Edit{Ini: &IniEdit{Section: `remote "origin"`, Key: "log level", Value: value(`"a b"`), Separator: " = "}}), ""},
		{"key alone", one(Edit{Ini: &IniEdit{Key: "k"}}), ""},
		{"empty value", one(Edit{Ini: &IniEdit{Key: "k", Value: value("")}}), ""},
		{"json", one(Edit{JSON: &PointerEdit{Pointer: "/a~1b/0/~0/-", JSON: "[1, null]"}}), ""},
		{"yaml", one(Edit{YAML: &PointerEdit{Pointer: "/", Value: value("")}}), ""},
		{"no item", one(Edit{YAML: &PointerEdit{Pointer: "/a/-", Value: value("x")}, State: EditAbsent}), ""},
		{"no path", []Resource{{Name: "a", Edit: &Edit{Line: line}}}, "TK0413 " + at + ".path"},
		{"bad path", one(Edit{Path: "f/", Line: line}), "TK0414 " + at + ".path"},
		{"nothing", one(Edit{}), "TK0413 " + at},
		{"two kinds", one(Edit{Line: line, Block: &BlockEdit{}}), "TK0415 " + at + ".block"},
		{"state", one(Edit{Line: line, State: "gone"}), "TK0414 " + at + ".state"},
		{"create of what is absent", one(Edit{Line: line, State: EditAbsent, Create: true}), "TK0415 " + at + ".create"},
		{"check", one(Edit{Line: line, Check: []string{"{}", "a\x00"}}), "TK0414 " + at + ".check[0], TK0414 " + at + ".check, TK0414 " + at + ".check[1]"},
		{"no text", one(Edit{Line: &LineEdit{Match: "a"}}), "TK0413 " + at + ".line.text"},
		{"two lines", one(Edit{Line: &LineEdit{Text: "a\nb"}}), "TK0414 " + at + ".line.text"},
		{"long line", one(Edit{Line: &LineEdit{Text: strings.Repeat("x", editLineBytesMax+1), Match: "^x"}}), "TK0414 " + at + ".line.text"},
		{"a long name", one(Edit{Line: &LineEdit{Text: strings.Repeat("x", ClaimBytesMax)}}), "TK0414 " + at},
		{"a long line that has a short name", one(Edit{Line: &LineEdit{Text: strings.Repeat("x", ClaimBytesMax), Match: "^x"}}), ""},
		{"patterns", one(Edit{Line: &LineEdit{Text: "a", Match: "(", After: `\1`}}), "TK0414 " + at + ".line.match, TK0414 " + at + ".line.after"},
		{"long pattern", one(Edit{Line: &LineEdit{Text: "a", Match: strings.Repeat("x", editPatternBytesMax+1)}}), "TK0414 " + at + ".line.match"},
		{"two places", one(Edit{Line: &LineEdit{Text: "a", After: "a", Before: "b"}}), "TK0415 " + at + ".line.before"},
		{"a place for nothing", one(Edit{Line: &LineEdit{Text: "a", After: "a"}, State: EditAbsent}), "TK0415 " + at + ".line"},
		{"marks", one(Edit{Block: &BlockEdit{Content: "a\n# END a (tako) \n", Mark: "", Comment: "#\n"}}), "TK0414 " + at + ".block.comment"},
		{"a mark inside", one(Edit{Block: &BlockEdit{Content: "a\n# END a (tako) \n\x00"}}), "TK0414 " + at + ".block.content, TK0414 " + at + ".block.content"},
		{"content of nothing", one(Edit{Block: &BlockEdit{Content: "a"}, State: EditAbsent}), "TK0415 " + at + ".block"},
		{"no key", one(Edit{Ini: &IniEdit{Value: value("x")}}), "TK0413 " + at + ".ini.key"},
		{"a comment as key", one(Edit{Ini: &IniEdit{Key: "#a"}}), "TK0414 " + at + ".ini"},
		{"a pair as key", one(Edit{Ini: &IniEdit{Key: "a=b"}}), "TK0414 " + at + ".ini"},
		{"section", one(Edit{Ini: &IniEdit{Section: "a]", Key: "a"}}), "TK0414 " + at + ".ini"},
		{"value of two lines", one(Edit{Ini: &IniEdit{Key: "a", Value: value("a\nb")}}), "TK0414 " + at + ".ini"},
		{"value with blanks", one(Edit{Ini: &IniEdit{Key: "a", Value: value("a ")}}), "TK0414 " + at + ".ini"},
		{"value that goes on", one(Edit{Ini: &IniEdit{Key: "a", Value: value(`a\`)}}), "TK0414 " + at + ".ini"},
		{"separator", one(Edit{Ini: &IniEdit{Key: "a", Separator: "=>"}}), "TK0414 " + at + ".ini"},
		{"value of what is absent", one(Edit{Ini: &IniEdit{Key: "a", Value: value("x")}, State: EditAbsent}), "TK0415 " + at + ".ini.value"},
		{"no pointer", one(Edit{JSON: &PointerEdit{JSON: "1"}}), "TK0413 " + at + ".json.pointer"},
		{"pointers", []Resource{
			{Name: "a", Edit: &Edit{Path: "/a", JSON: &PointerEdit{Pointer: "a", JSON: "1"}}}, {Name: "b", Edit: &Edit{Path: "/b", YAML: &PointerEdit{Pointer: "/~2", JSON: "1"}}},
			{Name: "c", Edit: &Edit{Path: "/c", JSON: &PointerEdit{Pointer: "/a~", JSON: "1"}}}, {Name: "d", Edit: &Edit{Path: "/d", JSON: &PointerEdit{Pointer: "/-/a", JSON: "1"}}}},
			"TK0414 " + at + ".json.pointer, TK0414 spec.resources[1].edit.yaml.pointer, TK0414 spec.resources[2].edit.json.pointer, TK0414 spec.resources[3].edit.json.pointer"},
		{"two values", one(Edit{JSON: &PointerEdit{Pointer: "/a", JSON: "1", Value: value("1")}}), "TK0415 " + at + ".json.json"},
		{"no value", one(Edit{YAML: &PointerEdit{Pointer: "/a"}}), "TK0413 " + at + ".yaml"},
		{"a value of what is absent", one(Edit{YAML: &PointerEdit{Pointer: "/a", JSON: "1"}, State: EditAbsent}), "TK0415 " + at + ".yaml"},
		{"no item to be absent", one(Edit{YAML: &PointerEdit{Pointer: "/a/-"}, State: EditAbsent}), "TK0413 " + at + ".yaml"},
		{"no JSON", one(Edit{YAML: &PointerEdit{Pointer: "/a", JSON: "yes"}}), "TK0414 " + at + ".yaml.json"},
		{"a large value", one(Edit{YAML: &PointerEdit{Pointer: "/a", Value: value(strings.Repeat("x", editJSONBytesMax+1))}}), "TK0414 " + at + ".yaml"},
		{"one part twice", []Resource{{Name: "a", Edit: &Edit{Path: "/f", Line: line}}, {Name: "b", Edit: &Edit{Path: "/f", Line: line}}, {Name: "c", Edit: &Edit{Path: "/g", Line: line}}},
			"TK0421 spec.resources[1].edit.path"},
		{"items", []Resource{{Name: "a", Edit: &Edit{Path: "/f", JSON: &PointerEdit{Pointer: "/-", JSON: "1"}}}, {Name: "b", Edit: &Edit{Path: "/f", JSON: &PointerEdit{Pointer: "/-", JSON: "2"}}}}, ""},
		{"a file that is whole", []Resource{{Name: "a", Edit: &Edit{Path: "/f", Line: line}}, {Name: "b", File: &File{Path: "/f"}}, {Name: "c", Edit: &Edit{Path: "/f", Block: &BlockEdit{}}}},
			"TK0421 spec.resources[0].edit.path, TK0421 spec.resources[2].edit.path"},
		{"inside of a value", []Resource{{Name: "a", Edit: &Edit{Path: "/f", YAML: &PointerEdit{Pointer: "/a/b/c", JSON: "1"}}}, {Name: "b", Edit: &Edit{Path: "/f", YAML: &PointerEdit{Pointer: "/a", JSON: "{}"}}},
			{Name: "c", Edit: &Edit{Path: "/f", YAML: &PointerEdit{Pointer: "/ab", JSON: "1"}}}}, "TK0421 spec.resources[0].edit.yaml.pointer"},
		{"expansion in what it is about", []Resource{{Name: "a", Expand: true, Edit: &Edit{Path: "/f", Line: &LineEdit{Text: "$(node.name)"}}}}, "TK0415 " + at + ".path"},
		{"expansion", []Resource{{Name: "a", Expand: true, Edit: &Edit{Path: "/f", Line: &LineEdit{Text: "$(node.name)", Match: "^a"}}}, {Name: "b", Expand: true, Edit: &Edit{Path: "/f", Ini: &IniEdit{Key: "k", Value: value("$(node.nme)")}}}},
			"TK0427 spec.resources[1].edit.ini.value"},
		{"removed", []Resource{{Name: "a", OnRemove: OnRemoveDelete, Edit: &Edit{Path: "/f", Line: line}}, {Name: "b", OnRemove: OnRemoveRestore, Edit: &Edit{Path: "/f", Block: &BlockEdit{}}}}, ""},
	} {
		if got := summary(Validate(config(c.resources...))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestEditRelated(t *testing.T) {
	faults := Validate(config(Resource{Name: "f", File: &File{Path: "/f"}}, Resource{Name: "a", Edit: &Edit{Path: "/f", Line: &LineEdit{Text: "x"}}}))
	if len(faults) != 1 || len(faults[0].Related) != 1 || faults[0].Related[0].Path != "spec.resources[0].file.path" {
		t.Errorf("%+v", faults)
	}
}

func TestEditOrder(t *testing.T) {
	r := Resource{Name: "a", Edit: &Edit{Path: "/etc/nginx/nginx.conf", Line: &LineEdit{Text: "x"}}}
	var got []string
	for _, e := range r.AutoEdges() {
		if !e.Before {
			got = append(got, e.Other.String())
		}
	}
	for _, want := range []string{"path:/etc/nginx/nginx.conf", "path:/etc/nginx", "package:nginx"} {
		if !slices.Contains(got, want) {
			t.Errorf("not after %s: %v", want, got)
		}
	}
}

// TestPointer: what a step was escaped to is read back.
func TestPointer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("a~/01é ")), 0, 4, -1), 1, 4).Draw(rt, "steps")
		text := ""
		for _, s := range want {
			text += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
		}
		if got, mistake := ParsePointer(text); mistake != "" || !slices.Equal(got, want) {
			rt.Fatalf("%q: %q, %s", text, got, mistake)
		}
	})
}
