package declare

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	yamltoken "github.com/goccy/go-yaml/token"

	"tako.dev/tako/internal/reason"
)

// Bounds of what the YAML parser is given. It calls itself for each level of nesting, and a stack that overflows ends the
// process, so depth is bounded on the tokens, before it runs.
const (
	frameBytesMax  = 16 << 20 // one document without its block list of resources; the parser takes some 60 times that
	flowDepthMax   = 32       // brackets; a declaration needs 8
	blockKeysMax   = 2_000    // keys at one column of one section; the parser takes time in the square of a block mapping's length
	blockColumnMax = 256      // a block of depth n begins at column n or later; a declaration needs 20
)

// parse parses one section of a file and records every mistake of syntax. The node is nil when the section is empty (ok)
// or cannot be parsed (not ok). It is not ok as well when something was refused that the tree around can do without.
func (r *reader) parse(s section) (node ast.Node, ok bool) {
	node, faults := parseSection(s)
	for _, f := range faults {
		r.fault(f)
	}
	return node, len(faults) == 0
}

// tryParse is parse without a record: a section with any mistake comes back as not ok.
func (r *reader) tryParse(s section) (node ast.Node, ok bool) {
	node, faults := parseSection(s)
	return node, len(faults) == 0 && node != nil
}

func parseSection(s section) (node ast.Node, faults []Fault) {
	defer func() {
		// The parser is a third party's and its input is anybody's: a panic in it is a file that cannot be read.
		if p := recover(); p != nil {
			node, faults = nil, []Fault{{Code: reason.MalformedYAML, Line: s.place(1), Column: 1, Message: "the YAML from this line on cannot be read", Hint: "check quotes, brackets and indentation"}}
		}
	}()
	if len(s.text) > frameBytesMax {
		return nil, []Fault{{Code: reason.DocumentTooLarge, Line: s.line, Column: 1,
			Message: fmt.Sprintf("the document has %d bytes apart from block-style resources, at most %d are read", len(s.text), frameBytesMax),
			Hint:    `write the resources as a block list, each beginning with "- name:"; such a list may have any length`}}
	}
	tokens, faults := scanTokens(s)
	if tokens == nil {
		return nil, faults
	}
	file, err := yamlparser.Parse(tokens, 0, yamlparser.AllowDuplicateMapKey())
	if err != nil {
		f := syntaxFault(s, err)
		if slices.ContainsFunc(faults, func(refused Fault) bool { return refused.Line == f.Line }) {
			return nil, faults // what was refused is why the line does not parse
		}
		return nil, append(faults, f)
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if node != nil {
			return nil, append(faults, faultAt(s, doc.Body.GetToken(), reason.MalformedYAML, "a second value in one document", "separate documents with a line of ---"))
		}
		node = doc.Body
	}
	return node, faults
}

// scanTokens reads the tokens of a section. It returns none when they must not reach the parser.
func scanTokens(s section) (yamltoken.Tokens, []Fault) {
	var sc scanner.Scanner
	sc.Init(s.text)
	var tokens yamltoken.Tokens
	var faults []Fault
	var shape tokenShape
	for {
		some, err := sc.Scan()
		if errors.Is(err, io.EOF) {
			return tokens, faults
		}
		for _, t := range some {
			if t.Type == yamltoken.InvalidType {
				return nil, append(faults, explained(s, t, t.Error))
			}
			if message, hint := refused(t); message != "" {
				faults = append(faults, faultAt(s, t, reason.AnchorRefused, message, hint))
			}
			if message, hint := shape.add(t); message != "" {
				return nil, append(faults, faultAt(s, t, reason.MalformedYAML, message, hint))
			}
		}
		tokens.Add(some...)
	}
}

// tokenShape measures nesting and breadth while tokens go by.
type tokenShape struct {
	depth  int // of brackets
	before *yamltoken.Token
	keys   [blockColumnMax + 1]int32 // keys of block mappings, by their column
}

// add takes the next token and returns what is wrong with the shape, if anything is.
func (s *tokenShape) add(t *yamltoken.Token) (message, hint string) {
	switch t.Type {
	case yamltoken.MappingStartType, yamltoken.SequenceStartType:
		s.depth++
	case yamltoken.MappingEndType, yamltoken.SequenceEndType:
		s.depth = max(s.depth-1, 0) // a bracket too many must not make room for deeper ones
	}
	column := 0
	if s.depth == 0 {
		column = blockColumn(t, s.before)
	}
	s.before = t
	if s.depth > flowDepthMax || column > blockColumnMax {
		return "nested too deeply", "a declaration nests eight levels at most"
	}
	if t.Type == yamltoken.MappingValueType && column > 0 {
		if s.keys[column]++; s.keys[column] > blockKeysMax {
			return fmt.Sprintf("more than %d keys below one another", blockKeysMax), `write resources as a block list, below a line with "resources:" alone; such a list may have any length`
		}
	}
	return "", ""
}

