package declare

import (
	"iter"
	"strings"
)

// section is a part of a file with the line on which it begins, from 1. Lines from cut on (counted in the section, from 1)
// stand skipped lines further down in the file, because the lines between were taken out.
type section struct {
	text    string
	line    int
	cut     int
	skipped int
	flow    bool // begins with { or [: JSON, or YAML that looks like it
}

// place turns a line of the section into a line of the file.
func (s section) place(line int) int {
	if s.skipped > 0 && line >= s.cut {
		line += s.skipped
	}
	return line + s.line - 1
}

// lines calls f with the number and the text of each line until it returns false. Offsets are into the section's text.
func (s section) lines(f func(number, start, end int) bool) {
	number := 1
	for start := 0; start < len(s.text); number++ {
		end := strings.IndexByte(s.text[start:], '\n')
		if end < 0 {
			end = len(s.text)
		} else {
			end += start
		}
		if !f(number, start, end) {
			return
		}
		start = end + 1
	}
}

// splitStream cuts a stream at its document markers. They stand at the first column and nowhere else: YAML allows no
// scalar, not even a quoted one or a block, to have such a line (YAML 1.2.2, 9.1.2). The dashes of a marker become spaces,
// so that columns stay.
func splitStream(text string) iter.Seq[section] {
	return func(yield func(section) bool) {
		begin, beginLine, more := 0, 1, true
		cut := func(end int) {
			s := section{text: text[begin:end], line: beginLine}
			if strings.HasPrefix(s.text, "---") {
				s.text = "   " + s.text[3:]
			}
			first := strings.TrimLeft(s.text, " \t\n")
			s.flow = strings.HasPrefix(first, "{") || strings.HasPrefix(first, "[")
			if first != "" {
				more = yield(s)
			}
		}
		section{text: text, line: 1}.lines(func(number, start, end int) bool {
			switch line := text[start:end]; {
			case isMarker(line, "---"):
				cut(start)
				begin, beginLine = start, number
			case isMarker(line, "..."):
				cut(start)
				begin, beginLine = start+len("..."), number // what follows on the line is for the parser to refuse
			}
			return more
		})
		if more {
			cut(len(text))
		}
	}
}

func isMarker(line, marker string) bool {
	rest, ok := strings.CutPrefix(line, marker)
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}

// splitResources takes the items of spec.resources out of a document, when they are a block list. It looks at the
// indentation of lines only, which is enough: a line of a nested scalar or collection is indented deeper than its parent,
// so the first line as shallow as the list ends an item, whatever the lines between hold.
func splitResources(s section) (frame section, items []section) {
	if s.flow {
		return s, nil
	}
	var f resourceFinder
	s.lines(func(number, start, end int) bool { return f.line(s, number, start, end) })
	if len(f.items) == 0 {
		return s, nil
	}
	if f.end == 0 {
		f.end, f.endLine = len(s.text), f.last+1
	}
	items = make([]section, len(f.items))
	for i, it := range f.items {
		end := f.end
		if i+1 < len(f.items) {
			end = f.items[i+1].offset
		} else if f.surplus > 0 {
			end = f.surplus
		}
		items[i] = section{text: s.text[it.offset:end], line: s.place(it.line)}
	}
	first := f.items[0]
	frame = section{text: s.text[:first.offset] + s.text[f.end:], line: s.line, cut: first.line, skipped: f.endLine - first.line}
	return frame, items
}

// resourceFinder walks over lines until it is inside spec.resources and then until it is out again.
type resourceFinder struct {
	state    finderState
	keyDepth int // indentation of the keys of spec
	depth    int // indentation of the items
	items    []lineStart
	surplus  int // offset of the first item that is left out, because there are more than a node can have
	end      int // offset of the first line behind the list; 0 while there is none
	endLine  int
	last     int
}

type lineStart struct{ offset, line int }

type finderState uint8

const (
	beforeSpec finderState = iota
	insideSpec             // before its first key
	betweenKeys
	beforeItems
	betweenItems
)

// line takes one line and says whether to go on.
func (f *resourceFinder) line(s section, number, start, end int) bool {
	f.last = number
	line := s.text[start:end]
	content := strings.TrimLeft(line, " ")
	depth := len(line) - len(content)
	if content == "" || content[0] == '#' {
		return true
	}
	isItem := content == "-" || strings.HasPrefix(content, "- ")
	switch f.state {
	case beforeSpec:
		if depth == 0 && isBareKey(content, "spec:") {
			f.state = insideSpec
		}
		return true
	case insideSpec:
		f.keyDepth, f.state = depth, betweenKeys
		fallthrough
	case betweenKeys:
		if depth == f.keyDepth && depth > 0 && isBareKey(content, "resources:") {
			f.state = beforeItems
		}
		return depth > 0
	case beforeItems:
		if !isItem || depth < f.keyDepth {
			return false
		}
		f.depth, f.state = depth, betweenItems
		fallthrough
	case betweenItems:
		if depth > f.depth {
			return true
		}
		if depth == f.depth && isItem {
			if len(f.items) <= ResourcesMax {
				f.items = append(f.items, lineStart{start, number})
			} else if f.surplus == 0 {
				f.surplus = start
			}
			return true
		}
		f.end, f.endLine = start, number
		return false
	}
	return false
}

// isBareKey reports whether a line is a key with nothing behind it but a comment.
func isBareKey(content, key string) bool {
	rest, ok := strings.CutPrefix(content, key)
	rest = strings.TrimLeft(rest, " \t")
	return ok && (rest == "" || rest[0] == '#')
}

// joinSections is the section of neighbouring ones.
func joinSections(ss []section) section {
	if len(ss) == 1 {
		return ss[0]
	}
	var b strings.Builder
	for _, s := range ss {
		b.WriteString(s.text)
	}
	return section{text: b.String(), line: ss[0].line}
}
