package edit

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
)

// subjects are edits, each of a file of its own, with what it says of that file as it finds it.
type subject struct {
	name string
	edit declare.Edit
	// found are the texts in which the edit finds the file, with what is shown of the part; to is what is shown of what is declared.
	found map[string]string
	field string
	to    string
	// gone are the texts after a removal; where it is not told, gone is the text that was found without the part.
	gone map[string]string
}

const (
	begin = "# BEGIN block (tako)\n"
	end   = "# END block (tako)\n"
)

func subjects() []subject {
	return []subject{
		{"line", declare.Edit{Line: &declare.LineEdit{Text: "PermitRootLogin no", Match: "^#?PermitRootLogin"}},
			map[string]string{"Port 22\n": "absent", "#PermitRootLogin yes\nPort 22\n": "#PermitRootLogin yes"}, "line", "PermitRootLogin no",
			map[string]string{"#PermitRootLogin yes\nPort 22\n": "Port 22\n"}},
		{"no line", declare.Edit{Line: &declare.LineEdit{Match: "^bad"}, State: declare.EditAbsent},
			map[string]string{"bad 1\nx\nbad 2\n": "2 lines, the first bad 1"}, "line", "absent", map[string]string{"bad 1\nx\nbad 2\n": "x\n"}},
		{"block", declare.Edit{Block: &declare.BlockEdit{Content: "a\nb\n"}},
			map[string]string{"x\r\n": "absent", "x\n" + begin + "c\n" + end + "y\n": "1 line sha256:a3a5e715"}, "block", "2 lines sha256:911169dd",
			map[string]string{"x\n" + begin + "c\n" + end + "y\n": "x\ny\n"}},
		{"ini", declare.Edit{Ini: &declare.IniEdit{Section: "s", Key: "key", Value: ptr("tr0ub4dor")}},
			map[string]string{"[s]\nkey = horse\n": "horse", "[t]\n": "absent"}, "value", "tr0ub4dor",
			map[string]string{"[s]\nkey = horse\n": "[s]\n", "[t]\n": "[t]\n\n[s]\n"}},
		{"json", declare.Edit{JSON: &declare.PointerEdit{Pointer: "/a/b", JSON: "[77001, 2]"}},
			map[string]string{`{"a": {"b": 880022, "c": 1}}`: "880022", `{"a": {"c": 1}}`: "absent"}, "value", "[77001, 2]",
			map[string]string{`{"a": {"b": 880022, "c": 1}}`: `{"a": {"c": 1}}`}},
		{"yaml", declare.Edit{YAML: &declare.PointerEdit{Pointer: "/a/b", Value: ptr("tr0ub4dor: 3")}},
			map[string]string{"a: # c\n  b: staple # d\n  c: 1\n": "staple", "a:\n  c: 1\n": "absent"}, "value", `"tr0ub4dor: 3"`,
			map[string]string{"a: # c\n  b: staple # d\n  c: 1\n": "a: # c\n  c: 1\n"}},
	}
}

// TestConformance runs the suite on each kind of edit, in each text that it may find.
func TestConformance(t *testing.T) {
	for _, s := range subjects() {
		number := 0
		for text, from := range s.found {
			number++
			for _, mode := range []os.FileMode{0o644, 0o600} {
				t.Run(fmt.Sprintf("%s/%d/%o", s.name, number, mode), func(t *testing.T) { conform(t, s, text, from, mode) })
			}
		}
	}
}

func conform(t *testing.T, s subject, text, from string, mode os.FileMode) {
	g := newGround(t)
	e := s.edit
	e.Path = g.path("file")
	e.Check = []string{"test", "-s", "{}"}
	to := s.to
	var secrets []string
	if mode == 0o600 {
		if from != "absent" {
			secrets, from = []string{from}, "not shown"
		}
		if to != "absent" {
			secrets, to = append(secrets, to), "as declared, not shown"
		}
	}
	gone, told := s.gone[text]
	if !told {
		gone = text
	}
	before := func(text string) outside {
		g.write("file", text, mode)
		return look(t, e.Path)
	}
	goneLook := before(gone)
	hosttest.Run(t, hosttest.Subject{
		Type: g.Type, Declared: []host.Declared{declared("block", e)}, Remembers: true, Secrets: secrets,
		Situations: []hosttest.Situation{{Name: "found", Arrange: func(testing.TB) { g.write("file", text, mode) }}},
		Observe:    func(t testing.TB, _ int) any { return look(t, e.Path) },
		Difference: func(_ int, before, after any) []host.Change {
			b, a := before.(outside), after.(outside)
			if b.mode != a.mode || b.owner != a.owner {
				t.Errorf("owner or mode: %+v, then %+v", b, a)
			}
			if b.text == a.text {
				return nil
			}
			return []host.Change{{Field: s.field, From: from, To: to}, {Field: "check", To: "must accept it: test -s {}"}}
		},
		Gone:     []any{goneLook},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir) },
		Disturb: func(t testing.TB) {
			g.write("file", strings.Repeat("x", len(text)), mode)
		},
	})
}

// TestConformanceTogether runs the suite on several edits of one file.
func TestConformanceTogether(t *testing.T) {
	g := newGround(t)
	p := g.path("file")
	edits := []declare.Edit{
		{Path: p, Line: &declare.LineEdit{Text: "first"}},
		{Path: p, Line: &declare.LineEdit{Text: "second"}, Create: true},
		{Path: p, Block: &declare.BlockEdit{Content: "third\n"}, Create: true},
	}
	edits[0].Create = true
	names := []string{"a", "b", "block"}
	shows := func(text string, i int) bool {
		return strings.Contains(text, []string{"first\n", "second\n", begin}[i])
	}
	s := hosttest.Subject{
		Type: g.Type, Remembers: true,
		Observe: func(t testing.TB, i int) any {
			// Each sees its own part, and whether the file is there.
			o := look(t, p)
			if o.text = ""; shows(look2(t, p), i) {
				o.text = "there"
			}
			return o
		},
		Difference: func(i int, before, after any) []host.Change {
			var changes []host.Change
			if before.(outside).kind == "absent" {
				changes = append(changes, host.Change{From: "absent", To: "file"})
			}
			field, to := "line", []string{"first", "second", ""}[i]
			if i == 2 {
				field, to = "block", "1 line sha256:5eef8098"
			}
			return append(changes, host.Change{Field: field, From: "absent", To: to})
		},
		Snapshot: func(t testing.TB) string { return hosttest.Tree(t, g.dir) },
		Disturb:  func(t testing.TB) { g.write("file", "somebody was here\n", 0o600) },
	}
	for i, e := range edits {
		s.Declared = append(s.Declared, declared(names[i], e))
	}
	t.Run("no file", func(t *testing.T) {
		s.Situations = []hosttest.Situation{{Name: "none", Arrange: func(testing.TB) { g.clear("file") }}}
		gone := outside{kind: "absent"}
		s.Gone = []any{gone, gone, gone}
		hosttest.Run(t, s)
	})
	t.Run("a file", func(t *testing.T) {
		s.Situations = []hosttest.Situation{{Name: "of others", Arrange: func(testing.TB) { g.write("file", "x\n", 0o644) }}}
		gone := look(t, func() string { g.write("file", "x\n", 0o644); return p }())
		gone.text = ""
		s.Gone = []any{gone, gone, gone}
		hosttest.Run(t, s)
	})
}

func look2(t testing.TB, p string) string { return look(t, p).text }
