package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
)

var kinds = []string{v1alpha1.KindNode, v1alpha1.KindWorkload, v1alpha1.KindRevision, v1alpha1.KindInstance}

type object interface {
	metav1.Object
	runtime.Object
}

// store is etcd, with the rules of the API in front of it.
type store struct {
	w       *world
	version int64
	uids    int64
	objects map[string]object // by kind and name; never changed, only replaced
	log     map[string][]event
	writes  int
	busy    bool // it takes no writes
}

// event is what a watch tells.
type event struct {
	at   time.Time // in truth
	o    object    // as it was last, where it has gone
	gone bool
}

func newStore(w *world) *store {
	return &store{w: w, objects: map[string]object{}, log: map[string][]event{}}
}

func kindOf(o runtime.Object) string {
	switch o.(type) {
	case *v1alpha1.Node:
		return v1alpha1.KindNode
	case *v1alpha1.Workload:
		return v1alpha1.KindWorkload
	case *v1alpha1.Revision:
		return v1alpha1.KindRevision
	case *v1alpha1.Instance:
		return v1alpha1.KindInstance
	}
	panic(fmt.Sprintf("%T is not stored here", o))
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func path(o object) string { return kindOf(o) + " " + keyOf(o).String() }

func resource(o object) schema.GroupResource { return v1alpha1.Resource(kindOf(o)) }

func copied[T object](o T) T { return o.DeepCopyObject().(T) }

// put stores an object. The caller keeps what it has given.
func (s *store) put(o object) {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	kept := copied(o)
	s.objects[path(o)] = kept
	s.tell(event{o: kept})
}

func (s *store) drop(o object) {
	delete(s.objects, path(o))
	s.version++
	o = copied(o)
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.tell(event{o: o, gone: true})
}

func (s *store) tell(e event) {
	e.at = s.w.now
	kind := kindOf(e.o)
	s.log[kind] = append(s.log[kind], e)
	s.writes++
	for _, server := range s.w.servers {
		server.told(kind)
	}
}

func (s *store) create(o object) error {
	if s.objects[path(o)] != nil {
		return apierrors.NewAlreadyExists(resource(o), o.GetName())
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%06d", s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.w.now.Truncate(time.Second)))
	o.SetGeneration(1)
	s.put(o)
	return nil
}

// found is the object that a write is about, as it is stored.
func (s *store) found(o object) (object, error) {
	old := s.objects[path(o)]
	switch {
	case old == nil:
		return nil, apierrors.NewNotFound(resource(o), o.GetName())
	case old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID():
		return nil, apierrors.NewConflict(resource(o), o.GetName(), errors.New("it has changed"))
	}
	return old, nil
}

func (s *store) update(o object) error {
	old, err := s.found(o)
	if err != nil {
		return err
	}
	o.SetGeneration(old.GetGeneration())
	switch o := o.(type) {
	case *v1alpha1.Workload:
		was := old.(*v1alpha1.Workload)
		o.Status = was.Status
		if !equality.Semantic.DeepEqual(o.Spec, was.Spec) {
			o.Generation++
		}
	case *v1alpha1.Instance:
		o.Status = old.(*v1alpha1.Instance).Status
	case *v1alpha1.Node:
		o.Status = old.(*v1alpha1.Node).Status
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		s.drop(o)
		return nil
	}
	if !equality.Semantic.DeepEqual(o, old) { // as the real one, which writes nothing otherwise
		s.put(o)
	}
	return nil
}

func (s *store) updateStatus(obj object) error {
	old, err := s.found(obj)
	if err != nil {
		return err
	}
	same := equality.Semantic.DeepEqual(obj, old)
	switch o := obj.(type) {
	case *v1alpha1.Workload:
		status := o.Status
		*o = *copied(old.(*v1alpha1.Workload))
		o.Status = status
	case *v1alpha1.Instance:
		status := o.Status
		*o = *copied(old.(*v1alpha1.Instance))
		o.Status = status
	case *v1alpha1.Node:
		status := o.Status
		*o = *copied(old.(*v1alpha1.Node))
		o.Status = status
	}
	if !same {
		s.put(obj)
	}
	return nil
}

func (s *store) delete(o object, only *metav1.Preconditions) error {
	old := s.objects[path(o)]
	switch {
	case old == nil:
		return apierrors.NewNotFound(resource(o), o.GetName())
	case only != nil && only.UID != nil && *only.UID != old.GetUID():
		return apierrors.NewConflict(resource(o), o.GetName(), errors.New("it is another one"))
	}
	if len(old.GetFinalizers()) == 0 {
		s.drop(old)
		return nil
	}
	if old.GetDeletionTimestamp() == nil {
		old = copied(old)
		now := metav1.NewTime(s.w.now)
		old.SetDeletionTimestamp(&now)
		old.SetGeneration(old.GetGeneration() + 1)
		s.put(old)
	}
	return nil
}

// collect is the garbage collector: what belongs to a workload goes with it.
func (s *store) collect() {
	for _, o := range slices.Concat(objects(listed[*v1alpha1.Workload](s)), objects(listed[*v1alpha1.Revision](s)), objects(listed[*v1alpha1.Instance](s))) {
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			continue
		}
		of := s.objects[v1alpha1.KindWorkload+" "+types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}.String()]
		if of == nil || of.GetUID() != owner.UID {
			s.w.must(s.delete(o, nil)) // what has finalizers waits for them
		}
	}
}

