package sources

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/source/schedule"
)

// actor is the loop of one Source.
type actor struct {
	of       *Sources
	key      types.NamespacedName
	uid      types.UID
	log      *slog.Logger
	stop     context.CancelFunc // set before it runs
	done     chan struct{}      // closed when it has ended
	wake     chan struct{}      // holds one
	reporter *reporter

	mu        sync.Mutex // guards the next six
	gone      bool       // the Source is deleted
	source    *v1alpha1.Source
	calledAt  time.Time
	driftedAt time.Time
	helpedAt  time.Time       // when something changed last that may end a failure
	drifted   map[string]bool // objects that others have changed, by remote.Ref.Long

	hook   hook
	memory memory // of its own goroutine
}

// clockPause is how long a loop that waits for a time on the clock sleeps at most.
const clockPause = time.Minute

// memory is what a loop knows from its last looks.
type memory struct {
	looked     int64 // generation
	lookedAt   time.Time
	revertedAt time.Time
	toldAt     time.Time // when progress was written last
	waited     bool
	failures   int
	drifts     int
	chance     float64
	cache      string // the key of what git keeps
	applied    applied
}

func newActor(of *Sources, src *v1alpha1.Source) *actor {
	key := keyOf(src)
	log := of.options.Log.With("component", "sources", "namespace", key.Namespace, "name", key.Name)
	return &actor{of: of, key: key, uid: src.UID, log: log, wake: make(chan struct{}, 1), done: make(chan struct{}), source: src, drifted: map[string]bool{},
		reporter: &reporter{of: of, namespace: key.Namespace, log: log, wake: make(chan struct{}, 1)}}
}

// nudge has it decide again.
func (a *actor) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// changed hands it a version. One that is older than what it has, because the loop has written meanwhile, counts for nothing.
func (a *actor) changed(src *v1alpha1.Source) {
	a.mu.Lock()
	if !older(src.ResourceVersion, a.source.ResourceVersion) {
		a.source = src
	}
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
	defer a.removeCache()
	defer guard.end()
	var reports sync.WaitGroup
	defer reports.Wait()
	reports.Go(func() { a.reporter.run(ctx) })
	for ctx.Err() == nil {
		src := a.current()
		if src.DeletionTimestamp != nil {
			a.sleep(ctx, a.remove(ctx, src, guard))
			continue
		}
		d := schedule.Decide(a.view(src))
		if d.Look != "" {
			if a.enter(ctx) {
				a.look(ctx, src, d.Look, guard)
				<-a.of.slots
			}
			continue
		}
		if d.Obstacle != schedule.None {
			a.memory.waited = true
			a.tellObstacle(ctx, src, d)
			a.sleep(ctx, soon(d.WakeAt))
			continue
		}
		a.sleep(ctx, earlier(d.WakeAt, a.progress(ctx, src, guard)))
	}
}

// removeCache removes what git keeps of the repository of a Source that is deleted.
func (a *actor) removeCache() {
	a.mu.Lock()
	gone := a.gone
	a.mu.Unlock()
	if gone && a.memory.cache != "" {
		a.removed(a.memory.cache)
	}
}

func (a *actor) removed(cache string) {
	if err := a.of.options.Git.Repository(cache).Remove(); err != nil {
		a.log.Warn("the copy of a repository is not removed", "err", err)
	}
}

// soon is a time by the clock on the wall, as far as a timer is to trust it: the clock may be set meanwhile.
func soon(until time.Time) time.Time {
	if at := time.Now().Add(clockPause); until.After(at) {
		return at
	}
	return until
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
	driftedAt := a.driftedAt
	if m.applied.is.generation != src.Generation {
		driftedAt = time.Time{} // nothing is applied whole: the next look puts it back too
	}
	v := schedule.View{
		Now: time.Now(), Interval: v1alpha1.SourceIntervalDefault, NotReady: notReady, Generation: src.Generation, Looked: m.looked,
		Requested: src.Annotations[v1alpha1.AnnotationReconcile], Handled: src.Status.HandledRequest, CalledAt: a.calledAt, DriftedAt: driftedAt,
		LookedAt: m.lookedAt, RevertedAt: m.revertedAt, Waited: m.waited, Failures: m.failures, Left: len(src.Status.Left) > 0, HelpedAt: a.helpedAt, Drifts: m.drifts, Chance: m.chance,
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
	l := &look{actor: a, source: src.DeepCopy(), why: why, guard: guard}
	defer func() {
		if l.large {
			// Nothing else allocates much afterwards, so that the collector would leave it for minutes, and the kernel would get it later still.
			debug.FreeOSMemory()
		}
	}()
	if why == schedule.Drift {
		l.takeBack(ctx)
		return
	}
	m.lookedAt, m.chance, m.waited = time.Now(), rand.Float64(), false
	err := l.do(ctx)
	if ctx.Err() != nil {
		return
	}
	m.looked = src.Generation
	if why != schedule.Call && why != schedule.Retry {
		m.drifts = 0
	}
	if err != nil {
		a.keepDrift(l.drifted)
		m.failures++
	} else {
		m.failures = 0
	}
	l.source.Status.ObservedGeneration = src.Generation
	l.source.Status.HandledRequest = src.Annotations[v1alpha1.AnnotationReconcile]
	l.result(err, lookApplied)
	if wrote := l.tell(ctx, err); wrote != nil {
		a.log.Warn("the status of a source is not written", "err", wrote)
		m.failures = max(m.failures, 1) // so that it is tried again
	}
}

// takeBack puts back what others have changed, and tells so.
func (l *look) takeBack(ctx context.Context) {
	m := &l.memory
	m.revertedAt = time.Now()
	m.drifts++
	err := l.revert(ctx)
	if ctx.Err() != nil {
		return
	}
	l.result(err, lookDrift)
	var wrote error
	if err != nil {
		l.keepDrift(l.drifted)
		m.failures = max(m.failures, 1) // a look tries it again
		wrote = l.tell(ctx, err)
	} else {
		wrote = l.write(ctx)
	}
	if wrote != nil {
		l.log.Warn("the status of a source is not written", "err", wrote)
		m.failures = max(m.failures, 1)
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
