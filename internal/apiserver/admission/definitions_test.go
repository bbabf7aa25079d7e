package admission

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestDefinitions(t *testing.T) {
	d := NewDefinitions("tako.dev", "rbac.authorization.k8s.io")
	if !d.Handles(admission.Create) {
		t.Error("a new definition is not looked at")
	}
	for _, test := range []struct {
		name, group string
		kind        string
		refused     bool
	}{
		{"nodeconfigs.tako.dev", "tako.dev", "CustomResourceDefinition", true},
		{"widgets.tako.dev", "tako.dev", "CustomResourceDefinition", true},
		{"widgets.example.org", "tako.dev", "CustomResourceDefinition", true},
		{"widgets.tako.dev", "example.org", "CustomResourceDefinition", true},
		{"clusterrolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io", "CustomResourceDefinition", true},
		{"customresourcedefinitions.apiextensions.k8s.io", "apiextensions.k8s.io", "CustomResourceDefinition", true},
		{"widgets.example.org", "example.org", "CustomResourceDefinition", false},
		{"widgets.more.tako.dev", "more.tako.dev", "CustomResourceDefinition", false},
		{"widgets", "", "CustomResourceDefinition", false},
		{"nodeconfigs.tako.dev", "tako.dev", "Another", false},
	} {
		o := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: test.name}, Spec: apiextensions.CustomResourceDefinitionSpec{Group: test.group}}
		kind := schema.GroupVersionKind{Group: apiextensions.GroupName, Version: "v1", Kind: test.kind}
		a := admission.NewAttributesRecord(o, nil, kind, "", test.name, kind.GroupVersion().WithResource("customresourcedefinitions"), "", admission.Create, nil, false,
			&user.DefaultInfo{Name: "eve"})
		if err := d.Validate(t.Context(), a, nil); apierrors.IsForbidden(err) != test.refused {
			t.Errorf("%s %s of group %q: %v", test.kind, test.name, test.group, err)
		}
	}
}
