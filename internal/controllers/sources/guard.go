package sources

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
)

const (
	// watchesMax bounds the watches of one Source: kinds times namespaces. What is beyond is looked at when the Source is.
	watchesMax = 64
	// watchPause is the pause after a watch that could not be had: rights may come, and a definition of a kind may go.
	watchPause = 30 * time.Second
)

// guard watches what a Source has applied, and tells its actor what others change in it: what they take of the fields that the Source
// owns, as the server's field owners say, and what they delete. Who changes other fields of the same objects is nobody's business.
type guard struct {
	actor *actor

	mu       sync.RWMutex        // guards all below; held for writing while something is applied
	expected map[string]expected // by remote.Ref.Long
	watches  map[place]context.CancelFunc
	all      sync.WaitGroup
}

// expected is how an object was left.
type expected struct {
	at    place
	owned string // the fields that the Source owns
}

// place is where objects stand that are watched together.
type place struct {
	group, kind, namespace string
}

func newGuard(a *actor) *guard {
	return &guard{actor: a, expected: map[string]expected{}, watches: map[place]context.CancelFunc{}}
}

// end ends all watches.
func (g *guard) end() {
	g.mu.Lock()
	for _, stop := range g.watches {
		stop()
	}
	g.mu.Unlock()
	g.all.Wait()
}

// follow watches where objects of a set stand, and nowhere else any more, until ctx is done or end.
func (g *guard) follow(ctx context.Context, config *rest.Config, set string, refs []remote.Ref) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wanted := map[place]remote.Kind{}
	for _, ref := range refs {
		wanted[place{ref.Kind.Group, ref.Kind.Kind, ref.Namespace}] = ref.Kind
	}
	for p, stop := range g.watches {
		if _, still := wanted[p]; !still {
			stop()
			delete(g.watches, p)
		}
	}
	for p, kind := range wanted {
		if g.watches[p] != nil || len(g.watches) >= watchesMax || !kind.Can("watch") {
			continue
		}
		server, err := remote.New(config, remote.Options{UserAgent: manager})
		if err != nil {
			g.actor.log.Error("watch what a source has applied", "kind", p.kind, "err", err)
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		g.watches[p] = stop
		query := remote.Query{Kind: kind, Namespace: p.namespace, Labels: prune.Label + "=" + set}
		g.all.Go(func() { g.watch(ctx, server, query) })
	}
}

// watch compares what there is with what was left, again and again.
func (g *guard) watch(ctx context.Context, server *remote.Server, query remote.Query) {
	for ctx.Err() == nil {
		if err := g.listAndWatch(ctx, server, query); err != nil && ctx.Err() == nil && !errors.Is(err, remote.ErrExpired) {
			g.actor.log.Info("what a source has applied is not watched for now", "kind", query.Kind.Kind, "err", err)
			sleep(ctx, watchPause)
		}
	}
}

func (g *guard) listAndWatch(ctx context.Context, server *remote.Server, query remote.Query) error {
	there := map[string]bool{}
	from, err := server.List(ctx, query, func(o *unstructured.Unstructured) error {
		there[remote.RefOf(query.Kind, o).Long()] = true
		g.compare(query.Kind, o)
		return nil
	})
	if err != nil {
		return err
	}
	g.missing(query, there)
	for ctx.Err() == nil {
		from, err = server.Watch(ctx, query, from, func(e remote.EventType, o *unstructured.Unstructured) error {
			if e == remote.Deleted {
				g.lost(remote.RefOf(query.Kind, o))
				return nil
			}
			g.compare(query.Kind, o)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compare tells of an object of which others have taken something.
func (g *guard) compare(kind remote.Kind, o *unstructured.Unstructured) {
	name := remote.RefOf(kind, o).Long()
	g.mu.RLock()
	want, kept := g.expected[name]
	g.mu.RUnlock()
	if kept && want.owned != ownedBy(o) {
		g.actor.drift(name)
	}
}

// lost tells of an object that is gone, or of which somebody has taken the label.
func (g *guard) lost(ref remote.Ref) {
	g.mu.RLock()
	_, kept := g.expected[ref.Long()]
	g.mu.RUnlock()
	if kept {
		g.actor.drift(ref.Long())
	}
}

// missing tells of objects that are not in a list.
func (g *guard) missing(query remote.Query, there map[string]bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for name, e := range g.expected {
		if e.at == (place{query.Kind.Group, query.Kind.Kind, query.Namespace}) && !there[name] {
			g.actor.drift(name)
		}
	}
}

// hold keeps events waiting until release: what is applied now is no drift.
func (g *guard) hold()    { g.mu.Lock() }
func (g *guard) release() { g.mu.Unlock() }

// expect notes how an object was left. hold has been called.
func (g *guard) expect(ref remote.Ref, o *unstructured.Unstructured) {
	if o != nil {
		g.expected[ref.Long()] = expected{place{ref.Kind.Group, ref.Kind.Kind, ref.Namespace}, ownedBy(o)}
	}
}

// forget notes that an object is not kept any more. hold has been called.
func (g *guard) forget(ref remote.Ref) { delete(g.expected, ref.Long()) }

// ownedBy are the fields of an object that a Source owns, as the server writes them; empty for none.
func ownedBy(o *unstructured.Unstructured) string {
	for _, m := range o.GetManagedFields() {
		if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.FieldsV1 != nil {
			return string(m.FieldsV1.GetRawBytes())
		}
	}
	return ""
}
