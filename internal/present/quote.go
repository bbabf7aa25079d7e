package present

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote makes a name safe to show: a plain one stays as it is; one with control or invisible characters, invalid UTF-8,
// quotes, a backslash, spaces at an end, or none at all is put in double quotes with Go's escapes.
func Quote(s string) string {
	if s == "" || strings.ContainsAny(s, "\"\\") || s[0] == ' ' || s[len(s)-1] == ' ' || !isSafe(s) {
		return strconv.Quote(s)
	}
	return s
}

// Escape makes a line of text safe to show where quotes would be in the way: what is not printable becomes an escape, and
// a tab four spaces, so that columns can be counted. A newline is escaped as well.
func Escape(s string) string {
	if isSafe(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\t':
			b.WriteString(tabSpaces)
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case isShown(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

const tabSpaces = "    "

func isSafe(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !isShown(r) }) < 0
}

// isShown reports whether a character stands on a terminal as one sign or none, and changes nothing else: no control, no
// direction override, no private use.
func isShown(r rune) bool {
	return r == ' ' || unicode.IsPrint(r)
}

// Width is the number of columns that a safe text takes on a terminal.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// wide are the ranges of characters that take two columns: East Asian Wide and Fullwidth of Unicode's EastAsianWidth, and
// the emoji that terminals draw wide, joined where the gaps hold nothing that matters.
var wide = [...][2]rune{
	{0x1100, 0x115f}, {0x231a, 0x231b}, {0x2329, 0x232a}, {0x23e9, 0x23ec}, {0x23f0, 0x23f0}, {0x23f3, 0x23f3}, {0x25fd, 0x25fe},
	{0x2614, 0x2615}, {0x2648, 0x2653}, {0x26a1, 0x26a1}, {0x26ce, 0x26ce}, {0x2705, 0x2705}, {0x270a, 0x270b}, {0x2728, 0x2728},
	{0x274c, 0x274c}, {0x2753, 0x2755}, {0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa4cf},
	{0xa960, 0xa97c}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1f64f},
	{0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// truncate cuts a safe text to a number of columns, the last of which says that something is missing.
func truncate(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > columns-1 {
			return s[:i] + "…"
		}
	}
	return s
}
