package part

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

// aText draws a text of few lines, so that they meet.
func aText(rt *rapid.T, lines ...string) string {
	list := rapid.SliceOfN(rapid.SampledFrom(lines), 0, 8).Draw(rt, "lines")
	eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(rt, "end")
	text := strings.Join(list, eol)
	if len(list) > 0 && list[len(list)-1] != "" && rapid.Bool().Draw(rt, "ends") {
		text += eol
	} else if len(list) > 0 && list[len(list)-1] == "" {
		text += eol
	}
	if rapid.Bool().Draw(rt, "mark") && text != "" {
		text = byteOrderMark + text
	}
	return text
}

// bare are the lines of a text without their ends.
func bare(text string) []string {
	var list []string
	for _, l := range split(strings.TrimPrefix(text, byteOrderMark)) {
		list = append(list, l.text)
	}
	return list
}

// endings checks that an edit leaves ends of lines as they are.
func endings(rt *rapid.T, before, after string) {
	crlf := strings.Contains(before, "\r\n")
	if before != "" && strings.Contains(before, "\n") && crlf != (strings.Count(after, "\n") > 0 && strings.Count(after, "\r\n") == strings.Count(after, "\n")) && strings.Contains(after, "\n") {
		rt.Fatalf("ends of lines: %q, then %q", before, after)
	}
	if before != "" && after != "" && strings.TrimPrefix(before, byteOrderMark) != "" && strings.TrimPrefix(after, byteOrderMark) != "" && strings.HasSuffix(before, "\n") && !strings.HasSuffix(after, "\n") {
		rt.Fatalf("end of the last line: %q, then %q", before, after)
	}
	if strings.HasPrefix(before, byteOrderMark) != strings.HasPrefix(after, byteOrderMark) {
		rt.Fatalf("byte order mark: %q, then %q", before, after)
	}
}

func TestLineModel(t *testing.T) {
	words := []string{"a", "b", "a=1", "a=2", "#a=1", ""}
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.SampledFrom([]string{"", "^a", "^#?a=", "1$", "^$", "none"})
		e := lineEdit(rapid.SampledFrom(words[:5]).Draw(rt, "text"), pattern.Draw(rt, "match"), "", "")
		switch rapid.IntRange(0, 2).Draw(rt, "place") {
		case 1:
			e.Line.After = pattern.Draw(rt, "after")
		case 2:
			e.Line.Before = pattern.Draw(rt, "before")
		}
		if rapid.Bool().Draw(rt, "absent") {
			e = absent(e)
		}
		text := aText(rt, words...)
		p := made(t, e)
		out, err := p.Edit(text)
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := bare(out), modelLine(e, bare(text)); !slices.Equal(got, want) {
			rt.Fatalf("of %q\ngot  %q\nwant %q", text, got, want)
		}
		endings(rt, text, out)
		holds(t, p, text, false)
	})
}

// modelLine says what an edit of a line makes of lines, as the reference tells it.
func modelLine(e *declare.Edit, lines []string) []string {
	l := e.Line
	matches := func(pattern, s string) bool {
		ok, _ := regexp.MatchString(pattern, s)
		return pattern != "" && ok
	}
	var out []string
	if e.State == declare.EditAbsent {
		for _, s := range lines {
			if s != l.Text && !matches(l.Match, s) {
				out = append(out, s)
			}
		}
		return out
	}
	if (l.Match == "" || !matches(l.Match, l.Text)) && slices.Contains(lines, l.Text) {
		return lines
	}
	out = slices.Clone(lines)
	for i := len(out) - 1; i >= 0; i-- {
		if matches(l.Match, out[i]) {
			out[i] = l.Text
			return out
		}
	}
	for i := len(out) - 1; i >= 0; i-- {
		if matches(l.After, out[i]) {
			return slices.Insert(out, i+1, l.Text)
		}
	}
	for i := range out {
		if matches(l.Before, out[i]) {
			return slices.Insert(out, i, l.Text)
		}
	}
	return append(out, l.Text)
}

