package workloads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
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

// memory is a store with the rules of the real one, whose watches tell when a test wants them to.
type memory struct {
	mu      sync.Mutex
	now     func() time.Time
	version int64
	uids    int64
	objects map[string]*stored
	log     []event // what watches have not told yet
	writes  int
	budget  int // writes until the writer is killed; negative: never. The last one is done, and nobody hears of it
	killed  bool
	fault   func(verb string, o runtime.Object) error // asked before each write
	onWrite func(verb string, o runtime.Object)       // told of each that was done
}

// stored is one object, as it is shared with watchers, and as it was.
type stored struct {
	kind     string
	shared   object
	pristine object
}

type object interface {
	metav1.Object
	runtime.Object
}

type event struct {
	kind string
	o    object // as it was last, where it has gone
	gone bool
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, objects: map[string]*stored{}, budget: -1}
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

func path(o object) string { return kindOf(o) + " " + keyOf(o).String() }

func resource(o object) schema.GroupResource { return v1alpha1.Resource(kindOf(o)) }

// put stores an object, and tells watchers.
func (m *memory) put(o object) {
	m.version++
	o.SetResourceVersion(strconv.FormatInt(m.version, 10))
	kept := o.DeepCopyObject().(object)
	m.objects[path(o)] = &stored{kindOf(o), kept, kept.DeepCopyObject().(object)}
	m.log = append(m.log, event{kind: kindOf(o), o: kept})
}

func (m *memory) drop(o object) {
	delete(m.objects, path(o))
	m.version++
	m.log = append(m.log, event{kind: kindOf(o), o: o, gone: true})
}

// write does one write, unless the writer is dead.
func (m *memory) write(verb string, o runtime.Object, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.killed {
		return errors.New("the server is dead")
	}
	if m.fault != nil {
		if err := m.fault(verb, o); err != nil {
			return err
		}
	}
	m.writes++
	err := do()
	if err == nil && m.onWrite != nil {
		m.onWrite(verb, o)
	}
	if m.budget > 0 {
		if m.budget--; m.budget == 0 {
			m.killed = true
			return errors.New("nobody hears the answer")
		}
	}
	return err
}

func become(o, other runtime.Object) {
	switch o := o.(type) {
	case *v1alpha1.Node:
		*o = *other.(*v1alpha1.Node)
	case *v1alpha1.Workload:
		*o = *other.(*v1alpha1.Workload)
	case *v1alpha1.Revision:
		*o = *other.(*v1alpha1.Revision)
	case *v1alpha1.Instance:
		*o = *other.(*v1alpha1.Instance)
	}
}

// Get reads the newest version.
func (m *memory) Get(_ context.Context, key types.NamespacedName, into runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.objects[kindOf(into)+" "+key.String()]
	if s == nil {
		return apierrors.NewNotFound(resource(into.(object)), key.Name)
	}
	become(into, s.pristine.DeepCopyObject())
	return nil
}

// Create creates an object.
func (m *memory) Create(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	return m.write("create", obj, func() error {
		if m.objects[path(o)] != nil {
			return apierrors.NewAlreadyExists(resource(o), o.GetName())
		}
		m.uids++
		o.SetUID(types.UID(fmt.Sprint("uid-", m.uids)))
		o.SetCreationTimestamp(metav1.NewTime(m.now().Truncate(time.Second)))
		o.SetGeneration(1)
		m.put(o)
		return nil
	})
}

func (m *memory) found(o object) (object, error) {
	s := m.objects[path(o)]
	switch {
	case s == nil:
		return nil, apierrors.NewNotFound(resource(o), o.GetName())
	case s.pristine.GetResourceVersion() != o.GetResourceVersion() || s.pristine.GetUID() != o.GetUID():
		return nil, apierrors.NewConflict(resource(o), o.GetName(), errors.New("it has changed"))
	}
	return s.pristine.DeepCopyObject().(object), nil
}

// Update writes all but the status.
func (m *memory) Update(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	return m.write("update", obj, func() error {
		old, err := m.found(o)
		if err != nil {
			return err
		}
		o.SetGeneration(old.GetGeneration())
		switch o := obj.(type) {
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
			m.drop(o)
			return nil
		}
		if equality.Semantic.DeepEqual(o, old) {
			return nil // as the real one, which writes nothing then
		}
		m.put(o)
		return nil
	})
}

