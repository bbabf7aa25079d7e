// Package schema explains the fields of a kind from the server's own OpenAPI description (version 3), so that what a person
// reads is what the server checks.
//
// Parse reads the description of one group and version, Explain finds a field by its path and describes it. The package
// does no I/O; the description is not trusted to be without loops or holes.
package schema

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/internal/present"
)

// Document is the description of the kinds of one group and version.
type Document struct {
	schemas map[string]*node
}

// node is a JSON schema as far as explaining needs it.
type node struct {
	Ref                  string           `json:"$ref"`
	AllOf                []*node          `json:"allOf"`
	OneOf                []*node          `json:"oneOf"`
	Description          string           `json:"description"`
	Type                 string           `json:"type"`
	Format               string           `json:"format"`
	Enum                 []any            `json:"enum"`
	Default              any              `json:"default"`
	Properties           map[string]*node `json:"properties"`
	Required             []string         `json:"required"`
	Items                *node            `json:"items"`
	AdditionalProperties json.RawMessage  `json:"additionalProperties"`
	Kinds                []groupKind      `json:"x-kubernetes-group-version-kind"`
}

type groupKind struct {
	Group, Version, Kind string
}

// Parse reads the OpenAPI version 3 description of a group and version, as /openapi/v3/apis/GROUP/VERSION answers.
func Parse(text []byte) (*Document, error) {
	var wire struct {
		Components struct {
			Schemas map[string]*node `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return nil, fmt.Errorf("read the server's OpenAPI description: %w", err)
	}
	return &Document{schemas: wire.Components.Schemas}, nil
}

// Field is what a path leads to.
type Field struct {
	Kind schema.GroupVersionKind
	Path []string

	document *Document
	node     *node
	about    string // the description of the field itself, which says more than that of its type
}

// NoField is the error of a path that leads nowhere.
type NoField struct {
	Name   string
	Parent string   // path of the parent, empty for the kind itself
	Fields []string // of the parent, sorted
}

// Error says that there is no such field.
func (e *NoField) Error() string {
	if e.Parent == "" {
		return fmt.Sprintf("there is no field %q", e.Name)
	}
	return fmt.Sprintf("%s has no field %q", e.Parent, e.Name)
}

// Explain finds a field of a kind; an empty path is the kind itself. Lists are stepped into. It is false when the
// document does not describe the kind. Errors: *NoField.
func (d *Document) Explain(kind schema.GroupVersionKind, path []string) (*Field, bool, error) {
	root := d.find(kind)
	if root == nil {
		return nil, false, nil
	}
	f := &Field{Kind: kind, Path: path, document: d, node: root, about: root.Description}
	for i, name := range path {
		inner := d.inside(f.node)
		next, ok := inner.Properties[name]
		if !ok || next == nil {
			return nil, true, &NoField{Name: name, Parent: strings.Join(path[:i], "."), Fields: slices.Sorted(maps.Keys(inner.Properties))}
		}
		f.node, f.about = next, d.description(next)
	}
	return f, true, nil
}

func (d *Document) find(kind schema.GroupVersionKind) *node {
	for _, name := range slices.Sorted(maps.Keys(d.schemas)) {
		n := d.schemas[name]
		if n != nil && slices.Contains(n.Kinds, groupKind{kind.Group, kind.Version, kind.Kind}) {
			return n
		}
	}
	return nil
}

// refsMax bounds how many references lead to one another: a description has two at most, a loop has none that end.
const refsMax = 8

// resolve follows references.
func (d *Document) resolve(n *node) *node {
	for range refsMax {
		switch {
		case n == nil:
			return &node{}
		case n.Ref != "":
			n = d.schemas[n.Ref[strings.LastIndexByte(n.Ref, '/')+1:]]
		case len(n.AllOf) == 1 && n.Properties == nil:
			n = n.AllOf[0]
		default:
			return n
		}
	}
	return &node{}
}

// description is what a field says of itself, or its type does.
func (d *Document) description(n *node) string {
	if n.Description != "" {
		return n.Description
	}
	return d.resolve(n).Description
}

// inside is the object that the fields below a node belong to: that of the items of a list, that of the values of a map.
func (d *Document) inside(n *node) *node {
	for range refsMax {
		n = d.resolve(n)
		switch values := d.values(n); {
		case n.Items != nil:
			n = n.Items
		case values != nil && n.Properties == nil:
			n = values
		default:
			return n
		}
	}
	return n
}

// values is the schema of the values of a map, nil for what is none.
func (d *Document) values(n *node) *node {
	var values node
	if len(n.AdditionalProperties) == 0 || json.Unmarshal(n.AdditionalProperties, &values) != nil {
		return nil // true and false say nothing about the values
	}
	return &values
}

// typeName is the type of a node in the words of the API conventions: string, []Object, map[string]string.
func (d *Document) typeName(n *node) string {
	n = d.resolve(n)
	switch values := d.values(n); {
	case n.Items != nil:
		return "[]" + d.typeName(n.Items)
	case values != nil && n.Properties == nil:
		return "map[string]" + d.typeName(values)
	case n.Type == "object", n.Properties != nil:
		return "Object"
	case n.Type == "" && len(n.OneOf) > 0:
		var types []string
		for _, one := range n.OneOf {
			types = append(types, d.typeName(one))
		}
		return strings.Join(types, " or ")
	case n.Type == "":
		return "any"
	}
	return n.Type
}

// Write describes the field and what is right below it, with recursive everything below it by name and type.
func (f *Field) Write(w io.Writer, recursive bool) error {
	var b strings.Builder
	if f.Kind.Group != "" {
		fmt.Fprintf(&b, "GROUP:    %s\n", f.Kind.Group)
	}
	fmt.Fprintf(&b, "KIND:     %s\nVERSION:  %s\n", f.Kind.Kind, f.Kind.Version)
	if len(f.Path) > 0 {
		fmt.Fprintf(&b, "FIELD:    %s <%s>\n", strings.Join(f.Path, "."), f.document.typeName(f.node))
	}
	b.WriteString("\n")
	if f.about != "" {
		b.WriteString("DESCRIPTION:\n" + wrapped(f.about, "    ") + "\n")
	}
	writeValues(&b, f.document.resolve(f.node), f.node, "")
	if inner := f.document.inside(f.node); len(inner.Properties) > 0 {
		b.WriteString("FIELDS:\n")
		if recursive {
			f.document.tree(&b, inner, nil)
		} else {
			f.document.fields(&b, inner)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *Document) fields(b *strings.Builder, n *node) {
	for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
		p := n.Properties[name]
		if p == nil {
			continue
		}
		fmt.Fprintf(b, "  %s\t<%s>%s\n", name, d.typeName(p), required(n, name))
		if about := d.description(p); about != "" {
			b.WriteString(wrapped(about, "    "))
		}
		writeValues(b, d.resolve(p), p, "    ")
		b.WriteByte('\n')
	}
}

// tree writes everything below an object. An object within itself, as in a description of descriptions, is written once.
func (d *Document) tree(b *strings.Builder, n *node, above []*node) {
	above = append(above[:len(above):len(above)], n)
	indent := strings.Repeat("  ", len(above))
	for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
		p := n.Properties[name]
		if p == nil {
			continue
		}
		fmt.Fprintf(b, "%s%s\t<%s>%s\n", indent, name, d.typeName(p), required(n, name))
		if inner := d.inside(p); !slices.Contains(above, inner) {
			d.tree(b, inner, above)
		}
	}
}

func required(n *node, name string) string {
	if slices.Contains(n.Required, name) {
		return " -required-"
	}
	return ""
}

func writeValues(b *strings.Builder, resolved, own *node, indent string) {
	if len(resolved.Enum) > 0 {
		words := make([]string, len(resolved.Enum))
		for i, v := range resolved.Enum {
			words[i] = present.Escape(fmt.Sprint(v))
		}
		fmt.Fprintf(b, "%sone of: %s\n", indent, strings.Join(words, ", "))
	}
	if own.Default != nil && fmt.Sprint(own.Default) != "map[]" && fmt.Sprint(own.Default) != "" {
		fmt.Fprintf(b, "%sdefault: %s\n", indent, present.Escape(fmt.Sprint(own.Default)))
	}
}

// lineWidth is where text is broken: a terminal of 80 columns, whatever the output is, so that it reads the same everywhere.
const lineWidth = 78

// wrapped breaks a text at words and indents it; its own paragraphs stay.
func wrapped(text, indent string) string {
	var b strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n") {
		line := indent
		for _, word := range strings.Fields(paragraph) {
			word = present.Escape(word)
			if len(line) > len(indent) && present.Width(line)+1+present.Width(word) > lineWidth {
				b.WriteString(line + "\n")
				line = indent
			}
			if len(line) > len(indent) {
				line += " "
			}
			line += word
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
