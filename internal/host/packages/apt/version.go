package apt

import (
	"cmp"
	"strings"
)

// Compare orders two versions as dpkg does, deb-version(7), "Sorting algorithm".
func (a *Apt) Compare(one, other string) int { return compareVersions(one, other) }

func compareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	return cmp.Or(compareParts(epochA, epochB), compareParts(upstreamA, upstreamB), compareParts(revisionA, revisionB))
}

// splitVersion takes a version apart: epoch:upstream-revision. An epoch or a revision that is missing counts as 0, as "" does.
func splitVersion(v string) (epoch, upstream, revision string) {
	if before, after, ok := strings.Cut(v, ":"); ok {
		epoch, v = before, after
	}
	if at := strings.LastIndexByte(v, '-'); at >= 0 {
		v, revision = v[:at], v[at+1:]
	}
	return epoch, v, revision
}

// compareParts compares in turns: as much as is no digit by rank, then as much as is digits as a number.
func compareParts(a, b string) int {
	for a != "" || b != "" {
		for startsOther(a) || startsOther(b) {
			if c := cmp.Compare(rank(a), rank(b)); c != 0 {
				return c
			}
			a, b = a[1:], b[1:] // of one rank, so neither is at its end
		}
		var numberA, numberB string
		numberA, a = cutNumber(a)
		numberB, b = cutNumber(b)
		if c := cmp.Or(cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB)); c != 0 {
			return c
		}
	}
	return 0
}

// startsOther reports whether a text begins with something that is no digit.
func startsOther(s string) bool { return s != "" && (s[0] < '0' || s[0] > '9') }

// rank orders what is no digit: a tilde before the end, then letters, then everything else. A digit is where such a part ends.
func rank(s string) int {
	const afterLetters = 1 << 8
	switch {
	case s == "" || !startsOther(s):
		return 0
	case s[0] == '~':
		return -1
	case s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z':
		return int(s[0])
	}
	return int(s[0]) + afterLetters
}

// cutNumber takes the digits at the start of a text, without leading zeros.
func cutNumber(s string) (number, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return strings.TrimLeft(s[:len(s)-len(rest)], "0"), rest
}
