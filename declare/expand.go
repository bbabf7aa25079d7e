package declare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Expand fills every $(name) of a text with its value on this host. $$( stands for a literal $(; any other $ is itself.
// Names are those of conditions. Errors are *reason.Error: MalformedExpression and UnknownName for what validation
// refuses, InvalidValue for a name that this host does not know, BodyTooLarge for a result above BodyBytesMax. They quote
// nothing of the text, which may be secret.
func Expand(s string, lookup Lookup) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var out strings.Builder
	mistake := scanExpansions(s, func(text string) { out.WriteString(text) }, func(name string) *expressionError {
		v, ok := lookup(name)
		if !ok {
			return &expressionError{code: reason.InvalidValue, message: "this host does not know " + name, hint: missingHint(name)}
		}
		if out.Len()+len(v.String()) > BodyBytesMax {
			return &expressionError{code: reason.BodyTooLarge, message: fmt.Sprintf("the expanded text has more than %d bytes", BodyBytesMax)}
		}
		out.WriteString(v.String())
		return nil
	})
	if mistake != nil {
		return "", mistake.wrap("expand the text")
	}
	return out.String(), nil
}

// ExpandNames returns the names that a text uses, sorted, each once; its errors are those of Expand.
func ExpandNames(s string) ([]string, error) {
	names, mistake := expandNames(s)
	if mistake != nil {
		return nil, mistake.wrap("read the expansions")
	}
	return names, nil
}

func expandNames(s string) ([]string, *expressionError) {
	var names []string
	mistake := scanExpansions(s, func(string) {}, func(name string) *expressionError {
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), mistake
}

// scanExpansions cuts a text into literal parts and names, and stops at the first mistake.
func scanExpansions(s string, text func(string), name func(string) *expressionError) *expressionError {
	for rest := s; ; {
		at := strings.IndexByte(rest, '$')
		if at < 0 {
			text(rest)
			return nil
		}
		text(rest[:at])
		rest = rest[at:]
		switch {
		case strings.HasPrefix(rest, "$$("):
			text("$(")
			rest = rest[3:]
		case strings.HasPrefix(rest, "$("):
			after, mistake := scanExpansion(rest[2:], name)
			if mistake != nil {
				mistake.column += utf8.RuneCountInString(s[:len(s)-len(rest)]) + 1
				return mistake
			}
			rest = after
		default:
			text("$")
			rest = rest[1:]
		}
	}
}

// scanExpansion reads what follows $( up to its parenthesis. A mistake's column counts from the dollar sign, which is 0.
func scanExpansion(s string, name func(string) *expressionError) (after string, mistake *expressionError) {
	inner, after, ok := cutExpansion(s)
	if !ok {
		return "", &expressionError{code: reason.MalformedExpression, message: "$( has no closing parenthesis", hint: "write $$( for a literal $("}
	}
	n, mistake := parseName(inner)
	if mistake != nil {
		mistake.column++ // it counted from 1 behind the two characters of $(
		return "", mistake
	}
	return after, name(n)
}

// cutExpansion finds the parenthesis that closes an expansion; one inside quotes does not. A name is short, so a missing
// parenthesis is not looked for through a whole file.
func cutExpansion(s string) (inner, after string, ok bool) {
	const nameBytesMax = 512
	var quote byte
	for i := 0; i < len(s) && i < nameBytesMax; i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ')':
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// parseName reads the inside of $( ), which is a name and nothing else.
func parseName(inner string) (string, *expressionError) {
	p := parser{source: inner}
	p.next()
	if p.err == nil && p.token.kind != tokenWord {
		p.fail(p.token.at, "found "+p.token.describe()+" where a name must stand", "write $$( for a literal $(")
	}
	n := p.name()
	if p.err == nil && p.token.kind != tokenEnd {
		p.fail(p.token.at, "found "+p.token.describe()+" after the name", "an expansion is one name; write $$( for a literal $(")
	}
	return n.name, p.err
}

func missingHint(name string) string {
	const hint = "`when` can keep the resource off hosts that do not know it"
	if isOwnFact(name) {
		return "own facts are read from " + OwnFactsDir + " of the host, see `tako-agent facts` there; " + hint
	}
	return hint
}

func expandError(r *Resource, field string, err error) error {
	e := reason.Of(err)
	var mistake *expressionError
	if errors.As(err, &mistake) {
		return &reason.Error{Code: e.Code, Doing: "expand " + field + " of " + r.Title(), Cause: mistake, Hint: e.Hint}
	}
	return err
}
