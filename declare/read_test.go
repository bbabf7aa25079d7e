package declare

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

const header = "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n"

// codes lists the faults as LINE:COLUMN CODE PATH.
func codes(faults []Fault) string {
	var lines []string
	for _, f := range faults {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d:%d %s %s", f.Line, f.Column, f.Code, f.Path)))
	}
	return strings.Join(lines, "\n")
}

func TestReadSaysEveryMistakeAtOnce(t *testing.T) {
	text := header + `  priority: "5"
  resources:
    - name: motd
      fiel: {path: /etc/motd}
      file:
        path: /etc/motd
        path: /etc/issue
        content: 12
        force: yes
    # an item that is no YAML, between others that are
    - name: [broken
    - name: ok
      file: *alias
    -
    - name: last
      notify: a
  rollout:
    maxUnavailable: 3
    pause: on
---
kind: NodeConfg
...
---
{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "j"}, "spec": {"resources": [{"name": "a", "fil": 3}]}}
`
	want := `6:13 TK0411 spec.priority
9:7 TK0412 spec.resources[0].fiel
12:9 TK0404 spec.resources[0].file.path
13:18 TK0411 spec.resources[0].file.content
14:16 TK0411 spec.resources[0].file.force
16:13 TK0401
18:13 TK0403
19:5 TK0411 spec.resources[2]
21:15 TK0411 spec.resources[3].notify
24:12 TK0411 spec.rollout.pause
26:7 TK0405 kind
29:123 TK0412 spec.resources[0].fil`
	for _, form := range []struct{ name, text string }{
		{"as it is", text},
		{"CRLF", strings.ReplaceAll(text, "\n", "\r\n")},
		{"byte order mark", "\uFEFF" + text},
	} {
		documents, faults := Read("web.yaml", []byte(form.text))
		if got := codes(faults); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", form.name, got, want)
		}
		if len(documents) != 2 {
			t.Errorf("%s: %d documents, want the two of a known kind", form.name, len(documents))
		}
	}
}

