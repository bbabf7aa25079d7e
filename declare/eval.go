package declare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"tako.dev/tako/internal/reason"
)

type operator uint8

const (
	opLiteral operator = iota + 1
	opName
	opIsTrue // the one part, an operand
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opIn    // the first part is one of the others
	opHolds // the first part is in the second, a list
	opNot
	opAnd
	opOr
)

// node is a vertex of an expression; kind is set for literals and names.
type node struct {
	op    operator
	kind  ValueType
	value Value
	name  string
	parts []node
}

func literal(v Value) node { return node{op: opLiteral, kind: v.kind, value: v} }

func (n node) describe() string {
	if n.op == opName {
		return n.name
	}
	if n.kind == Text {
		return strconv.Quote(clipText(n.value.text))
	}
	return n.value.String()
}

func (n node) example() string {
	if n.kind == Integer {
		return n.describe() + " >= 4"
	}
	if n.kind == List {
		return "'sda' in " + n.describe()
	}
	return n.describe() + " == 'web'"
}

// Eval returns whether the condition holds on a host. A comparison with a name that the host does not know is false,
// Missing tells which those are. The error is a *reason.Error with InternalFault: the lookup answered with another type
// than the name has.
func (e *Expr) Eval(lookup Lookup) (bool, error) {
	ok, err := e.root.eval(lookup)
	if err != nil {
		return false, &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("evaluate condition %q", clipText(e.source)), Cause: err}
	}
	return ok, nil
}

func (n *node) eval(lookup Lookup) (bool, error) {
	switch n.op {
	case opNot:
		ok, err := n.parts[0].eval(lookup)
		return !ok, err
	case opAnd, opOr:
		for i := range n.parts {
			ok, err := n.parts[i].eval(lookup)
			if err != nil || ok == (n.op == opOr) {
				return ok, err
			}
		}
		return n.op == opAnd, nil
	}
	left, ok, err := n.parts[0].resolve(lookup)
	if err != nil || !ok {
		return false, err
	}
	if n.op == opIsTrue {
		return left.num == 1, nil
	}
	for i := range n.parts[1:] {
		right, ok, err := n.parts[1+i].resolve(lookup)
		if err != nil || !ok {
			return false, err
		}
		if n.op == opHolds && right.holds(left.text) || left.kind == right.kind && n.op.holds(compareValues(left, right)) {
			return true, nil
		}
	}
	return false, nil
}

func (o operator) holds(order int) bool {
	switch o {
	case opEqual, opIn:
		return order == 0
	case opNotEqual:
		return order != 0
	case opLess:
		return order < 0
	case opLessEqual:
		return order <= 0
	case opGreater:
		return order > 0
	case opGreaterEqual:
		return order >= 0
	}
	return false
}

func compareValues(a, b Value) int {
	return cmp.Or(cmp.Compare(a.num, b.num), cmp.Compare(a.text, b.text))
}

func (n *node) resolve(lookup Lookup) (Value, bool, error) {
	if n.op == opLiteral {
		return n.value, true, nil
	}
	v, ok := lookup(n.name)
	if !ok {
		return Value{}, false, nil
	}
	if isOwnFact(n.name) && v.kind != n.kind && n.kind != anyType {
		return Value{}, false, nil // nobody could know what it is when the condition was declared
	}
	if v.kind != n.kind && n.kind != anyType {
		return Value{}, false, errors.New(n.name + " must be " + n.kind.String() + ", it came as " + v.kind.String())
	}
	return v, true, nil
}

// Names returns the names that the condition uses, sorted, each once.
func (e *Expr) Names() []string {
	names := e.root.names(nil)
	slices.Sort(names)
	return slices.Compact(names)
}

func (n *node) names(to []string) []string {
	if n.op == opName {
		return append(to, n.name)
	}
	for i := range n.parts {
		to = n.parts[i].names(to)
	}
	return to
}

// Missing returns the names of the condition that the host does not know, sorted.
func (e *Expr) Missing(lookup Lookup) []string {
	return slices.DeleteFunc(e.Names(), func(name string) bool {
		_, ok := lookup(name)
		return ok
	})
}
