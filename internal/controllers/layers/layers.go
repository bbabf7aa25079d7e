package layers

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// compileMax bounds one compile: the reads of a revision and of what it names, each some milliseconds on a server that is well.
	compileMax = 30 * time.Second
	// triesMax is how often a compile is done again because something changed meanwhile. After that what was found is good enough for
	// now: who subscribes is told to ask again.
	triesMax = 3
)

// Objects is where revisions, Secrets and ConfigMaps are read, with the errors of the API. controllers.Objects is one.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// ListerWatcher lists and watches all objects of a kind, or their metadata.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Layers compiles and keeps layers. Use New. It is safe for concurrent use.
type Layers struct {
	objects Objects
	bundles Bundles // nil where there are none
	keys    *trust.Keys
	shelf   *shelf
	changes subscriptions
	flights singleflight.Group
}

// New makes the layers of a cluster, and starts nothing. Without bundles, each is missing. The error is InternalFault.
func New(objects Objects, keys *trust.Keys, bundles Bundles) (*Layers, error) {
	if objects == nil || keys == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the layers", Cause: errors.New("no way to the objects, or no keys, are given")}
	}
	return &Layers{objects: objects, bundles: bundles, keys: keys, shelf: newShelf(), changes: subscriptions{all: map[*Changes]bool{}}}, nil
}

// Run watches what revisions name, until ctx is done.
func (l *Layers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, kind := range []string{kindSecret, kindConfigMap} {
		all.Go(func() { feed{kind, l}.follow(ctx) })
	}
	all.Wait()
	return nil
}

// Of is the layer that a revision of a config compiles to now; config is its ID, as catalog.ConfigName says. It may be called before
// Run and at the same time as anything else, and is cheap when nothing has changed. Errors: LayerReference when a value that a file
// takes its content from is not there or cannot be used, BundleMissing, DuplicateClaim of the config and its bundle, and BodyTooLarge; they stay until Changes tells of the config.
// RevisionUnusable when there is no such revision, or it is another than its name says. StoreUnreachable passes by itself.
func (l *Layers) Of(ctx context.Context, config, revision string) (*Layer, error) {
	id := revisionID{config, revision}
	for try := 0; ; try++ {
		if r, ok := l.shelf.get(id, time.Now()); ok {
			return r.layer, r.err
		}
		// Whoever waits for the compile of another one gets his answer, whatever becomes of that one's call.
		found, err, _ := l.flights.Do(config+"\x00"+revision, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), compileMax)
			defer cancel()
			return l.compile(ctx, id)
		})
		if err != nil {
			return nil, err
		}
		// Something may have changed since it was read, and it is not known here who read it when.
		if r := found.(*result); try == triesMax-1 {
			return r.layer, r.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// At is the layer of a config at a root, if it is kept.
func (l *Layers) At(config string, root catalog.Digest) (*Layer, bool) {
	return l.shelf.at(config, root)
}

// Use says that an Assignment names a root of a config: it is kept until as many Unuse have been called.
func (l *Layers) Use(config string, root catalog.Digest) { l.shelf.use(config, root, 1, time.Now()) }

// Unuse takes back one Use.
func (l *Layers) Unuse(config string, root catalog.Digest) { l.shelf.use(config, root, -1, time.Now()) }

// Subscribe makes a subscription to what changes from now on. Close it.
func (l *Layers) Subscribe() *Changes { return l.changes.open() }
