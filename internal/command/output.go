package command

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// headMax and tailMax bound what is kept of an output: the beginning says what was tried, the end what went wrong.
	headMax = 1 << 10
	tailMax = 3 << 10
)

// Output is what is kept of what a program printed on both its outputs. The zero value is empty. It is written by one goroutine.
type Output struct {
	head, tail []byte
	total      int64
}

// Write takes in more; it never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	o.total += int64(n)
	take := min(headMax-len(o.head), n)
	o.head = append(o.head, p[:take]...)
	p = p[take:]
	if len(p) > tailMax {
		p = p[len(p)-tailMax:]
	}
	if over := len(o.tail) + len(p) - tailMax; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
	o.tail = append(o.tail, p...)
	return n, nil
}

// Text is the output for a person: valid UTF-8, at most about 4 KiB, with what is left out in the middle counted, and with signs in
// the place of control characters other than newline and tab. replace, if set, is applied to what the program printed before that.
func (o *Output) Text(replace *strings.Replacer) string {
	skipped := o.total - int64(len(o.head)) - int64(len(o.tail))
	if skipped == 0 {
		return strings.TrimRight(visible(replaced(replace, string(o.head)+string(o.tail)), 0, textMax), "\n\t ")
	}
	head := replaced(replace, wholeRunes(string(o.head), false))
	tail := replaced(replace, wholeRunes(string(o.tail), true))
	return visible(head, headTextMax, 0) + fmt.Sprintf("\n… %d bytes left out …\n", skipped) +
		strings.TrimRight(visible(tail, 0, textMax-headTextMax), "\n\t ")
}

// Contains reports whether something was printed, as far as it is kept.
func (o *Output) Contains(words string) bool {
	return bytes.Contains(slices.Concat(o.head, o.tail), []byte(words))
}

const (
	// textMax is what reason.Clip leaves of an output too.
	textMax     = 4 << 10
	headTextMax = textMax / 4
)

func replaced(r *strings.Replacer, s string) string {
	if r == nil {
		return s
	}
	return r.Replace(s)
}

// wholeRunes drops the part of a rune at the end of a text that was cut there, or at its start.
func wholeRunes(s string, start bool) string {
	for range utf8.UTFMax - 1 {
		if start && s != "" && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
	}
	if start {
		return s
	}
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if at := len(s) - i; utf8.RuneStart(s[at]) {
			if !utf8.FullRuneInString(s[at:]) {
				return s[:at]
			}
			break
		}
	}
	return s
}

// visible writes a text so that nothing in it acts on a terminal. Of what is longer than first, if not 0, the end is cut; of what is
// longer than last, if not 0, the start.
func visible(s string, first, last int) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < ' ':
			b.WriteRune('␀' + r) // control pictures, U+2400
		case r == 0x7f:
			b.WriteRune('␡')
		case r >= 0x80 && r <= 0x9f, r == utf8.RuneError:
			b.WriteRune(utf8.RuneError)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	s = b.String()
	switch {
	case first > 0 && len(s) > first:
		return wholeRunes(s[:first], false)
	case last > 0 && len(s) > last:
		return "…" + wholeRunes(s[len(s)-last:], true)
	}
	return s
}
