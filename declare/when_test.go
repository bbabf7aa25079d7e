package declare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// sampleScope is a host that knows every fact.
func sampleScope() Scope {
	return Scope{NodeName: "web-1", Labels: map[string]string{"zone": "a", "example.com/disk": "ssd"}, Fact: func(name string) (any, bool) {
		kind, ok := nameType(name)
		if !ok {
			return nil, false
		}
		if kind == Integer {
			return int64(8), true
		}
		return map[string]string{"facts.os.id": "debian", "facts.os.version": "12"}[name], true
	}}
}

func TestEval(t *testing.T) {
	for _, c := range []struct {
		when string
		want bool
	}{
		{"true", true},
		{"!true", false},
		{"!!true", true},
		{"true == false", false},
		{"facts.os.id == 'debian'", true},
		{`facts.os.id == "debian"`, true},
		{"facts.os.id != 'debian'", false},
		{"'debian' == facts.os.id", true},
		{"facts.os.id in ['ubuntu', 'debian']", true},
		{"facts.os.id in ['ubuntu']", false},
		{"!(facts.os.id in ['ubuntu'])", true},
		{"facts.cpu.count >= 8 && facts.cpu.count <= 8", true},
		{"facts.cpu.count < 8 || facts.cpu.count > 8", false},
		{"facts.cpu.count in [4, 8]", true},
		{"facts.cpu.count > -1", true},
		{"node.name == 'web-1'", true},
		{"node.labels['zone'] == 'a'", true},
		{`node.labels["example.com/disk"] == 'ssd'`, true},
		{"node.labels['unset'] == ''", true},
		{"true || false && false", true},
		{"(true || false) && false", false},
		{"!false && true", true},
		{`node.name == 'a\'b\\'`, false},
		{"\n true \t", true},
	} {
		e, err := ParseWhen(c.when)
		if err != nil {
			t.Errorf("%s: %v", c.when, err)
			continue
		}
		if got, err := e.Eval(sampleScope().Lookup); got != c.want || err != nil {
			t.Errorf("%s is %v, %v", c.when, got, err)
		}
	}
}

func TestEvalOfAnUnknownFact(t *testing.T) {
	lookup := Scope{NodeName: "n", Fact: func(string) (any, bool) { return nil, false }}.Lookup
	for when, want := range map[string]bool{
		"facts.os.id == 'debian'":                                false,
		"facts.os.id != 'debian'":                                false,
		"!(facts.os.id == 'debian')":                             true,
		"facts.os.id in ['debian']":                              false,
		"node.name == 'n' || facts.os.id == 'debian'":            true,
		"facts.cpu.count > 1 || facts.os.id == facts.os.version": false,
	} {
		e, err := ParseWhen(when)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Eval(lookup); got != want || err != nil {
			t.Errorf("%s is %v, %v", when, got, err)
		}
	}
	e, err := ParseWhen("facts.os.id == 'a' || node.name == 'n' || facts.cpu.count > 1 || facts.os.id == 'b'")
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Missing(lookup); !slices.Equal(got, []string{"facts.cpu.count", "facts.os.id"}) {
		t.Errorf("missing are %v", got)
	}
}

