package declare

import (
	"encoding/json"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// FuzzRead checks what must hold for any bytes: no panic, a code and a place within the file for every mistake, and that
// taking the resources out of a document changes nothing of what is read.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		header + "  resources:\n  - name: a\n    file: {path: /a}\n  - name: b\n    require: [a]\n  priority: 3\n",
		header + "  resources:\n    - name: a\n      file:\n        content: |\n          - x\n\n      mode: 0644\n    # c\n    -\n",
		"---\n" + header + "  resources: []\n...\n---\nkind: X\n", `{"kind": "NodeConfig", "spec": {"resources": [{"name": "a"}]}}`,
		"a: &x b\nc: *x\n<<: {d: e}\n", "%YAML 1.2\n---\n? a\n: b\n", "a: 'b\n\tc: \"d\\q", "\uFEFFa: \r\n", "- - -\n[{", "*0", "a: !!binary x", "spec:\n resources:\n -",
		header + "  rollout: {try: 20s}\n  resources:\n  - name: a\n    file: {path: /a, contentFrom: {secret: {name: web, key: k}, configMap: {namespace: b}}}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			t.Skip("too long to be quick")
		}
		documents, faults := Read("f", data)
		for i := range documents {
			faults = append(faults, documents[i].Validate()...)
		}
		lines := strings.Count(string(data), "\n") + 1
		for _, x := range faults {
			if _, known := reason.Lookup(x.Code); !known || x.File != "f" || x.Line < 1 || x.Column < 1 || x.Line > lines || x.Message == "" {
				t.Errorf("fault without a place or a code: %+v", x)
			}
		}
		if len(faults) == 0 && len(documents) > 0 {
			compareUnsplit(t, string(data), documents)
		}
	})
}

// compareUnsplit reads a text without mistakes again, each document in one piece.
func compareUnsplit(t *testing.T, text string, want []Document) {
	r := reader{file: "f"}
	text, _ = r.clean([]byte(text))
	i := 0
	for s := range splitStream(text) {
		body, ok := r.parse(s)
		if body == nil && ok {
			continue
		}
		if !ok {
			t.Fatalf("in one piece it cannot be parsed: %v", r.faults)
		}
		d := newDecoder(&r, false)
		d.at = s.place
		config, _ := d.document(body)
		got, _ := json.Marshal(config)
		expected, _ := json.Marshal(want[i].Config)
		if string(got) != string(expected) {
			t.Fatalf("in pieces %s\nin one piece %s", expected, got)
		}
		for j := range want[i].Config.Spec.Resources {
			path := ResourcePath(j) + ".name"
			line, column := d.positions.Find(path)
			if p := want[i].Place(path); p.Line != line || p.Column != column {
				t.Fatalf("%s is at %d:%d in one piece, at %v in pieces", path, line, column, p)
			}
		}
		i++
	}
}

// FuzzParseWhen checks that a condition that parses can be evaluated, whatever a host knows, and that a mistake has a
// column within the text.
func FuzzParseWhen(f *testing.F) {
	for _, s := range []string{"facts.os.id == 'debian' && !(facts.cpu.count >= 4)", "node.labels[\"a/b\"] in ['x', \"y\"] || true", "((", "1 < 2", "'\\'", "facts.x", "node.labels['", "-", "!true==false", "é == 'é'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseWhen(s)
		if err != nil {
			_, mistake := parseWhen(s)
			if mistake == nil || mistake.column < 1 || mistake.column > len(s)+1 || mistake.message == "" {
				t.Fatalf("%q: %+v", s, mistake)
			}
			return
		}
		nothing := func(string) (Value, bool) { return Value{}, false }
		if _, err := e.Eval(nothing); err != nil {
			t.Fatalf("%q on a host that knows nothing: %v", s, err)
		}
		if missing := e.Missing(nothing); len(missing) != len(e.Names()) {
			t.Fatalf("%q: %v of %v are missing", s, missing, e.Names())
		}
		if _, err := e.Eval(sampleScope().Lookup); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
	})
}

// FuzzExpand checks that Expand and ExpandNames agree on what is a mistake, and that escaping is the inverse of expanding.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(node.name) and $$(x)", "$(node.labels['a)'])", "$", "$$", "$(", "$()", "$(node.name", "$$$(node.name)", "é$(facts.x)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, namesErr := ExpandNames(s)
		_, err := Expand(s, sampleScope().Lookup)
		if (err == nil) != (namesErr == nil) && !reason.Is(err, reason.BodyTooLarge) {
			t.Fatalf("%q: Expand says %v, ExpandNames %v", s, err, namesErr)
		}
		if strings.Contains(s, "$$(") {
			return // would need more than escaping the parenthesis
		}
		if got, err := Expand(strings.ReplaceAll(s, "$(", "$$("), sampleScope().Lookup); err != nil || got != s {
			t.Fatalf("escaped %q comes back as %q, %v", s, got, err)
		}
	})
}

// FuzzParseClaim checks that a claim is written as it is read.
func FuzzParseClaim(f *testing.F) {
	for _, s := range []string{"path:/etc/motd", "package:nginx", "unit:a:b.service", "path:", "user:x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, ok := ParseClaim(s); ok && (c.String() != s || c.ID == "") {
			t.Fatalf("%q is read as %+v", s, c)
		}
	})
}
