package part

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// jsonText is the language JSON.
type jsonText struct{}

// parse checks a document as a whole. One that is empty is an empty object.
func (jsonText) parse(text string) (*document, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}\n"
	}
	d := &document{text: text}
	if !json.Valid([]byte(text)) {
		return nil, d.invalid()
	}
	d.learn()
	at := d.skipBlanks(0)
	d.root = &node{flow: true, kind: kindAt(text[at]), from: at, to: d.skipValue(at), slot: at, outer: -1}
	return d, nil
}

// keepsAnchors is about what JSON does not have.
func (jsonText) keepsAnchors(string, string) error { return nil }

// invalid says why a text is no JSON.
func (d *document) invalid() error {
	var v json.RawMessage
	var syntax *json.SyntaxError
	err := json.Unmarshal([]byte(d.text), &v)
	if !errors.As(err, &syntax) {
		return refuse("", "the file is not JSON: %v", err)
	}
	at := min(max(int(syntax.Offset)-1, 0), len(d.text))
	line := d.lineNumber(at)
	if rest := d.text[at:]; strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "#") {
		return refuse("edit it with line or block, or declare the whole file", "line %d: a comment, which JSON does not have", line)
	}
	return refuse("put the file right by hand, or declare it whole", "line %d: the file is not JSON: %v", line, err)
}

// raw is how a value is written: on several lines where it is indented.
func (d *document) rawJSON(value json.RawMessage, indent string) string {
	var b bytes.Buffer
	if strings.Contains(strings.TrimSpace(d.text), "\n") || strings.TrimSpace(d.text) == "{}" {
		if json.Indent(&b, value, indent, d.unit) == nil {
			return strings.ReplaceAll(b.String(), "\n", d.eol)
		}
		b.Reset()
	}
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return spaced(b.String())
}

// spaced writes compact JSON as people do, with a blank behind commas and colons. It is YAML as well.
func spaced(compact string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		b.WriteByte(c)
		switch {
		case quoted && c == '\\':
			i++
			b.WriteByte(compact[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// textJSON writes a text as a JSON text; other than encoding/json it leaves <, > and & as they are.
func textJSON(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// keyText is a key as a pointer names it.
func (d *document) keyText(raw string) string {
	switch {
	case raw == "":
		return ""
	case raw[0] == '"':
		var s string
		if json.Unmarshal([]byte(raw), &s) == nil {
			return s
		}
		if v, err := decodeYAML(raw); err == nil {
			if s, ok := v.(string); ok {
				return s
			}
		}
	case raw[0] == '\'' && len(raw) > 1:
		return strings.ReplaceAll(raw[1:len(raw)-1], "''", "'")
	}
	return raw
}

// value decodes what stands at a node.
func (d *document) value(n *node) (any, error) {
	if n.kind == nothing {
		return nil, nil
	}
	if d.yaml {
		return d.valueYAML(n)
	}
	return decodeJSON(d.text[n.from:n.to])
}
