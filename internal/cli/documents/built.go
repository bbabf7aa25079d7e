package documents

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Outline reads what stands in a file without asking whether it is right: documents that are only complete when something
// has been built of them still have places. It says what is no YAML, or no object.
func Outline(file string, data []byte) ([]Document, []declare.Fault) {
	text, fault := clean(file, data)
	if fault != nil {
		return nil, []declare.Fault{*fault}
	}
	var documents []Document
	var faults []declare.Fault
	for _, s := range split(text) {
		object, fault := readObject(file, s)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		items, ok := object["items"].([]any)
		if !ok || !strings.HasSuffix(fmt.Sprint(object["kind"]), "List") {
			documents = append(documents, Document{File: file, Object: &unstructured.Unstructured{Object: object}, section: s})
			continue
		}
		for i, item := range items {
			if fields, ok := item.(map[string]any); ok {
				documents = append(documents, Document{File: file, Object: &unstructured.Unstructured{Object: fields}, section: s,
					within: []step{{name: "items"}, {kind: stepIndex, index: i}}})
			}
		}
	}
	return documents, faults
}

// At is no object but a line of a file, for what is built of it.
func At(file string, line int) *Document {
	return &Document{File: file, Object: &unstructured.Unstructured{Object: map[string]any{}}, section: section{line: line}}
}

// ReadBuilt reads objects that a program has made of a document. Their text stands in no file: the places of their fields are
// those of the same fields in the document, or of the nearest parent that stands there.
func ReadBuilt(text []byte, origin *Document) ([]Document, []declare.Fault) {
	documents, faults := Read(origin.File, text)
	for i := range documents {
		documents[i].origin = origin
	}
	for i := range faults {
		f := &faults[i]
		f.Line, f.Related = 0, nil // lines of a text that nobody sees
		if f.Code == reason.MalformedYAML {
			f.Message = "what is built of it is no YAML: " + f.Message
		}
	}
	return documents, origin.Locate(faults)
}
