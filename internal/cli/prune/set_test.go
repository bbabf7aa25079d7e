package prune

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// owned is an object with a label of a set, and with fields that a manager owns.
func owned(set, manager string, operation metav1.ManagedFieldsOperationType, fields string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if set != "" {
		o.SetLabels(map[string]string{Label: set})
	}
	if manager != "" {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: operation, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields)}})
	}
	return o
}

const (
	labelOwned = `{"f:metadata":{"f:labels":{"f:tako.dev/set":{}}}}`
	dataOwned  = `{"f:data":{"f:a":{}}}`
)

// TestHolds: only a label that this command line has applied puts an object into a set.
func TestHolds(t *testing.T) {
	set, err := ParseSet("dev", "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		object *unstructured.Unstructured
		want   bool
	}{
		{"applied", owned("dev.shop", "tako", "Apply", labelOwned), true},
		{"of another set", owned("prod.shop", "tako", "Apply", labelOwned), false},
		{"of no set", owned("", "tako", "Apply", dataOwned), false},
		{"a copied label", owned("dev.shop", "kubectl-create", "Update", labelOwned), false},
		{"a label that others put on what is ours", owned("dev.shop", "tako", "Apply", dataOwned), false},
		{"a label that was edited", owned("dev.shop", "tako", "Update", labelOwned), false},
		{"nobody's", owned("dev.shop", "", "", ""), false},
		{"fields that cannot be read", owned("dev.shop", "tako", "Apply", "[]"), false},
	} {
		if got := set.Holds(c.object); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if (Set{}).Holds(owned("", "tako", "Apply", labelOwned)) {
		t.Error("no set holds something")
	}
}

func TestFault(t *testing.T) {
	shop, err := ParseSet("dev", "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		set              Set
		before, declared *unstructured.Unstructured
		code             reason.Code // 0: nothing speaks against it
	}{
		{"new", shop, nil, owned("dev.shop", "", "", ""), 0},
		{"again", shop, owned("dev.shop", "tako", "Apply", labelOwned), owned("dev.shop", "", "", ""), 0},
		{"applied before without a set", shop, owned("", "tako", "Apply", dataOwned), owned("dev.shop", "", "", ""), 0},
		{"nobody's", shop, owned("", "", "", ""), owned("dev.shop", "", "", ""), 0},
		{"of another set", shop, owned("dev.site", "tako", "Apply", labelOwned), owned("dev.shop", "", "", ""), reason.Conflict},
		{"made by others", shop, owned("", "kubectl-create", "Update", dataOwned), owned("dev.shop", "", "", ""), reason.Conflict},
		{"made by others with a copied label", shop, owned("dev.shop", "kubectl-create", "Update", labelOwned), owned("dev.shop", "", "", ""), reason.Conflict},
		{"out of a set", Set{}, owned("dev.shop", "tako", "Apply", labelOwned), owned("", "", "", ""), 0},
		{"back as it was", Set{}, owned("dev.shop", "tako", "Apply", labelOwned), owned("dev.shop", "", "", ""), 0},
		{"into a set by its label", Set{}, owned("", "tako", "Apply", dataOwned), owned("dev.shop", "", "", ""), reason.FieldNotAllowed},
		{"a copy of one in a set", Set{}, nil, owned("dev.shop", "", "", ""), reason.FieldNotAllowed},
	} {
		got := c.set.Fault(c.before, c.declared)
		if got == nil && c.code != 0 || got != nil && (got.Code != c.code || got.Hint == "") {
			t.Errorf("%s: %+v, want %s", c.name, got, c.code)
		}
	}
}

func TestParseSet(t *testing.T) {
	for _, c := range []struct {
		namespace, name string
		want            string // "" is refused
	}{
		{"dev", "shop", "dev.shop"},
		{"dev", "a.b_c-1", "dev.a.b_c-1"},
		{"dev", strings.Repeat("n", 59), "dev." + strings.Repeat("n", 59)},
		{"dev", strings.Repeat("n", 60), ""},
		{strings.Repeat("n", 63), "a", ""},
		{"dev", "a/b", ""},
		{"dev", "-a", ""},
		{"dev", "a b", ""},
	} {
		got, err := ParseSet(c.namespace, c.name)
		if got.String() != c.want || (err == nil) == (c.want == "") {
			t.Errorf("%s, %s: %q (%v), want %q", c.namespace, c.name, got, err, c.want)
		}
		if err != nil && failure.Of(err, "").Hint == "" {
			t.Errorf("%s, %s: %v says nothing to do", c.namespace, c.name, err)
		}
	}
	if none, err := ParseSet("dev", ""); err != nil || none != (Set{}) {
		t.Errorf("no name gave %q (%v)", none, err)
	}
}

// TestAnyReplaced: a name that kustomize has made anew is the same object; any other name is not.
func TestAnyReplaced(t *testing.T) {
	ref := func(kind, name string) remote.Ref {
		return remote.Ref{Kind: remote.Kind{Singular: kind}, Namespace: "n", Name: name}
	}
	for _, c := range []struct {
		gone, declared remote.Ref
		want           bool
	}{
		{ref("configmap", "motd-85mdt7t824"), ref("configmap", "motd-g489cm4t9t"), true},
		{ref("configmap", "motd-85mdt7t824"), ref("secret", "motd-g489cm4t9t"), false},
		{ref("configmap", "motd-85mdt7t824"), ref("configmap", "site-g489cm4t9t"), false},
		{ref("configmap", "motd-one"), ref("configmap", "motd-two"), false},
		{ref("configmap", "motd-85mdt7t824"), ref("configmap", "motd"), false},
	} {
		if got := anyReplaced([]Leftover{{Ref: c.gone}}, []remote.Ref{c.declared}); got != c.want {
			t.Errorf("%s and then %s: %v", c.gone, c.declared, got)
		}
	}
}
