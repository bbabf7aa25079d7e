package part

import (
	"encoding/json"
	"strings"
	"testing"

	"tako.dev/tako/declare"
)

func ptr[T any](v T) *T { return &v }

func lineEdit(text, match, after, before string) *declare.Edit {
	return &declare.Edit{Line: &declare.LineEdit{Text: text, Match: match, After: after, Before: before}}
}

func blockEdit(content, after string) *declare.Edit {
	return &declare.Edit{Block: &declare.BlockEdit{Content: content, After: after}}
}

func iniEdit(section, key string, value *string) *declare.Edit {
	return &declare.Edit{Ini: &declare.IniEdit{Section: section, Key: key, Value: value}}
}

func jsonEdit(pointer, value string) *declare.Edit {
	return &declare.Edit{JSON: &declare.PointerEdit{Pointer: pointer, JSON: value}}
}

func yamlEdit(pointer, value string) *declare.Edit {
	return &declare.Edit{YAML: &declare.PointerEdit{Pointer: pointer, JSON: value}}
}

func absent(e *declare.Edit) *declare.Edit {
	out := e.DeepCopy()
	out.State = declare.EditAbsent
	return out
}

func made(t testing.TB, e *declare.Edit) *Part {
	t.Helper()
	p, err := New(e, "name")
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return p
}

// row is one edit of one text. want "" means that nothing changes; a want that begins with "!" is part of a refusal.
type row struct {
	name string
	edit *declare.Edit
	text string
	want string
}

func rows(t *testing.T, all []row) {
	t.Helper()
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			t.Helper()
			p := made(t, r.edit)
			got, err := p.Edit(r.text)
			if words, refused := strings.CutPrefix(r.want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Fatalf("got %q, %v, want a refusal: %s", got, err, words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := r.want
			if want == "" {
				want = r.text
			}
			if want == "EMPTY" {
				want = ""
			}
			if got != want {
				t.Fatalf("of\n%q\ngot\n%q\nwant\n%q", r.text, got, want)
			}
			holds(t, p, r.text, false)
		})
	}
}

// holds checks what is true of every edit that succeeds: it is idempotent, told, and can be undone.
func holds(t testing.TB, p *Part, text string, loose bool) {
	t.Helper()
	out, err := p.Edit(text)
	if err != nil {
		return
	}
	again, err := p.Edit(out)
	if err != nil || again != out {
		t.Errorf("editing\n%q\nagain gives\n%q, %v", out, again, err)
	}
	have, want := p.Shown(out)
	if have == "" && want != "" {
		t.Errorf("nothing is shown of %q", out)
	}
	kept, err := p.Keep(text)
	if err != nil {
		t.Fatalf("keep of %q: %v", text, err)
	}
	b, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	var stored Remnant
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	back, err := p.Restore(out, stored)
	if err != nil {
		t.Fatalf("restore of %q with %s: %v", out, b, err)
	}
	if back != text && !loose {
		t.Errorf("put back with %s:\n%q\nis not\n%q\nafter\n%q", b, back, text, out)
	}
	twice, err := p.Restore(back, stored)
	if err != nil || twice != back {
		t.Errorf("put back twice: %q, then %q, %v", back, twice, err)
	}
	dropped, err := p.Drop(out)
	if err != nil && strings.Contains(err.Error(), "is a list") {
		return // an item by its number
	}
	if err != nil {
		t.Fatalf("drop of %q: %v", out, err)
	}
	if rest, err := p.Drop(dropped); err != nil || rest != dropped {
		t.Errorf("dropped twice: %q, then %q, %v", dropped, rest, err)
	}
	if p.absent && dropped != out {
		t.Errorf("dropping what is absent changes %q to %q", out, dropped)
	}
}

