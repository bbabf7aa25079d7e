package declare

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"tako.dev/tako/internal/reason"
)

func TestReadOwnFacts(t *testing.T) {
	all := map[string]any{
		"facts.custom.app.role": "web", "facts.custom.app.cores": int64(4), "facts.custom.app.canary": true,
		"facts.custom.app.sites": []string{"a b", "c"}, "facts.custom.app.version": "12", "facts.custom.app.empty": "",
	}
	lines := map[string]any{
		"facts.custom.app.role": "web", "facts.custom.app.cores": int64(-4), "facts.custom.app.canary": false,
		"facts.custom.app.version": "12", "facts.custom.app.zeros": "007", "facts.custom.app.empty": "", "facts.custom.app.url": "http://x/?a=b",
	}
	for _, c := range []struct {
		name, content string
		want          map[string]any
	}{
		{"app.yaml", "# comment\nrole: web\ncores: 4\ncanary: true\nsites: [a b, c]\nversion: \"12\"\nempty: ''\n", all},
		{"app.yml", "{role: web, cores: 4, canary: true, sites: ['a b', c], version: '12', empty: ''}", all},
		{"app.json", "{\"role\": \"web\",\n\t\"cores\": 4, \"canary\": true, \"sites\": [\"a b\", \"c\"], \"version\": \"12\", \"empty\": \"\"}\n", all},
		{"app.conf", "# comment\n\nrole=web\n cores = -4 \ncanary=false\nversion=\"12\"\nzeros=007\nempty=\nurl=http://x/?a=b\n", lines},
		{"app.txt", "role='web'\r\ncores=-4\r\ncanary=false\r\nversion='12'\r\nzeros=007\r\nempty=''\r\nurl=http://x/?a=b", lines},
		{"app.yaml", "", map[string]any{}},
		{"app.yaml", "list: []\n", map[string]any{"facts.custom.app.list": []string{}}},
		{"app.json", "{}", map[string]any{}},
		{"app.conf", "", map[string]any{}},
	} {
		got, err := ReadOwnFacts(c.name, []byte(c.content))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %q: got %v, %v; want %v", c.name, c.content, got, err, c.want)
		}
	}
}

func TestReadOwnFactsMistakes(t *testing.T) {
	var many, list strings.Builder
	for i := range ownFactsOfFileMax + 1 {
		fmt.Fprintf(&many, "k%d=1\n", i)
		fmt.Fprintf(&list, "\n  - x%d", i)
	}
	for _, c := range []struct{ name, content, want string }{
		{"app", "", "the name says nothing of its form"},
		{"app.sh", "", "the name says nothing of its form"},
		{"my-app.yaml", "", `"my-app" cannot be part of a fact's name`},
		{"1.yaml", "", `"1" cannot be part`},
		{".yaml", "", "cannot be part"},
		{"app.yaml", "\xff", "it is not UTF-8"},
		{"app.yaml", "a: 1\nb: {c: 1}\n", "line 2: b is a mapping"},
		{"app.yaml", "a: 1\nb: [1]\n", "line 2: b is a list"},
		{"app.yaml", "a: 1.5\n", "line 1: a is a number"},
		{"app.yaml", "a:\n", "line 1: a is nothing"},
		{"app.yaml", "- a\n", "found a list where a mapping must stand"},
		{"app.yaml", "a: 1\na: 2\n", "line 2: a stands here for the second time"},
		{"app.yaml", "a: &x 1\nb: *x\n", "line 1: "},
		{"app.yaml", "a: |\n  x\n  y\n", "line 1: a text of a has a line break"},
		{"app.yaml", "a: 'x\n", "line 1"},
		{"app.yaml", "---\na: 1\n---\nb: 1\n", "a second value in one document"},
		{"app.yaml", "a:" + list.String() + "\n", "the list of a has more than 64 texts"},
		{"app.yaml", "a-b: 1\n", `line 1: "a-b" cannot be part of a fact's name`},
		{"app.json", "", "found something else where { must begin"},
		{"app.json", "[]", "found something else where { must begin"},
		{"app.json", "{\"a\": 1,\n\"a\": 2}", "line 2: a stands here for the second time"},
		{"app.json", "{\"a\": 1.5}", "the value of a is none"},
		{"app.json", "{\"a\": null}", "the value of a is none"},
		{"app.json", "{\"a\": {\"b\": 1}}", "the value of a is none"},
		{"app.json", "{\"a\": [[]]}", "the value of a is none"},
		{"app.json", "{\"a\": [\"x\"", "the value of a is none"},
		{"app.json", "{\"a\" 1}", "the value of a is none"},
		{"app.json", "{\"a\": 1", "this is not JSON"},
		{"app.json", "{\"a\": 1} {}", "something follows"},
		{"app.conf", "a=1\nb\n", "line 2: found no = in the line"},
		{"app.conf", "a=1\na=1\n", "line 2: a stands here for the second time"},
		{"app.conf", "a=" + strings.Repeat("x", 1025), "a text of a has 1025 bytes"},
		{"app.conf", "a=\x1b[0m", "control character"},
		{"app.conf", "=1", `line 1: "" cannot be part`},
		{"app.conf", many.String(), "line 129: more than 128 facts"},
	} {
		got, err := ReadOwnFacts(c.name, []byte(c.content))
		if got != nil || !reason.Is(err, reason.OwnFactsMalformed) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), OwnFactsDir) {
			t.Errorf("%s %q: got %v, %v; want %s", c.name, clipText(c.content), got, err, c.want)
		}
	}
}

// FuzzOwnFacts: whatever a file holds, what is read of it can be used in expressions and is within the bounds.
func FuzzOwnFacts(f *testing.F) {
	for _, seed := range []string{"role: web\nsites: [a, b]\n", `{"a": [1], "b": true}`, "a=1\n'b'=\"c\"", "a: &x\n- *x", "{", "a: |\n x", "\t", "? a\n: b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"app.yaml", "app.json", "app.conf", string(b)} {
			facts, err := ReadOwnFacts(name, b)
			if err != nil && (facts != nil || reason.Of(err).Code != reason.OwnFactsMalformed) {
				t.Fatalf("%v with %v", facts, err)
			}
			if len(facts) > ownFactsOfFileMax {
				t.Fatalf("%d facts", len(facts))
			}
			for name, x := range facts {
				v, ok := ValueOf(x)
				if kind, known := nameType(name); !ok || !known || kind != anyType {
					t.Fatalf("%q is %T", name, x)
				}
				if strings.ContainsFunc(strings.ReplaceAll(v.text, "\n", ""), unicode.IsControl) || len(v.text) > (ownFactTextMax+1)*ownFactListMax {
					t.Fatalf("%q is %q", name, v.text)
				}
				if _, err := ParseWhen(name + " == 'x'"); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
