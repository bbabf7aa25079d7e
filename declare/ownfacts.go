package declare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"tako.dev/tako/internal/reason"
)

// Bounds of own facts: of what a person keeps in a file, and small enough to be held for good.
const (
	OwnFactsBytesMax   = 64 << 10 // of a file
	ownFactsOfFileMax  = 128
	ownFactTextMax     = 1024 // bytes of a text
	ownFactListMax     = 64   // texts in a list
	ownFactsForm       = "one level: KEY: VALUE, where a value is a text, a whole number, true, false or a list of texts"
	ownFactWordRule    = "letters, digits and _, a letter first, up to 64"
	ownFactsSuffixRule = "name it NAME.yaml, NAME.json or, for KEY=VALUE lines, NAME.conf or NAME.txt"
)

// ReadOwnFacts reads a file of OwnFactsDir by its name: YAML, JSON, or lines of KEY=VALUE. It returns the facts by their
// whole names as string, int64, bool or []string, and all of them or none: half a file can say the opposite. The error is
// a *reason.Error of code OwnFactsMalformed, with the line where there is one.
func ReadOwnFacts(name string, content []byte) (map[string]any, error) {
	stem, read, err := ownFactsFile(name)
	if err != nil {
		return nil, ownFactsError(name, err)
	}
	if !utf8.Valid(content) {
		return nil, ownFactsError(name, &ownFactMistake{message: "it is not UTF-8"})
	}
	f := ownFacts{prefix: OwnFactsPrefix + stem + ".", facts: map[string]any{}}
	if err := read(&f, content); err != nil {
		return nil, ownFactsError(name, err)
	}
	return f.facts, nil
}

func ownFactsFile(name string) (stem string, read func(*ownFacts, []byte) error, err error) {
	suffix := path.Ext(name)
	switch suffix {
	case ".yaml", ".yml":
		read = (*ownFacts).readYAML
	case ".json":
		read = (*ownFacts).readJSON
	case ".conf", ".txt":
		read = (*ownFacts).readLines
	default:
		return "", nil, &ownFactMistake{message: "the name says nothing of its form", hint: ownFactsSuffixRule}
	}
	if stem = strings.TrimSuffix(name, suffix); !OwnFactWord(stem) {
		return "", nil, &ownFactMistake{message: fmt.Sprintf("%q cannot be part of a fact's name", clipText(stem)), hint: "name the file with " + ownFactWordRule}
	}
	return stem, read, nil
}

// ownFactMistake is what is wrong with a file of own facts; line 0 is the whole.
type ownFactMistake struct {
	line          int
	message, hint string
}

func (m *ownFactMistake) Error() string {
	if m.line == 0 {
		return m.message
	}
	return fmt.Sprintf("line %d: %s", m.line, m.message)
}

func ownFactsError(name string, err error) error {
	e := &reason.Error{Code: reason.OwnFactsMalformed, Doing: "read own facts " + path.Join(OwnFactsDir, strings.ToValidUTF8(clipText(name), "?")), Cause: err}
	var m *ownFactMistake
	if errors.As(err, &m) {
		e.Hint = m.hint
	}
	return e
}

type ownFacts struct {
	prefix string
	facts  map[string]any
}

// add takes one fact and refuses what no expression could use.
func (f *ownFacts) add(line int, key string, value any) error {
	fail := func(hint, format string, args ...any) error {
		return &ownFactMistake{line, fmt.Sprintf(format, args...), hint}
	}
	name := f.prefix + key
	if !OwnFactWord(key) {
		return fail("write it with "+ownFactWordRule, "%q cannot be part of a fact's name", clipText(key))
	}
	if _, twice := f.facts[name]; twice {
		return fail("", "%s stands here for the second time", key)
	}
	if len(f.facts) == ownFactsOfFileMax {
		return fail("share them out among several files", "more than %d facts", ownFactsOfFileMax)
	}
	texts, _ := value.([]string)
	if len(texts) > ownFactListMax {
		return fail("", "the list of %s has more than %d texts", key, ownFactListMax)
	}
	if s, ok := value.(string); ok {
		texts = []string{s}
	}
	for _, s := range texts {
		if len(s) > ownFactTextMax {
			return fail("", "a text of %s has %d bytes, at most %d are allowed", key, len(s), ownFactTextMax)
		}
		if strings.ContainsFunc(s, unicode.IsControl) {
			return fail("a fact is one line", "a text of %s has a line break or another control character", key)
		}
	}
	f.facts[name] = value
	return nil
}

