package part

import (
	"encoding/json"
	"slices"
	"strings"

	"tako.dev/tako/declare"
)

// language reads a document.
type language interface {
	parse(text string) (*document, error)
	// keepsAnchors refuses a change that leaves something which stands for nothing.
	keepsAnchors(before, after string) error
}

// pointerCore is a value in a document.
type pointerCore struct {
	language
	steps  []string
	item   bool // an item of the list that steps lead to, which has no place of its own
	raw    json.RawMessage
	value  any
	absent bool
}

func newPointer(e *declare.PointerEdit, absent bool, l language) (core, error) {
	steps, mistake := declare.ParsePointer(e.Pointer)
	if mistake != "" {
		return nil, refuse("", "%s", mistake)
	}
	c := &pointerCore{language: l, steps: steps, absent: absent}
	if steps[len(steps)-1] == "-" {
		c.steps, c.item = steps[:len(steps)-1], true
	}
	if e.Value == nil && e.JSON == "" {
		return c, nil
	}
	c.raw = json.RawMessage(e.JSON)
	if e.Value != nil {
		c.raw = json.RawMessage(textJSON(*e.Value))
	}
	var err error
	if c.value, err = decodeJSON(string(c.raw)); err != nil || !json.Valid(c.raw) {
		return nil, refuse("", "the value is not JSON")
	}
	return c, nil
}

// find reads a text, and goes along the pointer. at is the item where the pointer leads to one.
func (c *pointerCore) find(text string) (d *document, s *spot, at int, err error) {
	if d, err = c.parse(text); err != nil {
		return nil, nil, -1, err
	}
	if s, err = d.follow(c.steps); err != nil || !c.item || len(s.index) < len(c.steps) {
		return d, s, -1, err
	}
	n := s.end()
	if n.kind != list && !d.isBare(n) || n.kind == mapping {
		return nil, nil, -1, refuse("remove it by hand, or choose another pointer", "%s is not a list", quoteWhereOdd(pointerText(c.steps)))
	}
	return d, s, slices.IndexFunc(n.children, func(k child) bool { return c.matches(d, k.value) }), nil
}

// matches reports whether a value is the declared one.
func (c *pointerCore) matches(d *document, n *node) bool {
	if n.kind == nothing {
		return c.value == nil
	}
	if n.tagged {
		return false
	}
	want := scalar
	switch c.value.(type) {
	case map[string]any:
		want = mapping
	case []any:
		want = list
	}
	if n.kind != want {
		return false
	}
	v, err := d.value(n)
	return err == nil && equal(v, c.value)
}

func (c *pointerCore) edit(text string) (string, error) {
	out, err := c.make(text)
	if err == nil {
		err = c.keepsAnchors(text, out)
	}
	return out, err
}

// make makes the value as declared.
func (c *pointerCore) make(text string) (string, error) {
	d, s, at, err := c.find(text)
	if err != nil {
		return "", err
	}
	switch missing := len(s.index) < len(c.steps); {
	case c.absent && (missing || c.item && at < 0):
		return text, nil
	case c.absent:
		return c.cut(d, s, at)
	case missing:
		return c.put(d, s.end(), c.steps[len(s.index):])
	case c.item && at < 0:
		return c.put(d, s.end(), nil)
	case c.item || c.matches(d, s.end()):
		return text, nil
	}
	n := s.end()
	if n.tagged {
		return "", refuse("remove the tag by hand", "%s has a tag, which says of what type it is", quoteWhereOdd(pointerText(c.steps)))
	}
	if d.yaml && (!n.flow || d.inBlock(n)) {
		return d.setBlock(n, c.written(d, "")), nil
	}
	return d.splice(n.from, n.to, c.written(d, d.indentAt(n.from))), nil
}

// allChildren as a place is behind all that there are.
const allChildren = int(^uint(0) >> 1)

// indentAt is the indentation of the line that holds an offset.
func (d *document) indentAt(at int) string {
	body := d.text[d.lineStart(at):at]
	return body[:len(body)-len(strings.TrimLeft(body, blanks))]
}

// written is the declared value as it stands in a document.
func (c *pointerCore) written(d *document, indent string) string {
	if !d.yaml {
		return d.rawJSON(c.raw, indent)
	}
	if s, ok := c.value.(string); ok {
		return textYAML(s)
	}
	var b strings.Builder
	b.WriteString(flowYAML(compact(c.raw)))
	return spaced(b.String())
}

// put adds what is missing below a node: the steps that lead there and the value, or an item of the list that the node is.
func (c *pointerCore) put(d *document, n *node, steps []string) (string, error) {
	return c.putWith(d, n, steps, Value{At: allChildren}, func(indent string) string { return c.written(d, indent) }, " ")
}

