package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
)

func assignments() *Kind {
	k := of[v1alpha1.Assignment, v1alpha1.AssignmentList](v1alpha1.SchemeGroupVersion, v1alpha1.KindAssignment,
		Names{Plural: v1alpha1.ResourceAssignments, Short: []string{"asg"}})
	k.Columns = []Column{
		{Name: "Environment", Type: "string", Description: "that of the node when this was decided", Value: func(o runtime.Object) any { return o.(*v1alpha1.Assignment).Spec.Environment }},
		{Name: "Layers", Type: "integer", Description: "number of revisions", Value: func(o runtime.Object) any { return len(o.(*v1alpha1.Assignment).Spec.Layers) }},
		{Name: "Version", Type: "string", Description: "version of the signed state that follows from it", Value: func(o runtime.Object) any {
			return o.(*v1alpha1.Assignment).ResourceVersion
		}},
		{Name: "Trying", Type: "string", Description: "config that is tried", Value: func(o runtime.Object) any {
			if t := o.(*v1alpha1.Assignment).Spec.Try; t != nil {
				return t.Config
			}
			return ""
		}},
	}
	k.Validate = func(_ context.Context, o, _ runtime.Object) field.ErrorList {
		return fieldErrors(v1alpha1.ValidateAssignment(o.(*v1alpha1.Assignment)))
	}
	return k
}

// derivedStore is the storage of what the server works out by itself: everybody reads it who may, and only the server writes.
type derivedStore struct {
	*Store
	why error // why nobody else does, and what to do instead
}

var _ rest.StandardStorage = derivedStore{}

// Create creates an object for the server itself.
func (s derivedStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := s.own(ctx, metadata(obj).GetName()); err != nil {
		return nil, err
	}
	return s.Store.Create(ctx, obj, validate, options)
}

// Update writes an object for the server itself.
func (s derivedStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if err := s.own(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Store.Update(ctx, name, info, create, update, force, options)
}

// Delete deletes an object for the server itself, whose garbage collector does that when the owner has gone.
func (s derivedStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := s.own(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Store.Delete(ctx, name, validate, options)
}

// DeleteCollection deletes objects for the server itself.
func (s derivedStore) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, which *internalversion.ListOptions) (runtime.Object, error) {
	if err := s.own(ctx, ""); err != nil {
		return nil, err
	}
	return s.Store.DeleteCollection(ctx, validate, options, which)
}

var errAssignment = errors.New("tako works it out from nodes and configs, and nobody else writes it: change what the configs select, or delete the Node, with which it goes")

// own refuses everybody but the server.
func (s derivedStore) own(ctx context.Context, name string) error {
	if byItself(ctx) {
		return nil
	}
	return apierrors.NewForbidden(s.kind.Resource(), name, s.why)
}
