package controllers

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"tako.dev/tako/internal/fleet/gc"
)

const (
	// refreshEvery is how often the kinds are asked for and owners that could not be found are looked for again.
	refreshEvery = 30 * time.Second
	// refreshAfter is how long after a change of custom resource definitions the kinds are asked for: the server serves a
	// new kind a moment after it has accepted its definition.
	refreshAfter = time.Second
	// syncMax is how long the first listing of a kind may take before it is done without: one broken kind must not stop the
	// collection of all others.
	syncMax = 30 * time.Second
	// The pause after a decision that could not be carried out, doubled each time.
	retryMin = 100 * time.Millisecond
	retryMax = time.Minute
)

// collector is the shell of fleet/gc.
type collector struct {
	kinds    *kinds
	metadata metadata.Interface
	objects  dynamic.Interface
	shorter  func(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher // than metadata, or nil
	events   typedcore.EventsGetter
	log      *slog.Logger
	metrics  *metrics
	workers  int
	queue    workqueue.TypedRateLimitingInterface[gc.UID]
	changed  chan struct{} // holds one: a custom resource definition changed

	mu      sync.Mutex // guards what follows; no call of the API is made with it
	graph   *gc.Graph
	watches map[schema.GroupVersionResource]*kindWatch
}

// kindWatch follows the objects of one kind.
type kindWatch struct {
	kind    served
	started time.Time
	synced  chan struct{} // closed when the first listing is in the graph
	stop    context.CancelFunc
	done    chan struct{} // closed when it has ended
}

func (c *collector) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.graph, c.watches = gc.NewGraph(), map[schema.GroupVersionResource]*kindWatch{}
	c.mu.Unlock()
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[gc.UID](retryMin, retryMax))
	var all sync.WaitGroup
	defer func() {
		cancel()
		c.queue.ShutDown()
		all.Wait()
	}()
	c.refresh(ctx, &all)
	c.awaitSync(ctx)
	for range c.workers {
		all.Go(func() { c.work(ctx) })
	}
	every := time.NewTicker(refreshEvery)
	defer every.Stop()
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
			if soon == nil {
				soon = time.After(refreshAfter)
			}
		case <-soon:
			soon = nil
			c.refresh(ctx, &all)
		case <-every.C:
			c.refresh(ctx, &all)
			c.enqueue(func() []gc.UID { return c.graph.Recheck() })
		}
	}
}

// collectible: the kind can be watched and its objects deleted. Events have no owners, come and go by the thousand, and end
// by themselves.
func collectible(s served) bool {
	event := s.kind.Kind == "Event" && (s.kind.Group == core.GroupName || s.kind.Group == eventsv1.GroupName)
	return s.can("list", "watch", "delete") && !event
}

// refresh asks for the kinds and follows those that there are.
func (c *collector) refresh(ctx context.Context, all *sync.WaitGroup) {
	if err := c.kinds.refresh(ctx); err != nil {
		if ctx.Err() == nil {
			c.metrics.failures.WithLabelValues("gc").Inc()
			c.log.Warn("kinds are not known", "err", err)
			c.nudge() // what was changed is still to be learnt
		}
		return
	}
	list, _ := c.kinds.list()
	wanted := map[schema.GroupVersionResource]served{}
	for _, s := range list {
		if collectible(s) {
			wanted[s.resource] = s
		}
	}
	// First what goes: a kind that is preferred in another version now is forgotten, and then learnt again.
	for resource, w := range c.watching() {
		if _, stays := wanted[resource]; !stays {
			c.abandon(resource, w)
		}
	}
	for _, s := range wanted {
		c.follow(ctx, s, all)
	}
	c.countUnsynced()
}

func (c *collector) watching() map[schema.GroupVersionResource]*kindWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied := make(map[schema.GroupVersionResource]*kindWatch, len(c.watches))
	for resource, w := range c.watches {
		copied[resource] = w
	}
	return copied
}

// follow starts a watch of a kind, unless there is one.
func (c *collector) follow(ctx context.Context, s served, all *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[s.resource] != nil {
		return
	}
	inner, stop := context.WithCancel(ctx)
	w := &kindWatch{kind: s, started: time.Now(), synced: make(chan struct{}), stop: stop, done: make(chan struct{})}
	c.watches[s.resource] = w
	lw := c.shorter(schema.GroupVersionKind{Group: s.kind.Group, Version: s.resource.Version, Kind: s.kind.Kind}, true)
	if lw == nil {
		source := c.metadata.Resource(s.resource)
		lw = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return source.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return source.Watch(ctx, o)
			},
		}
	}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, &feed{collector: c, watch: w}, cache.ReflectorOptions{Name: "gc " + s.resource.String()})
	all.Go(func() {
		defer close(w.done)
		reflector.RunWithContext(inner)
	})
}

