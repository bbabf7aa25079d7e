package prune

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// Label says of which set an object is.
const Label = "tako.dev/set"

// Set is what is applied together. The zero Set is none.
type Set struct {
	value    string
	manager  string // who owns what is applied as the set; empty is remote.FieldManager
	personal string // who owns what the same person has applied without a set
}

// ParseSet returns the set of a name in a namespace, the zero Set for an empty name. Errors are *failure.Error of wrong usage.
func ParseSet(namespace, name string) (Set, error) {
	if name == "" {
		return Set{}, nil
	}
	doing := fmt.Sprintf("read --set %q", name)
	if len(validation.IsValidLabelValue(name)) > 0 && len(name) <= validation.LabelValueMaxLength {
		return Set{}, failure.Usage(doing, "it is no name of a set", "write letters, digits, -, _ and ., with a letter or digit at both ends")
	}
	value := namespace + "." + name
	if over := len(value) - validation.LabelValueMaxLength; over > 0 {
		return Set{}, failure.Usage(doing, fmt.Sprintf("it is %d letters too long: with its namespace it is the label value %s", over, value), "take a shorter name")
	}
	return Set{value: value}, nil
}

// By returns the set as it is applied under the name of a manager, by somebody with another one for what is in no set.
func (s Set) By(manager, personal string) Set {
	s.manager, s.personal = manager, personal
	return s
}

// String is NAMESPACE.NAME, empty for no set.
func (s Set) String() string { return s.value }

// Flags are what a command line says to mean the set: --set NAME -n NAMESPACE.
func (s Set) Flags() string {
	namespace, name, _ := strings.Cut(s.value, ".") // a namespace has no dot
	return "--set " + name + " -n " + namespace
}

// Mark puts every document into the set; without a set it leaves them as they are.
func (s Set) Mark(list []documents.Document) {
	if s.value == "" {
		return
	}
	for i := range list {
		object := list[i].Object
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[Label] = s.value
		object.SetLabels(labels)
	}
}

// Fault is what speaks against applying a document, nil for nothing: it would take the object out of somebody's hands, and
// the set's next prune could delete it. Before is the object that there is, nil for none; the document is marked.
func (s Set) Fault(before, declared *unstructured.Unstructured) *declare.Fault {
	want := declared.GetLabels()[Label]
	have := ""
	if before != nil {
		have = before.GetLabels()[Label]
	}
	path := "metadata.labels[" + Label + "]"
	switch {
	case want == "" || s.value == "" && want == have:
		return nil
	case s.value == "":
		return &declare.Fault{Code: reason.FieldNotAllowed, Path: path, Message: fmt.Sprintf("a document cannot say that it is of set %q", want),
			Hint: "remove the label; --set names the set of what is applied"}
	case have != "" && have != want:
		return &declare.Fault{Code: reason.Conflict, Path: "metadata.name", Message: fmt.Sprintf("it is of set %q, and would be of set %q", have, want),
			Hint: "declare it in one of them, or take it over with --force-conflicts"}
	case before != nil && s.madeByOthers(before):
		return &declare.Fault{Code: reason.Conflict, Path: "metadata.name", Message: fmt.Sprintf("it was made by others, and set %q would delete it one day", want),
			Hint: "leave it out, or take it into the set with --force-conflicts"}
	}
	return nil
}

// madeByOthers reports whether somebody declares the object, and this command line does not. One without any field that
// could be declared, such as a bare namespace, is nobody's.
func (s Set) madeByOthers(object *unstructured.Unstructured) bool {
	ours := ownFields(object, cmp.Or(s.manager, remote.FieldManager)) != nil || ownFields(object, s.personal) != nil
	return !ours && slices.ContainsFunc(object.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Subresource == "" })
}

// Holds reports whether an object is of the set, and by an apply of ours: a label that was copied is not.
func (s Set) Holds(object *unstructured.Unstructured) bool {
	if s.value == "" || object.GetLabels()[Label] != s.value {
		return false
	}
	var owned struct {
		Metadata struct {
			Labels map[string]json.RawMessage `json:"f:labels"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(ownFields(object, cmp.Or(s.manager, remote.FieldManager)), &owned) != nil {
		return false // nothing is owned, or in a form that nobody knows
	}
	_, ok := owned.Metadata.Labels["f:"+Label]
	return ok
}

// ownFields are the fields of an object that a manager owns by apply, as the server writes them; nil for none.
func ownFields(object *unstructured.Unstructured, manager string) []byte {
	for _, m := range object.GetManagedFields() {
		if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.FieldsV1 != nil {
			return m.FieldsV1.GetRawBytes()
		}
	}
	return nil
}
