// Package ignore decides which files of a tree are left out, by rules in the syntax of gitignore(5).
//
// Of several rules that match a path the last one counts. What is below a directory that is left out cannot be brought back:
// a caller that walks a tree asks for each directory before it looks into it. A rule becomes one regular expression, whose time
// is linear in the length of a path, so that no rule can make a walk slow. Two things differ from git, which looks at bytes: a
// question mark or class matches one character, and a rule that is too long is refused instead of slow.
//
// The package is pure and owns no goroutine. Rules may be used by several at once.
package ignore

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	// RulesMax bounds how many rules one list has: the largest that are published (for all languages and editors at once)
	// have some 500.
	RulesMax = 2000
	// ruleBytesMax bounds a rule: PATH_MAX of Linux, since a rule beyond it matches no path.
	ruleBytesMax = 4096
)

// Rules are rules in the order in which they were written. The zero value leaves nothing out.
type Rules struct {
	rules []rule
}

type rule struct {
	pattern  *regexp.Regexp
	again    bool // begins with !: what it matches is not left out
	dirsOnly bool // ends with /
	base     bool // has no other slash: matches the last name of a path
}

// Mistake is a line that cannot be a rule.
type Mistake struct {
	Line    int // from 1
	Message string
}

// Error says the line and what is wrong with it.
func (m *Mistake) Error() string { return fmt.Sprintf("line %d: %s", m.Line, m.Message) }

// Parse reads rules, one a line. Later calls of With put more rules behind them. The error is a *Mistake.
func Parse(text string) (Rules, error) {
	var r Rules
	text = strings.TrimPrefix(text, "\uFEFF")
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		if len(line) > ruleBytesMax {
			return Rules{}, &Mistake{number, fmt.Sprintf("the rule has %d bytes, at most %d are allowed", len(line), ruleBytesMax)}
		}
		if len(r.rules) == RulesMax {
			return Rules{}, &Mistake{number, fmt.Sprintf("more than %d rules", RulesMax)}
		}
		one, ok, err := parseRule(trimSpaces(line))
		if err != nil {
			return Rules{}, &Mistake{number, err.Error()}
		}
		if ok {
			r.rules = append(r.rules, one)
		}
	}
	return r, nil
}

// With returns the rules with others behind them, which therefore have the last word.
func (r Rules) With(later Rules) Rules {
	return Rules{rules: append(r.rules[:len(r.rules):len(r.rules)], later.rules...)}
}

// Match tells whether a path is left out: slashes, relative to where the rules stand, without a slash at either end.
func (r Rules) Match(path string, isDir bool) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	for i := len(r.rules) - 1; i >= 0; i-- {
		one := &r.rules[i]
		subject := path
		if one.base {
			subject = name
		}
		if (isDir || !one.dirsOnly) && one.pattern.MatchString(subject) {
			return !one.again
		}
	}
	return false
}

// trimSpaces takes spaces off the end of a line, but not one with a backslash before it.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
		case '\\':
			if i++; i == len(line) {
				return line
			}
			end = i + 1
		default:
			end = i + 1
		}
	}
	return line[:end]
}

// parseRule reads one rule; ok is false for one that can match nothing.
func parseRule(line string) (one rule, ok bool, err error) {
	line, one.again = strings.CutPrefix(line, "!")
	line, one.dirsOnly = strings.CutSuffix(line, "/")
	one.base = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	expression, ok := translate(line)
	if !ok || line == "" {
		return rule{}, false, nil
	}
	if one.pattern, err = regexp.Compile(expression); err != nil {
		return rule{}, false, fmt.Errorf("the rule is too complicated: %w", err)
	}
	return one, true, nil
}
