package part

import (
	"strings"

	"tako.dev/tako/declare"
)

// style is what stands between keys and values in a file.
type style uint8

const (
	withSign  style = iota // KEY=VALUE or KEY: VALUE
	withBlank              // KEY VALUE, as sshd_config has it
)

const blanks = " \t"

// keyCore is the value of a key.
type keyCore struct {
	section   string
	key       string
	value     *string // nil: the key stands alone
	separator string  // as declared; may be empty
	absent    bool
}

func newKey(e *declare.IniEdit, absent bool) (core, error) {
	if mistake := e.Mistake(); mistake != "" {
		return nil, refuse("", "%s", mistake)
	}
	return &keyCore{section: strings.Trim(e.Section, blanks), key: e.Key, value: e.Value, separator: e.Separator, absent: absent}, nil
}

// pair is one place where the key stands: its lines, and how its first line is cut. Its value may go on in further lines.
type pair struct {
	from, to  int
	head      string // the key, with the blanks before it
	separator string // with the blanks around it; empty for a key that stands alone
	value     string // all that is behind the separator, further lines too
}

// view is a text as the key sees it.
type view struct {
	lines []line
	style style
	areas []extent // the lines of the section, without its header; several where it stands several times
	pairs []pair
	// firstHeader is the index of the first line that begins a section, or the number of lines.
	firstHeader int
}

func (c *keyCore) look(text string) *view {
	v := &view{lines: split(text)}
	v.style = c.styleOf(v.lines)
	v.firstHeader = len(v.lines)
	open := -1
	if c.section == "" {
		open = 0
	}
	for i := 0; i < len(v.lines); i = nextLogical(v.lines, i) {
		name, ok := v.header(i)
		if !ok {
			continue
		}
		v.firstHeader = min(v.firstHeader, i)
		if open >= 0 {
			v.areas = append(v.areas, extent{open, i})
			open = -1
		}
		if c.section != "" && name == c.section {
			open = i + 1
		}
	}
	if open >= 0 {
		v.areas = append(v.areas, extent{open, len(v.lines)})
	}
	for _, a := range v.areas {
		for i := a.from; i < a.to; i = nextLogical(v.lines, i) {
			if p, ok := c.pairAt(v, i); ok {
				v.pairs = append(v.pairs, p)
			}
		}
	}
	return v
}

// header reports whether a line begins a section, and its name. In the style of sshd_config, Match and Host begin what is not for all.
func (v *view) header(i int) (name string, ok bool) {
	text := strings.Trim(v.lines[i].text, blanks)
	if rest, found := strings.CutPrefix(text, "["); found {
		if end := headerEnd(rest); end >= 0 {
			return strings.Trim(rest[:end], blanks), true
		}
	}
	if v.style == withBlank {
		word, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
		return "", strings.EqualFold(word, "match") || strings.EqualFold(word, "host")
	}
	return "", false
}

// headerEnd is the offset of the bracket that ends a header: the first one behind which there is nothing but a comment, otherwise the last
// one; -1 for none. A name may have brackets, and so may a comment.
func headerEnd(text string) int {
	for i := range len(text) {
		if rest := text[i+1:]; text[i] == ']' && (isBlank(rest) || isComment(rest)) {
			return i
		}
	}
	return strings.LastIndexByte(text, ']')
}

// isComment reports whether a line is a comment.
func isComment(text string) bool {
	text = strings.TrimLeft(text, blanks)
	return text != "" && (text[0] == '#' || text[0] == ';')
}

func isBlank(text string) bool { return strings.Trim(text, blanks) == "" }

