package registry

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"tako.dev/tako/internal/apiserver/misfit"
	"tako.dev/tako/internal/apiserver/missed"
)

// Update writes an object.
func (s *Store) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.Store.Update(ctx, name, change{info}, create, update, force, options)
}

// change is what a request makes of an object. A patch that cannot be applied is the client's mistake, which the library calls the
// server's unless it knows better.
type change struct{ rest.UpdatedObjectInfo }

// UpdatedObject makes the changed object.
func (c change) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	o, err := c.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err = misfit.Of(err); err == nil || isAnswer(err) || ctx.Err() != nil {
		return o, err
	}
	info, known := request.RequestInfoFrom(ctx)
	if !known || info.Verb != "patch" || strings.HasPrefix(err.Error(), "failed to create typed live object (") {
		return o, err
	}
	return o, apierrors.NewBadRequest("the patch cannot be applied: " + err.Error())
}

// isAnswer says whether an error is one that the library sends as it is.
func isAnswer(err error) bool {
	_, is := err.(apierrors.APIStatus)
	return is
}

// changes tells of misfits in the storage of kinds that others define, whose Update is the library's. What is only tried there, as a dry
// run, does not come this way.
type changes struct {
	storage.Interface
	watched *missed.Cache
}

// GuaranteedUpdate writes an object.
func (c changes) GuaranteedUpdate(ctx context.Context, key string, to runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object) error {
	return misfit.Of(c.Interface.GuaranteedUpdate(ctx, key, to, ignoreNotFound, preconditions, try, cached))
}