// blockColumn is the column at which a token begins a level of block nesting, or 0. Of a mapping it is the key before the
// colon that counts, because a key may be long.
func blockColumn(t, before *yamltoken.Token) int {
	switch {
	case t.Type == yamltoken.SequenceEntryType || t.Type == yamltoken.MappingKeyType:
		return t.Position.Column
	case t.Type == yamltoken.MappingValueType && before != nil:
		return before.Position.Column
	}
	return 0
}

// refused says why a declaration does without a part of YAML, all of which make a text mean something else than it says.
func refused(t *yamltoken.Token) (message, hint string) {
	switch t.Type {
	case yamltoken.AnchorType:
		return "an anchor (&) is not allowed", "write the value out; put a text that begins with & in quotes"
	case yamltoken.AliasType:
		return "an alias (*) is not allowed", "write the value out; put a text that begins with * in quotes"
	case yamltoken.TagType:
		return "a tag (!) is not allowed", "leave it out; put a text that begins with ! in quotes"
	case yamltoken.MergeKeyType:
		return "a merge key (<<) is not allowed", "write the fields out"
	case yamltoken.DirectiveType:
		return "a directive (%) is not allowed", "leave it out; declarations are YAML 1.2"
	}
	return "", ""
}

func faultAt(s section, t *yamltoken.Token, code reason.Code, message, hint string) Fault {
	line, column := 1, 1
	if t != nil && t.Position != nil {
		line, column = max(t.Position.Line, 1), max(t.Position.Column, 1)
	}
	return Fault{Code: code, Line: s.place(line), Column: column, Message: message, Hint: hint}
}

// syntaxFault turns the parser's error into words for the person with the file open.
func syntaxFault(s section, err error) Fault {
	var located interface {
		GetToken() *yamltoken.Token
		GetMessage() string
	}
	if !errors.As(err, &located) {
		return explained(s, nil, err.Error())
	}
	return explained(s, located.GetToken(), located.GetMessage())
}

func explained(s section, t *yamltoken.Token, parserMessage string) Fault {
	message, hint := explainSyntax(parserMessage)
	f := faultAt(s, t, reason.MalformedYAML, message, hint)
	if line, ok := tabIndented(s, f.Line); ok {
		f.Line, f.Column = line, 1
		f.Message, f.Hint = explainSyntax("tab")
	}
	return f
}

// tabIndented finds a line whose indentation holds a tab, at the line of a mistake or next to it, where the parser
// notices: it says all kinds of things about tabs.
func tabIndented(s section, near int) (line int, found bool) {
	s.lines(func(number, start, end int) bool {
		line = s.place(number)
		text := strings.TrimLeft(s.text[start:end], " ")
		found = line >= near-1 && strings.HasPrefix(text, "\t") && strings.Trim(text, " \t") != ""
		return !found && line <= near
	})
	return line, found
}

// explanations turn what the parser says into what a person should look for. The first one whose sign is part of the
// parser's message counts.
var explanations = []struct{ sign, message, hint string }{
	{"tab", "a tab where spaces must stand", "indent with spaces"},
	{"end character of double-quoted", "the text in double quotes has no end", `close it with "`},
	{"end character of single-quoted", "the text in single quotes has no end", "close it with '; a ' inside is written ''"},
	{"unknown escape", "an escape in double quotes that YAML does not know", `write \\ for a backslash, or use single quotes`},
	{"UTF-16", "an incomplete \\u escape", `write \u and four hexadecimal digits`},
	{"UTF-32", "an incomplete \\U escape", `write \U and eight hexadecimal digits`},
	{"surrogate", "half of a surrogate pair", "write the character itself, or both halves"},
	{"corresponding to ']'", "] without [", ""},
	{"corresponding to '}'", "} without {", ""},
	{"end token ']'", "[ is never closed", "add ]"},
	{"end token '}'", "{ is never closed", "add }"},
	{"',' or ']'", ", or ] must follow", "separate the items with commas and close the list with ]"},
	{"',' or '}'", ", or } must follow", "separate the fields with commas and close the mapping with }"},
	{"mapping value is not allowed", "a second colon on the line", "put a text with a colon and a space in quotes; or begin the nested field on its own line"},
	{"non-map value", "a line without a colon where a field must stand", `write "key: value", with a space after the colon; a text of several lines begins with |`},
	{"value is not allowed in this context", "the indentation does not fit the lines above", "indent the fields of one level alike"},
	{"unexpected key name", "a key without a colon", `write "key: value", with a space after the colon`},
	{"implicit line break", "a key of several lines", `write "key: value" on one line`},
	{"sequence entries", "a list item where a field must stand", "begin the list on a line of its own, below its key"},
	{"multi-line header", "a wrong indentation behind | or >", "write | or > alone"},
	{"header option", "something else than an indentation or - or + behind | or >", "begin the text on the next line"},
	{"document separator", "a document marker inside a text", ""},
}

func explainSyntax(parserMessage string) (message, hint string) {
	for _, e := range explanations {
		if strings.Contains(parserMessage, e.sign) {
			return e.message, e.hint
		}
	}
	return "this cannot be read as YAML", "check quotes, brackets, colons and indentation here and on the line above"
}