// putWith is put for a value in another form, at its place; gap is what is between colon and value.
func (c *pointerCore) putWith(d *document, n *node, steps []string, v Value, written func(indent string) string, gap string) (string, error) {
	if n.tagged {
		return "", refuse("remove the tag by hand", "line %d: a tag says of what type it is", d.lineNumber(n.from))
	}
	block := d.yaml && (!n.flow || d.inBlock(n) && d.isBare(n) || n.outer < 0 && d.isBare(n))
	entry := func(indent string) string { return c.flowEntry(d, n, steps, indent, written) }
	if block {
		entry = func(indent string) string { return c.blockEntry(d, steps, indent, written, gap) }
	}
	switch bare := d.isBare(n); {
	case !block && bare && n.kind == scalar:
		return "", refuse("remove it by hand", "line %d: null stands where a value is to be added", d.lineNumber(n.from))
	case !block && bare && (n.kind == list) == (len(steps) > 0):
		return "", refuse("remove it by hand", "line %d: an empty value of another kind is there", d.lineNumber(n.from))
	case !block:
		return d.putFlow(n, v.At, entry), nil
	case bare:
		return d.firstBlock(n, entry), nil
	}
	return d.putBlock(n, v.At, v.Gap, entry), nil
}

// flowEntry is an entry between brackets; what is missing further on is made of brackets too.
func (c *pointerCore) flowEntry(d *document, n *node, steps []string, indent string, written func(string) string) string {
	if len(steps) == 0 {
		return written(indent)
	}
	colon := ": "
	if len(n.children) > 0 && n.kind == mapping {
		last := n.children[len(n.children)-1]
		from := d.skipValue(last.from)
		if colon = d.text[from:last.value.from]; strings.ContainsAny(colon, "#\n&!") {
			colon = ": "
		}
	}
	value := written(indent)
	if len(steps) > 1 || c.item {
		value = d.nested(c, steps[1:], indent, written)
	}
	return d.quoted(steps[0]) + colon + value
}

// nested wraps a value in objects, and in a list where it is an item.
func (d *document) nested(c *pointerCore, steps []string, indent string, written func(string) string) string {
	open, end, key := "[", "]", ""
	if len(steps) > 0 {
		open, end, key = "{", "}", d.quoted(steps[0])+": "
	} else if !c.item {
		return written(indent)
	}
	inner, gap, last := indent, "", ""
	if body := strings.TrimSpace(d.text); !d.yaml && (strings.Contains(body, "\n") || body == "{}") {
		inner += d.unit
		gap, last = d.eol+inner, d.eol+indent
	}
	if len(steps) == 0 {
		return open + gap + written(inner) + last + end
	}
	return open + gap + key + d.nested(c, steps[1:], inner, written) + last + end
}

// blockEntry is an entry of a block with all that is missing further on.
func (c *pointerCore) blockEntry(d *document, steps []string, indent string, written func(string) string, gap string) string {
	if len(steps) == 0 {
		return "-" + gap + written(indent)
	}
	key := textYAML(steps[0]) + ":"
	if len(steps) == 1 && !c.item {
		return key + gap + written(indent)
	}
	indent += d.unit
	return key + d.eol + indent + c.blockEntry(d, steps[1:], indent, written, gap)
}

// cut takes the value out, or an item.
func (c *pointerCore) cut(d *document, s *spot, at int) (string, error) {
	n := s.end()
	if !c.item {
		last := len(s.index) - 1
		n, at = s.chain[last], s.index[last]
		if n.kind == list {
			return "", refuse(`name the item by its value: "-" as the last part of the pointer`, "%s is a list: without the item, the next one would have its number", quoteWhereOdd(pointerText(c.steps[:last])))
		}
	}
	out := d.cutChild(n, at)
	for range equalMax {
		if !c.item {
			return out, nil
		}
		// An item may be there several times.
		d, s, at, err := c.find(out)
		if err != nil || at < 0 {
			return out, err
		}
		out = d.cutChild(s.end(), at)
	}
	return "", refuse("remove them by hand", "the item stands more than %d times in the list", equalMax)
}

func (d *document) cutChild(n *node, at int) string {
	if n.flow {
		return d.cutFlow(n, at)
	}
	return d.cutBlock(n, at)
}

func (c *pointerCore) drop(text string) (string, error) {
	d, s, at, err := c.find(text)
	if err != nil || len(s.index) < len(c.steps) || c.item && at < 0 {
		return text, err
	}
	out, err := c.cut(d, s, at)
	if err == nil {
		err = c.keepsAnchors(text, out)
	}
	return out, err
}

