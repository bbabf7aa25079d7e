package part

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

const (
	// yamlBytesMax bounds a YAML document: its tree takes ten times that.
	yamlBytesMax = 4 << 20
	// yamlDepthMax bounds the nesting of blocks: people's documents have 20, Kubernetes' own bound is 100.
	yamlDepthMax = 100
	// yamlValueMax bounds a single value that is decoded, so that its nesting cannot fill the stack: a declared value is shorter.
	yamlValueMax = 64 << 10
)

// yamlText is the language YAML.
type yamlText struct{}

// yamlLine is a line of a document.
type yamlLine struct {
	from, to int // without the end of line
	indent   int // blanks before what stands there
	tab      bool
	void     bool // nothing, or a comment
	blank    bool
}

// yamlReader reads blocks.
type yamlReader struct {
	*document
	lines []yamlLine
	nodes int
}

// blockHeader is what begins a block scalar.
var blockHeader = regexp.MustCompile(`^[|>][-+0-9]{0,2}[ \t]*([ \t]#.*)?$`)

func (yamlText) parse(text string) (*document, error) {
	if len(text) > yamlBytesMax {
		return nil, refuse("declare the whole file", "the document has more than %d bytes", yamlBytesMax)
	}
	d := &document{text: text, yaml: true}
	d.learn()
	r := &yamlReader{document: d}
	r.cut()
	first, err := r.bounds()
	if err != nil {
		return nil, err
	}
	if first = r.next(first); first == len(r.lines) {
		end := len(text)
		if len(r.lines) > 0 && strings.HasPrefix(text[r.lines[len(r.lines)-1].to:], d.eol+"...") {
			end = r.lines[len(r.lines)-1].to
		}
		d.root = &node{from: end, to: end, slot: end, outer: -1}
		return d, nil
	}
	l := r.lines[first]
	root, next, err := r.value(first, l.from, -1, false, 0)
	if err != nil {
		return nil, err
	}
	if next = r.next(next); next < len(r.lines) {
		return nil, r.odd(next, "what stands here belongs to nothing before it")
	}
	d.root = root
	return d, nil
}

// odd refuses a line.
func (r *yamlReader) odd(i int, why string) error {
	return refuse("edit it with line or block, or declare the whole file", "line %d: %s", r.lineNumber(r.lines[i].from), why)
}

// cut finds the lines.
func (r *yamlReader) cut() {
	at := 0
	for l := range strings.Lines(r.text) {
		body := strings.TrimRight(l, "\r\n")
		rest := strings.TrimLeft(body, " ")
		solid := strings.TrimLeft(rest, "\t ")
		r.lines = append(r.lines, yamlLine{
			from: at, to: at + len(body), indent: len(body) - len(rest), tab: rest != solid && solid != "",
			void: solid == "" || solid[0] == '#', blank: solid == "",
		})
		at += len(l)
	}
}

// bounds finds where the one document begins, and cuts off what is behind its end.
func (r *yamlReader) bounds() (first int, err error) {
	content := false
	for i, l := range r.lines {
		text := r.text[l.from:l.to]
		switch {
		case isMarker(text, "---"):
			if content || first > 0 {
				return 0, r.odd(i, "a second document begins")
			}
			if rest := strings.Trim(text[len("---"):], blanks); rest != "" && rest[0] != '#' {
				return 0, r.odd(i, "something stands behind the beginning of the document")
			}
			first = i + 1
		case isMarker(text, "..."):
			for j := i + 1; j < len(r.lines); j++ {
				if !r.lines[j].void {
					return 0, r.odd(j, "a second document begins")
				}
			}
			r.lines = r.lines[:i]
			return first, nil
		case strings.HasPrefix(text, "%") && !content && first == 0:
		case !l.void:
			content = true
		}
	}
	return first, nil
}

