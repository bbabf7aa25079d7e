package present

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// hiddenCases are files with a secret that holds the word hunter2, and what must still be seen of them.
var hiddenCases = []struct{ name, text, shown string }{
	{"a misspelt field beside it", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: x}\nstringData:\n  password: hunter2\ntyp: Opaque\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: x}\nstringData:\n  password: (secret)\ntyp: (secret)\n"},
	{"several lines", "kind: Secret\nstringData:\n  key: |\n    hunter2\n    name: hunter2\n\n    hunter2\n  b: 'a\n    hunter2'\ntype: Opaque\n",
		"kind: Secret\nstringData:\n  key: (secret)\n    (secret)\n    (secret)\n\n    (secret)\n  b: (secret)\n    (secret)\ntype: Opaque\n"},
	{"no YAML", "kind: Secret\ndata:\n  key: |\n  hunter2\nhunter2\n\thunter2\nmetadata:\n  name: s\n", "  name: s\n"},
	{"flow style", "kind: Secret\nstringData: {password: hunter2}\nmetadata: {name: s, annotations: {a: hunter2}}\n", "kind: Secret\nstringData: (secret)\nmetadata: (secret)\n"},
	{"a kind that is misspelt", "kind: Secrt\nstringData:\n  a: hunter2\n", "kind: Secrt\n"},
	{"a field that is misspelt", "kind: Secret\nstringDta:\n  a: hunter2\nmetadata:\n  name: s\n", "  a: (secret)\nmetadata:\n  name: s\n"},
	{"another kind beside it", "kind: ConfigMap\ndata:\n  a: open\n---\nkind: Secret\ndata:\n  a: hunter2\n", "  a: open\n---\n"},
	{"JSON", "{\"kind\": \"Secret\", \"stringData\": {\"a\": \"hunter2\"}}\n", ""},
	{"JSON of several lines", "{\n  \"kind\": \"Secret\",\n  \"stringData\": {\n    \"a\": \"hunter2\"\n  }\n}\n", "  \"stringData\": {\n    \"a\": (secret)\n  }\n}\n"},
	{"a list", "kind: List\nitems:\n- kind: Secret\n  metadata:\n    name: s\n  data:\n    a: hunter2\n", "- kind: Secret\n  metadata:\n    name: s\n  data:\n    a: (secret)\n"},
	{"what was commented out", "kind: Secret\ndata:\n  # a: hunter2\n  a: b\n", ""},
	{"a private file", "kind: NodeConfig\nspec:\n  resources:\n    - name: key\n      file:\n        path: /etc/key\n        mode: 0600\n        content: |\n          hunter2\n" +
		"        ower: root\n    - name: motd\n      file: {path: /etc/motd, content: open}\n",
		"    - name: key\n      file:\n        path: /etc/key\n        mode: 0600\n        content: (secret)\n          (secret)\n        ower: (secret)\n    - name: motd\n      file: {path: /etc/motd, content: open}\n"},
	{"a private file in flow style", "spec:\n  resources:\n  - name: a\n    file: {path: /a, content: hunter2, mode: '0400'}\n    require: [b, c]\n", "    file: {path: /a, content: (secret), mode: '0400'}\n    require: [b, c]\n"},
	{"fields that are misspelt", "spec:\n  resources:\n  - name: a\n    fiel:\n      contnet: hunter2\n      mod: 0600\n", "    fiel:\n      contnet: (secret)\n"},
	{"a mode that is misspelt", "spec:\n  resources:\n  - file:\n      content: hunter2\n      mode: 06OO\n      path: /a\n", "      mode: 06OO\n      path: /a\n"},
	{"a private file in JSON", "{\n\"resources\": [\n{\"name\": \"a\",\n\"file\": {\"content\": \"hunter2\", \"mode\": \"0600\"}}\n]\n}\n", "\"resources\": [\n"},
}

// TestHideSecrets: no secret is left, whatever the error may be about, and what is no secret is still there.
func TestHideSecrets(t *testing.T) {
	for _, c := range hiddenCases {
		got := strings.Join(hideSecrets(strings.Split(c.text, "\n")), "\n")
		if strings.Contains(got, "hunter2") || !strings.Contains(got, c.shown) {
			t.Errorf("%s: it shows\n%s\nwant\n%s", c.name, got, c.shown)
		}
		for i := range strings.Split(c.text, "\n") {
			var b strings.Builder
			source := func(string) ([]byte, error) { return []byte(c.text), nil }
			if err := Faults(&b, []declare.Fault{{Code: reason.UnknownField, File: "f", Line: i + 1, Column: 3, Message: "x"}}, source, Style{}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), "hunter2") {
				t.Errorf("%s: an error on line %d shows it:\n%s", c.name, i+1, b.String())
			}
		}
	}
}

// TestCaretBehindASecret: what is meant is underlined, though the line is shorter than it is in the file.
func TestCaretBehindASecret(t *testing.T) {
	const text = "resources:\n- file: {content: hunter2-hunter2-hunter2, ower: root, mode: 0600}\n"
	var b strings.Builder
	source := func(string) ([]byte, error) { return []byte(text), nil }
	fault := declare.Fault{Code: reason.UnknownField, File: "f", Line: 2, Column: strings.Index(text, "ower") - len("resources:"), Message: "x"}
	if err := Faults(&b, []declare.Fault{fault}, source, Style{}); err != nil {
		t.Fatal(err)
	}
	const want = " 2 | - file: {content: (secret), ower: (secret), mode: 0600}\n   |                             ^^^^\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("want\n%s\nin\n%s", want, b.String())
	}
}

// TestPublicLinesStay: without a secret in a file, its excerpts are the file.
func TestPublicLinesStay(t *testing.T) {
	const text = "kind: NodeConfig\nspec:\n  resources:\n    - name: motd # 0600\n      file:\n        path: /etc/motd\n        mode: \"0644\"\n        contnet: |\n          hello 0600\n" +
		"---\nkind: ConfigMap\ndata:\n  mode: 0600\n  a: b\n"
	if got := strings.Join(hideSecrets(strings.Split(text, "\n")), "\n"); got != text {
		t.Errorf("it became\n%s", got)
	}
}

// TestNoSecretValueStays: of a Secret in block style, whatever its values are and however they are indented, none of them is seen.
// A line without its indentation that has a colon is a key for every reader; what stands before its colon is seen.
func TestNoSecretValueStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`hunter[ {}\[\]"'#,|>&*!-]{0,6}hunter`).Draw(t, "value")
		indent := strings.Repeat(" ", rapid.IntRange(0, 6).Draw(t, "indent"))
		block := rapid.SampledFrom([]string{"|", ">-", "", "|2"}).Draw(t, "block")
		text := "apiVersion: v1\nkind: Secret\ndata:\n  a: " + block + "\n" + indent + value + "\n  b: " + value + "\nmetadata:\n  name: s\n"
		if got := strings.Join(hideSecrets(strings.Split(text, "\n")), "\n"); strings.Contains(got, "hunter") {
			t.Errorf("%s\nbecame\n%s", text, got)
		}
	})
}

func FuzzHideSecrets(f *testing.F) {
	for _, c := range hiddenCases {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		if got := hideSecrets(lines); len(got) != len(lines) {
			t.Errorf("%d lines became %d", len(lines), len(got))
		}
	})
}
