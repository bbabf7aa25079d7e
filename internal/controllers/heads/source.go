package heads

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/layers"
)

// source brings the objects of one kind into the view. It is the store of a reflector, and stores nothing else.
type source struct {
	kind     string
	from     cache.ListerWatcherWithContext
	versions cache.ListerWatcherWithContext // the same objects, their metadata only
	example  runtime.Object
	enter    func(o any)
	leave    func(name string, version uint64)
	get      func(ctx context.Context, name string) (metav1.Object, error)
	seen     func() map[string]uint64  // versions of what is in the view, by name
	open     atomic.Pointer[openWatch] // the watch that is open; nil while none is
	synced   atomic.Bool
}

var _ cache.ReflectorStore = (*source)(nil)

func newAssignments(h *Heads) *source {
	kind := v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindAssignment)
	return &source{
		kind: kind.Kind, example: &v1alpha1.Assignment{},
		from:     cache.ToListerWatcherWithContext(h.options.Objects.ListerWatcher(kind, false)),
		versions: cache.ToListerWatcherWithContext(h.options.Objects.ListerWatcher(kind, true)),
		enter:    func(o any) { h.assign(o.(*v1alpha1.Assignment)) },
		leave:    func(name string, version uint64) { h.apply(h.view.unassign(name, version, time.Now())) },
		get: func(ctx context.Context, name string) (metav1.Object, error) {
			o := &v1alpha1.Assignment{}
			return o, h.options.Objects.Get(ctx, types.NamespacedName{Name: name}, o)
		},
		seen: h.view.assignments,
	}
}

func newNodes(h *Heads) *source {
	kind := v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNode)
	lw := cache.ToListerWatcherWithContext(h.options.Objects.ListerWatcher(kind, true))
	return &source{
		kind: kind.Kind, example: &metav1.PartialObjectMetadata{}, from: lw, versions: lw,
		enter: func(o any) {
			m := o.(metav1.Object)
			h.view.enter(m.GetName(), string(m.GetUID()), number(m.GetResourceVersion()), time.Now())
		},
		leave: func(name string, version uint64) { h.view.leave(name, version, time.Now()) },
		get: func(ctx context.Context, name string) (metav1.Object, error) {
			o := &v1alpha1.Node{}
			return o, h.options.Objects.Get(ctx, types.NamespacedName{Name: name}, o)
		},
		seen: h.view.known,
	}
}

// assign brings an Assignment into the view.
func (h *Heads) assign(o *v1alpha1.Assignment) {
	a := &assigned{uid: string(o.Spec.NodeUID), version: number(o.ResourceVersion)}
	var err error
	if a.content, err = ContentOf(&o.Spec); err != nil {
		h.metrics.malformed.Inc()
		h.options.Log.Error("nothing can be made of an Assignment, its node keeps what it has", "node", o.Name, "version", o.ResourceVersion, "err", err)
	}
	h.apply(h.view.assign(o.Name, a, revisionsOf(&o.Spec), time.Now()))
}

func revisionsOf(spec *v1alpha1.AssignmentSpec) map[layerID]string {
	revisions := make(map[layerID]string, len(spec.Layers))
	note := func(assigned []v1alpha1.AssignedLayer) {
		for i := range assigned {
			if root, err := layers.ParseRoot(assigned[i].Root); err == nil {
				revisions[layerID{assigned[i].Config, root}] = assigned[i].Revision
			}
		}
	}
	note(spec.Layers)
	if spec.Try != nil {
		note(spec.Try.Layers)
	}
	return revisions
}

func (s *source) follow(ctx context.Context) {
	lw := &cache.ListWatch{ListWithContextFunc: s.from.ListWithContext, WatchFuncWithContext: s.watch}
	cache.NewReflectorWithOptions(lw, s.example, s, cache.ReflectorOptions{Name: "heads " + s.kind}).RunWithContext(ctx)
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.from.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	open := &openWatch{w, s}
	s.open.Store(open)
	return open, nil
}

// openWatch tells when it was stopped: a reflector stops every watch that it has opened, also one that has ended by itself.
type openWatch struct {
	watch.Interface
	of *source
}

// Stop stops the watch.
func (w *openWatch) Stop() {
	w.of.open.CompareAndSwap(w, nil)
	w.Interface.Stop()
}

// following is the watch that tells of every change now, after all that there was before was told; nil when there is none.
func (s *source) following() *openWatch {
	if !s.synced.Load() {
		return nil
	}
	return s.open.Load()
}

// Add is told of a new object.
func (s *source) Add(o any) error { return s.Update(o) }

// Update is told of a changed object.
func (s *source) Update(o any) error {
	s.enter(o)
	return nil
}

// Delete is told of an object that is gone: its version is that of the deletion.
func (s *source) Delete(o any) error {
	m := o.(metav1.Object)
	s.leave(m.GetName(), number(m.GetResourceVersion()))
	return nil
}

// Replace is told of all objects that there are.
func (s *source) Replace(list []any, version string) error {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.(metav1.Object).GetName()] = true
		s.enter(o)
	}
	for name := range s.seen() {
		if !there[name] {
			s.leave(name, number(version))
		}
	}
	s.synced.Store(true)
	return nil
}

// Resync has nothing to do: the view is what was told.
func (s *source) Resync() error { return nil }

// assignments are the versions of the Assignments in the view.
func (v *view) assignments() map[string]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := make(map[string]uint64, len(v.nodes))
	for name, n := range v.nodes {
		if n.present {
			seen[name] = n.seen
		}
	}
	return seen
}

// known are the versions of the Nodes in the view.
func (v *view) known() map[string]uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := make(map[string]uint64, len(v.nodes))
	for name, n := range v.nodes {
		if n.uid != "" {
			seen[name] = n.nodeVersion
		}
	}
	return seen
}

func (v *view) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.nodes)
}

// newestOf is the version of a node's Assignment; there is false when it has none.
func (v *view) newestOf(name string) (version uint64, there bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := v.nodes[name]; n != nil && n.assigned != nil {
		return n.assigned.version, true
	}
	return 0, false
}

// newestOfAll is the highest version that the view was told of.
func (v *view) newestOfAll() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.newest
}
