package part

import "strings"

// open reads the children of a node between brackets. JSON and what YAML calls flow style are read alike.
func (d *document) open(n *node) error {
	if !n.flow || n.children != nil || n.kind != mapping && n.kind != list {
		return nil
	}
	children := []child{}
	at := d.skipBlanks(n.from + 1)
	for at < n.to-1 {
		c := child{from: at}
		if n.kind == mapping {
			end := d.skipValue(at)
			c.key = d.keyText(d.text[at:end])
			at = d.skipBlanks(end)
			if at >= n.to || d.text[at] != ':' {
				return refuse("declare the whole value", "line %d: a key without a value between brackets", d.lineNumber(c.from))
			}
			at++
		}
		c.value = &node{flow: true, inner: true, slot: at}
		if at = d.skipBlanks(at); d.text[at] == '&' || d.text[at] == '!' {
			return refuse("declare the whole value", "line %d: an anchor or tag between brackets", d.lineNumber(at))
		}
		c.value.from, c.value.to, c.value.kind = at, d.skipValue(at), kindAt(d.text[at])
		if c.value.from == c.value.to {
			return refuse("declare the whole value", "line %d: nothing stands where a value should be", d.lineNumber(at))
		}
		if children = append(children, c); len(children) > entriesMax {
			return refuse("declare the whole file", "line %d: more than %d entries", d.lineNumber(n.from), entriesMax)
		}
		at = d.skipBlanks(c.value.to)
		if at < n.to-1 && d.text[at] != ',' {
			return refuse("declare the whole value", "line %d: %q was not expected here", d.lineNumber(at), d.text[at])
		}
		at = d.skipBlanks(at + 1)
	}
	n.children = children
	return nil
}

func kindAt(c byte) kind {
	switch c {
	case '{':
		return mapping
	case '[':
		return list
	}
	return scalar
}

// skipBlanks is the offset of what comes next.
func (d *document) skipBlanks(at int) int {
	for at < len(d.text) {
		switch c := d.text[at]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
		case c == '#' && d.yaml && (at == 0 || strings.IndexByte(" \t\n", d.text[at-1]) >= 0):
			at = d.lineEnd(at)
		default:
			return at
		}
	}
	return at
}

// skipValue is the offset behind a value between brackets, or behind a key.
func (d *document) skipValue(at int) int {
	if at >= len(d.text) {
		return at
	}
	switch d.text[at] {
	case '"', '\'':
		return d.skipQuoted(at)
	case '{', '[':
		return d.skipBrackets(at)
	}
	from := at
	for at < len(d.text) && strings.IndexByte(",[]{}", d.text[at]) < 0 {
		if d.text[at] == ':' && (!d.yaml || at+1 == len(d.text) || strings.IndexByte(" \t\r\n,[]{}", d.text[at+1]) >= 0) {
			break
		}
		if d.text[at] == '#' && d.yaml && at > from && strings.IndexByte(" \t\n", d.text[at-1]) >= 0 {
			break
		}
		at++
	}
	return from + len(strings.TrimRight(d.text[from:at], " \t\r\n"))
}

// skipQuoted is the offset behind a quoted text, or the end of the document.
func (d *document) skipQuoted(at int) int {
	quote := d.text[at]
	for at++; at < len(d.text); at++ {
		switch {
		case d.text[at] == '\\' && quote == '"':
			at++
		case d.text[at] == quote && quote == '\'' && at+1 < len(d.text) && d.text[at+1] == quote:
			at++
		case d.text[at] == quote:
			return at + 1
		}
	}
	return len(d.text)
}

// skipBrackets is the offset behind a closing bracket, or the end of the document. It is no recursion, so depth costs nothing.
func (d *document) skipBrackets(at int) int {
	depth := 0
	fresh := true // a text may begin here, so that a quote is one
	for at < len(d.text) {
		c := d.text[at]
		switch {
		case (c == '"' || c == '\'' && d.yaml) && fresh:
			at, fresh = d.skipQuoted(at), false
			continue
		case c == '{' || c == '[':
			depth++
			fresh = true
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return at + 1
			}
			fresh = false
		case c == ',' || c == ':':
			fresh = true
		case c == '#' && d.yaml && strings.IndexByte(" \t\n", d.text[at-1]) >= 0:
			at = d.lineEnd(at)
			continue
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		default:
			fresh = false
		}
		at++
	}
	return len(d.text)
}

// putFlow adds an entry to a node between brackets that is open, as the child with number at or as near as can be.
func (d *document) putFlow(n *node, at int, entry func(indent string) string) string {
	count := len(n.children)
	at = min(at, count)
	if count == 0 {
		return d.firstFlow(n, entry)
	}
	if at == 0 {
		gap := d.gap(n, min(1, count-1))
		return d.splice(n.children[0].from, n.children[0].from, entry(indentOf(gap))+","+gap)
	}
	gap := d.gap(n, at-1)
	if at == 1 && count > 1 {
		gap = d.gap(n, 1)
	}
	after := n.children[at-1].value.to
	return d.splice(after, after, ","+gap+entry(indentOf(gap)))
}

// gap is what stands before a child, behind the comma or bracket.
func (d *document) gap(n *node, i int) string {
	from := n.from
	if i > 0 {
		from = d.skipBlanks(n.children[i-1].value.to)
	}
	gap := d.text[from+1 : n.children[i].from]
	if i == 0 && len(n.children) == 1 && !strings.Contains(gap, "\n") && (strings.Contains(d.text, ": ") || strings.Contains(d.text, ", ")) {
		return " " // what stands behind a bracket says nothing of what stands behind a comma
	}
	if strings.Contains(gap, "#") {
		return " "
	}
	return gap
}

// indentOf is the indentation that a gap ends with.
func indentOf(gap string) string {
	if i := strings.LastIndexByte(gap, '\n'); i >= 0 {
		return gap[i+1:]
	}
	return ""
}

// firstFlow puts an entry between empty brackets: on lines of its own where the document has more than one, and is JSON.
func (d *document) firstFlow(n *node, entry func(indent string) string) string {
	first, last := d.text[n.from:n.from+1], d.text[n.to-1:n.to]
	body := strings.TrimSpace(d.text)
	if d.yaml || !strings.Contains(body, "\n") && len(body) > len("{}") {
		return d.splice(n.from, n.to, first+entry("")+last)
	}
	start := d.lineStart(n.from)
	body = d.text[start:n.from]
	outer := body[:len(body)-len(strings.TrimLeft(body, blanks))]
	return d.splice(n.from, n.to, first+d.eol+outer+d.unit+entry(outer+d.unit)+d.eol+outer+last)
}

// cutFlow takes a child out.
func (d *document) cutFlow(n *node, i int) string {
	switch {
	case len(n.children) == 1:
		return d.splice(n.from+1, n.to-1, "")
	case i == 0:
		return d.splice(n.children[0].from, n.children[1].from, "")
	}
	return d.splice(n.children[i-1].value.to, n.children[i].value.to, "")
}
