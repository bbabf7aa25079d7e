package declare

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamltoken "github.com/goccy/go-yaml/token"

	"tako.dev/tako/internal/reason"
)

// scalar decodes text, numbers and truth values; false when the node is of another type. Nothing is converted: a number
// where a text must stand was perhaps meant as one, or perhaps lost its zeros on the way. Only Mode, IntOrPercent and
// Quantity take a bare number, by its text as it stands in the file; a Quantity one with decimals too.
func (d *decoder) scalar(node ast.Node, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		switch n := node.(type) {
		case *ast.StringNode:
			v.SetString(strings.Clone(n.Value))
			return true
		case *ast.LiteralNode:
			v.SetString(strings.Clone(n.Value.Value))
			return true
		case *ast.FloatNode:
			if v.Type() == reflect.TypeFor[Quantity]() {
				v.SetString(strings.Clone(n.GetToken().Value))
				return true
			}
		case *ast.IntegerNode:
			if t := v.Type(); t == reflect.TypeFor[Mode]() || t == reflect.TypeFor[IntOrPercent]() || t == reflect.TypeFor[Quantity]() {
				v.SetString(strings.Clone(n.GetToken().Value))
				return true
			}
		}
	case reflect.Bool:
		if n, ok := node.(*ast.BoolNode); ok {
			v.SetBool(n.Value)
			return true
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if n, ok := node.(*ast.IntegerNode); ok {
			value, err := strconv.ParseInt(n.GetToken().Value, 10, v.Type().Bits())
			switch {
			case errors.Is(err, strconv.ErrRange):
				d.fault(n.GetToken(), reason.WrongType, "found a number that is too large", "")
			case err != nil:
				d.fault(n.GetToken(), reason.WrongType, "found a number in an unusual form where a whole number must stand", "write it in decimal digits")
			}
			v.SetInt(value)
			return true
		}
	}
	return false
}

// wrongType records what was found and what must stand there. The place is the value's or, when there is nothing, at.
func (d *decoder) wrongType(node ast.Node, want reflect.Type, at *yamltoken.Token) {
	if _, null := node.(*ast.NullNode); !null {
		at = firstToken(node)
	}
	d.incomplete = d.incomplete || len(d.path) > 0 && d.path[len(d.path)-1].name == "name"
	d.fault(at, reason.WrongType, "found "+describeNode(node)+" where "+describeType(want)+" must stand", typeHint(node, want))
}

func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "a mapping"
	case reflect.Map:
		return "a mapping of texts"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Pointer:
		return describeType(t.Elem())
	}
	return "text"
}

func describeNode(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return strconv.FormatBool(n.Value)
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	}
	return "something else"
}

// typeHint quotes no text longer than a short word, and nothing that was found for content, which may be secret.
func typeHint(n ast.Node, want reflect.Type) string {
	const wordBytesMax = 32
	_, isNull := n.(*ast.NullNode)
	value := ""
	if n == nil {
		return ""
	}
	if t := n.GetToken(); t != nil && len(t.Value) <= wordBytesMax {
		value = t.Value
	}
	switch want.Kind() {
	case reflect.String:
		if isNull {
			return `leave the field out, or write "" for an empty text`
		}
		if isScalar(n) && value != "" {
			return "put it in quotes: " + strconv.Quote(value)
		}
		if isScalar(n) {
			return "put it in quotes"
		}
	case reflect.Bool:
		return boolHint(value)
	case reflect.Slice:
		if isNull {
			return "write [] for an empty list"
		}
		return `write each item on its own line, beginning with "- "`
	case reflect.Struct, reflect.Map:
		if isNull {
			return "write its fields below it, indented deeper; or leave it out"
		}
		if key, text, ok := strings.Cut(value, ":"); ok && isMadeOf(key, "-_./") {
			return fmt.Sprintf("write a space after the colon: %q", key+": "+text)
		}
		return "write its fields below it, indented deeper"
	case reflect.Int, reflect.Int32, reflect.Int64:
		if _, err := strconv.Atoi(value); err == nil {
			return "write it without quotes: " + value
		}
	}
	return ""
}

func boolHint(value string) string {
	switch strings.ToLower(value) {
	case "yes", "on", "y", "true", "1":
		return "write true, without quotes"
	case "no", "off", "n", "false", "0":
		return "write false, without quotes"
	}
	return "write true or false"
}

// plain takes off what was refused on its token already, so that the mistakes below it are found too. An alias stands for
// nothing and comes back as nil.
func plain(n ast.Node) ast.Node {
	for {
		switch m := n.(type) {
		case *ast.AnchorNode:
			n = m.Value
		case *ast.TagNode:
			n = m.Value
		case *ast.AliasNode, *ast.MergeKeyNode:
			return nil
		default:
			return n
		}
	}
}

// pairsOf returns the pairs of a mapping; the parser has two forms of it.
func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func keyText(key ast.MapKeyNode) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return key.GetToken().Value
}

// firstToken is where a value begins: of a block mapping its first key, for the parser says the colon.
func firstToken(n ast.Node) *yamltoken.Token {
	if n == nil {
		return nil
	}
	if pairs, ok := pairsOf(n); ok && len(pairs) > 0 {
		if m, flow := n.(*ast.MappingNode); !flow || !m.IsFlowStyle {
			return pairs[0].Key.GetToken()
		}
	}
	return n.GetToken()
}

// itemToken is where an item of a list begins; one that holds nothing is its dash.
func itemToken(list *ast.SequenceNode, i int) *yamltoken.Token {
	item := plain(list.Values[i])
	if _, null := item.(*ast.NullNode); null && i < len(list.Entries) && list.Entries[i] != nil {
		return list.Entries[i].Start
	}
	return firstToken(item)
}

func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode, *ast.NullNode:
		return true
	}
	return false
}
