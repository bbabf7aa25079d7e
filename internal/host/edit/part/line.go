package part

import (
	"regexp"
	"strings"

	"tako.dev/tako/declare"
)

// lineCore is one line.
type lineCore struct {
	text   string
	match  *pattern // nil: the text itself
	after  *pattern // may be nil
	before *pattern // may be nil
	absent bool
}

func newLine(e *declare.LineEdit, absent bool) (core, error) {
	c := &lineCore{text: e.Text, absent: absent}
	if strings.ContainsAny(e.Text, "\n\r\x00") {
		return nil, refuse("declare one line for each", "the line holds an end of line or a NUL byte")
	}
	for _, r := range []struct {
		source string
		to     **pattern
	}{{e.Match, &c.match}, {e.After, &c.after}, {e.Before, &c.before}} {
		if r.source == "" {
			continue
		}
		re, err := regexp.Compile(r.source)
		if err != nil {
			return nil, refuse("", "%v", err)
		}
		*r.to = &pattern{re}
	}
	return c, nil
}

// patternLineMax bounds the lines that a pattern is tried on: a line of many megabytes takes seconds.
const patternLineMax = 64 << 10

// pattern is a regular expression for one line. It matches no line that is longer than patternLineMax.
type pattern struct{ *regexp.Regexp }

// MatchString is that of the regular expression.
func (p *pattern) MatchString(s string) bool {
	return len(s) <= patternLineMax && p.Regexp.MatchString(s)
}

// target is the index of the line that is as declared, or is to become so; -1 for none. A text that match does not know is looked for by
// itself first: once it is there, it is there.
func (c *lineCore) target(lines []line) int {
	if c.match == nil || !c.match.MatchString(c.text) {
		if i := last(lines, func(s string) bool { return s == c.text }); i >= 0 || c.match == nil {
			return i
		}
	}
	return last(lines, c.match.MatchString)
}

func last(lines []line, is func(string) bool) int {
	for i := len(lines) - 1; i >= 0; i-- {
		if is(lines[i].text) {
			return i
		}
	}
	return -1
}

// goes reports whether a line is one of those that must not be there.
func (c *lineCore) goes(text string) bool {
	return c.match != nil && c.match.MatchString(text) || c.text != "" && text == c.text
}

func (c *lineCore) edit(text string) (string, error) {
	lines := split(text)
	if c.absent {
		return join(removeAll(lines, func(i int) bool { return c.goes(lines[i].text) })), nil
	}
	if i := c.target(lines); i >= 0 {
		lines[i].text = c.text
		return join(lines), nil
	}
	return join(insert(lines, c.place(lines), c.text)), nil
}

// place is where a new line is put.
func (c *lineCore) place(lines []line) int {
	if c.after != nil {
		if i := last(lines, c.after.MatchString); i >= 0 {
			return i + 1
		}
	}
	if c.before != nil {
		for i := range lines {
			if c.before.MatchString(lines[i].text) {
				return i
			}
		}
	}
	return len(lines)
}

func (c *lineCore) drop(text string) (string, error) {
	lines := split(text)
	return join(removeAll(lines, func(i int) bool { return lines[i].text == c.text })), nil
}

func (c *lineCore) shown(text string) string {
	lines := split(text)
	if c.absent {
		var list []string
		for _, l := range lines {
			if c.goes(l.text) {
				list = append(list, clip(l.text))
			}
		}
		return many(list)
	}
	if i := c.target(lines); i >= 0 {
		return quoted(lines[i].text)
	}
	return ""
}

func (c *lineCore) wanted() string { return quoted(c.text) }

func (c *lineCore) keep(text string) (Remnant, error) {
	lines := split(text)
	if c.absent {
		var r Remnant
		for i, l := range lines {
			if c.goes(l.text) {
				r.Gone = append(r.Gone, goneAt(lines, i))
			}
		}
		return r, nil
	}
	r := Remnant{Alike: c.alike(lines)}
	if i := c.target(lines); i >= 0 {
		r.Line = &lines[i].text
	}
	return r, nil
}

// alike counts the lines that are as declared.
func (c *lineCore) alike(lines []line) int {
	n := 0
	for _, l := range lines {
		if l.text == c.text {
			n++
		}
	}
	return n
}

func (c *lineCore) restore(text string, r Remnant) (string, error) {
	lines := split(text)
	if c.absent {
		if last(lines, c.goes) >= 0 {
			return text, nil // they are back
		}
		return join(putBack(lines, r.Gone)), nil
	}
	i := last(lines, func(s string) bool { return s == c.text })
	switch {
	case i < 0, c.alike(lines) <= r.Alike: // it has gone, or what was before is back
	case r.Line == nil:
		lines = remove(lines, i, i+1)
	default:
		lines[i].text = *r.Line
	}
	return join(lines), nil
}