func TestEvalOfAWrongType(t *testing.T) {
	e, err := ParseWhen("facts.cpu.count > 1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Eval(func(string) (Value, bool) { return TextValue("2"), true })
	if !reason.Is(err, reason.InternalFault) {
		t.Errorf("got %v", err)
	}
}

func TestParseWhenMistakes(t *testing.T) {
	for _, c := range []struct{ when, want string }{
		{"", "column 1: found the end where a name, a text or a number must stand"},
		{"true true", "column 6: found true after the end of the condition"},
		{"(true", "column 6: found the end where ) must close the parenthesis of column 1"},
		{"true)", "column 5: found ) after the end of the condition"},
		{"true &", "column 6: found '&', which means nothing here"},
		{"true | true", "column 6: found '|', which means nothing here"},
		{"facts.os.id = 'a'", "column 13: found '=', which means nothing here"},
		{"facts.os.id == 'a", "column 16: the text has no closing '"},
		{"facts.os.id == debian", `column 16: unknown name "debian"`},
		{"facts.os.id in 'a'", `column 16: found the text "a" where [ must begin the list of ` + "`in`"},
		{"facts.os.id in []", "column 17: found ] where a name, a text or a number must stand"},
		{"facts.os.id in ['a'", "column 20: found the end where , or ] must follow"},
		{"facts.os.id in [1]", "column 17: facts.os.id is text, 1 is a number"},
		{"facts.os.id in [node.name]", "column 17: a list holds texts, numbers, true and false only"},
		{"facts.cpu.count == '1'", `column 20: facts.cpu.count is a number, "1" is text`},
		{"facts.os.id == 1", "column 16: facts.os.id is text, 1 is a number"},
		{"facts.os.version > '1'", "column 18: > compares numbers only, facts.os.version is text"},
		{"true < false", "column 6: < compares numbers only, true is true or false"},
		{"facts.cpu.count", "column 1: facts.cpu.count is a number, not a condition"},
		{"'a'", `column 1: "a" is text, not a condition`},
		{"!facts.os.id", "column 2: facts.os.id is text, not a condition"},
		{"facts.memory.bytes > 4GiB", "column 22: not a whole number"},
		{"facts.cpu.count > 99999999999999999999", "column 19: the number 99999999999999999999 does not fit into 64 bits"},
		{"facts.os.famly == 'a'", `column 1: unknown name "facts.os.famly"`},
		{"node.labels.zone == 'a'", `column 1: unknown name "node.labels.zone"`},
		{"node.labels[zone] == 'a'", "column 13: found zone where the key of a label must stand"},
		{"node.labels['a b'] == 'a'", `column 13: "a b" is not a label key`},
		{"node.labels == 'a'", "column 13: found == after node.labels"},
		{"$(node.name) == 'a'", "column 1: found '$', which means nothing here"},
		{"'é' == é", "column 8: found 'é', which means nothing here"},
		{"in == 'a'", "column 1: found in where a name, a text or a number must stand"},
		{strings.Repeat("!", 40) + "true", "column 33: more than 32 levels of ! and parentheses"},
		{strings.Repeat("(", 1000), "column 33: more than 32 levels of ! and parentheses"},
		{strings.Repeat(" ", 5000), "column 1: the condition has 5000 bytes, at most 4096 are allowed"},
	} {
		_, err := ParseWhen(c.when)
		var mistake *expressionError
		if !errors.As(err, &mistake) || mistake.Error() != c.want {
			t.Errorf("%s: got %v, want %s", clipText(c.when), err, c.want)
		}
		want := reason.MalformedExpression
		if strings.Contains(c.want, "unknown name") {
			want = reason.UnknownName
		}
		if !reason.Is(err, want) {
			t.Errorf("%s: code %v, want %v", clipText(c.when), reason.Of(err).Code, want)
		}
	}
}

// model is a condition with its value, put together without the parser.
type model struct {
	text  string
	value bool
	level int // 0: or, 1: and, 2: needs no parenthesis
}

func (m model) inside(level int) string {
	if m.level < level {
		return "(" + m.text + ")"
	}
	return m.text
}

func drawModel(t *rapid.T, depth int) model {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	if depth == 0 {
		kind = min(kind, 1)
	}
	switch kind {
	case 0:
		want := rapid.SampledFrom([]string{"debian", "ubuntu", ""}).Draw(t, "text")
		negate := rapid.Bool().Draw(t, "negate")
		if negate {
			return model{fmt.Sprintf("facts.os.id != '%s'", want), want != "debian", 2}
		}
		return model{fmt.Sprintf("facts.os.id == %q", want), want == "debian", 2}
	case 1:
		n := rapid.IntRange(6, 10).Draw(t, "number")
		signs := map[string]bool{"<": 8 < n, "<=": 8 <= n, ">": 8 > n, ">=": 8 >= n, "==": n == 8, "!=": n != 8}
		sign := rapid.SampledFrom(sortedKeys(signs)).Draw(t, "sign")
		return model{fmt.Sprintf("facts.cpu.count%s%d", sign, n), signs[sign], 2}
	case 2:
		a := drawModel(t, depth-1)
		return model{"!" + "(" + a.text + ")", !a.value, 2}
	case 3:
		a, b := drawModel(t, depth-1), drawModel(t, depth-1)
		return model{a.inside(1) + " && " + b.inside(1), a.value && b.value, 1}
	}
	a, b := drawModel(t, depth-1), drawModel(t, depth-1)
	return model{a.inside(0) + " || " + b.inside(0), a.value || b.value, 0}
}

func TestEvalAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t, 5)
		e, err := ParseWhen(m.text)
		if err != nil && len(m.text) <= expressionBytesMax {
			t.Fatalf("%s: %v", m.text, err)
		}
		if err != nil {
			return
		}
		if got, err := e.Eval(sampleScope().Lookup); got != m.value || err != nil {
			t.Fatalf("%s is %v, %v, want %v", m.text, got, err, m.value)
		}
	})
}

