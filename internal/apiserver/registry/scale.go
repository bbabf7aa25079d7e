package registry

import (
	"context"
	"fmt"

	autoscaling "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"tako.dev/tako/api/v1alpha1"
)

// scales is the subresource of a workload by which others know how many instances there are to be, and change that, without knowing what
// a workload is.
type scales struct{ workloads *Store }

var (
	_ rest.Patcher                  = (*scales)(nil)
	_ rest.GroupVersionKindProvider = (*scales)(nil)
)

// New makes an empty Scale.
func (*scales) New() runtime.Object { return &autoscaling.Scale{} }

// Destroy does nothing: the storage is that of the whole object.
func (*scales) Destroy() {}

// GroupVersionKind is that of what is read and written here, which is not ours.
func (*scales) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscaling.SchemeGroupVersion.WithKind("Scale")
}

// Get says how many there are to be.
func (s *scales) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	o, err := s.workloads.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return scaleOf(o.(*v1alpha1.Workload)), nil
}

// Update writes how many there are to be. It makes no workload.
func (s *scales) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	admitted := func(ctx context.Context, o, old runtime.Object) error {
		return update(ctx, scaleOf(o.(*v1alpha1.Workload)), scaleOf(old.(*v1alpha1.Workload)))
	}
	o, _, err := s.workloads.Update(ctx, name, scaled{info, name}, create, admitted, false, options)
	if err != nil {
		return nil, false, err
	}
	w := o.(*v1alpha1.Workload)
	if c := w.Spec.Scale; c != nil && w.Spec.ReplicasOrDefault() > 0 {
		warning.AddWarning(ctx, "", fmt.Sprintf("workload %s follows what is measured: there are %d now, within its bounds, until measures ask for another number; 0 is off", name, w.Spec.ReplicasOrDefault()))
	}
	return scaleOf(w), false, nil
}

// ConvertToTable shows it as the object that it is part of is shown.
func (s *scales) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(autoscaling.Resource("scales")).ConvertToTable(ctx, obj, options)
}

// scaleOf is the number of a workload's instances as others know it.
func scaleOf(w *v1alpha1.Workload) *autoscaling.Scale {
	selector := w.Status.Selector
	if selector == "" { // nobody has looked at it yet
		selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelWorkload: w.Name}).String()
	}
	return &autoscaling.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace, UID: w.UID, ResourceVersion: w.ResourceVersion, CreationTimestamp: w.CreationTimestamp},
		Spec:       autoscaling.ScaleSpec{Replicas: int32(w.Spec.ReplicasOrDefault())}, // at most 100,000
		Status:     autoscaling.ScaleStatus{Replicas: w.Status.Replicas, Selector: selector},
	}
}

// scaled is a change of a Scale as one of its workload.
type scaled struct {
	rest.UpdatedObjectInfo
	name string
}

// replicasPath is where the number stands in a workload: its owner there is the owner of a Scale's.
var replicasPath = managedfields.ResourcePathMappings{v1alpha1.SchemeGroupVersion.String(): fieldpath.MakePathOrDie("spec", "replicas")}

// UpdatedObject makes the workload with the number that was written, and with who owns that field from then on.
func (s scaled) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	w, ok := old.DeepCopyObject().(*v1alpha1.Workload)
	if !ok || w.UID == "" {
		return nil, apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceWorkloads), s.name)
	}
	before := scaleOf(w)
	owners := managedfields.NewScaleHandler(w.ManagedFields, v1alpha1.SchemeGroupVersion, replicasPath)
	var err error
	if before.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, fmt.Errorf("read who owns the number of workload %s: %w", s.name, err)
	}
	o, err := change{s.UpdatedObjectInfo}.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	after, ok := o.(*autoscaling.Scale)
	switch {
	case !ok:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a Scale is wanted here, not %T", o))
	case after.UID != "" && after.UID != w.UID:
		return nil, apierrors.NewConflict(v1alpha1.Resource(v1alpha1.ResourceWorkloads), s.name, fmt.Errorf("the workload that is there has uid %s, not %s", w.UID, after.UID))
	case after.Spec.Replicas < 0:
		at := field.NewPath("spec", "replicas")
		return nil, apierrors.NewInvalid(autoscaling.SchemeGroupVersion.WithKind("Scale").GroupKind(), s.name, field.ErrorList{field.Invalid(at, after.Spec.Replicas, "less than none")})
	}
	if before.Spec.Replicas != after.Spec.Replicas || w.Spec.Replicas != nil {
		w.Spec.Replicas = &after.Spec.Replicas
	}
	w.ResourceVersion = after.ResourceVersion
	if w.ManagedFields, err = owners.ToParent(after.ManagedFields); err != nil {
		return nil, fmt.Errorf("write who owns the number of workload %s: %w", s.name, err)
	}
	return w, nil
}
