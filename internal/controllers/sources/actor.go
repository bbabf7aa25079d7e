package sources

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/source/schedule"
)

// actor is the loop of one Source.
type actor struct {
	of   *Sources
	key  types.NamespacedName
	uid  types.UID
	log  *slog.Logger
	stop context.CancelFunc // set before it runs
	wake chan struct{}      // holds one

	mu        sync.Mutex // guards all below
	source    *v1alpha1.Source
	calledAt  time.Time
	driftedAt time.Time
	drifted   map[string]bool // objects that others have changed, by remote.Ref.Long

	memory memory // of its own goroutine
}

// memory is what a loop knows from its last looks.
type memory struct {
	looked   int64 // generation
	lookedAt time.Time
	waited   bool
	failures int
	drifts   int
	chance   float64
	applied  applied
}

func newActor(of *Sources, src *v1alpha1.Source) *actor {
	key := keyOf(src)
	return &actor{of: of, key: key, uid: src.UID, log: of.options.Log.With("component", "sources", "namespace", key.Namespace, "name", key.Name),
		wake: make(chan struct{}, 1), source: src, drifted: map[string]bool{}}
}

// nudge has it decide again.
func (a *actor) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// changed hands it a newer version.
func (a *actor) changed(src *v1alpha1.Source) {
	a.mu.Lock()
	a.source = src
	a.mu.Unlock()
	a.nudge()
}

// called notes that a forge has called.
func (a *actor) called(at time.Time) {
	a.mu.Lock()
	a.calledAt = at
	a.mu.Unlock()
	a.nudge()
}

// drift notes that others have changed an object.
func (a *actor) drift(object string) {
	a.mu.Lock()
	a.drifted[object] = true
	a.driftedAt = time.Now()
	a.mu.Unlock()
	a.nudge()
}

// keepDrift gives back what takeDrift has returned, because nothing was done about it.
func (a *actor) keepDrift(objects map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.drifted, objects)
}

// takeDrift returns the objects that others have changed since it was called last.
func (a *actor) takeDrift() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.drifted
	a.drifted = map[string]bool{}
	return taken
}

func (a *actor) current() *v1alpha1.Source {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.source
}

// ready: what the Source says of its newest generation is that it is Ready.
func (a *actor) ready() bool {
	src := a.current()
	return src.Status.ObservedGeneration == src.Generation && meta.IsStatusConditionTrue(src.Status.Conditions, v1alpha1.ConditionReady)
}

func (a *actor) dependsOn(other types.NamespacedName) bool {
	for _, d := range dependencies(a.current()) {
		if d == other {
			return true
		}
	}
	return false
}

func dependencies(src *v1alpha1.Source) []types.NamespacedName {
	var all []types.NamespacedName
	for _, d := range src.Spec.DependsOn {
		all = append(all, types.NamespacedName{Namespace: cmp.Or(d.Namespace, src.Namespace), Name: d.Name})
	}
	return all
}

// run looks when it is time, until ctx is done.
func (a *actor) run(ctx context.Context) {
	guard := newGuard(a)
	defer guard.end()
	for ctx.Err() == nil {
		src := a.current()
		d := schedule.Decide(a.view(src))
		if d.Look != "" && a.enter(ctx) {
			a.look(ctx, src, d.Look, guard)
			<-a.of.slots
			continue
		}
		if d.Obstacle != schedule.None && !a.memory.waited {
			a.memory.waited = d.Obstacle == schedule.Waiting
			a.tellObstacle(ctx, src, d)
		}
		a.sleep(ctx, d.WakeAt)
	}
}

// enter waits for a place among those who look; false when ctx is done before.
func (a *actor) enter(ctx context.Context) bool {
	select {
	case a.of.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// sleep waits until it is nudged, or until a time; the zero time is never.
func (a *actor) sleep(ctx context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-a.wake:
	case <-timer:
	}
}

// view is what schedule decides by.
func (a *actor) view(src *v1alpha1.Source) schedule.View {
	notReady := a.of.notReady(src)
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &a.memory
	v := schedule.View{
		Now: time.Now(), Interval: v1alpha1.SourceIntervalDefault, NotReady: notReady, Generation: src.Generation, Looked: m.looked,
		Requested: src.Annotations[v1alpha1.AnnotationReconcile], Handled: src.Status.HandledRequest, CalledAt: a.calledAt, DriftedAt: a.driftedAt,
		LookedAt: m.lookedAt, Waited: m.waited, Failures: m.failures, Drifts: m.drifts, Chance: m.chance,
	}
	if i := src.Spec.Interval; i != nil {
		v.Interval = i.Duration
	}
	if s := src.Spec.Suspend; s != nil {
		v.SuspendedUntil = s.Until.Time
	}
	return v
}

// look looks once, and notes how that went.
func (a *actor) look(ctx context.Context, src *v1alpha1.Source, why schedule.Trigger, guard *guard) {
	m := &a.memory
	m.lookedAt, m.chance, m.waited = time.Now(), rand.Float64(), false
	l := &look{actor: a, source: src.DeepCopy(), why: why, guard: guard}
	err := l.do(ctx)
	if ctx.Err() != nil {
		return
	}
	m.looked = src.Generation
	if why == schedule.Drift {
		m.drifts++
	} else if why != schedule.Call && why != schedule.Retry {
		m.drifts = 0
	}
	if err != nil {
		a.keepDrift(l.drifted)
		m.failures++
	} else {
		m.failures = 0
	}
	if wrote := l.tell(ctx, err); wrote != nil {
		a.log.Warn("the status of a source is not written", "err", wrote)
		m.failures = max(m.failures, 1) // so that it is tried again
	}
}

// sleep waits for so long, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