// UpdateStatus writes the status alone.
func (m *memory) UpdateStatus(_ context.Context, obj runtime.Object) error {
	o := obj.(object)
	return m.write("status", obj, func() error {
		old, err := m.found(o)
		if err != nil {
			return err
		}
		same := equality.Semantic.DeepEqual(o, old)
		switch o := obj.(type) {
		case *v1alpha1.Workload:
			status := o.Status
			*o = *old.(*v1alpha1.Workload)
			o.Status = status
		case *v1alpha1.Instance:
			status := o.Status
			*o = *old.(*v1alpha1.Instance)
			o.Status = status
		case *v1alpha1.Node:
			status := o.Status
			*o = *old.(*v1alpha1.Node)
			o.Status = status
		}
		if !same {
			m.put(o)
		}
		return nil
	})
}

// Delete deletes an object, or begins to where it has finalizers.
func (m *memory) Delete(_ context.Context, obj runtime.Object, only *metav1.Preconditions) error {
	o := obj.(object)
	return m.write("delete", obj, func() error {
		s := m.objects[path(o)]
		switch {
		case s == nil:
			return apierrors.NewNotFound(resource(o), o.GetName())
		case only != nil && only.UID != nil && *only.UID != s.pristine.GetUID():
			return apierrors.NewConflict(resource(o), o.GetName(), errors.New("it is another one"))
		}
		old := s.pristine.DeepCopyObject().(object)
		if len(old.GetFinalizers()) == 0 {
			m.drop(old)
			return nil
		}
		if old.GetDeletionTimestamp() == nil {
			now := metav1.NewTime(m.now())
			old.SetDeletionTimestamp(&now)
			old.SetGeneration(old.GetGeneration() + 1)
			m.put(old)
		}
		return nil
	})
}

// ListerWatcher has none: watches are fed.
func (m *memory) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher { return nil }

// feed tells watchers what has happened: all, or what happened first.
func (m *memory) feed(c *Workloads, most int) {
	m.mu.Lock()
	told := slices.Clone(m.log[:min(most, len(m.log))])
	m.log = m.log[len(told):]
	m.mu.Unlock()
	for _, e := range told {
		box := c.Inbox(e.kind)
		if e.gone {
			_ = box.Delete(e.o)
		} else {
			_ = box.Update(e.o)
		}
	}
}

// relist has watchers see all that there is, as after a gap.
func (m *memory) relist(c *Workloads) {
	m.mu.Lock()
	lists := map[string][]any{v1alpha1.KindNode: nil, v1alpha1.KindWorkload: nil, v1alpha1.KindRevision: nil, v1alpha1.KindInstance: nil}
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		s := m.objects[name]
		lists[s.kind] = append(lists[s.kind], s.shared)
	}
	m.log = nil
	m.mu.Unlock()
	for kind, list := range lists {
		_ = c.Inbox(kind).Replace(list, "")
	}
}

// intact says which shared object somebody has changed; empty: none.
func (m *memory) intact() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.objects {
		if !equality.Semantic.DeepEqual(s.shared, s.pristine) {
			return name
		}
	}
	return ""
}

// collect is the garbage collector: what belongs to a workload goes with it.
func (m *memory) collect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[types.UID]bool{}
	for _, s := range m.objects {
		there[s.pristine.GetUID()] = true
	}
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		s := m.objects[name]
		if owner := metav1.GetControllerOf(s.pristine); owner != nil && !there[owner.UID] {
			o := s.pristine.DeepCopyObject().(object)
			if len(o.GetFinalizers()) == 0 {
				m.drop(o)
			} else if o.GetDeletionTimestamp() == nil {
				now := metav1.NewTime(m.now())
				o.SetDeletionTimestamp(&now)
				m.put(o)
			}
		}
	}
}

// all are the objects of a kind, by name.
func all[T object](m *memory) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []T
	for _, s := range m.objects {
		if o, is := s.pristine.(T); is {
			list = append(list, o.DeepCopyObject().(T))
		}
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(path(a), path(b)) })
	return list
}

func typesName(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
