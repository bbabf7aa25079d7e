package dnf

import (
	"cmp"
	"strings"
)

// compare orders two versions, [EPOCH:]VERSION[-RELEASE], as rpm does. Where one has no release, any counts as equal.
func compare(a, b string) int {
	ea, va, ra := split(a)
	eb, vb, rb := split(b)
	if c := compareText(ea, eb); c != 0 {
		return c
	}
	if c := compareText(va, vb); c != 0 || ra == "" || rb == "" {
		return c
	}
	return compareText(ra, rb)
}

// split takes a version apart. An epoch that is not there is 0.
func split(v string) (epoch, version, release string) {
	epoch = "0"
	if e, rest, ok := strings.Cut(v, ":"); ok && strings.Trim(e, "0123456789") == "" {
		if epoch, v = e, rest; epoch == "" {
			epoch = "0"
		}
	}
	if at := strings.LastIndexByte(v, '-'); at >= 0 {
		return epoch, v[:at], v[at+1:]
	}
	return epoch, v, ""
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// compareText is rpmvercmp: texts are compared by stretches of digits and of letters, with anything else between them; ~ is before the end
// of a text, ^ after it and before anything else.
func compareText(a, b string) int {
	if a == b {
		return 0
	}
	for a != "" || b != "" {
		a, b = skipOthers(a), skipOthers(b)
		if c, done := compareMark(&a, &b, '~', 1); done {
			if c != 0 {
				return c
			}
			continue
		}
		if c, done := compareCaret(&a, &b); done {
			if c != 0 {
				return c
			}
			continue
		}
		if a == "" || b == "" {
			break
		}
		numbers := isDigit(a[0])
		sa, sb := stretch(&a, numbers), stretch(&b, numbers)
		if sb == "" { // of another kind: digits are later
			if numbers {
				return 1
			}
			return -1
		}
		if numbers {
			sa, sb = strings.TrimLeft(sa, "0"), strings.TrimLeft(sb, "0")
			if c := cmp.Compare(len(sa), len(sb)); c != 0 {
				return c
			}
		}
		if c := strings.Compare(sa, sb); c != 0 {
			return c
		}
	}
	return cmp.Compare(min(len(a), 1), min(len(b), 1))
}

func skipOthers(s string) string {
	for s != "" && !isDigit(s[0]) && !isLetter(s[0]) && s[0] != '~' && s[0] != '^' {
		s = s[1:]
	}
	return s
}

// compareMark takes ~ off both; the one that alone has it is earlier.
func compareMark(a, b *string, mark byte, other int) (c int, done bool) {
	inA, inB := *a != "" && (*a)[0] == mark, *b != "" && (*b)[0] == mark
	switch {
	case !inA && !inB:
		return 0, false
	case !inA:
		return other, true
	case !inB:
		return -other, true
	}
	*a, *b = (*a)[1:], (*b)[1:]
	return 0, true
}

// compareCaret takes ^ off both; the one that alone has it is later than a text that ends, and earlier than one that goes on.
func compareCaret(a, b *string) (c int, done bool) {
	inA, inB := *a != "" && (*a)[0] == '^', *b != "" && (*b)[0] == '^'
	switch {
	case !inA && !inB:
		return 0, false
	case *a == "":
		return -1, true
	case *b == "":
		return 1, true
	}
	return compareMark(a, b, '^', 1)
}

// stretch takes the digits, or the letters, off the beginning of a text.
func stretch(s *string, numbers bool) string {
	n := 0
	for n < len(*s) && (numbers && isDigit((*s)[n]) || !numbers && isLetter((*s)[n])) {
		n++
	}
	out := (*s)[:n]
	*s = (*s)[n:]
	return out
}
