package part

import "strings"

// setBlock gives a node another value, that has one line. What stands behind it as a comment stays.
func (d *document) setBlock(n *node, value string) string {
	if n.kind == nothing {
		return d.splice(n.slot, n.slot, " "+value)
	}
	if !d.isBelow(n) {
		return d.splice(n.from, n.to, value)
	}
	end := d.lineEnd(n.slot)
	return d.text[:n.slot] + " " + value + d.text[n.slot:end] + d.text[d.lineEnd(n.to):]
}

// isBelow reports whether a value begins on a line below its key.
func (d *document) isBelow(n *node) bool {
	return n.outer >= 0 && strings.IndexByte(d.text[n.slot:n.from], '\n') >= 0
}

// rawOf is a value as it is written, to be put back by setRaw.
func (d *document) rawOf(n *node) Value {
	switch {
	case n.flow && !d.inBlock(n):
		return Value{Raw: d.text[n.from:n.to]}
	case d.isBelow(n):
		return Value{Raw: d.text[d.lineEnd(n.slot):d.lineEnd(n.to)], Below: true}
	}
	return Value{Raw: d.text[n.slot:n.to]}
}

// setRaw is the inverse of rawOf for a node that has another value now.
func (d *document) setRaw(n *node, v Value) string {
	switch {
	case n.flow && !d.inBlock(n):
		return d.splice(n.from, n.to, strings.TrimSpace(v.Raw))
	case v.Below:
		end := max(d.lineEnd(n.slot), n.slot)
		if d.isBelow(n) {
			return d.splice(end, d.lineEnd(n.to), v.Raw)
		}
		rest := d.lineEnd(n.to)
		return d.text[:n.slot] + d.text[n.to:rest] + v.Raw + d.text[rest:]
	case d.isBelow(n):
		end := d.lineEnd(n.slot)
		return d.text[:n.slot] + v.Raw + d.text[n.slot:end] + d.text[d.lineEnd(n.to):]
	}
	return d.splice(n.slot, n.to, v.Raw)
}

// inBlock reports whether a value that may be between brackets stands in something that is not.
func (d *document) inBlock(n *node) bool { return d.yaml && n.outer >= 0 && !n.inner }

// putBlock adds an entry to a block as the child with number at, or as near as can be, with up to gap lines between it and its
// neighbour. entry makes its lines for an indentation.
func (d *document) putBlock(n *node, at, gap int, entry func(indent string) string) string {
	indent := strings.Repeat(" ", n.indent)
	if at == 0 {
		before := n.children[0].from
		for range gap {
			start := d.lineStart(before)
			if at := d.afterDash(n); at >= 0 && d.lineStart(at) == d.lineStart(max(start-1, 0)) {
				return d.splice(at, at, entry(indent)+d.eol+indent)
			}
			if start == 0 || !isVoid(d.text[d.lineStart(start-1):start]) {
				break
			}
			before = d.lineStart(start - 1)
		}
		if before != n.children[0].from {
			return d.splice(before, before, indent+entry(indent)+d.eol)
		}
		return d.splice(before, before, entry(indent)+d.eol+indent)
	}
	after := d.lineEnd(n.children[min(at, len(n.children))-1].value.to)
	for range gap {
		from := after + len(d.eol)
		if from >= len(d.text) || !isVoid(d.text[from:d.lineEnd(from)]) {
			break
		}
		after = d.lineEnd(from)
	}
	return d.splice(after, after, d.eol+indent+entry(indent))
}

// afterDash is where a comment begins that stands behind the dash of an item, before its first key; -1 for none.
func (d *document) afterDash(n *node) int {
	if n.slot == 0 || d.text[n.slot-1] != '-' || strings.Trim(d.text[d.lineStart(n.slot):n.slot], " -") != "" {
		return -1
	}
	if at := n.slot + len(d.text[n.slot:]) - len(strings.TrimLeft(d.text[n.slot:], " ")); at < n.from && d.text[at] == '#' {
		return at
	}
	return -1
}

// isVoid reports whether a line holds nothing, or a comment.
func isVoid(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

// gapOf is how many lines are between a child and the one before; of the first one, after it.
func (d *document) gapOf(n *node, i int) int {
	switch {
	case n.flow, len(n.children) == 1:
		return 0
	case i == 0:
		return strings.Count(d.text[d.lineEnd(n.children[0].value.to):n.children[1].from], "\n") - 1
	}
	return strings.Count(d.text[d.lineEnd(n.children[i-1].value.to):n.children[i].from], "\n") - 1
}

// firstBlock puts an entry where there is no value, or an empty one.
func (d *document) firstBlock(n *node, entry func(indent string) string) string {
	if n.outer < 0 {
		if n.kind != nothing {
			return d.splice(n.from, n.to, entry(""))
		}
		text := entry("") + d.eol
		if n.slot > 0 && d.text[n.slot-1] != '\n' {
			text = d.eol + entry("")
		}
		return d.splice(n.slot, n.slot, text)
	}
	indent := strings.Repeat(" ", n.outer) + d.unit
	cut := n.to
	if n.kind == nothing || d.isBelow(n) {
		cut = n.slot
	}
	end := d.lineEnd(cut)
	tail := d.text[end:]
	if d.isBelow(n) {
		tail = d.text[n.to:]
	}
	return d.text[:n.slot] + d.text[cut:end] + d.eol + indent + entry(indent) + tail
}

// cutBlock takes a child out. A block that would have none is an empty one between brackets.
func (d *document) cutBlock(n *node, i int) string {
	c := n.children[i]
	if len(n.children) == 1 && n.outer >= 0 {
		return d.setBlock(n, map[kind]string{mapping: "{}", list: "[]"}[n.kind])
	}
	start := d.lineStart(c.from)
	if strings.Trim(d.text[start:c.from], " ") != "" {
		// The next one takes its place behind the dash; what is said of that stays.
		next := n.children[1].from
		return d.splice(c.from, next, strings.TrimLeft(d.text[d.lineEnd(max(c.value.to, c.from)):next], " \r\n"))
	}
	end := d.lineEnd(max(c.value.to, c.from))
	switch rest := d.text[end:]; {
	case strings.HasPrefix(rest, "\r\n"):
		end += len("\r\n")
	case rest != "":
		end++
	case start > 0: // the last line has no end, and the one before is the last now
		start = strings.LastIndexByte(d.text[:start], '\n')
		if start > 0 && d.text[start-1] == '\r' {
			start--
		}
	}
	return d.splice(start, end, "")
}
