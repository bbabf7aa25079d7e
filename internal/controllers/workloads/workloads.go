package workloads

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/inbox"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/controllers/workloads/meters"
	"tako.dev/tako/internal/reason"
)

// Objects reads and writes objects, with the errors of the API. controllers.Objects is one.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// Create creates an object; then it is what is stored.
	Create(ctx context.Context, o runtime.Object) error
	// Update writes all but the status, if the object is still the version that was read; then it is what is stored.
	Update(ctx context.Context, o runtime.Object) error
	// UpdateStatus writes the status, if the object is still the version that was read; then it is what is stored.
	UpdateStatus(ctx context.Context, o runtime.Object) error
	// Delete deletes an object, if it is the one that the preconditions name.
	Delete(ctx context.Context, o runtime.Object, only *metav1.Preconditions) error
	// ListerWatcher lists and watches all objects of a kind. The objects may be shared.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Presence is what is known of hosts. *presence.Register is one.
type Presence interface {
	// Of returns what is known of a node; false when there is none with this UID.
	Of(node types.UID) (presence.Seen, bool)
	// Tell has c hold something whenever something else is to be said of nodes, until stop is called.
	Tell(c chan struct{}) (stop func())
	// Since returns the names of the nodes of which Of may say something else than when there were so many changes, some of them more than once, and how
	// many there are now. all says that it may be any node: so it is with 0.
	Since(changes uint64) (names []string, all bool, now uint64)
}

// Recorder makes Events. It does not wait.
type Recorder interface {
	// Tell notes that something has happened to an object.
	Tell(about core.ObjectReference, kind, why, words string)
}

// Options say what to work with. Objects, Presence and Recorder are required.
type Options struct {
	Objects  Objects
	Presence Presence
	Recorder Recorder
	// Writers is how many objects are written at once. Default 128, and at least 1: then they are written in one order, which is always the same.
	Writers int
	// Measures is what the scale of workloads follows. Default nothing is measured, and only bounds and edits change a number.
	Measures Measures
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where the metrics tako_workloads_* are registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
}

const (
	// burstWait is how far apart rounds begin at least, so that what comes together is decided together: as in package assignments. The first one
	// after a rest waits for nothing, because one write is all that it is about nearly always: what a person has just applied.
	burstWait = 2 * time.Millisecond
	// thinkingPause is how many times as long as a decision took is between it and the next one, in which its writes are done: as in package
	// assignments, so that hosts are heard meanwhile.
	thinkingPause = 3
	// writesMax is how many objects are written at once, where Options say nothing: they wait for the disk of the store, which writes them together, and for
	// their turn beside the writes of all other controllers, which are 48 at once.
	writesMax = 128
	// callMax bounds one call of the store.
	callMax = 60 * time.Second
	// retryAfter is how long what could not be written waits: ours, long for a store and short for a person.
	retryAfter = time.Second
	// placeMax is how many instances are placed and written before everything else is looked at again: ours, about a quarter of a second.
	placeMax = 1000
	// writesPerRound is how many other writes of instances there are before that, and how many of one workload at most: as with placeMax.
	writesPerRound = 1000
)

// Workloads keeps instances. Use New.
type Workloads struct {
	options   Options
	nudge     chan struct{} // holds one: an inbox has something, or the presence
	nodes     *inbox.Inbox[hostSpec]
	workloads *inbox.Inbox[v1alpha1.Workload]
	revisions *inbox.Inbox[v1alpha1.Revision]
	instances *inbox.Inbox[v1alpha1.Instance]
	metrics   *meters.Meters
	shown     shown
}

// New makes what keeps instances, and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Workloads, error) {
	if options.Objects == nil || options.Presence == nil || options.Recorder == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the workloads", Cause: errors.New("something to work with is not given")}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Writers < 1 {
		options.Writers = writesMax
	}
	nudge := make(chan struct{}, 1)
	return &Workloads{
		options: options, nudge: nudge, nodes: inbox.New(nudge, shapeNode), workloads: inbox.New(nudge, shape[v1alpha1.Workload]), revisions: inbox.New(nudge, shapeRevision),
		instances: inbox.New(nudge, shape[v1alpha1.Instance]), metrics: meters.New(),
	}, nil
}

// Run keeps instances until ctx is done. It returns nil then.
func (c *Workloads) Run(ctx context.Context) error {
	if err := c.metrics.Register(c.options.Metrics); err != nil {
		return err
	}
	defer c.metrics.Unregister(c.options.Metrics)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	defer c.options.Presence.Tell(c.nudge)()
	if err := c.watch(ctx, &all); err != nil {
		return err
	}
	for _, ready := range []<-chan struct{}{c.nodes.Ready(), c.workloads.Ready(), c.revisions.Ready(), c.instances.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	inbox.Rounds(ctx, c.nudge, burstWait, c.Lead(time.Now()).Round)
	return nil
}

// Lead is one time of leading: the memory that rounds have in common. Use Workloads.Lead.
type Lead struct {
	c *Workloads
	w *world
}

// Lead begins to lead. It starts nothing: Run steps it, or whoever has a clock and a store of his own, and fills the Inboxes.
func (c *Workloads) Lead(now time.Time) *Lead { return &Lead{c, newWorld(now)} }

// Round takes in what was told, decides and writes. It returns when to do so again though nothing has happened (zero: not by itself), and before
// when not. Rounds of one Workloads follow one another, and what is written is by the time given.
func (l *Lead) Round(ctx context.Context, now time.Time) (next, pause time.Time) {
	return l.c.round(ctx, l.w, now)
}

// Inbox is where the objects of a kind are told of: Node, Workload, Revision or Instance; nil for any other.
func (c *Workloads) Inbox(kind string) cache.ReflectorStore {
	switch kind {
	case v1alpha1.KindNode:
		return c.nodes
	case v1alpha1.KindWorkload:
		return c.workloads
	case v1alpha1.KindRevision:
		return c.revisions
	case v1alpha1.KindInstance:
		return c.instances
	}
	return nil
}

// watch starts to follow what instances follow from.
func (c *Workloads) watch(ctx context.Context, all *sync.WaitGroup) error {
	for _, kind := range []struct {
		name string
		o    runtime.Object
	}{
		{v1alpha1.KindNode, &v1alpha1.Node{}},
		{v1alpha1.KindWorkload, &v1alpha1.Workload{}},
		{v1alpha1.KindRevision, &v1alpha1.Revision{}},
		{v1alpha1.KindInstance, &v1alpha1.Instance{}},
	} {
		lw := c.options.Objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind.name), false)
		if lw == nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "watch objects of kind " + kind.name, Cause: errors.New("there is no way to them")}
		}
		r := cache.NewReflectorWithOptions(lw, kind.o, c.Inbox(kind.name), cache.ReflectorOptions{Name: "workloads " + kind.name})
		all.Go(func() { r.RunWithContext(ctx) })
	}
	return nil
}

// shape keeps an object as a whole. Its UID is in the key: that one has gone may be told when another one of its name was made here already.
func shape[T any, PT interface {
	*T
	metav1.Object
}](obj any) (string, *T) {
	o := obj.(PT)
	return keyWithUID(o), (*T)(o)
}

// shapeRevision keeps the revisions of workloads.
func shapeRevision(obj any) (string, *v1alpha1.Revision) {
	r := obj.(*v1alpha1.Revision)
	if r.Spec.Template == nil || r.Spec.Source == nil || r.Spec.Source.Kind != v1alpha1.KindWorkload {
		return keyWithUID(r), nil
	}
	return keyWithUID(r), r
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