func isMarker(text, marker string) bool {
	rest, ok := strings.CutPrefix(text, marker)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// next is the index of the next line, from i on, with something on it.
func (r *yamlReader) next(i int) int {
	for i < len(r.lines) && r.lines[i].void {
		i++
	}
	return i
}

// isDash reports whether a list's item begins at an offset of a line.
func (r *yamlReader) isDash(i, at int) bool {
	return at < r.lines[i].to && r.text[at] == '-' && (at+1 == r.lines[i].to || strings.IndexByte(blanks, r.text[at+1]) >= 0)
}

// value reads the value that may begin at an offset of line i, in something that is indented by outer. inline says that it stands behind
// a key, where no block begins on the same line. It returns the line behind it.
func (r *yamlReader) value(i, at, outer int, inline bool, depth int) (n *node, next int, err error) {
	if r.nodes++; depth > yamlDepthMax || r.nodes > entriesMax {
		return nil, 0, r.odd(i, "nested too deeply, or one of too many values")
	}
	start := at
	n = &node{slot: at, outer: outer}
	at = r.solid(i, at)
	for at < r.lines[i].to && (r.text[at] == '&' || r.text[at] == '!') {
		n.tagged = n.tagged || r.text[at] == '!'
		for at < r.lines[i].to && strings.IndexByte(blanks, r.text[at]) < 0 {
			at++
		}
		n.slot = at
		at = r.solid(i, at)
	}
	if at == r.lines[i].to || r.text[at] == '#' && (at == r.lines[i].from || strings.IndexByte(blanks, r.text[at-1]) >= 0) {
		return r.below(n, i, inline, depth)
	}
	if r.lines[i].tab && at == r.lines[i].from+r.lines[i].indent {
		return nil, 0, r.odd(i, "a tab in the indentation")
	}
	n.from = at
	if n.slot > start && strings.IndexByte("[{|>", r.text[at]) < 0 && (r.isDash(i, at) || r.colon(i, at) >= 0) {
		return nil, 0, r.odd(i, "an anchor or a tag stands before a key or an item")
	}
	switch c := r.text[at]; {
	case c == '|' || c == '>':
		return r.blockScalar(n, i)
	case r.isDash(i, at):
		if inline {
			return nil, 0, r.odd(i, "a list begins on the line of its key")
		}
		return r.list(n, i, depth)
	case c == '[' || c == '{' || c == '"' || c == '\'':
		return r.closed(n, i, inline, depth)
	case strings.IndexByte("%@`,]}", c) >= 0 || c == '?' && r.isMark(i, at):
		return nil, 0, r.odd(i, fmt.Sprintf("%q is not understood here", c))
	}
	if r.colon(i, at) >= 0 {
		if inline {
			return nil, 0, r.odd(i, "a mapping begins on the line of its key")
		}
		return r.mapping(n, i, depth)
	}
	return r.plain(n, i)
}

// isMark reports whether a sign stands alone.
func (r *yamlReader) isMark(i, at int) bool {
	return at+1 == r.lines[i].to || strings.IndexByte(blanks, r.text[at+1]) >= 0
}

// solid is the offset of what comes next on a line.
func (r *yamlReader) solid(i, at int) int {
	for at < r.lines[i].to && strings.IndexByte(blanks, r.text[at]) >= 0 {
		at++
	}
	return at
}

// below reads a value that stands on the lines below its key or dash, if there is one.
func (r *yamlReader) below(n *node, i int, inline bool, depth int) (*node, int, error) {
	n.from, n.to = n.slot, n.slot
	m := r.next(i + 1)
	if m == len(r.lines) {
		return n, i + 1, nil
	}
	l := r.lines[m]
	start := l.from + l.indent
	if l.tab {
		return nil, 0, r.odd(m, "a tab in the indentation")
	}
	if l.indent < n.outer || l.indent == n.outer && !(inline && r.isDash(m, start)) {
		return n, i + 1, nil
	}
	inner, next, err := r.value(m, l.from, n.outer, false, depth+1)
	if err != nil {
		return nil, 0, err
	}
	inner.outer, inner.tagged = n.outer, inner.tagged || n.tagged
	if inner.slot == l.from { // no anchor of its own
		inner.slot = n.slot
	}
	return inner, next, nil
}

// colon is the offset of the colon that makes a key of what begins at an offset; -1 for none.
func (r *yamlReader) colon(i, at int) int {
	end := r.lines[i].to
	if c := r.text[at]; c == '"' || c == '\'' {
		if at = r.solid(i, min(r.skipQuoted(at), end)); at < end && r.text[at] == ':' && r.isMark(i, at) {
			return at
		}
		return -1
	}
	for ; at < end; at++ {
		switch {
		case r.text[at] == ':' && r.isMark(i, at):
			return at
		case r.text[at] == '#' && strings.IndexByte(blanks, r.text[at-1]) >= 0:
			return -1
		}
	}
	return -1
}

// finish ends a scalar or a value between brackets on its line: nothing but a comment may follow.
func (r *yamlReader) finish(n *node, end int) (*node, int, error) {
	n.to = end
	i := r.lineOf(end)
	at := r.solid(i, end)
	if at < r.lines[i].to && (r.text[at] != '#' || at == end) {
		return nil, 0, r.odd(i, "something follows a value")
	}
	return n, i + 1, nil
}

// lineOf is the index of the line that holds an offset.
func (r *yamlReader) lineOf(at int) int {
	low, high := 0, len(r.lines)-1
	for low < high {
		if mid := (low + high + 1) / 2; r.lines[mid].from <= at {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// closed reads what is between quotes or brackets, or a mapping whose first key is quoted.
func (r *yamlReader) closed(n *node, i int, inline bool, depth int) (*node, int, error) {
	c := r.text[n.from]
	if quote := c == '"' || c == '\''; quote && r.colon(i, n.from) >= 0 {
		if inline {
			return nil, 0, r.odd(i, "a mapping begins on the line of its key")
		}
		return r.mapping(n, i, depth)
	}
	n.flow, n.kind = true, kindAt(c)
	end := r.skipValue(n.from)
	if last := r.text[end-1]; end == n.from+1 || last != map[byte]byte{'"': '"', '\'': '\'', '[': ']', '{': '}'}[c] || end > r.lines[len(r.lines)-1].to {
		return nil, 0, r.odd(i, fmt.Sprintf("%q is not closed", c))
	}
	return r.finish(n, end)
}

func (r *yamlReader) blockScalar(n *node, i int) (*node, int, error) {
	header := r.text[n.from:r.lines[i].to]
	if !blockHeader.MatchString(header) {
		return nil, 0, r.odd(i, "the beginning of a block is not understood")
	}
	n.kind, n.to = scalar, r.lines[i].to
	next := i + 1
	for m := next; m < len(r.lines) && (r.lines[m].blank || r.lines[m].indent > n.outer); m++ {
		if !r.lines[m].blank || strings.Contains(header, "+") {
			n.to, next = r.lines[m].to, m+1
		}
	}
	return n, next, nil
}

func (r *yamlReader) plain(n *node, i int) (*node, int, error) {
	n.kind = scalar
	end, commented := r.plainEnd(i, n.from)
	n.to = end
	next := i + 1
	for m := next; m < len(r.lines) && !commented; m++ {
		l := r.lines[m]
		if l.blank {
			continue
		}
		start := r.solid(m, l.from)
		if l.indent <= n.outer || l.void {
			break
		}
		if r.colon(m, start) >= 0 {
			return nil, 0, r.odd(m, "a key where a text goes on")
		}
		n.to, commented = r.plainEnd(m, start)
		next = m + 1
	}
	return n, next, nil
}

// plainEnd is where a plain scalar ends on a line, and whether a comment ends it.
func (r *yamlReader) plainEnd(i, at int) (end int, commented bool) {
	from := at
	for at < r.lines[i].to && !commented {
		if commented = r.text[at] == '#' && at > from && strings.IndexByte(blanks, r.text[at-1]) >= 0; !commented {
			at++
		}
	}
	return from + len(strings.TrimRight(r.text[from:at], blanks)), commented
}

func (r *yamlReader) mapping(n *node, i, depth int) (*node, int, error) {
	n.kind, n.indent = mapping, n.from-r.lines[i].from
	at := n.from
	for {
		colon := r.colon(i, at)
		if colon < 0 || r.isDash(i, at) || strings.IndexByte("[{|>&*!%@`", r.text[at]) >= 0 || r.text[at] == '?' && r.isMark(i, at) {
			return nil, 0, r.odd(i, "this is not understood as a key")
		}
		key := strings.TrimRight(r.text[at:colon], blanks)
		v, next, err := r.value(i, colon+1, n.indent, true, depth+1)
		if err != nil {
			return nil, 0, err
		}
		n.children = append(n.children, child{key: r.keyText(key), from: at, value: v})
		n.to = v.to
		more := false
		if i, at, more, err = r.sibling(n, next); err != nil || !more {
			return n, i, err
		}
	}
}

func (r *yamlReader) list(n *node, i, depth int) (*node, int, error) {
	n.kind, n.indent = list, n.from-r.lines[i].from
	at := n.from
	for {
		v, next, err := r.value(i, at+1, n.indent, false, depth+1)
		if err != nil {
			return nil, 0, err
		}
		n.children = append(n.children, child{from: at, value: v})
		n.to = v.to
		more := false
		if i, at, more, err = r.sibling(n, next); err != nil || !more {
			return n, i, err
		}
		if !r.isDash(i, at) {
			return n, i, nil
		}
	}
}

// sibling finds the next entry of a block; where there is none, the line behind it.
func (r *yamlReader) sibling(n *node, next int) (i, at int, more bool, err error) {
	m := r.next(next)
	if m == len(r.lines) || r.lines[m].indent < n.indent {
		return next, 0, false, nil
	}
	if r.lines[m].tab || r.lines[m].indent > n.indent {
		return 0, 0, false, r.odd(m, "the indentation is not that of its neighbours")
	}
	return m, r.lines[m].from + n.indent, true, nil
}

// valueYAML decodes a value; an alias, and what is too large to be compared, is an error.
func (d *document) valueYAML(n *node) (any, error) {
	text := d.text[n.from:n.to]
	if !n.flow && n.kind != scalar {
		text = strings.Repeat(" ", n.indent) + text
	}
	if n.kind == scalar && strings.IndexByte("|>", text[0]) >= 0 {
		// The end of the last line belongs to it.
		text = "v: " + text + "\n"
		v, err := decodeYAML(text)
		m, _ := v.(map[string]any)
		return m["v"], err
	}
	return decodeYAML(text)
}

// bracketDepth is at least how deeply brackets are nested.
func bracketDepth(text string) int {
	depth, most := 0, 0
	for _, c := range []byte(text) {
		switch c {
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return most
}

func decodeYAML(text string) (v any, err error) {
	if len(text) > yamlValueMax || bracketDepth(text) > yamlDepthMax {
		return nil, errors.New("too large")
	}
	defer func() {
		// The decoder is a third party's, and its input anybody's.
		if p := recover(); p != nil {
			v, err = nil, errors.New("it cannot be read")
		}
	}()
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	return plainValue(v), nil
}

// plainValue makes of a decoded value what the decoder of JSON makes.
func plainValue(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = plainValue(e)
		}
	case map[any]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[fmt.Sprint(k)] = plainValue(e)
		}
		return m
	case []any:
		for i := range x {
			x[i] = plainValue(x[i])
		}
	case int64:
		return json.Number(strconv.FormatInt(x, 10))
	case uint64:
		return json.Number(strconv.FormatUint(x, 10))
	case float64:
		return json.Number(strconv.FormatFloat(x, 'g', -1, 64))
	case nil, bool, string:
	default:
		return fmt.Sprint(x)
	}
	return v
}