func TestReadValues(t *testing.T) {
	five, on := 5, true
	text := header + `  priority: 5
  selector:
    matchLabels: {role: web}
    matchExpressions:
    - {key: zone, operator: NotIn, values: [a, b]}
  rollout: {maxUnavailable: 3}
  resources:
  - name: motd   # items as deep as their key
    file:
      path: /etc/motd
      content: |
        resources:
        - name: no item

         deeper
      mode: 0600
  - {name: "nginx", package: {version: '1.22.1-9'}, require: [motd]}
  - name: folded
    symlink: {path: /a, target: "b\x41\u00e9\\"}
    when: >-
      facts.cpu.count > 1 &&
      true
  - name: s
    service:
      enabled: true
`
	documents, faults := Read("x", []byte(text))
	if len(faults) > 0 || len(documents) != 1 {
		t.Fatalf("%d documents, %v", len(documents), faults)
	}
	got := documents[0].Config.Spec
	want := NodeConfigSpec{
		Priority: &five,
		Selector: Selector{MatchLabels: map[string]string{"role": "web"},
			MatchExpressions: []SelectorRequirement{{Key: "zone", Operator: OpNotIn, Values: []string{"a", "b"}}}},
		Rollout: Rollout{MaxUnavailable: "3"},
		Resources: []Resource{
			{Name: "motd", File: &File{Path: "/etc/motd", Content: "resources:\n- name: no item\n\n deeper\n", Mode: "0600"}},
			{Name: "nginx", Package: &Package{Version: "1.22.1-9"}, Require: []string{"motd"}},
			{Name: "folded", Symlink: &Symlink{Path: "/a", Target: "bA\u00e9\\"}, When: "facts.cpu.count > 1 && true"},
			{Name: "s", Service: &Service{Enabled: &on}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("got  %s\nwant %s", g, w)
	}
	if faults := documents[0].Validate(); len(faults) > 0 {
		t.Errorf("validate: %v", faults)
	}
}

// TestReadRefusedItem: an item that is left out must not shift the places of the others.
func TestReadRefusedItem(t *testing.T) {
	documents, faults := Read("x", []byte(header+"  resources:\n  - *a\n  - name: b\n    require: [c]\n  - name: d\n    file: {path: x}\n"))
	for i := range documents {
		faults = append(faults, documents[i].Validate()...)
	}
	if got, want := codes(faults), "7:5 TK0403\n8:5 TK0416 spec.resources[1]\n11:18 TK0414 spec.resources[2].file.path"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadPlaces(t *testing.T) {
	text := header + "  resources:\n    - name: a\n      file:\n        path: /a\n        check: [x, '{}']\n    - name: b\n  rollout:\n    pause: true\n"
	documents, faults := Read("f.yaml", []byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for path, want := range map[string]string{
		"":                                "f.yaml:1:1",
		"metadata.name":                   "f.yaml:4:9",
		"metadata.labels['x']":            "f.yaml:3:1",
		"spec.resources":                  "f.yaml:6:3",
		"spec.resources[0]":               "f.yaml:7:7",
		"spec.resources[0].file":          "f.yaml:8:7",
		"spec.resources[0].file.path":     "f.yaml:9:15",
		"spec.resources[0].file.check[1]": "f.yaml:10:20",
		"spec.resources[0].file.mode":     "f.yaml:8:7",
		"spec.resources[1].name":          "f.yaml:11:13",
		"spec.resources[2]":               "f.yaml:6:3",
		"spec.rollout.pause":              "f.yaml:13:12",
	} {
		if got := documents[0].Place(path).String(); got != want {
			t.Errorf("place of %q is %s, want %s", path, got, want)
		}
	}
}

func TestReadBounds(t *testing.T) {
	big := strings.Repeat("x", frameBytesMax)
	for _, c := range []struct {
		name, text, want string
	}{
		{"file", strings.Repeat(" ", DocumentBytesMax+1), "1:1 TK0402"},
		{"frame", "---\na: " + big, "1:1 TK0402"},
		{"item", header + "  resources:\n  - name: a\n    file: {path: /a, content: " + big[:itemBytesMax] + "}\n  - name: b\n    mode: x\n", "7:1 TK0429\n10:5 TK0412 spec.resources[0].mode"},
		{"brackets", "a: " + strings.Repeat("[", 1<<20), "1:36 TK0401"},
		{"brackets after ones too many", "a: " + strings.Repeat("]", 100) + strings.Repeat("[", 1<<20), "1:136 TK0401"},
		{"braces", strings.Repeat("{a: ", 1<<18), "1:129 TK0401"},
		{"list in list", strings.Repeat("- ", 1<<19) + "a", "1:257 TK0401"},
		{"question marks", strings.Repeat("? ", 1<<19) + "a", "1:257 TK0401"},
		{"colons", strings.Repeat("a: ", 1<<18), "1:260 TK0401"},
		{"keys", strings.Repeat("a: 1\n", 1<<16), "2001:2 TK0401"},
		{"NUL", "a: \"b\x00\"", "1:6 TK0401"},
		{"Latin-1", "# gr\xfc\xdf", "1:5 TK0401"},
		{"UTF-16", "\xff\xfea\x00", "1:1 TK0401"},
		{"lone carriage return", "a: b\rc: d", "1:5 TK0401"},
		{"C1 control", "a: \u0085\u009b", "1:5 TK0401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, faults := Read("x", []byte(c.text))
			if got := codes(faults); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestReadSlowInputs runs texts that make careless parsers take quadratic time; the test's own time limit is the check.
func TestReadSlowInputs(t *testing.T) {
	const n = 1 << 18
	for name, text := range map[string]string{
		"spaces":         strings.Repeat(" ", n),
		"empty lines":    "a:\n" + strings.Repeat("\n", n) + "b: c",
		"comments":       strings.Repeat("#\n", n),
		"quotes":         strings.Repeat(`"`, n),
		"apostrophes":    strings.Repeat("'", n),
		"long text":      `a: "` + strings.Repeat("b", n) + `"`,
		"block":          "a: |\n" + strings.Repeat("  b\n", n/8),
		"folded":         "a: >\n" + strings.Repeat("  b\n\n", n/8),
		"plain lines":    "a: b\n" + strings.Repeat("  c\n", n/8),
		"keys":           strings.Repeat("a: 1\n", n/8),
		"markers":        strings.Repeat("---\n", n/4),
		"tabs":           strings.Repeat("\t", n),
		"dashes":         strings.Repeat("-\n", n/8),
		"empty items":    header + "  resources:\n" + strings.Repeat("  -\n", n/8),
		"broken items":   header + "  resources:\n" + strings.Repeat("  - [\n", n/32),
		"commas":         "[" + strings.Repeat(",", n),
		"flow keys":      "{" + strings.Repeat("a: 1, ", n/8) + "}",
		"flow items":     "[" + strings.Repeat("1, ", n/8) + "]",
		"nested indents": nestedIndents(250),
	} {
		t.Run(name, func(t *testing.T) { Read("x", []byte(text)) })
	}
}

func nestedIndents(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestReadTooManyResources(t *testing.T) {
	if testing.Short() {
		t.Skip("long: reads 100,001 resources")
	}
	var b strings.Builder
	b.WriteString(header + "  resources:\n")
	for i := range ResourcesMax + 1_000 {
		fmt.Fprintf(&b, "  - name: f%d\n    file:\n      path: /srv/f%d\n      content: hello\n", i, i)
	}
	b.WriteString("  rollout: {pause: maybe}\n")
	documents, faults := Read("x", []byte(b.String()))
	if got, want := codes(faults), fmt.Sprintf("%d:20 TK0411 spec.rollout.pause", 7+4*(ResourcesMax+1_000)); got != want || len(documents) != 1 {
		t.Fatalf("%d documents, %s, want %s", len(documents), got, want)
	}
	if got := len(documents[0].Config.Spec.Resources); got != ResourcesMax+1 {
		t.Errorf("%d resources are kept, one above the limit is enough", got)
	}
	if got, want := codes(documents[0].Validate()), "6:3 TK0425 spec.resources"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c := documents[0].Config
	c.Spec.Resources = c.Spec.Resources[:ResourcesMax]
	if faults := documents[0].Validate(); len(faults) > 0 {
		t.Errorf("the largest number is refused: %v", faults)
	}
}

// drawConfig draws configs whose texts are hard to read: they need not be valid.
func drawConfig(t *rapid.T) *NodeConfig {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"---", "- name: x", "a: b", "'", "\"", "# c", "*a", "{}", "|", "x\n- y\n", "\t", "1", "true", "null", "~", "\x00", "\x7f", "\u0085"}))
	texts := rapid.SliceOfN(text, 0, 3)
	c := &NodeConfig{APIVersion: APIVersion, Kind: KindNodeConfig, Metadata: Metadata{Name: text.Draw(t, "name"), Labels: rapid.MapOfN(text, text, 0, 3).Draw(t, "labels")}}
	c.Spec.Resources = []Resource{}
	for range rapid.IntRange(0, 5).Draw(t, "resources") {
		r := Resource{Name: text.Draw(t, "resource"), Require: texts.Draw(t, "require"), Expand: rapid.Bool().Draw(t, "expand")}
		switch rapid.IntRange(0, 2).Draw(t, "type") {
		case 0:
			r.File = &File{Path: text.Draw(t, "path"), Content: text.Draw(t, "content"), Check: texts.Draw(t, "check"), Force: rapid.Bool().Draw(t, "force")}
		case 1:
			r.Symlink = &Symlink{Path: text.Draw(t, "path"), Target: text.Draw(t, "target")}
		case 2:
			on := rapid.Bool().Draw(t, "enabled")
			r.Service = &Service{Unit: text.Draw(t, "unit"), Enabled: &on}
		}
		c.Spec.Resources = append(c.Spec.Resources, r)
	}
	return c
}

// TestReadIsTheInverseOfWriting writes a config as JSON and as block YAML around JSON values, which are YAML too, and
// reads it back.
func TestReadIsTheInverseOfWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		whole := encode(t, c)
		var block strings.Builder
		fmt.Fprintf(&block, "apiVersion: %s\nkind: %s\nmetadata: %s\nspec:\n", c.APIVersion, c.Kind, encode(t, c.Metadata))
		indent := rapid.SampledFrom([]string{"  ", "    "}).Draw(t, "indent")
		if len(c.Spec.Resources) == 0 {
			block.WriteString("  resources: []\n")
		} else {
			block.WriteString("  resources:\n")
		}
		for _, r := range c.Spec.Resources {
			fmt.Fprintf(&block, "%s- %s\n", indent, encode(t, r))
		}
		for _, text := range []string{whole, block.String()} {
			documents, faults := Read("x", []byte(text))
			if len(faults) > 0 || len(documents) != 1 {
				t.Fatalf("%d documents of\n%s\n%v", len(documents), text, faults)
			}
			if got := encode(t, documents[0].Config); got != whole {
				t.Fatalf("got\n%s\nwant\n%s\nof\n%s", got, whole, text)
			}
		}
	})
}

// encode writes JSON in ASCII and with control characters escaped, so that it is YAML.
func encode(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < 0x7f:
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return out.String()
}

func TestFaultsAsError(t *testing.T) {
	var faults Faults
	for i := range 25 {
		faults = append(faults, Fault{Code: reason.UnknownField, File: "a.yaml", Line: i + 1, Column: 1, Message: "unknown field", Hint: "did you mean \"x\"?"})
	}
	text := faults.Error()
	if !strings.HasSuffix(text, "\n5 more") || strings.Count(text, "\n") != 20 {
		t.Errorf("got\n%s", text)
	}
	if e := reason.Of(faults); e.Code != reason.UnknownField || e.Entry().Exit != reason.ExitUsage || e.Hint == "" {
		t.Errorf("as a reason: %+v", e)
	}
}
