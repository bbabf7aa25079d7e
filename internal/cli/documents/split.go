package documents

import "strings"

// section is the text of one document with the line of the file on which it begins, from 1.
type section struct {
	text string
	line int
}

// lines is how many lines the section has.
func (s section) lines() int { return strings.Count(strings.TrimSuffix(s.text, "\n"), "\n") + 1 }

// split cuts a stream at its document markers. A line that begins with one is nothing else in YAML, not even within a
// quoted text or a block (YAML 1.2.2, 9.1.2). The dashes of a marker become spaces, so that columns stay. Documents of
// nothing but comments are left out.
func split(text string) []section {
	var sections []section
	begin, beginLine := 0, 1
	cut := func(end int) {
		s := section{text: text[begin:end], line: beginLine}
		if strings.HasPrefix(s.text, "---") {
			s.text = "   " + s.text[3:]
		}
		if hasContent(s.text) {
			sections = append(sections, s)
		}
	}
	at, number := 0, 1
	for line := range strings.Lines(text) {
		switch {
		case isMarker(line, "---"):
			cut(at)
			begin, beginLine = at, number
		case isMarker(line, "..."):
			cut(at)
			begin, beginLine = at+len("..."), number // what follows on the line is for the parser to refuse
		}
		at, number = at+len(line), number+1
	}
	cut(len(text))
	return sections
}

func isMarker(line, marker string) bool {
	rest, ok := strings.CutPrefix(line, marker)
	return ok && (rest == "" || strings.ContainsRune(" \t\n", rune(rest[0])))
}

func hasContent(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return true
		}
	}
	return false
}