// abandon stops following a kind that is not served any more. Its objects are forgotten, which deletes nothing: who depends on
// them is kept as long as they cannot be read.
func (c *collector) abandon(resource schema.GroupVersionResource, w *kindWatch) {
	w.stop()
	<-w.done
	c.enqueue(func() []gc.UID {
		delete(c.watches, resource)
		var touched []gc.UID
		for _, id := range c.graph.Identities(w.kind.kind) {
			touched = append(touched, c.graph.Forget(id.UID)...)
		}
		return touched
	})
}

// awaitSync waits until the first listings are in the graph, or take too long.
func (c *collector) awaitSync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncMax)
	defer cancel()
	for _, w := range c.watching() {
		select {
		case <-w.synced:
		case <-ctx.Done():
		}
	}
	c.countUnsynced()
}

func (w *kindWatch) isSynced() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

func (c *collector) countUnsynced() {
	var kinds []string
	for resource, w := range c.watching() {
		if !w.isSynced() && time.Since(w.started) >= syncMax {
			kinds = append(kinds, resource.String())
		}
	}
	c.metrics.unsynced.Set(float64(len(kinds)))
	if len(kinds) > 0 {
		slices.Sort(kinds)
		c.log.Warn("kinds cannot be listed, their objects are not collected", "kinds", kinds)
	}
}

// blind: there is a kind, or may be one, of which dependents may exist that are not in the graph yet.
func (c *collector) blind() bool {
	if _, unknown := c.kinds.list(); unknown != "" {
		return true
	}
	for _, w := range c.watching() {
		if !w.isSynced() && time.Since(w.started) < syncMax {
			return true
		}
	}
	return false
}

// enqueue changes the graph and queues what is to be decided about.
func (c *collector) enqueue(change func() []gc.UID) {
	c.mu.Lock()
	touched := change()
	size := c.graph.Len()
	c.mu.Unlock()
	c.metrics.objects.Set(float64(size))
	for _, uid := range touched {
		c.queue.Add(uid)
	}
}

// nudge asks for a refresh of the kinds.
func (c *collector) nudge() {
	select {
	case c.changed <- struct{}{}:
	default: // one is on its way
	}
}

// feed puts what a watch says into the graph. It is the store of a reflector, and stores nothing else.
type feed struct {
	collector *collector
	watch     *kindWatch
}

var _ cache.ReflectorStore = (*feed)(nil)

// definitions are the objects with which kinds come and go.
var definitions = gc.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

func (f *feed) noteDefinition() {
	if f.watch.kind.kind == definitions {
		f.collector.nudge()
	}
}

// Add observes a new object.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update observes a changed object.
func (f *feed) Update(obj any) error {
	f.noteDefinition()
	o := toObject(f.watch.kind.kind, obj.(*metav1.PartialObjectMetadata))
	f.collector.enqueue(func() []gc.UID { return f.collector.graph.Observe(o) })
	return nil
}

// Delete forgets an object.
func (f *feed) Delete(obj any) error {
	f.noteDefinition()
	uid := gc.UID(obj.(*metav1.PartialObjectMetadata).UID)
	f.collector.enqueue(func() []gc.UID { return f.collector.graph.Forget(uid) })
	return nil
}

// Replace observes all objects that there are, and forgets the others.
func (f *feed) Replace(list []any, _ string) error {
	f.noteDefinition()
	f.collector.enqueue(func() []gc.UID {
		var touched []gc.UID
		there := make(map[gc.UID]bool, len(list))
		for _, obj := range list {
			o := toObject(f.watch.kind.kind, obj.(*metav1.PartialObjectMetadata))
			there[o.UID] = true
			touched = append(touched, f.collector.graph.Observe(o)...)
		}
		for _, id := range f.collector.graph.Identities(f.watch.kind.kind) {
			if !there[id.UID] {
				touched = append(touched, f.collector.graph.Forget(id.UID)...)
			}
		}
		return touched
	})
	if !f.watch.isSynced() {
		close(f.watch.synced)
	}
	return nil
}

// Resync has nothing to do: the graph is what was observed.
func (f *feed) Resync() error { return nil }

func toObject(kind gc.GroupKind, m *metav1.PartialObjectMetadata) gc.Object {
	o := gc.Object{
		Identity: gc.Identity{UID: gc.UID(m.UID), Kind: kind, Namespace: m.Namespace, Name: m.Name},
		Version:  m.ResourceVersion, Deleting: m.DeletionTimestamp != nil,
		Foreground: slices.Contains(m.Finalizers, gc.FinalizerForeground), Orphan: slices.Contains(m.Finalizers, gc.FinalizerOrphan),
	}
	for _, ref := range m.OwnerReferences {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			gv.Group = ref.APIVersion // of no server: it cannot be read, and so keeps the object
		}
		o.Owners = append(o.Owners, gc.Reference{
			UID: gc.UID(ref.UID), APIVersion: ref.APIVersion, Kind: gc.GroupKind{Group: gv.Group, Kind: ref.Kind}, Name: ref.Name,
			Blocks: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
		})
	}
	return o
}
