// Package output writes objects for whoever reads them: a table for a person, JSON, YAML, names, or what a path picks out
// for a program. What a program reads is never cut, coloured or reordered.
//
// A Printer is told of each object, or of each table of the server's, and writes at once where the form allows it, and at
// Close where columns or brackets need to know everything. It owns no goroutine.
package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/reason"
)

// Format is the value of -o.
type Format struct {
	kind kind
	path *jsonpath.JSONPath
}

type kind string

const (
	table  kind = ""
	wide   kind = "wide"
	asJSON kind = "json"
	asYAML kind = "yaml"
	ndjson kind = "ndjson"
	name   kind = "name"
	byPath kind = "jsonpath"
)

// Forms are the values of -o, for help and completion.
func Forms() []string { return []string{"json", "yaml", "wide", "name", "ndjson", "jsonpath="} }

// Parse reads the value of -o; empty is a table. Errors are *reason.Error with Usage.
func Parse(text string) (Format, error) {
	switch k := kind(text); k {
	case table, wide, asJSON, asYAML, ndjson, name:
		return Format{kind: k}, nil
	}
	template, ok := strings.CutPrefix(text, "jsonpath=")
	if !ok {
		return Format{}, &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read -o %q", text),
			Hint: "write json, yaml, wide, name, ndjson or jsonpath='{.metadata.name}'"}
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	if err := path.Parse(template); err != nil {
		return Format{}, &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read -o %q", text), Cause: err}
	}
	return Format{kind: byPath, path: path}, nil
}

// IsTable reports whether the server is asked for a table.
func (f Format) IsTable() bool { return f.kind == table || f.kind == wide }

// Wide reports whether columns of lesser weight are shown.
func (f Format) Wide() bool { return f.kind == wide }

// Named is an object with the name that it has for -o name.
type Named struct {
	Name   string // KIND.GROUP/NAME
	Object *unstructured.Unstructured
}

// Objects writes objects in a form other than a table.
type Objects struct {
	w      io.Writer
	format Format
	single bool
	kept   []any
	wrote  bool
}

// NewObjects returns a writer of objects. With single there is exactly one, which then stands alone and not in a List.
func NewObjects(w io.Writer, format Format, single bool) *Objects {
	return &Objects{w: w, format: format, single: single}
}

// Add writes or keeps an object.
func (o *Objects) Add(n Named) error {
	object := Clean(n.Object)
	switch o.format.kind {
	case name:
		return o.line(n.Name)
	case ndjson:
		return o.compact(object.Object)
	}
	o.kept = append(o.kept, object.Object)
	return nil
}

// Empty reports whether nothing waits to be written by Close.
func (o *Objects) Empty() bool { return len(o.kept) == 0 }

// Change writes one change of a watch at once. Of JSON lines the type stands beside the object.
func (o *Objects) Change(event string, n Named) error {
	object := Clean(n.Object)
	switch o.format.kind {
	case name:
		return o.line(n.Name)
	case ndjson:
		return o.compact(map[string]any{"type": event, "object": object.Object})
	case asYAML:
		if o.wrote {
			if err := o.line("---"); err != nil {
				return err
			}
		}
		o.wrote = true
	}
	return o.whole(object.Object)
}

// Close writes what was kept.
func (o *Objects) Close() error {
	switch o.format.kind {
	case name, ndjson:
		return nil
	}
	if o.single && len(o.kept) == 1 {
		return o.whole(o.kept[0])
	}
	if o.kept == nil {
		o.kept = []any{}
	}
	return o.whole(map[string]any{"apiVersion": "v1", "kind": "List", "items": o.kept})
}

func (o *Objects) whole(v any) error {
	var text []byte
	var err error
	switch o.format.kind {
	case asYAML:
		text, err = yaml.Marshal(v)
	case byPath:
		return o.paths(v)
	default:
		text, err = json.MarshalIndent(v, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = o.w.Write(text)
	return err
}

func (o *Objects) paths(v any) error {
	var b strings.Builder
	if err := o.format.path.Execute(&b, v); err != nil {
		return &reason.Error{Code: reason.Usage, Doing: "apply the jsonpath", Cause: errors.New(err.Error())}
	}
	text := b.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(o.w, text)
	return err
}

func (o *Objects) compact(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.w.Write(append(text, '\n'))
	return err
}

func (o *Objects) line(text string) error {
	_, err := io.WriteString(o.w, text+"\n")
	return err
}

// Clean returns an object without the record of who owns which field, which nobody reads by eye and which must not be
// sent back.
func Clean(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object.GetManagedFields() == nil {
		return object
	}
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	return object
}

// Declared is of an object what a person declares: not what the server adds, and not the status.
func Declared(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := map[string]any{}
	for key, value := range object.Object {
		if key != "metadata" && key != "status" {
			out[key] = value
		}
	}
	metadata := map[string]any{}
	for _, key := range []string{"name", "namespace", "labels", "annotations"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", key); ok {
			metadata[key] = value
		}
	}
	out["metadata"] = metadata
	return (&unstructured.Unstructured{Object: out}).DeepCopy()
}
