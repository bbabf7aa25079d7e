package declare

import (
	"slices"
	"strconv"
	"strings"
)

// ValueType is the type of a value in an expression.
type ValueType uint8

// The types of values.
const (
	Text ValueType = iota + 1
	Integer
	Boolean
	List // of texts
)

// String names the type for a person.
func (t ValueType) String() string {
	switch t {
	case Text:
		return "text"
	case Integer:
		return "a number"
	case Boolean:
		return "true or false"
	case List:
		return "a list"
	}
	return "nothing"
}

// Value is what a name or a literal of an expression stands for. The zero Value is no value.
type Value struct {
	kind ValueType
	text string // of a list its texts, each with a newline behind it: so values can be compared
	num  int64  // also 1 for true
}

// TextValue, IntegerValue and BooleanValue make values.
func TextValue(s string) Value { return Value{kind: Text, text: s} }

// IntegerValue makes a number.
func IntegerValue(n int64) Value { return Value{kind: Integer, num: n} }

// BooleanValue makes a truth value.
func BooleanValue(b bool) Value {
	v := Value{kind: Boolean}
	if b {
		v.num = 1
	}
	return v
}

// ListValue makes a list. A text with a newline does not belong into one.
func ListValue(texts []string) Value {
	var all strings.Builder
	for _, s := range texts {
		all.WriteString(s + "\n")
	}
	return Value{kind: List, text: all.String()}
}

// ValueOf makes a value of a string, an int64, a bool or a []string; false for anything else.
func ValueOf(x any) (Value, bool) {
	switch x := x.(type) {
	case string:
		return TextValue(x), true
	case int64:
		return IntegerValue(x), true
	case bool:
		return BooleanValue(x), true
	case []string:
		return ListValue(x), true
	}
	return Value{}, false
}

// Type returns the value's type, 0 for no value.
func (v Value) Type() ValueType { return v.kind }

// String is the value as expand writes it, the texts of a list with a space between them.
func (v Value) String() string {
	switch v.kind {
	case Integer:
		return strconv.FormatInt(v.num, 10)
	case Boolean:
		return strconv.FormatBool(v.num == 1)
	case List:
		return strings.ReplaceAll(strings.TrimSuffix(v.text, "\n"), "\n", " ")
	}
	return v.text
}

// Texts are the texts of a list; nil of what is none. The caller owns the slice.
func (v Value) Texts() []string {
	if v.kind != List || v.text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(v.text, "\n"), "\n")
}

// Number is the value of a number, and 1 of true; 0 of anything else.
func (v Value) Number() int64 { return v.num }

// holds reports whether a text is in a list.
func (v Value) holds(text string) bool {
	return slices.Contains(strings.SplitAfter(v.text, "\n"), text+"\n")
}

// Lookup returns the value of a name of an expression on this host: node.name, a LabelName, or a fact. False means that
// the host does not know it. A label that is not set is the empty text and never absent.
type Lookup func(name string) (Value, bool)

// Scope is what expressions see of one host.
type Scope struct {
	NodeName string
	Labels   map[string]string
	// Fact returns a fact as string, int64, bool or []string; internal/facts has one.
	Fact func(name string) (any, bool)
}

// Lookup is a Lookup over the scope.
func (s Scope) Lookup(name string) (Value, bool) {
	if name == nodeName {
		return TextValue(s.NodeName), true
	}
	if key, ok := LabelKey(name); ok {
		return TextValue(s.Labels[key]), true
	}
	if s.Fact == nil {
		return Value{}, false
	}
	x, ok := s.Fact(name)
	if !ok {
		return Value{}, false
	}
	return ValueOf(x)
}
