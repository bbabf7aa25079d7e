// Package glob matches relative paths with patterns. A pattern is names with slashes between, of which each matches one name of the path:
// * stands for any bytes, ? for one character, [a-z] for one of a class, \ takes the meaning from what follows, as path.Match has them. The
// name ** stands for any number of names, also none. The whole path has to match.
//
// The package is pure.
package glob

import (
	"fmt"
	"path"
	"strings"
)

const (
	// patternBytesMax and namesMax bound a pattern: more than what people write, and little enough to be matched with 100,000 paths.
	patternBytesMax = 1 << 10
	namesMax        = 64
	// anyNames is the name that stands for any number of names.
	anyNames = "**"
)

// Pattern is one pattern. The zero Pattern matches nothing.
type Pattern struct{ names []string }

// Parse reads a pattern. mistake says what is wrong with it, or is empty.
func Parse(text string) (p Pattern, mistake string) {
	switch {
	case text == "":
		return Pattern{}, "the pattern is empty"
	case len(text) > patternBytesMax:
		return Pattern{}, fmt.Sprintf("the pattern has %d bytes, at most %d are allowed", len(text), patternBytesMax)
	case strings.HasPrefix(text, "/"):
		return Pattern{}, "the pattern begins with /, and it is about paths below the directory"
	case strings.Contains(text, "\x00"):
		return Pattern{}, "the pattern holds a NUL byte, which no file name can"
	}
	names := strings.Split(text, "/")
	if len(names) > namesMax {
		return Pattern{}, fmt.Sprintf("the pattern has %d names, at most %d are allowed", len(names), namesMax)
	}
	for _, name := range names {
		switch {
		case name == "", name == ".", name == "..":
			return Pattern{}, fmt.Sprintf("%q is no name that a pattern can have", name)
		case name != anyNames && strings.Contains(name, anyNames):
			return Pattern{}, "** stands alone between slashes"
		}
		if _, err := path.Match(name, ""); err != nil {
			return Pattern{}, fmt.Sprintf("%q is not complete", name)
		}
	}
	return Pattern{names}, ""
}

// Match reports whether a relative path, without . and .., matches.
func (p Pattern) Match(relative string) bool {
	// reached[i] says that the first i names of the pattern have matched all of the path so far.
	var now, next [namesMax + 1]bool
	n := len(p.names)
	if n == 0 {
		return false
	}
	now[0] = true
	p.skip(&now)
	for name := range strings.SplitSeq(relative, "/") {
		next = [namesMax + 1]bool{}
		for i := range n {
			switch {
			case !now[i]:
			case p.names[i] == anyNames:
				next[i] = true
			default:
				ok, _ := path.Match(p.names[i], name) // Parse has tried the pattern
				next[i+1] = next[i+1] || ok
			}
		}
		p.skip(&next)
		now = next
	}
	return now[n]
}

// skip lets every ** stand for no name.
func (p Pattern) skip(reached *[namesMax + 1]bool) {
	for i, name := range p.names {
		if reached[i] && name == anyNames {
			reached[i+1] = true
		}
	}
}
