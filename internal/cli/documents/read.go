package documents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Read reads the documents of one file, and says every mistake that can be seen without a server, each with its place.
// With a mistake the documents must not be sent.
func Read(file string, data []byte) ([]Document, []declare.Fault) {
	text, fault := clean(file, data)
	if fault != nil {
		return nil, []declare.Fault{*fault}
	}
	var documents []Document
	var faults []declare.Fault
	for _, s := range split(text) {
		ds, fs := readSection(file, s)
		documents, faults = append(documents, ds...), append(faults, fs...)
	}
	return documents, declare.SortFaults(faults)
}

// clean checks what a text must be before YAML is thought of, and brings its line ends to one form.
func clean(file string, data []byte) (string, *declare.Fault) {
	if len(data) > declare.DocumentBytesMax {
		return "", &declare.Fault{Code: reason.DocumentTooLarge, File: file, Line: 1, Column: 1,
			Message: fmt.Sprintf("the file has more than %d bytes", declare.DocumentBytesMax), Hint: "split it into several files"}
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n")) // a line break too (YAML 1.2.2, 5.4)
	if at := invalidByte(data); at >= 0 {
		return "", &declare.Fault{Code: reason.MalformedYAML, File: file, Line: bytes.Count(data[:at], []byte("\n")) + 1, Column: 1,
			Message: fmt.Sprintf("byte 0x%02x is not UTF-8", data[at]), Hint: "save the file as UTF-8"}
	}
	return string(data), nil
}

func invalidByte(data []byte) int {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

func readSection(file string, s section) ([]Document, []declare.Fault) {
	switch version, kind := headerOf(s.text); {
	case isDeclared(version, kind):
		return readDeclaration(file, s)
	case isWorkload(version, kind):
		return readWorkload(file, s)
	}
	object, fault := readObject(file, s)
	if fault != nil {
		return nil, []declare.Fault{*fault}
	}
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(fmt.Sprint(object["kind"]), "List") {
		return readItems(file, s, items)
	}
	withoutServerFields(object)
	d := Document{File: file, Object: &unstructured.Unstructured{Object: object}, section: s}
	return []Document{d}, d.check()
}

// header finds apiVersion and kind of a document in block style, without parsing what may be 64 MiB.
var header = regexp.MustCompile(`(?m)^(apiVersion|kind):[ \t]*["']?([^\s"'#]+)`)

// headerOf returns apiVersion and kind of a document. One in flow style, which is JSON, is looked at as a whole.
func headerOf(text string) (apiVersion, kind string) {
	found := map[string]string{}
	for _, m := range header.FindAllStringSubmatch(text, 4) {
		if found[m[1]] == "" {
			found[m[1]] = m[2]
		}
	}
	if found["kind"] == "" && strings.HasPrefix(strings.TrimSpace(text), "{") {
		var meta struct{ APIVersion, Kind string }
		if yaml.Unmarshal([]byte(text), &meta) == nil {
			return meta.APIVersion, meta.Kind
		}
	}
	return found["apiVersion"], found["kind"]
}

func isWorkload(apiVersion, kind string) bool {
	return apiVersion == declare.APIVersion && kind == workload.Kind
}

func isDeclared(apiVersion, kind string) bool {
	return apiVersion == declare.APIVersion && (kind == declare.KindNodeConfig || kind == declare.KindClusterNodeConfig)
}

// mistakes are those of a declaration, and circles of resources where there is no other.
func mistakes(d *declare.Document) []declare.Fault {
	if faults := d.Validate(); len(faults) > 0 {
		return faults
	}
	return d.Locate(declare.Cycles(&d.Config.Spec))
}

func readDeclaration(file string, s section) ([]Document, []declare.Fault) {
	declared, faults := declare.Read(file, []byte(s.text))
	faults = slices.DeleteFunc(faults, isOfServer)
	for i := range declared {
		faults = append(faults, mistakes(&declared[i])...)
	}
	for i := range faults {
		shift(&faults[i], s.line-1)
	}
	if len(faults) > 0 || len(declared) != 1 {
		return nil, faults
	}
	object, err := objectOf(declared[0].Config)
	if err != nil {
		return nil, []declare.Fault{{Code: reason.InternalFault, File: file, Line: s.line, Column: 1, Message: err.Error()}}
	}
	return []Document{{File: file, Object: object, section: s, declared: &declared[0]}}, nil
}

// readWorkload has a workload read by its own package, which takes amounts, shares and modes as numbers too, as a person writes them.
func readWorkload(file string, s section) ([]Document, []declare.Fault) {
	declared, document, faults := workload.Read(file, []byte(s.text))
	faults = slices.DeleteFunc(faults, isOfServer)
	for i := range faults {
		shift(&faults[i], s.line-1)
	}
	if len(faults) > 0 || document == nil {
		return nil, faults
	}
	object, err := objectOf(declared)
	if err != nil {
		return nil, []declare.Fault{{Code: reason.InternalFault, File: file, Line: s.line, Column: 1, Message: err.Error()}}
	}
	return []Document{{File: file, Object: object, section: s, declared: document}}, nil
}

// serverFields are what the server writes into the metadata of every object. A file that was made by `tako get -o yaml` has them,
// and whoever applies it means none of them.
var serverFields = []string{"uid", "creationTimestamp", "resourceVersion", "generation", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}

// isOfServer tells whether package declare refuses what the server has written.
func isOfServer(f declare.Fault) bool {
	field, ok := strings.CutPrefix(f.Path, "metadata.")
	return f.Code == reason.UnknownField && (f.Path == "status" || ok && slices.Contains(serverFields, field))
}

// withoutServerFields takes out of an object what the server has written. The status of a kind that is not ours stays: whether
// it is declared or observed is for its server to say.
func withoutServerFields(object map[string]any) {
	for _, field := range serverFields {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	if version, _ := object["apiVersion"].(string); strings.HasPrefix(version, v1alpha1.GroupName+"/") {
		delete(object, "status")
	}
}

// CopyServerFields gives an object that was read what the server has written into the one that it replaces, so that an update is
// refused when that one has changed since.
func CopyServerFields(to, from *unstructured.Unstructured) {
	for _, field := range serverFields {
		if value, ok, _ := unstructured.NestedFieldCopy(from.Object, "metadata", field); ok && field != "managedFields" {
			_ = unstructured.SetNestedField(to.Object, value, "metadata", field) // every object has metadata
		}
	}
	if status, ok := from.Object["status"]; ok && to.Object["status"] == nil {
		to.Object["status"] = status
	}
}

// shift moves a fault from lines of a section to those of the file.
func shift(f *declare.Fault, lines int) {
	if f.Line > 0 {
		f.Line += lines
	}
	for i := range f.Related {
		if r := &f.Related[i]; r.Line > 0 {
			r.Line += lines
		}
	}
}

// objectOf turns a declaration into the form that is sent: that of the API, in which declare's types have the same names.
func objectOf(declared any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(declared)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return object, nil
}

// yamlLine is how the YAML library says a line: "yaml: line 3: ...".
var yamlLine = regexp.MustCompile(`line (\d+)(?:, column (\d+))?: `)

func readObject(file string, s section) (map[string]any, *declare.Fault) {
	fault := &declare.Fault{Code: reason.MalformedYAML, File: file, Line: s.line, Column: 1}
	text, err := yaml.YAMLToJSONStrict([]byte(s.text))
	if err != nil {
		words := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		if m := yamlLine.FindStringSubmatch(words); m != nil {
			line, _ := strconv.Atoi(m[1])
			fault.Line = s.line + min(max(line, 1), s.lines()) - 1
			words = words[strings.Index(words, m[0])+len(m[0]):]
		}
		fault.Message = strings.TrimSpace(strings.TrimPrefix(words, "yaml: "))
		if strings.HasPrefix(fault.Message, "unknown anchor ") { // what is behind the * may be a password
			fault.Message, fault.Hint = "a text that begins with * stands for an anchor, and there is none of that name", "put a text that begins with * in quotes"
		}
		if strings.Contains(words, "already set in map") {
			fault.Code = reason.DuplicateKey
		} else if better := malformed(file, s); better != nil {
			return nil, better
		}
		return nil, fault
	}
	object := &unstructured.Unstructured{}
	var any map[string]any
	if err := json.Unmarshal(text, &any); err != nil || any == nil {
		fault.Code, fault.Message = reason.WrongType, "an object must stand here"
		fault.Hint = "an object begins with apiVersion, kind and metadata"
		return nil, fault
	}
	if kind, ok := any["kind"].(string); !ok || kind == "" {
		fault.Code, fault.Path, fault.Message = reason.MissingField, "kind", `the document has no "kind"`
		return nil, fault
	}
	if err := object.UnmarshalJSON(text); err != nil && object.Object == nil {
		fault.Code, fault.Message = reason.WrongType, err.Error()
		return nil, fault
	}
	return object.Object, nil
}

// malformed asks package declare, which says the place of what is no YAML to the column and how to put it right; nil where it
// takes the text for YAML.
func malformed(file string, s section) *declare.Fault {
	_, faults := declare.Read(file, []byte(s.text))
	for i := range faults {
		if faults[i].Code == reason.MalformedYAML {
			shift(&faults[i], s.line-1)
			return &faults[i]
		}
	}
	return nil
}

// readItems takes a List apart, as `tako get -o yaml` writes one.
func readItems(file string, s section, items []any) ([]Document, []declare.Fault) {
	var documents []Document
	var faults []declare.Fault
	for i, item := range items {
		d := Document{File: file, section: s, within: []step{{name: "items"}, {kind: stepIndex, index: i}}}
		object, ok := item.(map[string]any)
		if !ok {
			d.Object = &unstructured.Unstructured{Object: map[string]any{}}
			faults = append(faults, d.Locate([]declare.Fault{{Code: reason.WrongType, Message: "an object must stand here"}})...)
			continue
		}
		withoutServerFields(object)
		d.Object = &unstructured.Unstructured{Object: object}
		fs := d.check()
		switch version, kind := d.Object.GetAPIVersion(), d.Object.GetKind(); {
		case len(fs) > 0:
		case isDeclared(version, kind):
			fs = d.checkDeclaration(func(file string, text []byte) (any, []declare.Fault) {
				declared, faults := declare.Read(file, text)
				for i := range declared {
					faults = append(faults, mistakes(&declared[i])...)
				}
				if len(declared) != 1 {
					return nil, faults
				}
				return declared[0].Config, faults
			})
		case isWorkload(version, kind):
			fs = d.checkDeclaration(func(file string, text []byte) (any, []declare.Fault) {
				declared, _, faults := workload.Read(file, text)
				return declared, faults
			})
		}
		documents, faults = append(documents, d), append(faults, fs...)
	}
	return documents, faults
}

// checkDeclaration has an item of a List read by the package of its kind as if it stood alone.
func (d *Document) checkDeclaration(read func(file string, text []byte) (declared any, faults []declare.Fault)) []declare.Fault {
	// YAML was read as JSON here, which knows no octal digits: 0644 is the number 420 by now, and as digits another mode.
	if paths := numericModes(d.Object.Object, "", nil); len(paths) > 0 {
		var faults []declare.Fault
		for _, path := range paths {
			faults = append(faults, declare.Fault{Code: reason.WrongType, Path: path, Message: "a mode in a list must be a text", Hint: `write octal digits in quotes: "0644"`})
		}
		return d.Locate(faults)
	}
	text, err := json.Marshal(d.Object.Object)
	if err != nil {
		return []declare.Fault{{Code: reason.InternalFault, File: d.File, Message: err.Error()}}
	}
	declared, faults := read(d.File, text)
	for i := range faults {
		faults[i].Line, faults[i].Column, faults[i].Related = 0, 0, nil // places of the text made here
	}
	if len(faults) > 0 || declared == nil {
		return d.Locate(faults)
	}
	object, err := objectOf(declared)
	if err != nil {
		return []declare.Fault{{Code: reason.InternalFault, File: d.File, Message: err.Error()}}
	}
	d.Object = object
	return nil
}

// numericModes finds the fields mode that are numbers.
func numericModes(value any, at string, found []string) []string {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			path := strings.TrimPrefix(at+"."+key, ".")
			switch value[key].(type) {
			case int64, float64:
				if key == "mode" {
					found = append(found, path)
				}
			}
			found = numericModes(value[key], path, found)
		}
	case []any:
		for i, item := range value {
			found = numericModes(item, fmt.Sprintf("%s[%d]", at, i), found)
		}
	}
	return found
}

// check says what every object needs before it can be sent anywhere.
func (d *Document) check() []declare.Fault {
	var faults []declare.Fault
	missing := func(path, hint string) {
		faults = append(faults, declare.Fault{Code: reason.MissingField, Path: path, Message: fmt.Sprintf("the document has no %q", path), Hint: hint})
	}
	if d.Object.GetAPIVersion() == "" {
		missing("apiVersion", "`tako explain` lists the kinds with their versions")
	}
	if d.Object.GetKind() == "" {
		missing("kind", "")
	}
	if gv, err := schema.ParseGroupVersion(d.Object.GetAPIVersion()); err != nil || gv.Version == "" && d.Object.GetAPIVersion() != "" {
		faults = append(faults, declare.Fault{Code: reason.UnknownAPIVersion, Path: "apiVersion",
			Message: fmt.Sprintf("unknown apiVersion %q", d.Object.GetAPIVersion()), Hint: "it is VERSION or GROUP/VERSION"})
	}
	switch name, _, _ := unstructured.NestedFieldNoCopy(d.Object.Object, "metadata", "name"); name.(type) {
	case string, nil:
	default:
		faults = append(faults, declare.Fault{Code: reason.WrongType, Path: "metadata.name", Message: fmt.Sprintf("a text must stand here, and YAML reads %v", name),
			Hint: "put it in quotes"})
		return d.Locate(faults)
	}
	if d.Object.GetName() == "" {
		missing("metadata.name", "what is applied has a name, so that applying it again changes the same object")
	}
	return d.Locate(append(faults, d.checkSecret()...))
}

// checkSecret says which data of a Secret is no base64: the server would name neither the key nor the line.
func (d *Document) checkSecret() []declare.Fault {
	data, _ := d.Object.Object["data"].(map[string]any)
	if d.Object.GetAPIVersion() != "v1" || d.Object.GetKind() != "Secret" {
		return nil
	}
	var faults []declare.Fault
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text, ok := data[key].(string)
		if _, err := base64.StdEncoding.DecodeString(text); ok && err != nil {
			faults = append(faults, declare.Fault{Code: reason.InvalidValue, Path: "data[" + key + "]",
				Message: fmt.Sprintf("the value of %q is not base64", key), Hint: "put plain text under stringData"})
		}
	}
	return faults
}