func TestBlockModel(t *testing.T) {
	words := []string{"a", "b", "", "# BEGIN name (tako)", "# END name (tako)"}
	rapid.Check(t, func(rt *rapid.T) {
		content := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words[:2]), 0, 3).Draw(rt, "content"), "\n")
		e := blockEdit(content, rapid.SampledFrom([]string{"", "^a"}).Draw(rt, "after"))
		if rapid.Bool().Draw(rt, "absent") {
			e = absent(blockEdit("", ""))
		}
		text := aText(rt, words...)
		p := made(t, e)
		out, err := p.Edit(text)
		if err != nil {
			return // marks that make no blocks: the table has them
		}
		inside, outer := model(bare(text))
		nowInside, nowOuter := model(bare(out))
		if !slices.Equal(outer, nowOuter) {
			rt.Fatalf("of %q: what is outside was %q, and is %q", text, outer, nowOuter)
		}
		want := 1
		if p.absent {
			want = 0
		}
		if len(nowInside) != want || want == 1 && strings.Join(nowInside[0], "\n") != content {
			rt.Fatalf("of %q: blocks %q, wanted %q", text, nowInside, content)
		}
		endings(rt, text, out)
		holds(t, p, text, len(inside) > 1)
	})
}

// model cuts lines into blocks and what is outside of them.
func model(lines []string) (inside [][]string, outer []string) {
	var block []string
	in := false
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, "# BEGIN"):
			in, block = true, nil
		case strings.HasPrefix(l, "# END"):
			in = false
			inside = append(inside, block)
		case in:
			block = append(block, l)
		default:
			outer = append(outer, l)
		}
	}
	return inside, outer
}

