package registry

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	kinds    map[reflect.Type]*Kind // by their objects
}

// NewLocal makes the way to the objects of a registry. admit is asked before an object is created, changed or deleted.
func NewLocal(r *Registry, admit admission.Interface) *Local {
	l := &Local{registry: r, admit: admit, kinds: make(map[reflect.Type]*Kind, len(r.kinds))}
	for _, k := range r.kinds {
		l.kinds[reflect.TypeOf(k.New())] = k
	}
	return l
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
	become(into, o)
	return nil
}

// Cached reads an object as the watch cache has it, into one that is not shared with anybody: what it costs is a copy. It may be late, which whoever
// writes it then is told of. The errors are those of the API.
func (l *Local) Cached(ctx context.Context, key types.NamespacedName, into runtime.Object) error {
	k, err := l.kindOf(into)
	if err != nil {
		return err
	}
	o, err := l.registry.stores[k.Resource()].Get(as(ctx, key.Namespace), key.Name, &metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	become(into, o.DeepCopyObject())
	return nil
}

// Create creates an object, which it may change; then it is what is stored.
func (l *Local) Create(ctx context.Context, o runtime.Object) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	options := &metav1.CreateOptions{}
	admitted := rest.AdmissionToValidateObjectFunc(l.admit, attributes(k, o, admission.Create, options), nil)
	made, err := l.registry.stores[k.Resource()].Create(as(ctx, metadata(o).GetNamespace()), o, admitted, options)
	if err != nil {
		return err
	}
	become(o, made)
	return nil
}

// Update writes an object without its status, if it is still the version that was read. It may change the object; then it is what is
// stored. An object that has gone is not made again.
func (l *Local) Update(ctx context.Context, o runtime.Object) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	m := metadata(o)
	if m.GetResourceVersion() == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s %s is to be changed, and nobody has read it", k.Names.Singular, m.GetName()))
	}
	store := *l.registry.stores[k.Resource()].Store
	store.UpdateStrategy = existing{store.UpdateStrategy.(strategy)}
	options := &metav1.UpdateOptions{}
	admitted := rest.AdmissionToValidateObjectUpdateFunc(l.admit, attributes(k, o, admission.Update, options), nil)
	changed, _, err := store.Update(as(ctx, m.GetNamespace()), m.GetName(), rest.DefaultUpdatedObjectInfo(o), rest.ValidateAllObjectFunc, admitted, false, options)
	if err != nil {
		return err
	}
	become(o, changed)
	return nil
}

// existing is the strategy of a writer who knows that the object is there.
type existing struct{ strategy }

// AllowCreateOnUpdate is false.
func (existing) AllowCreateOnUpdate(context.Context) bool { return false }

// Delete deletes the object of that kind, namespace and name, if it is the one that the preconditions name; nil: whichever is there.
func (l *Local) Delete(ctx context.Context, o runtime.Object, only *metav1.Preconditions) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	m, options := metadata(o), &metav1.DeleteOptions{Preconditions: only}
	admitted := rest.AdmissionToValidateObjectDeleteFunc(l.admit, attributes(k, o, admission.Delete, options), nil)
	_, _, err = l.registry.stores[k.Resource()].Delete(as(ctx, m.GetNamespace()), m.GetName(), admitted, options)
	return err
}

// UpdateStatus writes the status of an object, if it is still the version that was read; then it is what is stored.
func (l *Local) UpdateStatus(ctx context.Context, o runtime.Object) error {
	k, err := l.kindOf(o)
	if err != nil {
		return err
	}
	m, s := metadata(o), l.registry.stores[k.Resource()]
	status := newSubresource(s, statusStrategy{s.UpdateStrategy.(strategy)})
	changed, _, err := status.Update(as(ctx, m.GetNamespace()), m.GetName(), rest.DefaultUpdatedObjectInfo(o), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc,
		false, &metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	become(o, changed)
	return nil
}

// attributes are what admission hears of a call; the library adds the object that is there, and the one that is to be.
func attributes(k *Kind, o runtime.Object, operation admission.Operation, options runtime.Object) admission.Attributes {
	m := metadata(o)
	return admission.NewAttributesRecord(nil, nil, k.GVK, m.GetNamespace(), m.GetName(), k.GVK.GroupVersion().WithResource(k.Names.Plural), "", operation, options, false, itself)
}

// become makes an object what another one is, which nobody else has.
func become(o, other runtime.Object) {
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(other).Elem())
}

func (l *Local) kindOf(o runtime.Object) (*Kind, error) {
	if k := l.kinds[reflect.TypeOf(o)]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%T is not stored here", o)
}

// itself is who writes. It is known by its address: somebody with the right to act as others may take its name, and never is this value.
var itself = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}

// Itself is the server, as who makes requests to itself. Whoever is to be taken for it has to be this very value.
func Itself() user.Info { return itself }

// byItself reports whether a request is the server's own.
func byItself(ctx context.Context) bool {
	who, known := request.UserFrom(ctx)
	return known && who == user.Info(itself)
}

// as is the context of a call of the server's own. The namespace is empty for what is in none.
func as(ctx context.Context, namespace string) context.Context {
	return request.WithNamespace(request.WithUser(ctx, itself), namespace)
}
