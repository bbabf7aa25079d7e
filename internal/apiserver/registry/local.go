package registry

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Local reads and writes objects within the server, for controllers that do so for every object of a kind of which there are
// many. It leaves out what is there for people: HTTP, managed fields, and the audit log, which has the request that a controller
// follows. Validation and admission are the same.
type Local struct {
	registry *Registry
	admit    admission.Interface
}

// NewLocal makes the way to the objects of a registry. admit is asked before an object is created.
func NewLocal(r *Registry, admit admission.Interface) *Local {
	return &Local{registry: r, admit: admit}
}

// Get reads the newest version of an object into one that is not shared with anybody. The errors are those of the API.
func (l *Local) Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error {
	k, err := l.kindOf(into)
	if err != nil {
		return err
	}
	// Without a version it comes from the store, decoded for this call.
	o, err := l.registry.stores[k.Resource()].Get(as(ctx, key.Namespace), key.Name, &metav1.GetOptions{})
	if err != nil {
		return err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
	return nil
}

// Create creates an object, which it may change.
func (l *Local) Create(ctx context.Context, o runtime.Object) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	m, options := metadata(o), &metav1.CreateOptions{}
	attributes := admission.NewAttributesRecord(o, nil, k.GVK, m.GetNamespace(), m.GetName(), k.GVK.GroupVersion().WithResource(k.Names.Plural), "",
		admission.Create, options, false, itself)
	_, err = l.registry.stores[k.Resource()].Create(as(ctx, m.GetNamespace()), o, rest.AdmissionToValidateObjectFunc(l.admit, attributes, nil), options)
	return err
}

// UpdateStatus writes the status of an object, if it is still the version that was read.
func (l *Local) UpdateStatus(ctx context.Context, o runtime.Object) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	m, s := metadata(o), l.registry.stores[k.Resource()]
	status := newSubresource(s, statusStrategy{s.UpdateStrategy.(strategy)})
	_, _, err = status.Update(as(ctx, m.GetNamespace()), m.GetName(), rest.DefaultUpdatedObjectInfo(o), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc,
		false, &metav1.UpdateOptions{})
	return err
}

func (l *Local) kindOf(o runtime.Object) (*Kind, error) {
	for _, k := range l.registry.kinds {
		if reflect.TypeOf(k.New()) == reflect.TypeOf(o) {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%T is not stored here", o)
}

// itself is who writes.
var itself = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}

// as is the context of a call of the server's own. The namespace is empty for what is in none.
func as(ctx context.Context, namespace string) context.Context {
	return request.WithNamespace(request.WithUser(ctx, itself), namespace)
}