func TestLine(t *testing.T) {
	rows(t, []row{
		{"there", lineEdit("a", "", "", ""), "x\na\ny\n", ""},
		{"at the end", lineEdit("a", "", "", ""), "x\n", "x\na\n"},
		{"of an empty text", lineEdit("a", "", "", ""), "", "a\n"},
		{"no end of the last line", lineEdit("a", "", "", ""), "x", "x\na"},
		{"CR LF", lineEdit("a", "", "", ""), "x\r\ny\r\n", "x\r\ny\r\na\r\n"},
		{"CR LF without an end", lineEdit("a", "", "", ""), "x\r\ny", "x\r\ny\r\na"},
		{"byte order mark", lineEdit("a", "", "", ""), "\ufeffa\n", ""},
		{"matched", lineEdit("PermitRootLogin no", `^#?PermitRootLogin\b`, "", ""), "#PermitRootLogin yes\nPort 22\n", "PermitRootLogin no\nPort 22\n"},
		{"the last one matched", lineEdit("a=2", "^a=", "", ""), "a=1\na=3\nb\n", "a=1\na=2\nb\n"},
		{"the last one is right", lineEdit("a=2", "^a=", "", ""), "a=1\na=2\n", ""},
		{"uncommented", lineEdit("en_US.UTF-8 UTF-8", "^# en_US.UTF-8", "", ""), "# en_GB\n# en_US.UTF-8 UTF-8\n", "# en_GB\nen_US.UTF-8 UTF-8\n"},
		{"uncommented, and an example is there", lineEdit("a", "^# a", "", ""), "a\n# a\n", ""},
		{"matched by nothing", lineEdit("a", "^a", "", ""), "x\n", "x\na\n"},
		{"after", lineEdit("a", "", "^x", ""), "x1\nx2\ny\n", "x1\nx2\na\ny\n"},
		{"after the last line", lineEdit("a", "", "^y", ""), "x\ny", "x\ny\na"},
		{"after nothing", lineEdit("a", "", "^z", ""), "x\n", "x\na\n"},
		{"before", lineEdit("a", "", "", "^Match"), "x\nMatch a\nMatch b\n", "x\na\nMatch a\nMatch b\n"},
		{"invalid UTF-8", lineEdit("a", "", "", ""), "\xff\xfe\n", "\xff\xfe\na\n"},
		{"binary", lineEdit("a", "", "", ""), "x\x00\n", "!NUL byte at offset 1"},
		{"absent", absent(lineEdit("a", "", "", "")), "a\nx\na", "x"},
		{"absent already", absent(lineEdit("a", "", "", "")), "ab\n", ""},
		{"absent by pattern", absent(lineEdit("", "^a", "", "")), "a1\nx\na2\ny\n", "x\ny\n"},
		{"all absent", absent(lineEdit("", "^a", "", "")), "a1\na2", "EMPTY"},
	})
}

func TestBlock(t *testing.T) {
	const begin, end = "# BEGIN name (tako)\n", "# END name (tako)\n"
	rows(t, []row{
		{"new", blockEdit("a\nb\n", ""), "x\n", "x\n" + begin + "a\nb\n" + end},
		{"of an empty text", blockEdit("a", ""), "", begin + "a\n" + end},
		{"empty", blockEdit("", ""), "x\n", "x\n" + begin + end},
		{"there", blockEdit("a\n", ""), begin + "a\n" + end + "x\n", ""},
		{"other lines", blockEdit("a\n", ""), "x\n" + begin + "b\nc\n" + end + "y\n", "x\n" + begin + "a\n" + end + "y\n"},
		{"after", blockEdit("a\n", "^x"), "x\ny\n", "x\n" + begin + "a\n" + end + "y\n"},
		{"CR LF", blockEdit("a\n", ""), "x\r\n", "x\r\n# BEGIN name (tako)\r\na\r\n# END name (tako)\r\n"},
		{"no end of the last line", blockEdit("a\n", ""), "x\n" + begin + "b\n" + strings.TrimSpace(end), "x\n" + begin + "a\n" + strings.TrimSpace(end)},
		{"no second mark", blockEdit("a\n", ""), "x\n" + begin + "b\n", "!line 2 begins the block, and no line ends it"},
		{"no first mark", blockEdit("a\n", ""), "b\n" + end, "!line 2 ends the block"},
		{"two first marks", blockEdit("a\n", ""), begin + begin + end, "!line 1 and line 2 both begin"},
		{"absent", absent(blockEdit("", "")), "x\n" + begin + "b\n" + end + "y\n", "x\ny\n"},
		{"absent already", absent(blockEdit("", "")), "x\n", ""},
	})
	// A second block of the name goes, and does not come back.
	p := made(t, blockEdit("a\n", ""))
	got, err := p.Edit(begin + "b\n" + end + "x\n" + begin + end)
	if err != nil || got != begin+"a\n"+end+"x\n" {
		t.Errorf("two blocks: %q, %v", got, err)
	}
	xml := made(t, &declare.Edit{Block: &declare.BlockEdit{Content: "<a/>", Comment: "<!--", Mark: "m"}})
	if got, err := xml.Edit(""); err != nil || got != "<!-- BEGIN m (tako) -->\n<a/>\n<!-- END m (tako) -->\n" {
		t.Errorf("XML: %q, %v", got, err)
	}
}

