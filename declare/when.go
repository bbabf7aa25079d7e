package declare

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Bounds of an expression: a line that a person can read, and a depth that no honest condition reaches.
const (
	expressionBytesMax = 4096
	expressionDepthMax = 32
)

// Expr is a parsed condition. It is immutable and may be shared.
//
//	condition  = all { "||" all }
//	all        = one { "&&" one }
//	one        = "!" one | "(" condition ")" | operand [ compare operand | "in" ( "[" literal { "," literal } "]" | name ) ]
//	compare    = "==" | "!=" | "<" | "<=" | ">" | ">="
//	operand    = literal | name
//	name       = "node.name" | "node.labels[" text "]" | fact | "facts." group "[" text "]." field | "facts.custom." file "." key
//	literal    = text in single or double quotes | number | "true" | "false"
//
// A backslash in a text stands for the character after it. Both sides of a comparison have one type; order compares
// numbers only, because "9" sorts after "12" as text. A lone operand must be true or false. A list is only asked for what
// is in it. A host's own fact has the type that its place wants; where it has another, the host does not know it.
type Expr struct {
	source string
	root   node
}

// String returns the condition as it was written.
func (e *Expr) String() string { return e.source }

// expressionError is a mistake in an expression at a column, counted in characters from 1.
type expressionError struct {
	code    reason.Code
	column  int
	message string
	hint    string
}

func (e *expressionError) Error() string { return fmt.Sprintf("column %d: %s", e.column, e.message) }

// wrap makes the error that leaves the package.
func (e *expressionError) wrap(doing string) error {
	return &reason.Error{Code: e.code, Doing: doing, Cause: e, Hint: e.hint}
}

