//go:build e2e

package api_test

import (
	"net/http"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// TestOwnKinds: nobody defines kinds in the groups of the server's own, with whose definition the objects would go.
func TestOwnKinds(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	objects, err := dynamic.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	definitions := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, test := range []struct{ plural, kind, group string }{
		{"nodeconfigs", "NodeConfig", "tako.dev"},
		{"widgets", "Widget", "tako.dev"},
		{"clusterrolebindings", "ClusterRoleBinding", "rbac.authorization.k8s.io"},
		{"customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io"},
		{"selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io"},
	} {
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{
				"name": test.plural + "." + test.group, "annotations": map[string]any{"api-approved.kubernetes.io": "https://example.org/1"},
			},
			"spec": map[string]any{
				"group": test.group, "scope": "Cluster", "names": map[string]any{"plural": test.plural, "kind": test.kind},
				"versions": []any{map[string]any{
					"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				}},
			},
		}}
		_, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "defined by tako itself") {
			t.Errorf("%s: %v", crd.GetName(), err)
		}
	}
}

// TestNamespacesGoOneByOne: namespaces cannot be deleted as a collection, which would leave behind what is in them.
func TestNamespacesGoOneByOne(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: map[string]string{"gone": "yes"}}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, StringData: map[string]string{"a": "b"}}
	if _, err := c.CoreV1().Secrets("full").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, selector := range []string{"", "?labelSelector=gone%3Dyes", "?fieldSelector=metadata.name%3Ddefault"} {
		err := c.CoreV1().RESTClient().Delete().RequestURI("/api/v1/namespaces" + selector).Do(t.Context()).Error()
		if status, is := err.(apierrors.APIStatus); !is || status.Status().Code != http.StatusMethodNotAllowed {
			t.Errorf("delete namespaces%s: %v", selector, err)
		}
	}
	for _, name := range []string{"default", "full"} {
		if got, err := c.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || got.DeletionTimestamp != nil {
			t.Errorf("namespace %s: %v, %+v", name, err, got)
		}
	}
	if _, err := c.CoreV1().Secrets("full").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