func TestIni(t *testing.T) {
	const sshd = "Port 22\n#PermitRootLogin yes\nAcceptEnv LANG LC_*\n# Port forwarding\nSubsystem sftp /usr/lib/sftp\n\nMatch User a\n  PermitRootLogin no\n"
	rows(t, []row{
		{"there", iniEdit("", "a", ptr("1")), "a=1\n", ""},
		{"with blanks", iniEdit("", "a", ptr("1")), "a = 1  \n", ""},
		{"colon", iniEdit("", "a", ptr("1")), "a: 1\n", ""},
		{"other value", iniEdit("", "a", ptr("2")), "b=1\na =\t1\n", "b=1\na =\t2\n"},
		{"new like the others", iniEdit("", "net.x", ptr("2")), "net.y = 1\n", "net.y = 1\nnet.x = 2\n"},
		{"new like the others, with colons", iniEdit("", "a", ptr("2")), "b: 1\n", "b: 1\na: 2\n"},
		{"new in an empty text", iniEdit("", "a", ptr("2")), "", "a=2\n"},
		{"a longer key is another", iniEdit("", "log", ptr("2")), "log level = 1\n", "log level = 1\nlog = 2\n"},
		{"a key of several words", iniEdit("", "log level", ptr("2")), "log level = 1\n", "log level = 2\n"},
		{"case counts", iniEdit("", "A", ptr("2")), "a=1\n", "a=1\nA=2\n"},
		{"shell", iniEdit("", "KEY", ptr(`"va lue"`)), "KEY=\"other\"\n", "KEY=\"va lue\"\n"},
		{"export", iniEdit("", "export KEY", ptr("1")), "export KEY=2\n", "export KEY=1\n"},
		{"twice", iniEdit("", "a", ptr("3")), "a=1\nb=0\na=2\n", "a=3\nb=0\na=3\n"},
		{"no value", iniEdit("mysqld", "skip-networking", nil), "[mysqld]\nport=1\n", "[mysqld]\nport=1\nskip-networking\n"},
		{"value taken away", iniEdit("", "a", nil), "a = 1\n", "a\n"},
		{"value given", iniEdit("", "a", ptr("1")), "b = 2\na\n", "b = 2\na = 1\n"},
		{"empty value", iniEdit("", "a", ptr("")), "a=1\n", "a=\n"},
		{"section", iniEdit("s", "a", ptr("2")), "a=0\n[s]\na=1\n[t]\na=3\n", "a=0\n[s]\na=2\n[t]\na=3\n"},
		{"section with blanks", iniEdit("s", "a", ptr("2")), "[ s ]\na=1\n", "[ s ]\na=2\n"},
		{"new section", iniEdit("s", "a", ptr("2")), "[t]\nb = 1\n", "[t]\nb = 1\n\n[s]\na = 2\n"},
		{"new section in an empty text", iniEdit("s", "a", ptr("2")), "", "[s]\na=2\n"},
		{"new section after a blank line", iniEdit("s", "a", ptr("2")), "b=1\n\n", "b=1\n\n[s]\na=2\n"},
		{"section twice, key in the first", iniEdit("s", "a", ptr("2")), "[s]\na=1\n[t]\n[s]\nb=1\n", "[s]\na=2\n[t]\n[s]\nb=1\n"},
		{"section twice, new key", iniEdit("s", "c", ptr("2")), "[s]\na=1\n[t]\n[s]\nb=1\n\n", "[s]\na=1\n[t]\n[s]\nb=1\nc=2\n\n"},
		{"empty section", iniEdit("s", "c", ptr("2")), "[s]\n# a comment\n[t]\n", "[s]\nc=2\n# a comment\n[t]\n"},
		{"git", iniEdit(`remote "origin"`, "url", ptr("u")), "[remote \"origin\"]\n\tfetch = f\n", "[remote \"origin\"]\n\tfetch = f\n\turl = u\n"},
		{"before the first section", iniEdit("", "a", ptr("2")), "# of the file\n\n# of s\n[s]\nb=1\n", "# of the file\n\na=2\n# of s\n[s]\nb=1\n"},
		{"below its example", iniEdit("s", "a", ptr("2")), "[s]\n;a = 1\nb = 1\n", "[s]\n;a = 1\na = 2\nb = 1\n"},
		{"continued", iniEdit("s", "a", ptr("2")), "[s]\na=1 \\\n  b=3\nc=1\n", "[s]\na=2\nc=1\n"},
		{"a continuation is no key", iniEdit("s", "b", ptr("2")), "[s]\na=1 \\\nb=3\n", "[s]\na=1 \\\nb=3\nb=2\n"},
		{"sshd: other value", iniEdit("", "Port", ptr("2222")), sshd, strings.Replace(sshd, "Port 22\n", "Port 2222\n", 1)},
		{"sshd: below its example", iniEdit("", "PermitRootLogin", ptr("no")), sshd, strings.Replace(sshd, "yes\n", "yes\nPermitRootLogin no\n", 1)},
		{"sshd: before Match", iniEdit("", "UseDNS", ptr("no")), sshd, strings.Replace(sshd, "sftp\n\nMatch", "sftp\nUseDNS no\n\nMatch", 1)},
		{"sshd: Match only", iniEdit("", "UseDNS", ptr("no")), "Match all\n  X y\n  Z u\n", "UseDNS no\nMatch all\n  X y\n  Z u\n"},
		{"separator of its own", &declare.Edit{Ini: &declare.IniEdit{Key: "a", Value: ptr("1"), Separator: " "}}, "", "a 1\n"},
		{"CR LF", iniEdit("", "a", ptr("2")), "a=1\r\nb=1\r\n", "a=2\r\nb=1\r\n"},
		{"byte order mark before a section", iniEdit("s", "a", ptr("2")), "\ufeff[s]\na=1\n", "\ufeff[s]\na=2\n"},
		{"absent", absent(iniEdit("s", "a", nil)), "[s]\na=1\nb=1\na\n", "[s]\nb=1\n"},
		{"absent already", absent(iniEdit("s", "a", nil)), "a=1\n[t]\na=1\n", ""},
	})
}