func TestExpand(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"plain", "plain"},
		{"$(node.name)", "web-1"},
		{"a $(node.name) b $(facts.cpu.count) c", "a web-1 b 8 c"},
		{"$(node.labels['zone'])$(node.labels[\"unset\"])", "a"},
		{"$$(node.name)", "$(node.name)"},
		{"$$$(node.name)", "$$(node.name)"},
		{"$HOME ${x} $", "$HOME ${x} $"},
		{"$( node.name )", "web-1"},
	} {
		if got, err := Expand(c.text, sampleScope().Lookup); got != c.want || err != nil {
			t.Errorf("%q becomes %q, %v", c.text, got, err)
		}
	}
}

func TestExpandMistakes(t *testing.T) {
	for _, c := range []struct {
		text, want string
		code       reason.Code
	}{
		{"é $(node.name", "column 3: $( has no closing parenthesis", reason.MalformedExpression},
		{"$()", "column 3: found the end where a name must stand", reason.MalformedExpression},
		{"ab$(date)", `column 5: unknown name "date"`, reason.UnknownName},
		{"$(node.name == 'a')", "column 13: found == after the name", reason.MalformedExpression},
		{"$('a')", `column 3: found the text "a" where a name must stand`, reason.MalformedExpression},
	} {
		_, err := Expand(c.text, sampleScope().Lookup)
		var mistake *expressionError
		if !errors.As(err, &mistake) || mistake.Error() != c.want || !reason.Is(err, c.code) {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := Expand("x $(facts.os.id)", Scope{}.Lookup); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("a fact that the host does not know: %v", err)
	}
	long := Scope{NodeName: strings.Repeat("n", 64)}
	if _, err := Expand(strings.Repeat("$(node.name)", BodyBytesMax/64+1), long.Lookup); !reason.Is(err, reason.BodyTooLarge) {
		t.Errorf("a result above the limit: %v", err)
	}
}

func TestExpandedCopies(t *testing.T) {
	const x = "<$(node.name)>"
	for _, r := range []Resource{
		{Name: "f", File: &File{Path: "/f", Content: x, Owner: x, Group: x, Check: []string{"c", x}}},
		{Name: "d", Directory: &Directory{Path: "/d", Owner: x, Group: x}},
		{Name: "l", Symlink: &Symlink{Path: "/l", Target: x, Owner: x, Group: x}},
		{Name: "p", Package: &Package{Version: x}},
		{Name: "s", Service: &Service{}},
	} {
		for _, expand := range []bool{true, false} {
			r.Expand = expand
			before := fmt.Sprint(textsOf(&r))
			out, err := r.Expanded(sampleScope().Lookup)
			if err != nil {
				t.Fatal(err)
			}
			if after := fmt.Sprint(textsOf(&r)); after != before {
				t.Errorf("%s changed from %s to %s", r.Title(), before, after)
			}
			if out.Claim() != r.Claim() {
				t.Errorf("%s: the claim changed to %v", r.Title(), out.Claim())
			}
			want := before
			if expand {
				want = strings.ReplaceAll(before, "$(node.name)", "web-1")
			}
			if got := fmt.Sprint(textsOf(&out)); got != want {
				t.Errorf("%s with expand %v: got %s, want %s", r.Title(), expand, got, want)
			}
		}
	}
}

func textsOf(r *Resource) []string {
	var out []string
	for _, t := range r.texts() {
		out = append(out, *t.text)
	}
	return out
}

// TestExpandedKeepsSecrets: the error of a resource that cannot be expanded tells nothing of its content.
func TestExpandedKeepsSecrets(t *testing.T) {
	r := Resource{Name: "key", Expand: true, File: &File{Path: "/key", Mode: "0600", Content: "hunter2 $(facts.os.id)"}}
	_, err := r.Expanded(Scope{}.Lookup)
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "file.content of file/key") {
		t.Errorf("got %v", err)
	}
}

func TestFactNames(t *testing.T) {
	names := FactNames()
	if !slices.IsSortedFunc(names, func(a, b FactName) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the list is not sorted, which the look-up relies on")
	}
	for _, f := range names {
		if kind, ok := nameType(f.Name); !ok || kind != f.Type || f.Doc == "" {
			t.Errorf("%s is not found, or has no words", f.Name)
		}
	}
}