func TestIniModel(t *testing.T) {
	words := []string{"[s]", "[t]", "a=1", "a = 2", "b=3", "  c: 4", "a", "#a=5", "; comment", "", "d = x \\", "a =6"}
	rapid.Check(t, func(rt *rapid.T) {
		var value *string
		if rapid.Bool().Draw(rt, "with value") {
			value = ptr(rapid.SampledFrom([]string{"1", "2", "\"x y\"", "=", ""}).Draw(rt, "value"))
		}
		section, key := rapid.SampledFrom([]string{"", "s", "u"}).Draw(rt, "section"), rapid.SampledFrom([]string{"a", "b", "e"}).Draw(rt, "key")
		e := iniEdit(section, key, value)
		if rapid.Bool().Draw(rt, "absent") {
			e = absent(iniEdit(section, key, nil))
		}
		text := aText(rt, words...)
		p := made(t, e)
		out, err := p.Edit(text)
		if err != nil {
			if strings.Contains(text, `\`) {
				return // a line that goes on into what would be added
			}
			rt.Fatalf("of %q: %v", text, err)
		}
		values, others := modelIni(bare(text), section, key)
		nowValues, nowOthers := modelIni(bare(out), section, key)
		for _, v := range nowValues {
			if p.absent || value == nil && v != "<none>" || value != nil && v != *value && !(*value == "" && v == "<none>") {
				rt.Fatalf("of %q: %q has %q", text, out, nowValues)
			}
		}
		if !p.absent && len(nowValues) != max(1, len(values)) {
			rt.Fatalf("of %q: %q has %q, and had %q", text, out, nowValues, values)
		}
		if header := "[" + section + "]"; !slices.Contains(others, header) {
			nowOthers = slices.DeleteFunc(nowOthers, func(s string) bool { return s == header })
		}
		trim := func(list []string) string { return strings.TrimRight(strings.Join(list, "\n"), "\n") }
		if trim(nowOthers) != trim(others) {
			rt.Fatalf("of %q: the rest is %q, and was %q", text, nowOthers, others)
		}
		endings(rt, text, out)
		holds(t, p, text, false)
	})
}

// modelIni lists the values of a key in a section, and the other lines.
func modelIni(lines []string, section, key string) (values, others []string) {
	in := ""
	for i := 0; i < len(lines); i++ {
		l := strings.TrimSpace(lines[i])
		whole := lines[i]
		for !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, ";") && strings.HasSuffix(lines[i], `\`) && i+1 < len(lines) {
			i++
			whole += "\n" + lines[i]
		}
		if strings.HasPrefix(l, "[") {
			in = strings.Trim(l, "[]")
		}
		name, value := l, "<none>"
		if at := strings.IndexAny(l, "=:"); at >= 0 {
			name, value = strings.TrimSpace(l[:at]), strings.TrimSpace(l[at+1:])
		}
		if in == section && name == key {
			values = append(values, value)
			continue
		}
		others = append(others, whole)
	}
	return values, others
}

// aValue draws a value as it is decoded from JSON.
func aValue(rt *rapid.T, depth int) any {
	most := 7
	if depth == 0 {
		most = 4
	}
	switch rapid.IntRange(0, most).Draw(rt, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(rt, "bool")
	case 2:
		return json.Number(strconv.Itoa(rapid.IntRange(-9, 99).Draw(rt, "number")))
	case 3, 4:
		return rapid.SampledFrom(texts).Draw(rt, "text")
	case 5:
		n := rapid.IntRange(0, 3).Draw(rt, "items")
		list := make([]any, n)
		for i := range list {
			list[i] = aValue(rt, depth-1)
		}
		return list
	}
	return aMapping(rt, depth)
}

var (
	texts = []string{"", "a", "a b", "yes", "12", "a: b", "# c", "it's", "say \"x\"", "-", "- a", "x\ny", "[a]", "é", "null", "{", "&a", "a #b", "~", "x:", " a "}
	names = []string{"a", "b", "c", "a b", "1", "x/y", "k: v", "true"}
)

func aMapping(rt *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID).Draw(rt, "keys") {
		m[k] = aValue(rt, depth-1)
	}
	return m
}

// aPointer draws a pointer that often leads somewhere.
func aPointer(rt *rapid.T, v any) []string {
	var steps []string
	for {
		more := rapid.IntRange(0, 3).Draw(rt, "further")
		switch x := v.(type) {
		case map[string]any:
			if len(x) > 0 && more > 0 {
				keys := make([]string, 0, len(x))
				for k := range x {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				k := rapid.SampledFrom(keys).Draw(rt, "key")
				steps, v = append(steps, k), x[k]
				continue
			}
		case []any:
			if len(x) > 0 && more > 1 {
				i := rapid.IntRange(0, len(x)-1).Draw(rt, "index")
				steps, v = append(steps, strconv.Itoa(i)), x[i]
				continue
			}
			if more > 0 || len(steps) == 0 {
				return append(steps, "-")
			}
			return steps
		}
		if len(steps) == 0 || more == 0 {
			steps = append(steps, rapid.SampledFrom(names).Draw(rt, "new key"))
			if more == 1 {
				steps = append(steps, rapid.SampledFrom([]string{"x", "-"}).Draw(rt, "new key below"))
			}
		}
		return steps
	}
}

// modelSet does with a decoded document what an edit of it means; false where it cannot be.
func modelSet(v any, steps []string, value any, gone bool) (any, bool) {
	if len(steps) == 0 {
		return value, true
	}
	step, last := steps[0], len(steps) == 1
	switch x := v.(type) {
	case map[string]any:
		if last && step == "-" {
			if len(x) > 0 {
				return nil, false
			}
			break
		}
		out := map[string]any{}
		for k, e := range x {
			out[k] = e
		}
		if _, there := x[step]; gone && (last || !there) {
			if last {
				delete(out, step)
			}
			return out, true
		}
		e, ok := modelSet(x[step], steps[1:], value, gone)
		out[step] = e
		return out, ok
	case []any:
		out := slices.Clone(x)
		if last && step == "-" {
			has := func(e any) bool { return equal(e, value) }
			switch {
			case gone:
				return slices.DeleteFunc(out, has), true
			case slices.ContainsFunc(out, has):
				return out, true
			}
			return append(out, value), true
		}
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(x) || gone && last {
			return nil, false
		}
		e, ok := modelSet(x[i], steps[1:], value, gone)
		out[i] = e
		return out, ok
	case nil:
	default:
		return nil, false
	}
	if gone {
		return v, true
	}
	if last && step == "-" {
		return []any{value}, true
	}
	e, ok := modelSet(nil, steps[1:], value, gone)
	return map[string]any{step: e}, ok
}

// pointerCase draws an edit of a document of that value.
func pointerCase(rt *rapid.T, doc any) (p *declare.PointerEdit, steps []string, value any, gone bool) {
	steps = aPointer(rt, doc)
	gone = rapid.IntRange(0, 2).Draw(rt, "absent") == 0
	value = aValue(rt, 2)
	p = &declare.PointerEdit{Pointer: pointerText(steps)}
	if !gone || steps[len(steps)-1] == "-" {
		b, _ := json.Marshal(value)
		p.JSON = string(b)
	}
	return p, steps, value, gone
}

// agrees edits a text, and compares what it means with the model.
func agrees(t *testing.T, rt *rapid.T, e *declare.Edit, text string, doc any, steps []string, value any, decode func(string) (any, error)) {
	p, err := New(e, "name")
	if err != nil {
		rt.Fatal(err)
	}
	out, err := p.Edit(text)
	want, possible := modelSet(doc, steps, value, p.absent)
	if err != nil {
		if possible && !strings.Contains(err.Error(), "null stands") && !strings.Contains(err.Error(), "of another kind") {
			rt.Fatalf("of\n%s\n%v: %v", text, e, err)
		}
		return
	}
	if !possible {
		rt.Fatalf("of\n%s\nat %q: made\n%s\nand it cannot be", text, steps, out)
	}
	got, err := decode(out)
	if err != nil {
		rt.Fatalf("of\n%s\nat %q: made\n%s\nwhich is none: %v", text, steps, out, err)
	}
	if !same(got, want) {
		rt.Fatalf("of\n%s\nat %q: made\n%s\nwhich means %v, wanted %v", text, steps, out, got, want)
	}
	holds(t, p, text, true)
	kept, err := p.Keep(text)
	if err != nil {
		rt.Fatal(err)
	}
	back, err := p.Restore(out, kept)
	if err != nil {
		rt.Fatal(err)
	}
	if got, err := decode(back); err != nil || !same(got, doc) {
		rt.Fatalf("of\n%s\nat %q: made\n%s\nand put back\n%s\n%v", text, steps, out, back, err)
	}
}

// same is equal where nothing and an empty document are alike.
func same(a, b any) bool {
	empty := func(v any) bool { m, ok := v.(map[string]any); return v == nil || ok && len(m) == 0 }
	return equal(a, b) || empty(a) && empty(b)
}

func TestJSONModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var doc any = aMapping(rt, 4)
		b, err := json.Marshal(doc)
		if err != nil {
			rt.Fatal(err)
		}
		text := string(b)
		switch rapid.IntRange(0, 2).Draw(rt, "form") {
		case 0:
			b, _ = json.MarshalIndent(doc, "", rapid.SampledFrom([]string{"\t", "    "}).Draw(rt, "unit"))
			text = string(b) + "\n"
		case 1:
			text = spaced(text)
		}
		p, steps, value, gone := pointerCase(rt, doc)
		e := &declare.Edit{JSON: p}
		if gone {
			e.State = declare.EditAbsent
		}
		agrees(t, rt, e, text, doc, steps, value, decodeJSON)
	})
}

// yamlWriter writes values in the many forms that YAML has.
type yamlWriter struct {
	rt  *rapid.T
	eol string
}

func (w *yamlWriter) chance(n int) bool { return rapid.IntRange(0, n).Draw(w.rt, "chance") == 0 }

func (w *yamlWriter) comment() string {
	if w.chance(4) {
		return " # c"
	}
	return ""
}

func (w *yamlWriter) key(k string) string {
	switch {
	case !plainSafe.MatchString(k) || w.chance(5):
		if w.chance(1) {
			return "'" + strings.ReplaceAll(k, "'", "''") + "'"
		}
		return textJSON(k)
	}
	return k
}

// value writes what stands behind a colon or dash, up to the end of its last line.
func (w *yamlWriter) value(v any, indent int, compact bool) string {
	pad := strings.Repeat(" ", indent)
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 || w.chance(4) {
			return " " + w.flow(v) + w.comment() + w.eol
		}
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var b strings.Builder
		for i, k := range keys {
			if i > 0 || !compact {
				b.WriteString(pad)
			}
			step := rapid.SampledFrom([]int{1, 2, 4}).Draw(w.rt, "step")
			b.WriteString(w.key(k) + ":" + w.below(x[k], indent+step, indent))
		}
		return b.String()
	case []any:
		if len(x) == 0 || w.chance(4) {
			return " " + w.flow(v) + w.comment() + w.eol
		}
		var b strings.Builder
		for i, e := range x {
			if i > 0 || !compact {
				b.WriteString(pad)
			}
			b.WriteString("-" + w.item(e, indent))
		}
		return b.String()
	case string:
		if strings.HasSuffix(x, "y") && strings.Contains(x, "\n") && w.chance(1) {
			return " |-" + w.eol + pad + strings.ReplaceAll(x, "\n", w.eol+pad) + w.eol
		}
	}
	return " " + w.flow(v) + w.comment() + w.eol
}

func isBlock(v any) bool {
	switch x := v.(type) {
	case map[string]any:
		return len(x) > 0
	case []any:
		return len(x) > 0
	}
	return false
}

// below writes the value of a key.
func (w *yamlWriter) below(v any, indent, outer int) string {
	if !isBlock(v) {
		if v == nil && w.chance(1) {
			return w.comment() + w.eol
		}
		return w.value(v, indent, false)
	}
	if _, list := v.([]any); list && w.chance(1) {
		indent = outer
	}
	text := w.value(v, indent, false)
	if strings.HasPrefix(text, " {") || strings.HasPrefix(text, " [") {
		return text
	}
	between := ""
	if w.chance(5) {
		between = strings.Repeat(" ", indent) + "# between" + w.eol
	}
	return w.comment() + w.eol + between + text
}

func (w *yamlWriter) item(v any, indent int) string {
	if !isBlock(v) {
		return w.value(v, indent+2, false)
	}
	text := w.value(v, indent+2, true)
	if strings.HasPrefix(text, " {") || strings.HasPrefix(text, " [") {
		return text
	}
	return " " + text
}

func (w *yamlWriter) flow(v any) string {
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var parts []string
		for _, k := range keys {
			parts = append(parts, w.key(k)+": "+w.flow(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range x {
			parts = append(parts, w.flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if x == textYAML(x) && !w.chance(3) {
			return x
		}
		if !strings.Contains(x, "\n") && w.chance(1) {
			return "'" + strings.ReplaceAll(x, "'", "''") + "'"
		}
		return textJSON(x)
	case nil:
		return rapid.SampledFrom([]string{"null", "~"}).Draw(w.rt, "null")
	}
	return fmt.Sprint(v)
}

func TestYAMLModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var doc any = aMapping(rt, 4)
		w := &yamlWriter{rt: rt, eol: "\n"}
		text := strings.TrimPrefix(w.value(doc, 0, false), " ")
		if w.chance(3) {
			text = "# head\n---\n" + text
		}
		if w.chance(3) {
			text = strings.TrimSuffix(text, "\n")
		}
		decoded, err := decodeYAML(text)
		if err != nil || !reflect.DeepEqual(decoded, doc) && !same(decoded, doc) {
			rt.Skipf("the other reader does not read it: %v", err)
		}
		p, steps, value, gone := pointerCase(rt, doc)
		e := &declare.Edit{YAML: p}
		if gone {
			e.State = declare.EditAbsent
		}
		agrees(t, rt, e, text, doc, steps, value, decodeYAML)
	})
}