func TestJSON(t *testing.T) {
	rows(t, []row{
		{"there", jsonEdit("/a", "1"), `{"a": 1}`, ""},
		{"there, written otherwise", jsonEdit("/a", `{"x": [1, 2.0]}`), `{"a":{"x":[1,2]}}`, ""},
		{"other value", jsonEdit("/a", "2"), `{"a": 1, "b": 2}`, `{"a": 2, "b": 2}`},
		{"text and number", jsonEdit("/a", `"1"`), `{"a": 1}`, `{"a": "1"}`},
		{"new", jsonEdit("/b", "2"), "{\n\t\"a\": 1\n}\n", "{\n\t\"a\": 1,\n\t\"b\": 2\n}\n"},
		{"new, on one line", jsonEdit("/b", "2"), `{"a":1}`, `{"a":1,"b":2}`},
		{"new in an empty object", jsonEdit("/b", "2"), "{}\n", "{\n  \"b\": 2\n}\n"},
		{"new objects", jsonEdit("/b/c", "2"), "{\n    \"a\": 1\n}", "{\n    \"a\": 1,\n    \"b\": {\n        \"c\": 2\n    }\n}"},
		{"deep", jsonEdit("/a/b/c", "2"), "{\"a\": {\"b\": {\"c\": 1}}}", "{\"a\": {\"b\": {\"c\": 2}}}"},
		{"names", jsonEdit("/a~1b/m~0n", "2"), `{"a/b": {"m~n": 1}}`, `{"a/b": {"m~n": 2}}`},
		{"item by number", jsonEdit("/a/1", "5"), `{"a": [1, 2, 3]}`, `{"a": [1, 5, 3]}`},
		{"item added", jsonEdit("/a/-", `"x"`), `{"a": [1, 2]}`, `{"a": [1, 2, "x"]}`},
		{"item there", jsonEdit("/a/-", `2`), `{"a": [1, 2]}`, ""},
		{"item of an empty list", jsonEdit("/a/-", `2`), `{"a": []}`, `{"a": [2]}`},
		{"item of a missing list", jsonEdit("/a/-", `2`), `{"b": 1}`, `{"b": 1, "a": [2]}`},
		{"a comment", jsonEdit("/a", "1"), "{\n  // x\n  \"a\": 2\n}", "!line 2: a comment"},
		{"no JSON", jsonEdit("/a", "1"), "{\n\"a\": 2,\n}", "!line 3: the file is not JSON"},
		{"twice", jsonEdit("/a", "1"), `{"a": 1, "a": 2}`, "!stands twice"},
		{"through a text", jsonEdit("/a/b", "1"), `{"a": "x"}`, "!neither a mapping nor a list"},
		{"no such item", jsonEdit("/a/7", "1"), `{"a": [1]}`, "!has no 7"},
		{"- of an object", jsonEdit("/a/-", "1"), `{"a": {"b": 1}}`, "!is not a list"},
		{"absent", absent(jsonEdit("/b", "")), `{"a": 1, "b": 2, "c": 3}`, `{"a": 1, "c": 3}`},
		{"absent, the first", absent(jsonEdit("/a", "")), `{"a": 1, "b": 2}`, `{"b": 2}`},
		{"absent, the only", absent(jsonEdit("/a", "")), `{"a": 1}`, `{}`},
		{"absent already", absent(jsonEdit("/a/b", "")), `{"b": 1}`, ""},
		{"absent item", absent(jsonEdit("/a/-", "2")), `{"a": [1, 2, 3]}`, `{"a": [1, 3]}`},
		{"absent item, several times", absent(jsonEdit("/a/-", "2")), `{"a": [2, 1, 2, 3, 2]}`, `{"a": [1, 3]}`},
		{"absent item, nothing but", absent(jsonEdit("/a/-", "2")), `{"a": [2, 2]}`, `{"a": []}`},
		{"absent item by number", absent(jsonEdit("/a/0", "")), `{"a": [1]}`, "!is a list"},
	})
	if got, err := made(t, jsonEdit("/log/level", `"debug"`)).Edit(""); err != nil || got != "{\n  \"log\": {\n    \"level\": \"debug\"\n  }\n}\n" {
		t.Errorf("of an empty text: %q, %v", got, err)
	}
}

