package heads

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Objects is where Assignments and Nodes are read, with the errors of the API. controllers.Objects is one.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// ListerWatcher lists and watches all objects of a kind, or their metadata.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
	// Versions are those of all objects of a kind, by name, as they were in etcd itself at a revision: what etcd's watch has not told a cache,
	// that does not know, and takes itself for fresh all the same.
	Versions(ctx context.Context, kind schema.GroupVersionKind, at uint64) (map[string]uint64, error)
}

// Options say what heads are made of. The first five are required.
type Options struct {
	// Objects holds the Assignments and Nodes.
	Objects Objects
	// Layers are what heads lead to. Who runs Heads runs them too.
	Layers *layers.Layers
	// Keys sign.
	Keys *trust.Keys
	// Chain reads the newest trust documents. It is called every few seconds.
	Chain func(ctx context.Context) (*trust.Chain, error)
	// Revision reads the revision of the store, linearizably: no read that began later can see less.
	Revision func(ctx context.Context) (uint64, error)
	// Suspected is told when a host has shown a state that the store does not know, once in each epoch. It does not block. Default nobody
	// is told.
	Suspected func(Suspicion)
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Metrics is where the metrics tako_heads_* are registered, while Run runs. Default nowhere.
	Metrics prometheus.Registerer
	// Compare is how often everything is read again. Default 5 m: transfer.md asks for 5 to 10.
	Compare time.Duration
}

// Suspicion is that a host has accepted what the store does not know.
type Suspicion struct {
	Node     server.Identity
	Shown    catalog.Mark
	Version  uint64 // of the newest state of the node that the store knows; 0 when there is none
	Revision uint64 // of the store
}

func (o Options) withDefaults() Options {
	if o.Suspected == nil {
		o.Suspected = func(Suspicion) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Compare = cmp.Or(o.Compare, 5*time.Minute)
	return o
}

func (o Options) validate() error {
	var cause error
	switch {
	case o.Objects == nil || o.Layers == nil:
		cause = errors.New("no way to the objects, or to the layers, is given")
	case o.Keys == nil || o.Chain == nil:
		cause = errors.New("no keys, or no trust documents, are given")
	case o.Revision == nil:
		cause = errors.New("no way to the store's revision is given")
	case o.Compare < time.Second:
		cause = errors.New("comparing more often than once in a second is too much")
	default:
		return nil
	}
	return &reason.Error{Code: reason.InternalFault, Doing: "set up the heads", Cause: cause}
}

// Heads are the signed heads of all nodes, and what they lead to. Use New. It is safe for concurrent use.
type Heads struct {
	options     Options
	metrics     *metrics
	view        *view
	assignments *source
	nodes       *source
	trust       atomic.Pointer[trusted] // nil until it was read
	fresh       freshness
	asked       chan struct{} // holds one: somebody waits for a proof
	unsigned    atomic.Bool   // it was logged that nothing can be signed
	lag         time.Duration // lagMax; less in tests
}

// trusted is the trust documents that are in force.
type trusted struct {
	chain  *trust.Chain
	epoch  uint64
	number uint64 // of the document
}

var _ server.Catalogs = (*Heads)(nil)

// New makes the heads, and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Heads, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	h := &Heads{options: options, view: newView(), asked: make(chan struct{}, 1), lag: lagMax}
	h.metrics = h.newMetrics()
	h.assignments, h.nodes = newAssignments(h), newNodes(h)
	return h, nil
}

// Run follows Assignments, Nodes and trust documents until ctx is done, and returns nil then. It may be called once.
func (h *Heads) Run(ctx context.Context) error {
	if h.options.Metrics != nil {
		unregister, err := h.metrics.register(h.options.Metrics)
		if err != nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "register the metrics of the heads", Cause: err}
		}
		defer unregister()
	}
	var all sync.WaitGroup
	all.Go(func() { h.assignments.follow(ctx) })
	all.Go(func() { h.nodes.follow(ctx) })
	all.Go(func() { h.keepFresh(ctx) })
	all.Go(func() { h.keepComparing(ctx) })
	all.Wait()
	return nil
}

// apply passes on which layers lists have.
func (h *Heads) apply(used []usage) {
	for _, u := range used {
		if u.less {
			h.options.Layers.Unuse(u.config, u.root)
		} else {
			h.options.Layers.Use(u.config, u.root)
		}
	}
}

// HeadKeys are who may sign heads now; nobody before the trust documents were read.
func (h *Heads) HeadKeys(now time.Time) catalog.Keys {
	t := h.trust.Load()
	if t == nil {
		return nil
	}
	return t.chain.KeysOf(trust.RoleHeads, now)
}

// List is the encoded list of a catalog root.
func (h *Heads) List(root catalog.Digest) ([]byte, bool) { return h.view.list(root) }

// layerMax bounds how long a layer is waited for that has to be compiled first.
const layerMax = 10 * time.Second

