package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/reason"
)

const (
	// fieldOwner is who writes what the controllers write, in managed fields.
	fieldOwner = "tako-controllers"
	// callMax bounds one call of the API: as long as the server takes at most for one.
	callMax = 60 * time.Second
	// stopMax bounds how long the manager waits for its controllers when it stops: they end with their context.
	stopMax = 10 * time.Second
)

// Options say what to run against. Config is required.
type Options struct {
	// Config reaches the API, with the rights to do everything. Its rate limits are not used: the workers are the limit.
	Config *rest.Config
	// Objects is a shorter way to the objects of which there are many. Default through Config.
	Objects Objects
	// Events bounds the Events: the one that admits them in this process. Default one of its own, which evicts all the same.
	Events *events.Bounds
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where the metrics tako_controller_* are registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
	// RevisionsKept is how many revisions of one config are kept beside those in use. Default 10.
	RevisionsKept int
	// Workers is how many objects each controller works on at once, 1 to 64. Default 4: the calls wait for the disk of the store
	// most of the time, and more would only take from others.
	Workers int
}

const workersMax = 64

// Objects reads and writes objects of tako's own kinds, with the errors of the API.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// Cached reads a version that may be late, into an object that is not shared.
	Cached(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// Create creates an object, which it may change; then it is what is stored.
	Create(ctx context.Context, o runtime.Object) error
	// Update writes an object without its status, if it is still the version that was read; then it is what is stored.
	Update(ctx context.Context, o runtime.Object) error
	// UpdateStatus writes the status, if the object is still the version that was read; then it is what is stored.
	UpdateStatus(ctx context.Context, o runtime.Object) error
	// Delete deletes the object of that kind, namespace and name, if it is the one that the preconditions name; nil: whichever is
	// there.
	Delete(ctx context.Context, o runtime.Object, only *metav1.Preconditions) error
	// ListerWatcher lists and watches all objects of a kind, or their metadata; nil when that has to go through the API. The
	// objects may be changed field by field, and no deeper.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) toolscache.ListerWatcher
}

// remote is the way through the API.
type remote struct{ client client.Client }

// Get reads.
func (r remote) Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error {
	return r.client.Get(ctx, key, into.(client.Object))
}

// Cached reads: no cache is nearer than the API.
func (r remote) Cached(ctx context.Context, key types.NamespacedName, into runtime.Object) error {
	return r.Get(ctx, key, into)
}

// Create creates.
func (r remote) Create(ctx context.Context, o runtime.Object) error {
	return r.client.Create(ctx, o.(client.Object))
}

// Update writes all but the status.
func (r remote) Update(ctx context.Context, o runtime.Object) error {
	return r.client.Update(ctx, o.(client.Object))
}

// Delete deletes.
func (r remote) Delete(ctx context.Context, o runtime.Object, only *metav1.Preconditions) error {
	var options []client.DeleteOption
	if only != nil {
		options = append(options, client.Preconditions(*only))
	}
	return r.client.Delete(ctx, o.(client.Object), options...)
}

// UpdateStatus writes the status.
func (r remote) UpdateStatus(ctx context.Context, o runtime.Object) error {
	return r.client.Status().Update(ctx, o.(client.Object))
}

// ListerWatcher has nothing better to offer than the API.
func (remote) ListerWatcher(schema.GroupVersionKind, bool) toolscache.ListerWatcher { return nil }

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.RevisionsKept = cmp.Or(o.RevisionsKept, 10)
	o.Workers = cmp.Or(o.Workers, 4)
	return o
}

func (o Options) validate() error {
	var cause error
	switch {
	case o.Config == nil:
		cause = errors.New("no way to the API is given")
	case o.RevisionsKept < 0:
		cause = fmt.Errorf("%d revisions cannot be kept", o.RevisionsKept)
	case o.Workers < 1 || o.Workers > workersMax:
		cause = fmt.Errorf("%d workers, must be 1 to %d", o.Workers, workersMax)
	default:
		return nil
	}
	return &reason.Error{Code: reason.InternalFault, Doing: "set up the controllers", Cause: cause}
}

// Controllers are all controllers of a server. Use New.
type Controllers struct {
	options   Options
	config    *rest.Config
	scheme    *runtime.Scheme
	metrics   *metrics
	kinds     *kinds
	metadata  metadata.Interface
	objects   dynamic.Interface
	collector *collector
	evictor   *evictor
}

