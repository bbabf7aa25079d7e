package ignore

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// translate makes a regular expression of a pattern; ok is false where the pattern can match nothing.
func translate(pattern string) (expression string, ok bool) {
	t := translator{rest: pattern, first: true}
	t.out.WriteString(`(?s)^`)
	for t.rest != "" {
		if !t.step() {
			return "", false
		}
	}
	t.out.WriteByte('$')
	return t.out.String(), true
}

// translator goes over a pattern from left to right.
type translator struct {
	rest string
	out  strings.Builder
	// first says that a directory can begin here: at the start of the pattern, behind a slash, and, as git has it, behind the
	// literal text with which a pattern begins.
	first   bool
	special bool // something else than literal text has been seen
}

// step translates one element. It is false where nothing can match any more.
func (t *translator) step() bool {
	switch c := t.rest[0]; c {
	case '*':
		t.stars()
	case '?':
		t.rest = t.rest[1:]
		t.write(`[^/]`, false)
	case '[':
		return t.class()
	case '\\':
		if t.special, t.rest = true, t.rest[1:]; t.rest == "" {
			return false
		}
		t.literal()
	default:
		t.literal()
	}
	return true
}

// write adds an element that is no literal text.
func (t *translator) write(expression string, first bool) {
	t.out.WriteString(expression)
	t.special, t.first = true, first
}

func (t *translator) literal() {
	_, size := utf8.DecodeRuneInString(t.rest)
	text := t.rest[:size]
	t.rest = t.rest[size:]
	t.out.WriteString(regexp.QuoteMeta(strings.ToValidUTF8(text, "\uFFFD")))
	t.first = text == "/" || !t.special
}

// stars translates one or several asterisks: two that are a whole name match any number of directories.
func (t *translator) stars() {
	rest := strings.TrimLeft(t.rest, "*")
	several := len(t.rest)-len(rest) > 1
	t.rest = rest
	switch {
	case several && t.first && rest == "", several && t.first && strings.HasPrefix(rest, `\/`):
		t.write(`.*`, false)
	case several && t.first && rest[0] == '/':
		t.rest = rest[1:]
		t.write(`(?:.*/)?`, true)
	default:
		t.write(`[^/]*`, false)
	}
}

// posixRanges returns the ranges of a class with a name, two characters each, in ASCII as in git.
func posixRanges(name string) (ranges string, ok bool) {
	classes := map[string]string{
		"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x00\x1f\x7f\x7f", "digit": "09", "graph": "!~", "lower": "az",
		"print": " ~", "punct": "!/:@[`{~", "space": "  \t\r", "upper": "AZ", "xdigit": "09AFaf",
	}
	ranges, ok = classes[name]
	return ranges, ok
}

// class translates [a-z], [!a-z], [[:alpha:]]. It never matches a slash.
func (t *translator) class() bool {
	rest := t.rest[1:]
	negated := rest != "" && (rest[0] == '!' || rest[0] == '^')
	if negated {
		rest = rest[1:]
	}
	var set []rune  // ranges, two characters each
	var before rune // the character that a range could begin with; 0 for none
	for begin := true; begin || rest == "" || rest[0] != ']'; begin = false {
		if rest == "" {
			return false
		}
		if name, after, ok := cutPosix(rest); ok {
			ranges, known := posixRanges(name)
			if !known {
				return false
			}
			set, rest, before = append(set, []rune(ranges)...), after, 0
			continue
		}
		isRange := rest[0] == '-' && before != 0 && len(rest) > 1 && rest[1] != ']'
		if isRange {
			rest = rest[1:]
		}
		if rest[0] == '\\' {
			if rest = rest[1:]; rest == "" {
				return false
			}
		}
		c, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		if isRange {
			set, before = append(set, before, c), 0
		} else {
			set, before = append(set, c, c), c
		}
	}
	t.rest = rest[1:]
	t.write(writeClass(set, negated), false)
	return true
}

// writeClass writes a class that does not match a slash.
func writeClass(set []rune, negated bool) string {
	var b strings.Builder
	for i := 0; i < len(set); i += 2 {
		low, high := set[i], set[i+1]
		if !negated && low <= '/' && '/' <= high {
			writeRange(&b, low, '/'-1)
			low = '/' + 1
		}
		writeRange(&b, low, high)
	}
	switch {
	case negated:
		return `[^/` + b.String() + `]`
	case b.Len() == 0:
		return `[^\x{0}-\x{10ffff}]` // nothing
	}
	return `[` + b.String() + `]`
}

// writeRange writes a range; one whose end is before its beginning holds nothing.
func writeRange(b *strings.Builder, low, high rune) {
	if low <= high {
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, low, high)
	}
}

// cutPosix splits [:name:]rest.
func cutPosix(s string) (name, rest string, ok bool) {
	if s, ok = strings.CutPrefix(s, "[:"); !ok {
		return "", "", false
	}
	name, rest, ok = strings.Cut(s, ":]")
	return name, rest, ok && !strings.Contains(name, "]")
}
