package assignments

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/inbox"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/measures"
	"tako.dev/tako/internal/controllers/presence"
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
	// ListerWatcher lists and watches all objects of a kind. The objects may be shared.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Layers compiles revisions. *layers.Layers is one, and says what the errors are.
type Layers interface {
	// Of is the layer that a revision of a config compiles to now.
	Of(ctx context.Context, config, revision string) (*layers.Layer, error)
	// At is the layer of a config at a root, if it is kept.
	At(config string, root catalog.Digest) (*layers.Layer, bool)
	// WrapFor seals a key to a node.
	WrapFor(to layers.Recipient, key layers.KeyUse) ([]byte, error)
	// KeyID names the key to a value of a Secret.
	KeyID(secretUID, key string, value []byte) string
}

// Changes tells which configs have other layers than before. *layers.Changes is one.
type Changes interface {
	// C has something to receive when there is something to take.
	C() <-chan struct{}
	// Take returns the configs.
	Take() []string
}

// Presence is what is known of hosts. *presence.Register is one.
type Presence interface {
	// Of returns what is known of a node; false when there is none with this UID.
	Of(node types.UID) (presence.Seen, bool)
	// Changed has something to receive when there are changes.
	Changed() <-chan struct{}
	// Changes returns the names of nodes of which something has changed since the last call.
	Changes() []string
}

// Measures is what is measured for gates. *measures.Asker is one.
type Measures interface {
	measures.Answers
	// Want says which queries are to be asked. The map is the callee's from then on.
	Want(queries map[measures.Query]bool)
}

// Recorder makes Events. It does not wait.
type Recorder interface {
	// Tell notes that something has happened to an object.
	Tell(about core.ObjectReference, kind, why, words string)
}

// Options say what to work with. All but Measures, Log and Epoch are required.
type Options struct {
	Objects  Objects
	Layers   Layers
	Changes  Changes
	Presence Presence
	Recorder Recorder
	// Measures is what the gates of rollouts follow. Default nothing is measured, and what has gates does not go on.
	Measures Measures
	// Epoch is the epoch of the cluster's trust now, for AssignedHead. Default: always 1.
	Epoch func() uint64
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
}

const (
	// burstWait is how long a round waits at least for what comes with what has called for it: ours, as long as the watches take to tell
	// of one write more, and short against what a change may take.
	burstWait = 2 * time.Millisecond
	// thinkingPause is how many times as long as a decision took is between it and the next one, in which its writes are done: so decisions take
	// a quarter of a core at most. In a fleet of ten thousand one takes some tens of milliseconds, while each host reports, and the rest of
	// the processors is for hearing them.
	thinkingPause = 3
	// writesMax is how many objects are written at once: they wait for the disk of the store, which writes them together.
	writesMax = 32
	// callMax bounds one call of the store.
	callMax = 60 * time.Second
)

// Assignments assigns. Use New.
type Assignments struct {
	options Options
	nudge   chan struct{} // holds one: an inbox has something
	nodes   *inbox.Inbox[hostSpec]
	configs [2]*inbox.Inbox[configSpec] // NodeConfigs, ClusterNodeConfigs
	placed  *inbox.Inbox[v1alpha1.Assignment]
	tenants *inbox.Inbox[tenant]

	mu    sync.Mutex // guards what follows, by node
	heads map[types.UID]v1alpha1.AppliedHead
	left  map[types.UID]map[types.UID]error // by instance
}

// New makes what assigns, and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Assignments, error) {
	if options.Objects == nil || options.Layers == nil || options.Changes == nil || options.Presence == nil || options.Recorder == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the assignments", Cause: errors.New("something to work with is not given")}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Epoch == nil {
		options.Epoch = func() uint64 { return 1 }
	}
	nudge := make(chan struct{}, 1)
	return &Assignments{
		options: options, nudge: nudge, nodes: inbox.New(nudge, shapeNode), placed: inbox.New(nudge, shapeAssignment),
		configs: [2]*inbox.Inbox[configSpec]{inbox.New(nudge, shapeConfig), inbox.New(nudge, shapeConfig)}, tenants: inbox.New(nudge, shapeInstance),
		heads: map[types.UID]v1alpha1.AppliedHead{}, left: map[types.UID]map[types.UID]error{},
	}, nil
}

// AssignedHead is what the newest Assignment of a node is signed as; false before there is one.
func (a *Assignments) AssignedHead(node types.UID) (v1alpha1.AppliedHead, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	head, ok := a.heads[node]
	head.Epoch = int64(a.options.Epoch())
	return head, ok
}

// Run assigns until ctx is done. It returns nil then.
func (a *Assignments) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	if err := a.watch(ctx, &all); err != nil {
		return err
	}
	for _, ready := range []<-chan struct{}{a.nodes.Ready(), a.configs[0].Ready(), a.configs[1].Ready(), a.placed.Ready(), a.tenants.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	w := newWorld(time.Now())
	for {
		a.absorb(w, time.Now())
		next := a.round(ctx, w)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
		case <-a.nudge:
		case <-a.options.Presence.Changed():
		case <-a.options.Changes.C():
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(burstWait, time.Until(w.mayDecide))):
		}
	}
}

// watch starts to follow what assignments follow from.
func (a *Assignments) watch(ctx context.Context, all *sync.WaitGroup) error {
	for _, kind := range []struct {
		name  string
		o     runtime.Object
		store cache.ReflectorStore
	}{
		{v1alpha1.KindNode, &v1alpha1.Node{}, a.nodes},
		{v1alpha1.KindNodeConfig, &v1alpha1.NodeConfig{}, a.configs[0]},
		{v1alpha1.KindClusterNodeConfig, &v1alpha1.ClusterNodeConfig{}, a.configs[1]},
		{v1alpha1.KindAssignment, &v1alpha1.Assignment{}, a.placed},
		{v1alpha1.KindInstance, &v1alpha1.Instance{}, a.tenants},
	} {
		lw := a.options.Objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind.name), false)
		if lw == nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "watch objects of kind " + kind.name, Cause: errors.New("there is no way to them")}
		}
		r := cache.NewReflectorWithOptions(lw, kind.o, kind.store, cache.ReflectorOptions{Name: "assignments " + kind.name})
		all.Go(func() { r.RunWithContext(ctx) })
	}
	return nil
}
