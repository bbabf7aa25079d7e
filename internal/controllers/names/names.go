package names

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/inbox"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/names/edition"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Objects is where objects are read. controllers.Objects is one.
type Objects interface {
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

// Options say what to work with. All but Log are required.
type Options struct {
	Objects  Objects
	Presence Presence
	// Store is where editions go, and where the last one is.
	Store *edition.Store
	// Key signs heads, and so editions.
	Key *trust.SigningKey
	// Epoch is that of the trust documents.
	Epoch func() uint64
	// Term is a number that is higher than that of any leader before.
	Term func(ctx context.Context) (uint64, error)
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
}

const (
	// burstWait is how long a round waits at least for what comes with what has called for it.
	burstWait = 2 * time.Millisecond
	// editionPause is the shortest between two editions: each goes to every host that serves names, and a name is to be there within a second.
	editionPause = 100 * time.Millisecond
	// thinkingPause is how many times as long as a round took is before the next one, but for editionPause at most: each looks at all hosts, of which
	// in a large fleet one reports all the time.
	thinkingPause = 9
	// confirmMax is how long a leader waits for hosts before it says again what is in its edition already. Most of a large fleet are back by then; of the others it
	// may take back what they have become in the moments before the last leader ended.
	confirmMax = 30 * time.Second
	// retryPause is how long after it could not be found out which term this is, or an edition could not be made, that is tried again.
	retryPause = time.Second
)

// Names makes editions. Use New.
type Names struct {
	options   Options
	nudge     chan struct{} // holds one: an inbox has something, or the presence
	nodes     *inbox.Inbox[host]
	workloads *inbox.Inbox[v1alpha1.Workload]
	revisions *inbox.Inbox[revision]
	instances *inbox.Inbox[instance]
}

// New makes what makes editions, and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Names, error) {
	if options.Objects == nil || options.Presence == nil || options.Store == nil || options.Key == nil || options.Epoch == nil || options.Term == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the names", Cause: errors.New("something to work with is not given")}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	nudge := make(chan struct{}, 1)
	return &Names{options: options, nudge: nudge, nodes: inbox.New(nudge, shapeNode), workloads: inbox.New(nudge, shapeWorkload), revisions: inbox.New(nudge, shapeRevision),
		instances: inbox.New(nudge, shapeInstance)}, nil
}

// Run makes editions until ctx is done. It returns nil then.
func (n *Names) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer n.options.Presence.Tell(n.nudge)()
	if err := n.watch(ctx, &all); err != nil {
		return err
	}
	for _, ready := range []<-chan struct{}{n.nodes.Ready(), n.workloads.Ready(), n.revisions.Ready(), n.instances.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	term, ok := n.term(ctx)
	if !ok {
		return nil
	}
	w := newWorld(time.Now(), term)
	for {
		began := time.Now()
		next := n.round(w, began)
		thought := time.Now().Add(min(thinkingPause*time.Since(began), editionPause))
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
		case <-n.nudge:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(burstWait, time.Until(thought), time.Until(w.pause))):
		}
	}
}

// watch starts to follow what names follow from.
func (n *Names) watch(ctx context.Context, all *sync.WaitGroup) error {
	for _, kind := range []struct {
		name  string
		o     runtime.Object
		store cache.ReflectorStore
	}{
		{v1alpha1.KindNode, &v1alpha1.Node{}, n.nodes},
		{v1alpha1.KindWorkload, &v1alpha1.Workload{}, n.workloads},
		{v1alpha1.KindRevision, &v1alpha1.Revision{}, n.revisions},
		{v1alpha1.KindInstance, &v1alpha1.Instance{}, n.instances},
	} {
		lw := n.options.Objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind.name), false)
		if lw == nil {
			return &reason.Error{Code: reason.InternalFault, Doing: "watch objects of kind " + kind.name, Cause: errors.New("there is no way to them")}
		}
		r := cache.NewReflectorWithOptions(lw, kind.o, kind.store, cache.ReflectorOptions{Name: "names " + kind.name})
		all.Go(func() { r.RunWithContext(ctx) })
	}
	return nil
}

// term finds out which one this is; false when the context has ended.
func (n *Names) term(ctx context.Context) (uint64, bool) {
	for {
		term, err := n.options.Term(ctx)
		if err == nil {
			return term, true
		}
		n.options.Log.Warn("find out the term for the names", "err", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return 0, false
		}
	}
}

// round takes in what is new, and makes another edition if that says something else. next is when to do so though nothing is told; zero: not by itself.
func (n *Names) round(w *world, now time.Time) (next time.Time) {
	w.nodes.take(n.nodes.Take(), w)
	w.takeRevisions(n.revisions.Take())
	w.takeWorkloads(n.workloads.Take())
	w.takeInstances(n.instances.Take())
	w.hear(n.options.Presence)
	last := n.options.Store.Mark()
	if until := w.quiet(now); last.Number == 0 && now.Before(until) {
		return until
	}
	d := w.draft(n.options.Store)
	if len(d.Put)+len(d.Gone) == 0 {
		if w.told {
			return time.Time{}
		}
		// The leader before, or this server before it was killed, may have told others of later editions than the last that is here: so what stays as it is here
		// has to be said as well.
		if until := earlier(w.quiet(now), w.began.Add(confirmMax)); now.Before(until) {
			return until
		}
	}
	d.Issued, d.Mark = now, w.mark(last, n.options.Epoch(), now)
	w.pause = now.Add(editionPause)
	if err := n.options.Store.Publish(d, n.options.Key); err != nil {
		n.options.Log.Error("publish names", "err", err)
		w.again()
		return now.Add(retryPause)
	}
	if d.Left > 0 && !w.full {
		n.options.Log.Warn("there are more names than hosts can keep", "left", d.Left)
	}
	w.told, w.full = true, d.Left > 0
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