// Layer is the content of a layer at a root. One that is not kept is compiled once more, which leads to the same root unless a value has
// changed that it refers to.
func (h *Heads) Layer(id string, root catalog.Digest) (server.Layer, bool) {
	if items, ok := h.view.ownItems(root); ok && id == wire.OwnLayer {
		return ofItems(items), true
	}
	if l, ok := h.options.Layers.At(id, root); ok {
		return server.Layer{Trie: l.Trie, Body: l.Body, Reader: l.Reader}, true
	}
	revision, ok := h.view.revision(layerID{id, root})
	if !ok {
		return server.Layer{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), layerMax)
	defer cancel()
	if _, err := h.options.Layers.Of(ctx, id, revision); err != nil {
		h.options.Log.Warn("a layer that hosts are to have cannot be compiled", "config", id, "revision", revision, "err", err)
		return server.Layer{}, false
	}
	l, ok := h.options.Layers.At(id, root)
	if !ok {
		return server.Layer{}, false
	}
	return server.Layer{Trie: l.Trie, Body: l.Body, Reader: l.Reader}, true
}

func ofItems(items []catalog.Item) server.Layer {
	return server.Layer{Trie: catalog.TrieOf(items), Body: func(digest catalog.Digest) ([]byte, bool) {
		for i := range items { // a handful
			if items[i].Row().Digest == digest {
				return items[i].Body, true
			}
		}
		return nil, false
	}}
}

// Head is the newest signed head of a node, and a channel that is closed when there may be another one. While nothing can be signed it is
// the last one that was, as long as that is good. The error is ObjectUnknown when there is no such node.
func (h *Heads) Head(who server.Identity) ([]byte, <-chan struct{}, error) {
	now := time.Now()
	v := h.view
	v.mu.Lock()
	// With the lock, so that whoever may sign again, or in another epoch, from now on finds who waits here.
	epoch, can := h.signing(now)
	n := v.nodes[who.Name]
	if n == nil || n.uid != who.UID {
		defer v.mu.Unlock()
		h.ask()
		return v.strangerLocked(who, now)
	}
	changed := n.waiting()
	a := n.assigned
	if a == nil || a.uid != who.UID {
		v.mu.Unlock()
		return nil, changed, nil
	}
	if n.suspects(who, epoch) {
		can = false
	}
	want := signed{epoch: epoch, version: a.version, issued: Issued(who.UID, now)}
	last := n.signed
	if can && last.epoch == want.epoch && last.version == want.version && last.issued == want.issued {
		v.mu.Unlock()
		return last.head, changed, nil
	}
	if !can {
		n.starved = true
		v.mu.Unlock()
		h.ask()
		if now.Unix() >= last.issued+int64(lifetime/time.Second) {
			return nil, changed, nil
		}
		return last.head, changed, nil
	}
	v.mu.Unlock()
	if err := h.sign(who, a, &want); err != nil {
		h.options.Log.Error("a head cannot be signed", "node", who.Name, "err", err)
		return last.head, changed, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n.assigned == a { // otherwise changed is closed
		n.signed = want
	}
	return want.head, changed, nil
}

func (h *Heads) sign(who server.Identity, a *assigned, want *signed) error {
	head := Derive(a.content, catalog.Node{Cluster: h.options.Keys.Cluster(), Name: who.Name, UID: who.UID}, want.epoch, want.version, want.issued)
	s, err := head.Sign(h.options.Keys.Heads())
	if err != nil {
		return err
	}
	h.metrics.signed.Inc()
	want.head, err = s.Encode()
	return err
}

// signing reports whether heads may be signed now, and of which epoch.
func (h *Heads) signing(now time.Time) (epoch uint64, can bool) {
	t := h.trust.Load()
	if t == nil {
		return 0, false
	}
	if !slices.Contains(t.chain.KeysOf(trust.RoleHeads, now), h.options.Keys.Heads().Public()) {
		if !h.unsigned.Swap(true) {
			err := &reason.Error{Code: reason.SigningKeyMissing, Doing: "sign the heads of hosts", Hint: "`tako trust show` lists the keys in force"}
			h.options.Log.Error("nothing can be signed, hosts keep what they have", "err", err, "hint", err.Hint)
		}
		h.metrics.keyless.Set(1)
		return t.epoch, false
	}
	if h.unsigned.Swap(false) {
		h.metrics.keyless.Set(0)
	}
	return t.epoch, h.fresh.is(now)
}

// strangerLocked is the answer to who is no node that is known of. A node that was made a moment ago is known in a moment.
func (v *view) strangerLocked(who server.Identity, now time.Time) ([]byte, <-chan struct{}, error) {
	if _, gone := v.gone[who.UID]; gone {
		return nil, nil, &reason.Error{Code: reason.ObjectUnknown, Doing: "find node " + who.Name + " with the UID " + who.UID}
	}
	s := v.strangers[who.UID]
	if s == nil {
		s = &stranger{now, make(chan struct{})}
		v.strangers[who.UID] = s
	}
	return nil, s.changed, nil
}
