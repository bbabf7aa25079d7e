package admission

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// Getter reads one namespace.
type Getter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// Lifecycle lets objects into namespaces that are there to stay.
type Lifecycle struct {
	*admission.Handler
	namespaces Getter
}

var _ admission.ValidationInterface = (*Lifecycle)(nil)

// NewLifecycle makes the plugin.
func NewLifecycle(namespaces Getter) *Lifecycle {
	return &Lifecycle{Handler: admission.NewHandler(admission.Create, admission.Delete), namespaces: namespaces}
}

// Validate refuses the deletion of the namespace default, and objects in a namespace that is not there or is going.
func (l *Lifecycle) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	isNamespace := a.GetKind().GroupKind() == core.SchemeGroupVersion.WithKind("Namespace").GroupKind()
	if a.GetOperation() == admission.Delete {
		if isNamespace && a.GetName() == metav1.NamespaceDefault {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("it is where everything goes that names no other: it cannot be deleted"))
		}
		return nil
	}
	if a.GetNamespace() == "" || isNamespace || a.GetSubresource() != "" {
		return nil
	}
	// What the watch cache knows is good enough to let in; what it does not know yet may have been made a moment ago.
	obj, err := l.namespaces.Get(ctx, a.GetNamespace(), &metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		obj, err = l.namespaces.Get(ctx, a.GetNamespace(), &metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(core.Resource("namespaces"), a.GetNamespace())
	}
	if err != nil {
		return err
	}
	ns := obj.(*core.Namespace)
	if ns.DeletionTimestamp.IsZero() {
		return nil
	}
	refused := apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns.Name))
	// kubectl and controllers look for this cause.
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: core.NamespaceTerminatingCause, Field: "metadata.namespace", Message: fmt.Sprintf("namespace %s is being terminated", ns.Name),
	})
	return refused
}
