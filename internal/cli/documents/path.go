package documents

import (
	"fmt"
	"strconv"
	"strings"
)

// step is one step of a field path.
type step struct {
	kind  stepKind
	name  string // of a field or map key; of a match, the field that is compared
	value string // of a match: the value as text
	index int
}

type stepKind uint8

const (
	stepName  stepKind = iota // a field, or a key of a map
	stepIndex                 // an item of a list, by its place
	stepMatch                 // an item of a list, by one of its fields
)

// parsePath reads a field path in any of the forms in use:
//
//	spec.resources[3].file.mode        package declare, and field.Path of the API server
//	metadata.labels['a.b/c'], data[k]  a key of a map, with and without quotes
//	.spec.resources[name="web"].file   fieldpath.Path, in conflicts of server-side apply
//
// What cannot be read ends the path: a parent is named then.
func parsePath(path string) []step {
	var steps []step
	for path != "" {
		if path[0] == '.' {
			path = path[1:]
			continue
		}
		if path[0] != '[' {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps = append(steps, step{name: path[:end]})
			path = path[end:]
			continue
		}
		inside, rest, ok := cutBracket(path)
		if !ok {
			return steps
		}
		steps = append(steps, bracketStep(inside))
		path = rest
	}
	return steps
}

// cutBracket splits [inside]rest; a bracket in a quoted text does not count.
func cutBracket(path string) (inside, rest string, ok bool) {
	var quote byte
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case quote != 0 && c == '\\' && quote == '"':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == ']':
			return path[1:i], path[i+1:], true
		}
	}
	return "", "", false
}

func bracketStep(inside string) step {
	if index, err := strconv.ParseUint(inside, 10, 31); err == nil {
		return step{kind: stepIndex, index: int(index)}
	}
	if text, ok := unquote(inside); ok {
		return step{name: text}
	}
	// Of several keys, k1="a",k2="b", the first finds the item, or one beside it.
	first, _, _ := strings.Cut(inside, ",")
	if key, value, ok := strings.Cut(first, "="); ok {
		if text, quoted := unquote(value); quoted {
			value = text
		}
		return step{kind: stepMatch, name: key, value: value}
	}
	return step{name: inside}
}

func unquote(s string) (string, bool) {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return "", false
	}
	switch s[0] {
	case '\'':
		return s[1 : len(s)-1], true
	case '"':
		text, err := strconv.Unquote(s)
		return text, err == nil
	}
	return "", false
}

// resolve makes a path fit an object: it replaces matches by the index that they have, and joins the parts of a key that has
// dots in it, which the server writes as if they were fields. It ends where the object has nothing like it.
func resolve(steps []step, object any) []step {
	out := make([]step, 0, len(steps))
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		switch here := object.(type) {
		case []any:
			if s.kind == stepMatch {
				s = step{kind: stepIndex, index: matchIndex(here, s)}
				if s.index < 0 {
					return out
				}
			}
		case map[string]any:
			key, parts := dottedKey(here, steps[i:])
			s, i = step{name: key}, i+parts-1
		}
		out = append(out, s)
		object = childOf(object, s)
	}
	return out
}

// dottedKey is the shortest key of a map that the beginning of a path spells, and how many steps it takes. Where there is
// none it is the first step: a field that is missing.
func dottedKey(fields map[string]any, steps []step) (key string, parts int) {
	for i, s := range steps {
		if s.kind != stepName {
			break
		}
		if i > 0 {
			key += "."
		}
		if key += s.name; hasKey(fields, key) {
			return key, i + 1
		}
	}
	return steps[0].name, 1
}

func hasKey(fields map[string]any, key string) bool {
	_, ok := fields[key]
	return ok
}

func childOf(object any, s step) any {
	switch v := object.(type) {
	case map[string]any:
		return v[s.name]
	case []any:
		if s.kind == stepIndex && s.index < len(v) {
			return v[s.index]
		}
	}
	return nil
}

func matchIndex(list []any, s step) int {
	for i, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if value, set := fields[s.name]; set && fmt.Sprint(value) == s.value {
			return i
		}
	}
	return -1
}

// writePath writes steps as package declare does.
func writePath(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.kind == stepIndex:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case strings.ContainsAny(s.name, ".[]/"):
			b.WriteString("['" + s.name + "']")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}