func TestYAML(t *testing.T) {
	const doc = "# of the file\nserver: # of the server\n  host: 'a'  # of the host\n  ports:\n  - 80\n  - 443 # tls\n  tls: {min: \"1.2\", ciphers: [a, b]}\n\nmotd: |\n  Hello.\n  # no comment\n\nlast: &x\n  - name: one\n    value: 1\n  - name: two\n"
	swap := func(from, to string) string {
		if strings.Count(doc, from) != 1 {
			t.Fatalf("%q", from)
		}
		return strings.Replace(doc, from, to, 1)
	}
	rows(t, []row{
		{"there", yamlEdit("/server/host", `"a"`), doc, ""},
		{"there, a list", yamlEdit("/server/ports", `[80, 443]`), doc, ""},
		{"there, a mapping", yamlEdit("/server/tls", `{"min": "1.2", "ciphers": ["a", "b"]}`), doc, ""},
		{"there, a block", yamlEdit("/motd", `"Hello.\n# no comment\n"`), doc, ""},
		{"other value", yamlEdit("/server/host", `"b"`), doc, swap("'a'", "b")},
		{"a text that is none without quotes", yamlEdit("/server/host", `"yes"`), doc, swap("'a'", `"yes"`)},
		{"number", yamlEdit("/server/host", `1`), doc, swap("'a'", `1`)},
		{"list for a text", yamlEdit("/server/host", `[1,{"a": "b"}]`), doc, swap("'a'", `[1, {"a": "b"}]`)},
		{"text for a list", yamlEdit("/server/ports", `"x"`), doc, swap("ports:\n  - 80\n  - 443 # tls", "ports: x")},
		{"text for a mapping", yamlEdit("/server", `"x"`), "server: # c\n  a: 1\nb: 2\n", "server: x # c\nb: 2\n"},
		{"text for a block", yamlEdit("/motd", `"x"`), doc, swap("|\n  Hello.\n  # no comment\n", "x\n")},
		{"below an anchor", yamlEdit("/last", `"x"`), doc, swap("&x\n  - name: one\n    value: 1\n  - name: two", "&x x")},
		{"item by number", yamlEdit("/server/ports/1", `8443`), doc, swap("443 # tls", "8443 # tls")},
		{"in an item", yamlEdit("/last/0/value", `2`), doc, swap("value: 1", "value: 2")},
		{"new in an item", yamlEdit("/last/1/value", `2`), doc, swap("two\n", "two\n    value: 2\n")},
		{"new", yamlEdit("/server/user", `"www-data"`), doc, swap("b]}\n", "b]}\n  user: www-data\n")},
		{"new at the top", yamlEdit("/user/name", `"a b"`), doc, doc + "user:\n  name: a b\n"},
		{"between brackets", yamlEdit("/server/tls/min", `"1.3"`), doc, swap(`"1.2"`, `"1.3"`)},
		{"new between brackets", yamlEdit("/server/tls/max", `"1.3"`), doc, swap(`b]}`, `b], "max": "1.3"}`)},
		{"item between brackets", yamlEdit("/server/tls/ciphers/-", `"c"`), doc, swap(`b]}`, `b, c]}`)},
		{"item", yamlEdit("/server/ports/-", `8080`), doc, swap("# tls\n", "# tls\n  - 8080\n")},
		{"item there", yamlEdit("/server/ports/-", `80`), doc, ""},
		{"item of a missing list", yamlEdit("/server/names/-", `"a"`), doc, swap("b]}\n", "b]}\n  names:\n    - a\n")},
		{"absent item, several times", absent(yamlEdit("/a/-", `1`)), "a:\n  - 1\n  - 2 # two\n  - 1 # again\nb: 1\n", "a:\n  - 2 # two\nb: 1\n"},
		{"absent item, nothing but", absent(yamlEdit("/a/-", `1`)), "a:\n  - 1\n  - 1 # again\nb: 1\n", "a: []\nb: 1\n"},
		{"item that is a mapping", yamlEdit("/last/-", `{"name": "one", "value": 1}`), doc, ""},
		{"of an empty text", yamlEdit("/a/b", `1`), "", "a:\n  b: 1\n"},
		{"of comments alone", yamlEdit("/a", `1`), "# c\n", "# c\na: 1\n"},
		{"of a document's beginning alone", yamlEdit("/a", `1`), "---\n", "---\na: 1\n"},
		{"below nothing", yamlEdit("/a/b", `1`), "a:  # c\nc: 2\n", "a:  # c\n  b: 1\nc: 2\n"},
		{"below empty brackets", yamlEdit("/a/b", `1`), "a: {} # c\nc: 2\n", "a: # c\n  b: 1\nc: 2\n"},
		{"below null", yamlEdit("/a/b", `1`), "a: ~\n", "a:\n  b: 1\n"},
		{"item of empty brackets", yamlEdit("/a/-", `1`), "a: []\n", "a:\n  - 1\n"},
		{"no end of the last line", yamlEdit("/b", `1`), "a: 1", "a: 1\nb: 1"},
		{"CR LF", yamlEdit("/a/c", `1`), "a:\r\n    b: 1\r\nd: 2\r\n", "a:\r\n    b: 1\r\n    c: 1\r\nd: 2\r\n"},
		{"indented by four", yamlEdit("/b/c", `1`), "a:\n    b: 1\n", "a:\n    b: 1\nb:\n    c: 1\n"},
		{"a key in quotes", yamlEdit("/a: b/c", `2`), "'a: b':\n  \"c\": 1\n", "'a: b':\n  \"c\": 2\n"},
		{"a key that needs quotes", yamlEdit("/a: b", `2`), "", "\"a: b\": 2\n"},
		{"several lines of a text", yamlEdit("/b", `2`), "a: one\n  two\n\n  three\nb: 1\n", "a: one\n  two\n\n  three\nb: 2\n"},
		{"several lines in quotes", yamlEdit("/b", `2`), "a: \"one\n  b: 3\n  two\"\nb: 1\n", "a: \"one\n  b: 3\n  two\"\nb: 2\n"},
		{"brackets over several lines", yamlEdit("/b", `2`), "a: [\n  1, # one\n  2\n]\nb: 1\n", "a: [\n  1, # one\n  2\n]\nb: 2\n"},
		{"alias", yamlEdit("/b", `2`), "a: &a 1\nb: *a\n", "a: &a 1\nb: 2\n"},
		{"merge key", yamlEdit("/b/c", `2`), "a: &a {x: 1}\nb:\n  <<: *a\n  c: 1\n", "a: &a {x: 1}\nb:\n  <<: *a\n  c: 2\n"},
		{"an address is no key", yamlEdit("/b", `2`), "a: http://x:80/y#z\nb: 1\n", "a: http://x:80/y#z\nb: 2\n"},
		{"two documents", yamlEdit("/a", `1`), "a: 2\n---\na: 3\n", "!line 2: a second document"},
		{"a tab", yamlEdit("/a/b", `1`), "a:\n\tb: 2\n", "!line 2: a tab"},
		{"a complex key", yamlEdit("/a", `1`), "? a\n: 2\n", "!line 1"},
		{"a tag", yamlEdit("/a", `1`), "a: !!str 2\n", "!has a tag"},
		{"not closed", yamlEdit("/a", `1`), "a: [1\n", "!line 1: '[' is not closed"},
		{"bad indentation", yamlEdit("/a", `1`), "a:\n   b: 1\n  c: 2\n", "!line 3"},
		{"through a text", yamlEdit("/server/host/x", "1"), doc, "!neither a mapping nor a list"},
		{"absent", absent(yamlEdit("/server/host", "")), doc, swap("  host: 'a'  # of the host\n", "")},
		{"absent block", absent(yamlEdit("/motd", "")), doc, swap("motd: |\n  Hello.\n  # no comment\n", "")},
		{"absent first of an item", absent(yamlEdit("/last/0/name", "")), doc, swap("- name: one\n    value", "- value")},
		{"absent only", absent(yamlEdit("/a/b", "")), "a:\n  b: 1\nc: 2\n", "a: {}\nc: 2\n"},
		{"absent at the top", absent(yamlEdit("/a", "")), "# c\na: 1\n", "# c\n"},
		{"absent item", absent(yamlEdit("/server/ports/-", "80")), doc, swap("  - 80\n", "")},
		{"absent at the end", absent(yamlEdit("/b", "")), "a: 1\nb: 2", "a: 1"},
		{"absent already", absent(yamlEdit("/server/x", "")), doc, ""},
	})
}