// nextLogical is the index behind a line and those that go on with it: a backslash at the end of a line says so, except of a comment.
func nextLogical(lines []line, i int) int {
	if !isComment(lines[i].text) {
		for i+1 < len(lines) && strings.HasSuffix(lines[i].text, `\`) {
			i++
		}
	}
	return i + 1
}

// styleOf finds out what the keys of a file have: blanks, where more lines have these than a sign.
func (c *keyCore) styleOf(lines []line) style {
	if c.separator != "" {
		if strings.Trim(c.separator, blanks) == "" {
			return withBlank
		}
		return withSign
	}
	signs, alone := 0, 0
	for i := 0; i < len(lines); i = nextLogical(lines, i) {
		text := strings.Trim(lines[i].text, blanks)
		if text == "" || text[0] == '[' || isComment(text) {
			continue
		}
		first := strings.IndexAny(text, "=:"+blanks)
		if first < 0 {
			continue
		}
		rest := strings.TrimLeft(text[first:], blanks)
		switch {
		case rest[0] == '=' || rest[0] == ':' && (text[first] == ':' || len(rest) == 1 || strings.ContainsAny(rest[1:2], blanks)):
			signs++
		case strings.Contains(rest, " = ") || strings.Contains(rest, " : "):
			signs++ // a key of several words
		default:
			alone++
		}
	}
	if alone > signs {
		return withBlank
	}
	return withSign
}

// pairAt cuts a line if it has the key.
func (c *keyCore) pairAt(v *view, i int) (pair, bool) {
	text := v.lines[i].text
	body := strings.TrimLeft(text, blanks)
	rest, ok := strings.CutPrefix(body, c.key)
	if !ok {
		return pair{}, false
	}
	head := text[:len(text)-len(rest)]
	after := strings.TrimLeft(rest, blanks)
	p := pair{from: i, to: nextLogical(v.lines, i), head: head}
	switch {
	case after == "":
	case after[0] == '=' || after[0] == ':' && v.style == withSign:
		after = strings.TrimLeft(after[1:], blanks)
		p.separator = rest[:len(rest)-len(after)]
	case v.style == withBlank && len(after) < len(rest):
		p.separator = rest[:len(rest)-len(after)]
	default:
		return pair{}, false // a longer key
	}
	value := make([]string, 0, p.to-i)
	value = append(value, after)
	for _, l := range v.lines[i+1 : p.to] {
		value = append(value, l.text)
	}
	p.value = strings.TrimRight(strings.Join(value, "\n"), blanks)
	return p, true
}

// is reports whether a pair is as declared.
func (c *keyCore) is(p pair) bool {
	switch {
	case c.value == nil:
		return strings.Trim(p.separator, blanks) == "" && p.value == ""
	case *c.value == "":
		return p.value == "" // KEY= and KEY are alike where nothing is wanted
	}
	return p.value == *c.value
}

func (c *keyCore) edit(text string) (string, error) {
	v := c.look(text)
	switch {
	case c.absent:
		return join(v.withoutPairs()), nil
	case len(v.pairs) == 0:
		return join(c.add(v)), nil
	}
	values := make([]string, len(v.pairs))
	for i, p := range v.pairs {
		if values[i] = p.separator + p.value; !c.is(p) {
			values[i] = c.behind(v, p)
		}
	}
	return join(v.set(values)), nil
}

// behind is what stands behind the key when it is as declared. The separator of the line stays.
func (c *keyCore) behind(v *view, p pair) string {
	switch {
	case c.value == nil:
		return ""
	case p.separator == "":
		return c.separatorFor(v) + *c.value
	}
	return p.separator + *c.value
}

// set gives each place other values, with their separators.
func (v *view) set(values []string) []line {
	end := endOf(v.lines)
	out := make([]line, 0, len(v.lines))
	from := 0
	for i, p := range v.pairs {
		if p.separator+p.value == values[i] {
			continue
		}
		out = append(out, v.lines[from:p.from]...)
		for text := range strings.SplitSeq(p.head+values[i], "\n") {
			out = append(out, line{text, end})
		}
		from = p.to
		out[len(out)-1].end = v.lines[from-1].end
	}
	return append(out, v.lines[from:]...)
}

func (v *view) withoutPairs() []line {
	places := make([]extent, len(v.pairs))
	for i, p := range v.pairs {
		places[i] = extent{p.from, p.to}
	}
	return removeAll(v.lines, within(places))
}

// neighbour cuts a line of another key as its separator and indentation stand, for a new one beside it.
func (v *view) neighbour(i int) (indent, separator string, ok bool) {
	text := v.lines[i].text
	body := strings.TrimLeft(text, blanks)
	if body == "" || isComment(body) || body[0] == '[' {
		return "", "", false
	}
	indent = text[:len(text)-len(body)]
	at := strings.IndexAny(body, "=:")
	if v.style == withBlank {
		at = strings.IndexAny(body, blanks)
	}
	if at < 0 {
		return indent, "", true
	}
	from, to := len(strings.TrimRight(body[:at], blanks)), at+1
	if to < len(body) {
		to = len(body) - len(strings.TrimLeft(body[to:], blanks))
	}
	if to == len(body) && v.style == withSign { // nothing behind it, so its blanks say nothing
		to = at + 1
	}
	return indent, body[from:to], true
}

// separatorFor is the separator of a new pair: as declared, or as the key before has it, or any of the file.
func (c *keyCore) separatorFor(v *view) string {
	if c.separator != "" {
		return c.separator
	}
	look := append([]extent{}, v.areas...)
	for _, a := range append(look, extent{0, len(v.lines)}) {
		for i := a.to - 1; i >= a.from; i-- {
			if _, separator, ok := v.neighbour(i); ok && separator != "" {
				return separator
			}
		}
	}
	if v.style == withBlank {
		return " "
	}
	return "="
}

// add puts a new pair where it belongs: below a line that has the key as a comment, else below the last key of the section.
func (c *keyCore) add(v *view) []line {
	text := c.key
	if c.value != nil {
		text += c.separatorFor(v) + *c.value
	}
	if len(v.areas) == 0 {
		header := []string{"[" + c.section + "]", text}
		if n := len(v.lines); n > 0 && !isBlank(v.lines[n-1].text) {
			header = append([]string{""}, header...)
		}
		return insert(v.lines, len(v.lines), header...)
	}
	for _, a := range v.areas {
		for i := a.to - 1; i >= a.from; i-- {
			if c.isExample(v, i) {
				return insert(v.lines, i+1, text)
			}
		}
	}
	a := v.areas[len(v.areas)-1]
	for i := a.to - 1; i >= a.from; i-- {
		if !isBlank(v.lines[i].text) && !isComment(v.lines[i].text) {
			indent := ""
			start := i
			for start > a.from && strings.HasSuffix(v.lines[start-1].text, `\`) {
				start--
			}
			indent, _, _ = v.neighbour(start)
			return insert(v.lines, i+1, indent+text)
		}
	}
	if c.section != "" {
		return insert(v.lines, a.from, text)
	}
	return insert(v.lines, v.aboveHeader(a), text)
}

// aboveHeader is where the first key of a file goes that has sections only: before the first one and the comments that belong to it.
func (v *view) aboveHeader(a extent) int {
	if a.to == len(v.lines) {
		return a.to
	}
	i := a.to
	for i > a.from && isComment(v.lines[i-1].text) {
		i--
	}
	if i == a.from {
		return a.to // the comments are those of the file
	}
	return i
}

// isExample reports whether a line is the key in a comment: "#Port 22".
func (c *keyCore) isExample(v *view, i int) bool {
	text := v.lines[i].text
	if text == "" || text[0] != '#' && text[0] != ';' {
		return false
	}
	example := view{lines: []line{{text: text[1:]}}, style: v.style}
	p, ok := c.pairAt(&example, 0)
	return ok && p.separator != "" && p.head == c.key
}

func (c *keyCore) drop(text string) (string, error) {
	return join(c.look(text).withoutPairs()), nil
}

func (c *keyCore) shown(text string) string {
	v := c.look(text)
	if len(v.pairs) == 0 {
		return ""
	}
	p := v.pairs[len(v.pairs)-1]
	for _, other := range v.pairs {
		if !c.absent && !c.is(other) {
			p = other // the one that makes the difference
		}
	}
	if strings.Trim(p.separator, blanks) == "" && p.value == "" {
		return "no value"
	}
	return quoted(p.value)
}

func (c *keyCore) wanted() string {
	if c.value == nil {
		return "no value"
	}
	return quoted(*c.value)
}

func (c *keyCore) keep(text string) (Remnant, error) {
	v := c.look(text)
	var r Remnant
	if len(v.pairs) == 0 {
		r.Made.Section = len(v.areas) == 0
		r.Made.Blank = r.Made.Section && len(v.lines) > 0 && !isBlank(v.lines[len(v.lines)-1].text)
		return r, nil
	}
	for _, p := range v.pairs {
		if !c.absent {
			r.Values = append(r.Values, p.separator+p.value)
			continue
		}
		for i := p.from; i < p.to; i++ {
			r.Gone = append(r.Gone, goneAt(v.lines, i))
		}
	}
	return r, nil
}

func (c *keyCore) restore(text string, r Remnant) (string, error) {
	v := c.look(text)
	switch {
	case c.absent && len(v.pairs) == 0:
		return join(putBack(v.lines, r.Gone)), nil
	case c.absent || len(v.pairs) == 0:
		return text, nil
	case len(r.Values) == 0:
		return c.unmake(join(v.withoutPairs()), r.Made), nil
	}
	values := make([]string, len(v.pairs))
	for i := range values {
		values[i] = r.Values[min(i, len(r.Values)-1)]
	}
	return join(v.set(values)), nil
}

// unmake takes a section away that was made for the key, if nothing else is in it.
func (c *keyCore) unmake(text string, made Made) string {
	if !made.Section {
		return text
	}
	v := c.look(text)
	if len(v.areas) != 1 {
		return text
	}
	a := v.areas[0]
	for _, l := range v.lines[a.from:a.to] {
		if !isBlank(l.text) {
			return text
		}
	}
	from := a.from - 1
	if made.Blank && from > 0 && isBlank(v.lines[from-1].text) {
		from--
	}
	return join(remove(v.lines, from, a.from))
}
