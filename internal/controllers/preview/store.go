package preview

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/workloads"
	"tako.dev/tako/internal/reason"
)

type object interface {
	metav1.Object
	runtime.Object
}

// key names an object.
type key struct {
	kind string
	name types.NamespacedName
}

func keyOf(o object) key {
	k := key{name: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
	switch o.(type) {
	case *v1alpha1.Node:
		k.kind = v1alpha1.KindNode
	case *v1alpha1.Workload:
		k.kind = v1alpha1.KindWorkload
	case *v1alpha1.Revision:
		k.kind = v1alpha1.KindRevision
	case *v1alpha1.Instance:
		k.kind = v1alpha1.KindInstance
	}
	return k
}

// store is objects in memory with one writer, who writes one at a time. What was put in is never changed, because others have it too.
type store struct {
	now     time.Time
	version uint64
	uids    int
	objects map[key]object
	gone    func(kind string, o object) // told of what goes without the writer's doing
	// fresh are the instances that were written since the hosts have looked, and writes counts what instances come, go and change by.
	fresh     []*v1alpha1.Instance
	writes    int
	displaced map[types.UID]*v1alpha1.Instance // who was told to make room
}

var _ workloads.Objects = (*store)(nil)

func newStore(now time.Time) *store {
	return &store{now: now, objects: map[key]object{}, displaced: map[types.UID]*v1alpha1.Instance{}}
}

// put takes in an object as it is.
func (s *store) put(o object) {
	if v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
		s.version = max(s.version, v)
	}
	s.objects[keyOf(o)] = o
}

// write makes an object of the writer's the newest version.
func (s *store) write(o object) {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	s.objects[keyOf(o)] = o
	if in, is := o.(*v1alpha1.Instance); is {
		s.fresh = append(s.fresh, in)
	}
}

// of are the objects of a type.
func of[T object](s *store) []T {
	var all []T
	for _, o := range s.objects {
		if t, is := o.(T); is {
			all = append(all, t)
		}
	}
	return all
}

func (s *store) there(o object) error {
	if s.objects[keyOf(o)] == nil {
		return apierrors.NewNotFound(v1alpha1.Resource(keyOf(o).kind), o.GetName())
	}
	return nil
}

// Get reads an object.
func (s *store) Get(_ context.Context, name types.NamespacedName, into runtime.Object) error {
	k := keyOf(into.(object))
	k.name = name
	switch found := s.objects[k].(type) {
	case *v1alpha1.Workload:
		*into.(*v1alpha1.Workload) = *found
	case *v1alpha1.Revision:
		*into.(*v1alpha1.Revision) = *found
	case *v1alpha1.Instance:
		*into.(*v1alpha1.Instance) = *found
	default:
		return apierrors.NewNotFound(v1alpha1.Resource(k.kind), name.Name)
	}
	return nil
}

// Create creates an object.
func (s *store) Create(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	if s.objects[keyOf(o)] != nil {
		return apierrors.NewAlreadyExists(v1alpha1.Resource(keyOf(o).kind), o.GetName())
	}
	s.uids++
	s.writes++
	o.SetUID(types.UID("planned/" + strconv.Itoa(s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.now.Truncate(time.Second)))
	o.SetGeneration(1)
	s.write(o)
	return nil
}

// Update writes an object, of which the writer has the newest version.
func (s *store) Update(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	if err := s.there(o); err != nil {
		return err
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(s.objects, keyOf(o))
		s.gone(keyOf(o).kind, o)
		return nil
	}
	if _, is := o.(*v1alpha1.Instance); is {
		s.writes++
	}
	s.write(o)
	return nil
}

// UpdateStatus writes an object, of which the writer has changed the status alone.
func (s *store) UpdateStatus(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	if err := s.there(o); err != nil {
		return err
	}
	if in, is := o.(*v1alpha1.Instance); is {
		s.writes++
		if in.Status.Leave != nil && in.Status.Leave.Code == reason.Preempted.String() {
			s.displaced[in.UID] = in
		}
	}
	s.write(o)
	return nil
}

// Delete deletes an object, or begins to where it has finalizers.
func (s *store) Delete(_ context.Context, obj runtime.Object, _ *metav1.Preconditions) error {
	o := obj.(object)
	if err := s.there(o); err != nil {
		return err
	}
	found := s.objects[keyOf(o)]
	if len(found.GetFinalizers()) == 0 {
		delete(s.objects, keyOf(o))
		s.writes++
		s.gone(keyOf(o).kind, found)
		return nil
	}
	if found.GetDeletionTimestamp() != nil {
		return nil
	}
	ending := found.DeepCopyObject().(object)
	at := metav1.NewTime(s.now)
	ending.SetDeletionTimestamp(&at)
	ending.SetGeneration(ending.GetGeneration() + 1)
	s.write(ending)
	return nil
}

// ListerWatcher has none: whoever decides is told of everything that there is at the beginning.
func (*store) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher { return nil }