func objects[T object](list []T) (all []object) {
	for _, o := range list {
		all = append(all, o)
	}
	return all
}

// listed are the objects of a kind, by name. They are shared.
func listed[T object](s *store) []T {
	var list []T
	for _, o := range s.objects {
		if o, is := o.(T); is {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(keyOf(a).String(), keyOf(b).String()) })
	return list
}

// node is a Node, as it is stored.
func (s *store) node(name string) *v1alpha1.Node {
	o, _ := s.objects[v1alpha1.KindNode+" /"+name].(*v1alpha1.Node)
	return o
}

// workload is a Workload, as it is stored; nil: there is none.
func (s *store) workload(name string) *v1alpha1.Workload {
	o, _ := s.objects[v1alpha1.KindWorkload+" "+environment+"/"+name].(*v1alpha1.Workload)
	return o
}

// client is the store as the loop of one server has it.
type client struct{ *server }

// write is one write of a server: it may be refused, and it may be done though nobody hears of it.
func (c client) write(verb string, obj runtime.Object, do func(object) error) (err error) {
	o := obj.(object)
	w := c.w
	defer func() {
		if p := recover(); p != nil && w.caught == nil {
			w.caught = p // writes have a goroutine of their own, in which nobody would catch it: the round that waits for them does
		}
	}()
	if c.killed {
		return errors.New("the server is dead")
	}
	refusals := w.faults / 4
	if in, is := o.(*v1alpha1.Instance); is && verb == "create" {
		w.tries(c.server, in)
		if w.gangOf(in) != nil {
			refusals *= 8 // there are few gangs
		}
	}
	switch {
	case w.store.busy, w.chance(refusals):
		w.did("busy")
		return apierrors.NewTooManyRequestsError("the store is busy")
	case verb != "create" && w.chance(w.faults/4):
		w.did("conflict")
		return apierrors.NewConflict(resource(o), o.GetName(), errors.New("somebody was faster"))
	}
	if err = do(o); err == nil {
		w.written(c.server, verb, o)
	}
	if c.budget > 0 {
		if c.budget--; c.budget == 0 {
			c.killed = true
			w.did("killed between writes")
		}
	}
	if c.killed || w.chance(w.faults/8) {
		w.did("answer lost")
		return errors.New("nobody hears the answer")
	}
	return err
}

// Get reads the newest version.
func (c client) Get(_ context.Context, key types.NamespacedName, into runtime.Object) error {
	o := c.w.store.objects[kindOf(into)+" "+key.String()]
	if o == nil {
		return apierrors.NewNotFound(resource(into.(object)), key.Name)
	}
	switch into := into.(type) {
	case *v1alpha1.Node:
		*into = *copied(o.(*v1alpha1.Node))
	case *v1alpha1.Instance:
		*into = *copied(o.(*v1alpha1.Instance))
	default:
		panic(fmt.Sprintf("%T is read", into))
	}
	return nil
}

// Create creates an object.
func (c client) Create(_ context.Context, o runtime.Object) error {
	in, is := o.(*v1alpha1.Instance)
	if !is {
		return c.write("create", o, c.w.store.create)
	}
	done := false
	err := c.write("create", o, func(o object) error {
		done = true
		return c.w.store.create(o)
	})
	c.w.tried(c.server, in, !done)
	return err
}

// Update writes all but the status.
func (c client) Update(_ context.Context, o runtime.Object) error {
	return c.write("update", o, c.w.store.update)
}

// UpdateStatus writes the status alone.
func (c client) UpdateStatus(_ context.Context, o runtime.Object) error {
	return c.write("status", o, c.w.store.updateStatus)
}

// Delete deletes an object, or begins to where it has finalizers.
func (c client) Delete(_ context.Context, o runtime.Object, only *metav1.Preconditions) error {
	return c.write("delete", o, func(o object) error { return c.w.store.delete(o, only) })
}

// ListerWatcher has none: inboxes are filled by the world.
func (c client) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher { return nil }