func (c *pointerCore) shown(text string) string {
	d, s, at, err := c.find(text)
	if err != nil || len(s.index) < len(c.steps) {
		return ""
	}
	n := s.end()
	switch {
	case c.item && at < 0:
		return ""
	case c.item:
		n = n.children[at].value
	}
	if n.kind == nothing {
		return "null"
	}
	return quoted(strings.Join(strings.Fields(d.text[n.from:n.to]), " "))
}

func (c *pointerCore) wanted() string { return clip(spaced(compact(c.raw))) }

func (c *pointerCore) keep(text string) (Remnant, error) {
	d, s, at, err := c.find(text)
	if err != nil {
		return Remnant{}, err
	}
	n := s.end()
	if len(s.index) < len(c.steps) || c.item && at < 0 {
		r := Remnant{Made: Made{Steps: true, Depth: len(s.index)}}
		if d.isBare(n) {
			v := d.rawOf(n)
			r.Value = &v
		}
		return r, nil
	}
	in := n
	switch {
	case c.item:
		n = n.children[at].value
	case c.absent:
		in, at = s.chain[len(s.chain)-2], s.index[len(s.index)-1]
	}
	if !c.absent {
		v := d.rawOf(n)
		v.At = max(at, 0)
		return Remnant{Value: &v}, nil
	}
	v := d.taken(in, at)
	for i := at + 1; c.item && i < len(in.children); i++ {
		if c.matches(d, in.children[i].value) {
			v.More = append(v.More, d.taken(in, i))
		}
	}
	if len(in.children) == 1+len(v.More) {
		around := d.rawOf(in)
		v.Around = &around
	}
	return Remnant{Value: &v}, nil
}

// taken is a child as it is before it is taken out.
func (d *document) taken(in *node, at int) Value {
	n := in.children[at].value
	v := d.rawOf(n)
	v.At, v.Gap = at, d.gapOf(in, at)
	if d.yaml && !n.inner && !v.Below {
		v.Raw = d.text[n.slot:d.lineEnd(n.to)] // with the comment behind it
	}
	return v
}

func (c *pointerCore) restore(text string, r Remnant) (string, error) {
	d, s, at, err := c.find(text)
	if err != nil {
		return "", err
	}
	there := len(s.index) == len(c.steps) && (!c.item || at >= 0)
	switch {
	case r.Made.Steps && !there, r.Value == nil && !r.Made.Steps:
		return text, nil
	case r.Made.Steps:
		return c.unmake(d, s, at, r)
	case there && c.absent:
		return text, nil // it is back
	case there && !c.item:
		return d.setRaw(s.end(), *r.Value), nil
	case there:
		return text, nil
	case c.item && len(s.index) < len(c.steps), !c.item && len(s.index) < len(c.steps)-1:
		return text, nil // what it was in has gone
	}
	if n := s.end(); r.Value.Around != nil && d.isBare(n) && (n.outer >= 0 || n.flow) {
		return d.setRaw(n, *r.Value.Around), nil
	}
	text, err = c.putRaw(d, s.end(), *r.Value)
	for _, v := range r.Value.More {
		if err != nil {
			return "", err
		}
		if d, s, _, err = c.find(text); err != nil {
			return "", err
		}
		text, err = c.putRaw(d, s.end(), v)
	}
	return text, err
}

// putRaw puts a value back that was taken out.
func (c *pointerCore) putRaw(d *document, n *node, v Value) (string, error) {
	steps, gap := c.steps[len(c.steps)-min(1, len(c.steps)):], ""
	if c.item {
		steps = nil
	}
	if n.flow && !d.isBare(n) || !d.yaml {
		v.Raw, gap = strings.TrimSpace(v.Raw), " "
	}
	bare := *c
	bare.item = false
	return bare.putWith(d, n, steps, v, func(string) string { return v.Raw }, gap)
}

// unmake takes the value out, and what was made around it if nothing else is in it.
func (c *pointerCore) unmake(d *document, s *spot, at int, r Remnant) (string, error) {
	chain, index := s.chain, s.index
	if c.item {
		index = append(slices.Clone(index), at)
	}
	depth := len(index) - 1
	for depth > r.Made.Depth && len(chain[depth].children) == 1 {
		depth--
	}
	if depth == r.Made.Depth && len(chain[depth].children) == 1 && r.Value != nil && chain[depth].outer >= 0 {
		return d.setRaw(chain[depth], *r.Value), nil
	}
	return d.cutChild(chain[depth], index[depth]), nil
}

func compact(raw json.RawMessage) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			b.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}
