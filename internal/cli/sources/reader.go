package sources

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
)

// reader compares for somebody who may only read: the server makes nothing of a document for who may not write it. What there is, is
// taken from the server, and what there would be is worked out here:
//
//	there would be = there is - what the Source has applied and declares no more + what it declares
//
// It is near to what the server would make of it, and is no check: what the server alone refuses is not found.
type reader struct {
	server  *remote.Server
	set     prune.Set
	applied map[string]*unstructured.Unstructured // what the set has, by Ref.Long
	note    func(text string)
	faults  []declare.Fault
}

// compare adds what becomes of each document.
func (r *reader) compare(ctx context.Context, list []documents.Document, refs []remote.Ref, found *comparison) error {
	r.set.Mark(list)
	for i := range list {
		d, ref := &list[i], refs[i]
		before, err := r.get(ctx, ref)
		if apierrors.IsForbidden(err) {
			r.note(ref.Long() + " is not compared: you may not read it")
			continue
		}
		if err != nil {
			return failure.Of(err, "get "+ref.Long())
		}
		if fault := r.set.Fault(before, d.Object); fault != nil {
			r.faults = append(r.faults, d.Locate([]declare.Fault{*fault})...)
			continue
		}
		text, err := plan.DiffOfEdit(ref, before, wouldBe(before, d.Object))
		if err != nil {
			return err
		}
		switch {
		case before == nil:
			found.changes = append(found.changes, difference{"created", ref.Long(), text})
		case text != "":
			found.changes = append(found.changes, difference{"configured", ref.Long(), text})
		}
	}
	if len(r.faults) == 0 {
		return nil
	}
	row, _ := reason.Lookup(r.faults[0].Code)
	return &failure.Refused{Faults: declare.SortFaults(r.faults), Exit: row.Exit}
}

// get is what there is, nil for nothing.
func (r *reader) get(ctx context.Context, ref remote.Ref) (*unstructured.Unstructured, error) {
	if object, ok := r.applied[ref.Long()]; ok {
		return object, nil
	}
	object, err := r.server.Get(ctx, ref)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// wouldBe is an object once it is applied.
func wouldBe(before, declared *unstructured.Unstructured) *unstructured.Unstructured {
	declared = declared.DeepCopy()
	inData(declared)
	if before == nil {
		return declared
	}
	after := before.DeepCopy()
	after.Object = overlay(after.Object, declared.Object, appliedFields(before))
	return after
}

// appliedFields are those that the Source has applied.
func appliedFields(object *unstructured.Unstructured) *fieldpath.Set {
	set := &fieldpath.Set{}
	for _, m := range object.GetManagedFields() {
		if m.Manager == origin.Manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.FieldsV1 != nil {
			if set.FromJSON(bytes.NewReader(m.FieldsV1.GetRawBytes())) != nil {
				return &fieldpath.Set{}
			}
		}
	}
	return set
}

// overlay puts what is declared over what there is. What is owned and declared no more goes.
func overlay(there, declared map[string]any, owned *fieldpath.Set) map[string]any {
	for field := range there {
		step := fieldpath.PathElement{FieldName: &field}
		if _, still := declared[field]; !still && (owned.Members.Has(step) || !owned.WithPrefix(step).Empty()) {
			delete(there, field)
		}
	}
	for field, v := range declared {
		there[field] = overlaid(there[field], v, owned.WithPrefix(fieldpath.PathElement{FieldName: &field}))
	}
	return there
}

func overlaid(there, declared any, owned *fieldpath.Set) any {
	switch d := declared.(type) {
	case map[string]any:
		if t, ok := there.(map[string]any); ok {
			return overlay(t, d, owned)
		}
	case []any:
		if t, ok := there.([]any); ok && named(t) && named(d) {
			return overlayNamed(t, d, owned)
		}
	}
	return declared
}

// named tells whether all items of a list have a name, by which it is merged: so are the lists of our kinds.
func named(list []any) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(item any) bool { return nameOf(item) == "" })
}

func nameOf(item any) string {
	fields, _ := item.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

// overlayNamed is a list as it is declared, with what others have in its items and beside them.
func overlayNamed(there, declared []any, owned *fieldpath.Set) []any {
	step := func(name string) fieldpath.PathElement {
		return fieldpath.PathElement{Key: &value.FieldList{{Name: "name", Value: value.NewValueInterface(name)}}}
	}
	rest := make(map[string]any, len(there))
	for _, item := range there {
		rest[nameOf(item)] = item
	}
	list := make([]any, 0, len(declared))
	for _, item := range declared {
		name := nameOf(item)
		list = append(list, overlaid(rest[name], item, owned.WithPrefix(step(name))))
		delete(rest, name)
	}
	for _, item := range there {
		name := nameOf(item)
		if _, left := rest[name]; left && !owned.Members.Has(step(name)) && owned.WithPrefix(step(name)).Empty() {
			list = append(list, item)
		}
	}
	return list
}

// inData moves what a Secret declares as text to where the server keeps it.
func inData(object *unstructured.Unstructured) {
	if object.GetKind() != "Secret" || object.GetAPIVersion() != "v1" {
		return
	}
	texts, ok, err := unstructured.NestedStringMap(object.Object, "stringData")
	if !ok || err != nil {
		return
	}
	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	fields := make(map[string]any, len(data)+len(texts))
	for key, v := range data {
		fields[key] = v
	}
	for key, text := range texts {
		fields[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	object.Object["data"] = runtime.DeepCopyJSONValue(fields)
	unstructured.RemoveNestedField(object.Object, "stringData")
}
