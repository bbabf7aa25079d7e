package live

import (
	"strings"
	"unicode/utf8"
)

// The control sequences of a terminal, ECMA-48: to the first line, erase the whole screen, to the end of the line, and below.
const (
	escape    = "\x1b"
	home      = escape + "[H"
	eraseAll  = escape + "[2J"
	eraseLine = escape + "[K"
	eraseRest = escape + "[J"
)

// Screen shows one page on a terminal, in the place of the one before.
type Screen struct {
	Width   int // columns: what is longer is cut, because a line that goes on in the next would move all others
	isDrawn bool
}

// Page is what is to be written for the screen to show a page.
func (s *Screen) Page(page string) string {
	var b strings.Builder
	b.WriteString(home)
	if !s.isDrawn {
		b.WriteString(eraseAll)
	}
	for line := range strings.Lines(page) {
		b.WriteString(s.fit(strings.TrimSuffix(line, "\n")) + eraseLine + "\n")
	}
	b.WriteString(eraseRest)
	s.isDrawn = true
	return b.String()
}

// fit cuts a line that is too long. One with colours is short by itself.
func (s *Screen) fit(line string) string {
	if s.Width < 2 || utf8.RuneCountInString(line) <= s.Width || strings.Contains(line, escape) {
		return line
	}
	return string([]rune(line)[:s.Width-1]) + "…"
}
