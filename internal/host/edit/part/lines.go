package part

import "strings"

// line is one line of a text: what stands in it, and its end, which is empty for the last one of a text that does not end with one.
type line struct{ text, end string }

// split cuts a text into lines. join is its inverse.
func split(text string) []line {
	lines := make([]line, 0, strings.Count(text, "\n")+1)
	for l := range strings.Lines(text) {
		body, ok := strings.CutSuffix(l, "\n")
		if !ok {
			lines = append(lines, line{text: l})
			continue
		}
		end := "\n"
		if cut, ok := strings.CutSuffix(body, "\r"); ok {
			body, end = cut, "\r\n"
		}
		lines = append(lines, line{body, end})
	}
	return lines
}

func join(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
		b.WriteString(l.end)
	}
	return b.String()
}

// endOf is the end of line that a text has: that of its first line.
func endOf(lines []line) string {
	if len(lines) > 0 && lines[0].end != "" {
		return lines[0].end
	}
	return "\n"
}

// insert puts lines before the one with index at. A text that did not end with an end of line does not then.
func insert(lines []line, at int, texts ...string) []line {
	end := endOf(lines)
	out := make([]line, 0, len(lines)+len(texts))
	out = append(out, lines[:at]...)
	open := at > 0 && at == len(lines) && lines[at-1].end == ""
	if open {
		out[at-1].end = end
	}
	for _, t := range texts {
		out = append(out, line{t, end})
	}
	if open && len(texts) > 0 {
		out[len(out)-1].end = ""
	}
	return append(out, lines[at:]...)
}

// remove takes out the lines from index from to before to.
func remove(lines []line, from, to int) []line {
	return removeAll(lines, func(i int) bool { return i >= from && i < to })
}

// within reports whether an index is in one of some extents, which are in order. It is for calls with rising indices.
func within(extents []extent) func(i int) bool {
	at := 0
	return func(i int) bool {
		for at < len(extents) && i >= extents[at].to {
			at++
		}
		return at < len(extents) && i >= extents[at].from
	}
}

// removeAll takes out the lines that drop says.
func removeAll(lines []line, drop func(i int) bool) []line {
	out := make([]line, 0, len(lines))
	for i, l := range lines {
		if !drop(i) {
			out = append(out, l)
		}
	}
	n := len(out)
	if open := len(lines) > 0 && lines[len(lines)-1].end == ""; open && n > 0 && out[n-1].text != "" {
		out[n-1].end = ""
	}
	return out
}

// Gone is a line that stood in a text.
type Gone struct {
	At       int    `json:"at"`                 // its index
	Text     string `json:"text"`               // without its end
	End      string `json:"end,omitempty"`      // its end
	Above    string `json:"above"`              // the line above it
	AboveEnd string `json:"aboveEnd,omitempty"` // the end of that
	First    bool   `json:"first,omitempty"`    // there was none above it
}

// goneAt describes a line of a text.
func goneAt(lines []line, i int) Gone {
	g := Gone{At: i, Text: lines[i].text, End: lines[i].end, First: i == 0}
	if i > 0 {
		g.Above, g.AboveEnd = lines[i-1].text, lines[i-1].end
	}
	return g
}

// putBack puts lines where they were: at their number if the line above is still the same, else below such a line, else at the end.
func putBack(lines []line, gone []Gone) []line {
	for _, g := range gone {
		at := g.place(lines)
		if lines = insert(lines, at, g.Text); at > 0 && at == len(lines)-1 && lines[at].end == "" && g.AboveEnd != "" {
			lines[at-1].end = g.AboveEnd // the text ended there, without an end of the line
		}
		if g.End != "" || at == len(lines)-1 {
			lines[at].end = g.End
		}
	}
	return lines
}

func (g *Gone) place(lines []line) int {
	if g.First || g.At > 0 && g.At <= len(lines) && lines[g.At-1].text == g.Above {
		return min(g.At, len(lines))
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].text == g.Above {
			return i + 1
		}
	}
	return len(lines)
}
