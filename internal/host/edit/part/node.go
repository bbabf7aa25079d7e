package part

import (
	"encoding/json"
	"strconv"
	"strings"
)

// kind is what a value in a document is.
type kind uint8

const (
	nothing kind = iota // no value is written: of YAML only
	scalar
	mapping
	list
)

// node is where a value stands in a document. All places are offsets.
type node struct {
	kind     kind
	flow     bool // between brackets, or JSON, or quoted: its children are read when they are asked for
	inner    bool // in something between brackets
	tagged   bool // a tag says of what type it is
	from, to int
	slot     int // where a value may begin: behind the colon, the dash, an anchor
	outer    int // indentation of what it is in; -1 for the whole
	indent   int // of its children, where it is not between brackets
	children []child
}

// child is one entry of a mapping or list; from is where its key, or dash, begins.
type child struct {
	key   string
	from  int
	value *node
}

// spot is where a pointer leads as far as there is something.
type spot struct {
	chain []*node // from the whole on; one more than index
	index []int   // the child of each that is next
}

// end is the last node.
func (s *spot) end() *node { return s.chain[len(s.chain)-1] }

// follow goes along a pointer. Where the spot has fewer steps than asked for, the rest is missing.
func (d *document) follow(steps []string) (*spot, error) {
	s := &spot{chain: []*node{d.root}}
	for i, step := range steps {
		n := s.end()
		if err := d.open(n); err != nil {
			return nil, err
		}
		switch at, err := d.step(n, step, steps[:i]); {
		case err != nil:
			return nil, err
		case at < 0:
			return s, nil
		default:
			s.chain, s.index = append(s.chain, n.children[at].value), append(s.index, at)
		}
	}
	return s, d.open(s.end())
}

// step finds one step of a pointer among a node's children; -1 where it is missing.
func (d *document) step(n *node, step string, before []string) (int, error) {
	where := "the document"
	if len(before) > 0 {
		where = quoteWhereOdd(pointerText(before))
	}
	switch n.kind {
	case mapping:
		found := -1
		for i, c := range n.children {
			if c.key != step {
				continue
			}
			if found >= 0 {
				return -1, refuse("remove one of them by hand", "the key %q stands twice in %s", step, where)
			}
			found = i
		}
		return found, nil
	case list:
		at, err := strconv.Atoi(step)
		if err != nil || at < 0 || strconv.Itoa(at) != step {
			return -1, refuse("a list has numbers, and - for one that is not in it", "%s is a list, and %q is no place in it", where, step)
		}
		if at >= len(n.children) {
			return -1, refuse(`"-" as the last part of the pointer adds an item`, "%s is a list of %d items, and has no %d", where, len(n.children), at)
		}
		return at, nil
	case nothing:
		return -1, nil
	}
	if d.isNull(n) {
		return -1, nil
	}
	return -1, refuse("remove it by hand, or choose another pointer", "%s is neither a mapping nor a list, so it has no %q", where, step)
}

func (d *document) isNull(n *node) bool {
	switch {
	case n.kind != scalar:
		return false
	case !d.yaml:
		return d.text[n.from:n.to] == "null"
	}
	switch d.text[n.from:n.to] {
	case "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// isBare reports whether a node holds nothing, so that anything may be put there.
func (d *document) isBare(n *node) bool {
	return n.kind == nothing || n.kind != scalar && len(n.children) == 0 || d.isNull(n)
}

// pointerText is the inverse of declare.ParsePointer.
func pointerText(steps []string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// document is a text and the places of its values.
type document struct {
	text string
	yaml bool
	root *node
	eol  string
	unit string // of indentation
}

// splice puts something in the place of a part of the text. The document is void then.
func (d *document) splice(from, to int, with string) string {
	return d.text[:from] + with + d.text[to:]
}

// lineEnd is the offset of the end of line at or behind an offset.
func (d *document) lineEnd(at int) int {
	i := strings.IndexByte(d.text[at:], '\n')
	if i < 0 {
		return len(d.text)
	}
	if at += i; at > 0 && d.text[at-1] == '\r' {
		at--
	}
	return at
}

// lineStart is the offset of the beginning of the line that holds an offset.
func (d *document) lineStart(at int) int { return strings.LastIndexByte(d.text[:at], '\n') + 1 }

// lineNumber counts from 1.
func (d *document) lineNumber(at int) int { return strings.Count(d.text[:at], "\n") + 1 }

// learn finds out how the document is written.
func (d *document) learn() {
	d.eol, d.unit = "\n", "  "
	if i := strings.IndexByte(d.text, '\n'); i > 0 && d.text[i-1] == '\r' {
		d.eol = "\r\n"
	}
	for l := range strings.Lines(d.text) {
		body := strings.TrimLeft(l, blanks)
		if indent := l[:len(l)-len(body)]; indent != "" && strings.Trim(body, "\r\n") != "" && !strings.HasPrefix(body, "#") {
			if !d.yaml || !strings.Contains(indent, "\t") && !strings.HasPrefix(body, "- ") {
				d.unit = indent
			}
			return
		}
	}
}

// equal compares values as they are decoded: numbers by what they mean.
func equal(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, there := y[k]; !there || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		return ok && sameNumber(string(x), string(y))
	}
	return a == b
}

// exactMax is up to where a float64 tells whole numbers apart.
const exactMax = 1 << 53

func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err == nil && err2 == nil && x == y && x < exactMax && x > -exactMax
}

// decodeJSON decodes one value, its numbers as they are written.
func decodeJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