// New makes the controllers and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Controllers, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.Events == nil {
		bounds, err := events.New(events.Options{})
		if err != nil {
			return nil, err
		}
		options.Events = bounds
	}
	cfg := rest.CopyConfig(options.Config)
	cfg.QPS, cfg.UserAgent = -1, fieldOwner
	scheme := runtime.NewScheme()
	err0 := errors.Join(core.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	c := &Controllers{options: options, config: cfg, scheme: scheme, metrics: newMetrics()}
	meta, err1 := metadata.NewForConfig(cfg)
	disco, err2 := discovery.NewDiscoveryClientForConfig(cfg)
	typed, err3 := typedcore.NewForConfig(cfg)
	// A deletion is answered with the whole object, which has no form but JSON where somebody else has defined its kind.
	objects, err4 := dynamic.NewForConfig(cfg)
	direct, err5 := client.New(cfg, client.Options{Scheme: scheme})
	if err := errors.Join(err0, err1, err2, err3, err4, err5); err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the clients of the controllers", Cause: err}
	}
	if options.Objects == nil {
		c.options.Objects = remote{client.WithFieldOwner(direct, fieldOwner)}
	}
	c.metadata, c.objects = meta, objects
	c.kinds = &kinds{client: disco}
	c.collector = &collector{
		kinds: c.kinds, metadata: meta, objects: objects, shorter: c.options.Objects.ListerWatcher, events: typed, log: options.Log.With("component", "gc"), metrics: c.metrics, workers: options.Workers,
		changed: make(chan struct{}, 1),
	}
	c.evictor = &evictor{bounds: options.Events, client: typed, log: options.Log.With("component", "events"), metrics: c.metrics}
	return c, nil
}

// Run runs the controllers until ctx is done. It returns nil then, and an error when one of them cannot go on. When it has
// returned it may be called again, and begins from what it then finds.
func (c *Controllers) Run(ctx context.Context) error {
	if c.options.Metrics != nil {
		unregister, err := c.metrics.register(c.options.Metrics)
		if err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register the metrics of the controllers", Cause: err}
		}
		defer unregister()
	}
	group, inner := errgroup.WithContext(ctx)
	m, err := c.manager(inner)
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "set up the controllers", Cause: err}
	}
	group.Go(func() error { return m.Start(inner) })
	group.Go(func() error { return c.collector.run(inner) })
	group.Go(func() error { return c.evictor.run(inner) })
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "run the controllers", Cause: err}
	}
	return nil
}

// stoppable is a cache for which nobody waits once the manager is to stop: the library's manager goes on waiting then, with a
// context of its own, and never stops.
type stoppable struct {
	cache.Cache
	stopped <-chan struct{}
}

func stoppableBy(ctx context.Context) cache.NewCacheFunc {
	return func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
		c, err := cache.New(cfg, o)
		if err != nil {
			return nil, err
		}
		return stoppable{c, ctx.Done()}, nil
	}
}

// WaitForCacheSync is true also when the manager is to stop.
func (s stoppable) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	synced := make(chan bool, 1)
	go func() { synced <- s.Cache.WaitForCacheSync(ctx) }() // ends with the context
	select {
	case ok := <-synced:
		return ok
	case <-s.stopped:
		return true
	}
}

// manager is controller-runtime's, with the controllers of kinds of which there are few.
func (c *Controllers) manager(ctx context.Context) (manager.Manager, error) {
	logger := logr.FromSlogHandler(warnings{c.options.Log.With("component", "manager").Handler()})
	// The library keeps a logger for the whole process, and complains where none is set.
	ctrllog.SetLogger(logger)
	stop, skip, owner := stopMax, true, fieldOwner
	m, err := manager.New(c.config, manager.Options{
		Scheme: c.scheme, Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: &stop,
		// Names of controllers are unique in a process for the library's own metrics, which nobody reads here.
		Controller: config.Controller{SkipNameValidation: &skip, MaxConcurrentReconciles: c.options.Workers, ReconciliationTimeout: callMax},
		Client:     client.Options{FieldOwner: owner},
		// What the caller says in his context, such as that he leads, goes along with each write. When it ends the manager ends what runs, in its order.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
		NewCache:    stoppableBy(ctx),
		Cache: cache.Options{NewInformer: c.informer, DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.NodeConfig{}:        {Transform: withoutSpec},
			&v1alpha1.ClusterNodeConfig{}: {Transform: withoutSpec},
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := c.addNamespaces(m); err != nil {
		return nil, err
	}
	for _, k := range revisionKinds() {
		if err := c.addRevisions(ctx, m, k); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// informer makes an informer of the manager's cache, which watches in the shortest way.
func (c *Controllers) informer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	_, metadataOnly := o.(*metav1.PartialObjectMetadata)
	if kind, err := apiutil.GVKForObject(o, c.scheme); err == nil {
		if own := c.options.Objects.ListerWatcher(kind, metadataOnly); own != nil {
			lw = own
		}
	}
	return toolscache.NewSharedIndexInformer(lw, o, resync, indexers)
}

// warnings leaves out of a log what is no warning: the library tells at length what it starts and stops.
type warnings struct{ slog.Handler }

// Enabled tells whether a record of that level is logged.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the level.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the level.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// deadlined gives one call of the API its time.
func deadlined(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callMax)
}

// exactly is the precondition that an object is still the one, in the version, that a decision is about.
func exactly(uid, version string) *metav1.Preconditions {
	p := metav1.NewUIDPreconditions(uid)
	p.ResourceVersion = &version
	return p
}
