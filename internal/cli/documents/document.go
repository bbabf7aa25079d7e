package documents

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/declare"
)

// Document is one object as it stands in a file.
type Document struct {
	// File is the name of the file for messages; that of standard input is Stdin.
	File string
	// Object is what is sent. It always has apiVersion, kind and a name.
	Object *unstructured.Unstructured

	section  section
	within   []step            // where the object stands in its document; not empty for an item of a List
	declared *declare.Document // for a document that declare has read
	origin   *Document         // for an object that was built: what it was built of
}

// Kind returns group, version and kind.
func (d *Document) Kind() schema.GroupVersionKind { return d.Object.GroupVersionKind() }

// Place returns where a field stands, or its nearest parent that does. The path may be in the words of this project,
// spec.resources[3].file.mode, or in those of the API server: .spec.resources[name="web"].file.mode, data[a.b].
func (d *Document) Place(path string) declare.Place { return d.place(path, false) }

// PlaceOfKey returns where the key of a field stands, for what is wrong with the key and not with its value.
func (d *Document) PlaceOfKey(path string) declare.Place { return d.place(path, true) }

func (d *Document) place(path string, ofKey bool) declare.Place {
	if d.origin != nil {
		return d.origin.place(path, ofKey)
	}
	steps := resolve(parsePath(path), d.Object.Object)
	place := declare.Place{File: d.File, Path: path}
	if d.declared != nil && d.declared.Positions != nil {
		line, column := d.declared.Positions.Find(writePath(steps))
		if line > 0 {
			place.Line, place.Column = d.section.line+line-1, column
		}
		return place
	}
	tree, err := parser.ParseBytes([]byte(d.section.text), 0)
	if err != nil || len(tree.Docs) == 0 {
		place.Line = d.section.line // what Kubernetes can read and this parser cannot
		return place
	}
	line, column := find(tree.Docs[0].Body, append(d.within[:len(d.within):len(d.within)], steps...), ofKey)
	place.Line, place.Column = d.section.line+line-1, column
	return place
}

// Locate fills in the places of faults that carry a path only.
func (d *Document) Locate(faults []declare.Fault) []declare.Fault {
	for i := range faults {
		if f := &faults[i]; f.Line == 0 {
			p := d.Place(f.Path)
			f.File, f.Line, f.Column = p.File, p.Line, p.Column
		}
		for j := range faults[i].Related {
			if r := &faults[i].Related[j]; r.Line == 0 {
				p := d.Place(r.Path)
				r.File, r.Line, r.Column = p.File, p.Line, p.Column
			}
		}
	}
	return faults
}

// find walks down a tree as far as the steps lead, and returns where that is, from 1: of the key where that is asked for.
func find(node ast.Node, steps []step, ofKey bool) (line, column int) {
	at := firstToken(node)
	line, column = 1, 1
	if at != nil && at.Position != nil {
		line, column = at.Position.Line, at.Position.Column
	}
	for i, s := range steps {
		child, token := descend(node, s, ofKey && i == len(steps)-1)
		if token == nil || token.Position == nil {
			break
		}
		node, line, column = child, token.Position.Line, token.Position.Column
	}
	return line, column
}

// String names the document for messages: file and line.
func (d *Document) String() string { return fmt.Sprintf("%s:%d", d.File, d.section.line) }