func (f *ownFacts) readYAML(content []byte) error {
	node, faults := parseSection(section{text: string(content), line: 1})
	if len(faults) > 0 {
		first := slices.MinFunc(faults, compareFaults)
		return &ownFactMistake{first.Line, first.Message, first.Hint}
	}
	if node == nil {
		return nil
	}
	pairs, ok := pairsOf(node)
	if !ok {
		return &ownFactMistake{1, "found " + describeNode(node) + " where a mapping must stand", ownFactsForm}
	}
	for _, pair := range pairs {
		line := pair.Key.GetToken().Position.Line
		value, ok := ownFactOfNode(pair.Value)
		if !ok {
			return &ownFactMistake{line, clipText(pair.Key.GetToken().Value) + " is " + describeNode(pair.Value), ownFactsForm}
		}
		if err := f.add(line, strings.Clone(pair.Key.GetToken().Value), value); err != nil {
			return err
		}
	}
	return nil
}

func ownFactOfNode(node ast.Node) (any, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return strings.Clone(n.Value), true
	case *ast.LiteralNode:
		return strings.TrimSuffix(strings.Clone(n.Value.Value), "\n"), true
	case *ast.BoolNode:
		return n.Value, true
	case *ast.IntegerNode:
		i, err := strconv.ParseInt(n.GetToken().Value, 10, 64)
		return i, err == nil
	case *ast.SequenceNode:
		texts := make([]string, 0, min(len(n.Values), ownFactListMax+1))
		for _, item := range n.Values {
			s, ok := item.(*ast.StringNode)
			if !ok {
				return nil, false
			}
			texts = append(texts, strings.Clone(s.Value))
		}
		return texts, true
	}
	return nil, false
}

// readJSON reads token by token, so that a key that stands twice is seen and nothing nests.
func (f *ownFacts) readJSON(content []byte) error {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	fail := func(message string) error {
		return &ownFactMistake{1 + bytes.Count(content[:d.InputOffset()], []byte("\n")), message, ownFactsForm}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fail("found something else where { must begin")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fail("this is not JSON")
		}
		name, ok := key.(string)
		if !ok {
			return fail("this is not JSON")
		}
		value, ok := ownFactOfJSON(d)
		if !ok {
			return fail("the value of " + clipText(name) + " is none that a fact can have")
		}
		if err := f.add(1+bytes.Count(content[:d.InputOffset()], []byte("\n")), name, value); err != nil {
			return err
		}
	}
	if t, err := d.Token(); err != nil || t != json.Delim('}') {
		return fail("this is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail("something follows behind the }")
	}
	return nil
}

func ownFactOfJSON(d *json.Decoder) (any, bool) {
	t, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch t := t.(type) {
	case string:
		return t, true
	case bool:
		return t, true
	case json.Number:
		i, err := strconv.ParseInt(t.String(), 10, 64)
		return i, err == nil
	case json.Delim:
		texts := []string{}
		for t == '[' && d.More() {
			item, err := d.Token()
			s, ok := item.(string)
			if err != nil || !ok {
				return nil, false
			}
			texts = append(texts, s)
		}
		_, err := d.Token() // the ]
		return texts, t == '[' && err == nil
	}
	return nil, false
}

// readLines reads KEY=VALUE. A number and a truth value are those; what must be text in any case stands in quotes.
func (f *ownFacts) readLines(content []byte) error {
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return &ownFactMistake{number, "found no = in the line", "write KEY=VALUE, and # before a comment"}
		}
		if err := f.add(number, strings.TrimSpace(key), ownFactOfText(strings.TrimSpace(value))); err != nil {
			return err
		}
	}
	return nil
}

func ownFactOfText(s string) any {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	if isTruth(s) {
		return s == "true"
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(i, 10) == s {
		return i // 007 is no number but a text with zeros
	}
	return s
}
