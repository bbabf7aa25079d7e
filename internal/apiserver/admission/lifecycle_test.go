package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// namespaces are those that the store has; the cache has not heard of new ones yet.
type namespaces struct {
	there map[string]*core.Namespace
	fresh map[string]bool
}

var errDown = errors.New("the store is down")

func (n namespaces) Get(_ context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if name == "down" {
		return nil, errDown
	}
	ns := n.there[name]
	if ns == nil || n.fresh[name] && options.ResourceVersion == "0" {
		return nil, apierrors.NewNotFound(core.Resource("namespaces"), name)
	}
	return ns, nil
}

func TestLifecycle(t *testing.T) {
	now := metav1.NewTime(time.Now())
	plugin := NewLifecycle(namespaces{
		there: map[string]*core.Namespace{
			"qa": {}, "new": {}, "going": {ObjectMeta: metav1.ObjectMeta{Name: "going", DeletionTimestamp: &now}},
		},
		fresh: map[string]bool{"new": true},
	})
	config, ns := schema.GroupVersionKind{Group: "tako.dev", Kind: "NodeConfig"}, core.SchemeGroupVersion.WithKind("Namespace")
	for _, c := range []struct {
		what      string
		operation admission.Operation
		kind      schema.GroupVersionKind
		namespace string
		name      string
		sub       string
		want      func(error) bool // nil is allowed
	}{
		{"into a namespace", admission.Create, config, "qa", "a", "", nil},
		{"into a new one", admission.Create, config, "new", "a", "", nil},
		{"into none that is there", admission.Create, config, "nowhere", "a", "", apierrors.IsNotFound},
		{"into one that goes", admission.Create, config, "going", "a", "", func(err error) bool {
			return apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, core.NamespaceTerminatingCause) && strings.Contains(err.Error(), "being terminated")
		}},
		{"a part of what is in one that goes", admission.Create, config, "going", "a", "eviction", nil},
		{"of the cluster", admission.Create, config, "", "a", "", nil},
		{"a namespace", admission.Create, ns, "going", "going", "", nil},
		{"while the store is down", admission.Create, config, "down", "a", "", func(err error) bool { return errors.Is(err, errDown) }},
		{"delete in one that goes", admission.Delete, config, "going", "a", "", nil},
		{"delete a namespace", admission.Delete, ns, "", "qa", "", nil},
		{"delete default", admission.Delete, ns, "", "default", "", apierrors.IsForbidden},
		{"delete something of that name", admission.Delete, config, "qa", "default", "", nil},
	} {
		a := admission.NewAttributesRecord(nil, nil, c.kind, c.namespace, c.name, c.kind.GroupVersion().WithResource("things"), c.sub, c.operation, nil, false, &user.DefaultInfo{})
		err := plugin.Validate(t.Context(), a, nil)
		if c.want == nil && err != nil || c.want != nil && !c.want(err) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if plugin.Handles(admission.Update) {
		t.Error("an update of what is there is refused while its namespace goes: nobody could finish it")
	}
}
