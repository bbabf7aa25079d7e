package sources

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/controllers/sources/hosts"
	"tako.dev/tako/internal/source/origin"
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

	mu       sync.RWMutex         // guards all below; held for writing while something is applied
	expected map[string]*expected // by remote.Ref.Long
	watches  map[place]context.CancelFunc
	all      sync.WaitGroup
}

// expected is how an object was left.
type expected struct {
	at      place
	owned   string // digest of the fields that the Source owns
	version string // the resource version: what is older is over

	mu   sync.Mutex // guards all below
	told string     // what it owned when drift was told last, so that it is told once
	state
}

// state is how an object is.
type state struct {
	health await.Verdict
	name   string // of a config, as Assignments have it; empty for anything else
	config hosts.Config
}

func stateOf(o *unstructured.Unstructured) state {
	name, config := hosts.ConfigOf(o)
	return state{await.Well(o), name, config}
}

// place is where objects stand that are watched together.
type place struct {
	group, kind, namespace string
}

func newGuard(a *actor) *guard {
	return &guard{actor: a, expected: map[string]*expected{}, watches: map[place]context.CancelFunc{}}
}

// rest ends all watches, and forgets what was applied: it is not guarded any more.
func (g *guard) rest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, stop := range g.watches {
		stop()
		delete(g.watches, p)
	}
	clear(g.expected)
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
		server, err := remote.New(config, remote.Options{UserAgent: origin.Manager})
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
	if len(there) >= largeLook {
		debug.FreeOSMemory() // as after a large look
	}
	for ctx.Err() == nil {
		from, err = server.Watch(ctx, query, from, func(e remote.EventType, o *unstructured.Unstructured) error {
			if e == remote.Deleted {
				g.lost(remote.RefOf(query.Kind, o), o.GetResourceVersion())
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

// compare tells of an object of which others have taken something, and notes how it is.
func (g *guard) compare(kind remote.Kind, o *unstructured.Unstructured) {
	name := remote.RefOf(kind, o).Long()
	g.mu.RLock()
	want := g.expected[name]
	g.mu.RUnlock()
	if want == nil || older(o.GetResourceVersion(), want.version) {
		return
	}
	if want.differs(origin.DigestOfFields(ownedBy(o))) {
		g.actor.drift(name)
	}
	if want.judged(stateOf(o)) {
		g.actor.nudge()
	}
}

// differs tells whether a Source has lost fields, once.
func (e *expected) differs(owned string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if owned == e.owned || owned == e.told {
		return false
	}
	e.told = owned
	return true
}

// judged notes how an object is, and tells whether that is new.
func (e *expected) judged(s state) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := e.state != s
	e.state = s
	return changed
}

// older tells whether a resource version is before another one; false where nobody can tell.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// lost tells of an object that is gone, or of which somebody has taken the label.
func (g *guard) lost(ref remote.Ref, version string) {
	g.mu.RLock()
	want := g.expected[ref.Long()]
	g.mu.RUnlock()
	if want != nil && !older(version, want.version) {
		want.judged(state{health: await.Verdict{State: await.Pending, Words: "it is gone"}})
		g.actor.drift(ref.Long())
	}
}

// configs are the configs that were applied, by their names.
func (g *guard) configs() map[string]hosts.Config {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := map[string]hosts.Config{}
	for _, e := range g.expected {
		e.mu.Lock()
		if e.name != "" {
			all[e.name] = e.config
		}
		e.mu.Unlock()
	}
	return all
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

// newExpected is how an object is now.
func newExpected(ref remote.Ref, o *unstructured.Unstructured) *expected {
	at := place{ref.Kind.Group, ref.Kind.Kind, ref.Namespace}
	return &expected{at: at, owned: origin.DigestOfFields(ownedBy(o)), version: o.GetResourceVersion(), state: stateOf(o)}
}

// expect notes how an object was left; nil where nobody knows. hold has been called.
func (g *guard) expect(name string, left *expected) {
	if left != nil {
		g.expected[name] = left
	}
}

// health sums up how all that was applied is: how many objects are not well, the first of them by name, and whether one of those cannot
// become well by itself.
func (g *guard) health() (unwell int, stalled bool, words string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	first := ""
	for name, e := range g.expected {
		e.mu.Lock()
		v := e.health
		e.mu.Unlock()
		if v.State == await.Reached {
			continue
		}
		unwell++
		// One that has stalled says more than one that is on its way.
		if is := v.State == await.Stalled; first == "" || is && !stalled || is == stalled && name < first {
			first, words, stalled = name, name+": "+v.Words, is
		}
	}
	return unwell, stalled, words
}

// forget notes that an object is not kept any more. hold has been called.
func (g *guard) forget(ref remote.Ref) { delete(g.expected, ref.Long()) }

// ownedBy are the fields of an object that a Source owns, as the server writes them; nil for none.
func ownedBy(o *unstructured.Unstructured) []byte {
	for _, m := range o.GetManagedFields() {
		if m.Manager == origin.Manager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" && m.FieldsV1 != nil {
			return m.FieldsV1.GetRawBytes()
		}
	}
	return nil
}
