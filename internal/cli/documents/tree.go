package documents

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// descend takes one step down from a node. It returns the child and where it is said to stand: a scalar where its value
// is, unless its key is asked for, anything larger where its key is. Without such a child both are nil.
func descend(node ast.Node, s step, ofKey bool) (ast.Node, *token.Token) {
	node = plain(node)
	if list, ok := node.(*ast.SequenceNode); ok {
		if s.kind != stepIndex || s.index >= len(list.Values) {
			return nil, nil
		}
		item := plain(list.Values[s.index])
		return item, firstToken(item)
	}
	for _, pair := range pairsOf(node) {
		if s.kind == stepIndex || keyText(pair.Key) != s.name {
			continue
		}
		value := plain(pair.Value)
		if isScalar(value) && !ofKey {
			return value, value.GetToken()
		}
		return value, pair.Key.GetToken()
	}
	return nil, nil
}

// plain takes anchors and tags off a node.
func plain(n ast.Node) ast.Node {
	for {
		switch wrapped := n.(type) {
		case *ast.AnchorNode:
			n = wrapped.Value
		case *ast.TagNode:
			n = wrapped.Value
		default:
			return n
		}
	}
}

// pairsOf returns the pairs of a mapping, for which the parser has two forms, and nil for anything else.
func pairsOf(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func keyText(key ast.MapKeyNode) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return key.GetToken().Value
}

// firstToken is where a value begins: of a block mapping its first key, because the parser says the colon.
func firstToken(n ast.Node) *token.Token {
	if n = plain(n); n == nil {
		return nil
	}
	if m, flow := n.(*ast.MappingNode); !flow || !m.IsFlowStyle {
		if pairs := pairsOf(n); len(pairs) > 0 {
			return pairs[0].Key.GetToken()
		}
	}
	return n.GetToken()
}

func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode:
		return true
	}
	return false
}