// clipText bounds a quoted text in a message to what stands on one line.
func clipText(s string) string {
	const shown = 80
	if len(s) <= shown {
		return s
	}
	cut := shown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// ParseWhen reads a condition. Every name must be known and the types must fit, so that what parses cannot go wrong on a
// host. The error is a *reason.Error with MalformedExpression or UnknownName and says the column.
func ParseWhen(s string) (*Expr, error) {
	root, err := parseWhen(s)
	if err != nil {
		return nil, err.wrap(fmt.Sprintf("read condition %q", clipText(s)))
	}
	return &Expr{source: s, root: root}, nil
}

func parseWhen(s string) (node, *expressionError) {
	if len(s) > expressionBytesMax {
		return node{}, &expressionError{reason.MalformedExpression, 1, fmt.Sprintf("the condition has %d bytes, at most %d are allowed", len(s), expressionBytesMax), ""}
	}
	p := parser{source: s}
	p.next()
	root := p.condition()
	if p.err == nil && p.token.kind != tokenEnd {
		p.fail(p.token.at, "found "+p.token.describe()+" after the end of the condition", "join conditions with && or ||")
	}
	if p.err != nil {
		return node{}, p.err
	}
	return root, nil
}

type parser struct {
	source string
	offset int // of the next byte to read
	token  token
	depth  int
	err    *expressionError // the first; everything after it is ignored
}

func (p *parser) fail(at int, message, hint string) {
	p.failCode(reason.MalformedExpression, at, message, hint)
}

func (p *parser) failCode(code reason.Code, at int, message, hint string) {
	if p.err == nil {
		p.err = &expressionError{code, utf8.RuneCountInString(p.source[:at]) + 1, message, hint}
	}
	p.token, p.offset = token{kind: tokenEnd, at: len(p.source)}, len(p.source)
}

func (p *parser) condition() node { return p.chain("||", opOr, p.all) }

func (p *parser) all() node { return p.chain("&&", opAnd, p.one) }

// chain reads parts that an operator joins. A chain of any length is one node, so depth comes from parentheses only.
func (p *parser) chain(sign string, op operator, part func() node) node {
	first := part()
	if !p.is(sign) {
		return first
	}
	n := node{op: op, parts: []node{first}}
	for p.is(sign) {
		p.next()
		n.parts = append(n.parts, part())
	}
	return n
}

func (p *parser) one() node {
	if p.depth++; p.depth > expressionDepthMax {
		p.fail(p.token.at, fmt.Sprintf("more than %d levels of ! and parentheses", expressionDepthMax), "")
		return node{}
	}
	defer func() { p.depth-- }()
	switch {
	case p.is("!"):
		p.next()
		return node{op: opNot, parts: []node{p.one()}}
	case p.is("("):
		open := p.token.at
		p.next()
		n := p.condition()
		if !p.is(")") {
			p.fail(p.token.at, "found "+p.token.describe()+" where ) must close the parenthesis of column "+strconv.Itoa(open+1), "")
			return node{}
		}
		p.next()
		return n
	}
	return p.comparison()
}

var comparisons = map[string]operator{"==": opEqual, "!=": opNotEqual, "<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual}

func (p *parser) comparison() node {
	at := p.token.at
	left := p.operand()
	if op, ok := comparisons[p.token.text]; ok && p.token.kind == tokenSign {
		signAt, sign := p.token.at, p.token.text
		p.next()
		rightAt := p.token.at
		right := p.operand()
		p.adapt(&left, &right)
		p.checkTypes(left, right, rightAt)
		if op != opEqual && op != opNotEqual && left.kind == anyType {
			left.kind, right.kind = Integer, Integer
		}
		if left.kind == List {
			p.fail(signAt, "lists are not compared, "+left.describe()+" is one", "ask for what is in it: "+left.example())
		}
		if left.kind != Integer && op != opEqual && op != opNotEqual {
			p.fail(signAt, sign+" compares numbers only, "+left.describe()+" is "+left.kind.String(), "compare with ==, != or in [...]")
		}
		return node{op: op, parts: []node{left, right}}
	}
	if p.token.kind == tokenWord && p.token.text == "in" {
		p.next()
		return p.membership(left)
	}
	if left.kind == anyType {
		left.kind = Boolean
	}
	if p.err == nil && left.kind != Boolean {
		p.fail(at, left.describe()+" is "+left.kind.String()+", not a condition", "compare it, for example "+left.example())
	}
	return node{op: opIsTrue, parts: []node{left}}
}

func (p *parser) membership(left node) node {
	n := node{op: opIn, parts: []node{left}}
	if p.token.kind == tokenWord && !isTruth(p.token.text) {
		return p.holding(left)
	}
	if !p.is("[") {
		p.fail(p.token.at, "found "+p.token.describe()+" where [ must begin the list of `in`", "write for example: facts.os.id in ['debian', 'ubuntu']")
		return n
	}
	for first := true; first || p.is(","); first = false {
		p.next()
		at := p.token.at
		right := p.operand()
		if p.err == nil && right.op != opLiteral {
			p.fail(at, "a list holds texts, numbers, true and false only", "compare names with == and ||")
		}
		p.adapt(&n.parts[0], &right)
		p.checkTypes(n.parts[0], right, at)
		n.parts = append(n.parts, right)
	}
	if !p.is("]") {
		p.fail(p.token.at, "found "+p.token.describe()+" where , or ] must follow", "")
		return n
	}
	p.next()
	return n
}

// holding reads the list of `in` that is a fact.
func (p *parser) holding(left node) node {
	at := p.token.at
	list := p.name()
	if list.kind == anyType {
		list.kind = List
	}
	if left.kind == anyType {
		left.kind = Text
	}
	switch {
	case p.err != nil:
	case list.kind != List:
		p.fail(at, list.describe()+" is "+list.kind.String()+", not a list", "write for example: facts.os.id in ['debian', 'ubuntu']")
	case left.kind != Text:
		p.fail(at, "a list holds texts, "+left.describe()+" is "+left.kind.String(), "")
	}
	return node{op: opHolds, parts: []node{left, list}}
}

// adapt gives an own fact the type of what it is compared with.
func (p *parser) adapt(left, right *node) {
	if left.kind == anyType {
		left.kind = right.kind
	} else if right.kind == anyType {
		right.kind = left.kind
	}
}

func isTruth(word string) bool { return word == "true" || word == "false" }

func (p *parser) checkTypes(left, right node, at int) {
	if p.err == nil && left.kind != right.kind {
		hint := ""
		if right.op == opLiteral && left.kind == Text {
			hint = "quote it: '" + right.value.String() + "'"
		} else if right.op == opLiteral && left.kind == Integer {
			hint = "write a number without quotes"
		} else if left.kind == List {
			hint = "ask for what is in it: " + left.example()
		}
		if right.kind == List {
			hint = "ask for what is in it: " + right.example()
		}
		p.fail(at, left.describe()+" is "+left.kind.String()+", "+right.describe()+" is "+right.kind.String(), hint)
	}
}

func (p *parser) operand() node {
	t := p.token
	switch t.kind {
	case tokenText:
		p.next()
		return literal(TextValue(t.text))
	case tokenNumber:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.fail(t.at, "the number "+t.text+" does not fit into 64 bits", "")
			return node{}
		}
		p.next()
		return literal(IntegerValue(n))
	case tokenWord:
		if isTruth(t.text) {
			p.next()
			return literal(BooleanValue(t.text == "true"))
		}
		if t.text != "in" {
			return p.name()
		}
	}
	p.fail(t.at, "found "+t.describe()+" where a name, a text or a number must stand", "")
	return node{}
}

// name reads a name; some have a key: node.labels['KEY'], facts.disks['sda'].bytes.
func (p *parser) name() node {
	at, name := p.token.at, p.token.text
	p.next()
	if name == "node.labels" {
		key, ok := p.labelKey()
		if !ok {
			return node{}
		}
		name = LabelName(key)
	} else if isFactGroup(name) && p.is("[") {
		name = p.member(name)
	}
	kind, ok := nameType(name)
	if p.err == nil && !ok {
		p.failCode(reason.UnknownName, at, fmt.Sprintf("unknown name %q", name), unknownNameHint(name))
	}
	if p.err != nil {
		return node{}
	}
	return node{op: opName, kind: kind, name: name}
}

// member reads the rest of a name such as facts.disks['sda'].bytes, and returns the whole of it.
func (p *parser) member(group string) string {
	hint := "write for example " + MemberName(group, "sda", "bytes")
	if group == InterfaceFacts {
		hint = "write for example " + MemberName(group, "eth0", "address")
	}
	p.next()
	key := p.token
	if p.err == nil && (key.kind != tokenText || !isMemberKey(key.text)) {
		p.fail(key.at, "found "+key.describe()+" where the name of one of "+group+" must stand", hint)
	}
	p.next()
	if !p.is("]") || !strings.HasPrefix(p.source[p.offset:], ".") {
		p.fail(p.token.at, "found "+p.token.describe()+" where ]. and a field must follow", hint)
		return ""
	}
	p.offset++
	p.next()
	field := p.token
	if p.err == nil && field.kind != tokenWord {
		p.fail(field.at, "found "+field.describe()+" where a field of "+group+" must stand", hint)
	}
	p.next()
	return MemberName(group, key.text, field.text)
}

func (p *parser) labelKey() (string, bool) {
	const hint = "a label is written node.labels['key']"
	if !p.is("[") {
		p.fail(p.token.at, "found "+p.token.describe()+" after node.labels", hint)
		return "", false
	}
	p.next()
	t := p.token
	if p.err == nil && t.kind != tokenText {
		p.fail(t.at, "found "+t.describe()+" where the key of a label must stand", hint)
		return "", false
	}
	if message := labelKeyMistake(t.text); message != "" && p.err == nil {
		p.fail(t.at, message, "")
		return "", false
	}
	p.next()
	if !p.is("]") {
		p.fail(p.token.at, "found "+p.token.describe()+" where ] must follow", hint)
		return "", false
	}
	p.next()
	return t.text, true
}

func unknownNameHint(name string) string {
	if rest, ok := strings.CutPrefix(name, "node.labels."); ok {
		return "a label is written " + LabelName(rest)
	}
	if hint := factFormHint(name); hint != "" {
		return hint
	}
	if !strings.Contains(name, ".") {
		for _, f := range factNames {
			if f.Name == "facts."+name {
				return fmt.Sprintf("did you mean %q?", f.Name)
			}
		}
	}
	if n := nearest(name, plainNames()); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "names are node.name, node.labels['key'] and the facts: " + joinWords(plainNames()[2:])
}
