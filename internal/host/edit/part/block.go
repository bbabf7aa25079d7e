package part

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
)

// blockCore is some lines between two marks.
type blockCore struct {
	lines      []string
	begin, end string
	after      *pattern // may be nil
	absent     bool
}

func newBlock(e *declare.BlockEdit, name string, absent bool) (core, error) {
	begin, end := e.Marks(name)
	c := &blockCore{begin: begin, end: end, absent: absent}
	for _, l := range split(e.Content) {
		c.lines = append(c.lines, l.text)
	}
	for _, l := range c.lines {
		if l == begin || l == end || strings.ContainsAny(l, "\r\x00") {
			return nil, refuse("", "the content of the block holds one of its marks, a lone CR or a NUL byte")
		}
	}
	if e.After != "" {
		re, err := regexp.Compile(e.After)
		if err != nil {
			return nil, refuse("", "%v", err)
		}
		c.after = &pattern{re}
	}
	return c, nil
}

// extent is where a block stands: the index of its first mark, and of the line behind its second.
type extent struct{ from, to int }

// find finds the blocks of the name; there should be one.
func (c *blockCore) find(lines []line) ([]extent, error) {
	var found []extent
	open := -1
	for i, l := range lines {
		switch strings.TrimRight(l.text, " \t") {
		case c.begin:
			if open >= 0 {
				return nil, refuse("remove one of the marks by hand", "line %d and line %d both begin the block %s", open+1, i+1, strconv.Quote(c.begin))
			}
			open = i
		case c.end:
			if open < 0 {
				return nil, refuse("remove it by hand", "line %d ends the block, and no line begins it", i+1)
			}
			found = append(found, extent{open, i + 1})
			open = -1
		}
	}
	if open >= 0 {
		return nil, refuse("put the mark "+strconv.Quote(c.end)+" where the block ends, or remove line "+strconv.Itoa(open+1), "line %d begins the block, and no line ends it", open+1)
	}
	return found, nil
}

func (c *blockCore) whole() []string {
	return append(append([]string{c.begin}, c.lines...), c.end)
}

func (c *blockCore) edit(text string) (string, error) {
	lines := split(text)
	found, err := c.find(lines)
	if err != nil {
		return "", err
	}
	if c.absent {
		return join(without(lines, found)), nil
	}
	if len(found) == 0 {
		return join(insert(lines, c.place(lines), c.whole()...)), nil
	}
	lines = without(lines, found[1:])
	if b := found[0]; !c.same(lines[b.from:b.to]) {
		lines = replace(lines, b, c.whole())
	}
	return join(lines), nil
}

// replace puts other lines in a block's place, and leaves ends of lines as the text has them.
func replace(lines []line, b extent, texts []string) []line {
	tail := lines[b.to-1].end
	end := endOf(lines)
	out := append([]line{}, lines[:b.from]...)
	for _, t := range texts {
		out = append(out, line{t, end})
	}
	out[len(out)-1].end = tail
	return append(out, lines[b.to:]...)
}

func (c *blockCore) same(have []line) bool {
	want := c.whole()
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		if have[i].text != want[i] && (i > 0 && i < len(want)-1) {
			return false
		}
	}
	return true
}

func without(lines []line, found []extent) []line {
	return removeAll(lines, within(found))
}

func (c *blockCore) place(lines []line) int {
	if c.after != nil {
		if i := last(lines, c.after.MatchString); i >= 0 {
			return i + 1
		}
	}
	return len(lines)
}

func (c *blockCore) drop(text string) (string, error) {
	lines := split(text)
	found, err := c.find(lines)
	if err != nil {
		return "", err
	}
	return join(without(lines, found)), nil
}

func (c *blockCore) shown(text string) string {
	lines := split(text)
	found, err := c.find(lines)
	if err != nil || len(found) == 0 {
		return ""
	}
	b := found[0]
	return shownLines(lines[b.from+1 : b.to-1])
}

func (c *blockCore) wanted() string {
	lines := make([]line, len(c.lines))
	for i, l := range c.lines {
		lines[i].text = l
	}
	return shownLines(lines)
}

// shownLines tells contents of blocks apart.
func shownLines(lines []line) string {
	n := strconv.Itoa(len(lines)) + " lines"
	if len(lines) == 1 {
		n = "1 line"
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return n + " " + digest(b.String())
}

func (c *blockCore) keep(text string) (Remnant, error) {
	lines := split(text)
	found, err := c.find(lines)
	if err != nil || len(found) == 0 {
		return Remnant{}, err
	}
	if c.absent {
		r := Remnant{}
		for _, b := range found {
			for i := b.from; i < b.to; i++ {
				r.Gone = append(r.Gone, goneAt(lines, i))
			}
		}
		return r, nil
	}
	b := found[0]
	old := join(lines[b.from+1 : b.to-1])
	return Remnant{Block: &old}, nil
}

func (c *blockCore) restore(text string, r Remnant) (string, error) {
	lines := split(text)
	found, err := c.find(lines)
	switch {
	case err != nil:
		return "", err
	case c.absent && len(found) == 0:
		return join(putBack(lines, r.Gone)), nil
	case c.absent || len(found) == 0:
		return text, nil
	case r.Block == nil:
		return join(without(lines, found)), nil
	}
	b := found[0]
	back := split(*r.Block)
	out := append(append([]line{}, lines[:b.from+1]...), back...)
	return join(append(out, lines[b.to-1:]...)), nil
}

// clipBytes is how much of a line is shown to a person: as much as a line of a terminal has.
const clipBytes = 120

// clip makes a text short and printable.
func clip(s string) string {
	if len(s) > clipBytes {
		s = strings.ToValidUTF8(s[:clipBytes], "") + "..."
	}
	return quoteWhereOdd(s)
}

// quoted is clip for a line, which may be empty.
func quoted(s string) string { return cmp.Or(clip(s), `""`) }

// many shows several texts in one.
func many(list []string) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return cmp.Or(list[0], `""`)
	}
	return strconv.Itoa(len(list)) + " lines, the first " + cmp.Or(list[0], `""`)
}
