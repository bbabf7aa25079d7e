package sources

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/sources/hosts"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/forge"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/render"
)

// Objects reads and writes objects, with the errors of the API. controllers.Objects is one.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
	// Update writes all but the status, as UpdateStatus does.
	Update(ctx context.Context, o runtime.Object) error
	// UpdateStatus writes the status, if the object is still the version that was read; then it is what is stored.
	UpdateStatus(ctx context.Context, o runtime.Object) error
	// ListerWatcher lists and watches all objects of a kind. The objects may be shared.
	ListerWatcher(kind schema.GroupVersionKind, metadataOnly bool) cache.ListerWatcher
}

// Recorder makes Events. It does not wait.
type Recorder interface {
	// Tell notes that something has happened to an object.
	Tell(about core.ObjectReference, kind, why, words string)
}

// Options say what to work with. All but Hosts, Forge, Metrics, Log and Looks are required.
type Options struct {
	Objects  Objects
	Git      *git.Git
	Renderer *render.Renderer
	Recorder Recorder
	// Config reaches the API, with the right to act as every Source's user.
	Config *rest.Config
	// Hosts is what is known of hosts besides what is stored. Default nothing.
	Hosts hosts.Live
	// Forge tells forges what became of commits. Default one with its own defaults.
	Forge *forge.Client
	// Metrics is where the metrics are registered while Run runs. Default nowhere.
	Metrics prometheus.Registerer
	// Log takes what is worth knowing. Default nothing is logged.
	Log *slog.Logger
	// Looks is how many Sources are looked at at once, 1 to 64. Default 4: each is one process of git or one stream of writes.
	Looks int
}

const (
	looksDefault = 4
	looksMax     = 64
)

// Sources keeps them applied. Use New.
type Sources struct {
	options Options
	slots   chan struct{} // has room for as many as may look at once
	reads   chan struct{} // has room for as many calls of forges as are read at once
	hosts   *hosts.Hosts
	metrics *metrics
	gauges  []prometheus.Collector

	mu     sync.Mutex // guards all below
	actors map[types.NamespacedName]*actor
	ending map[types.NamespacedName]<-chan struct{} // of Sources that are gone, until their loop has ended
	start  func(*actor)                             // set while Run runs
	sweep  func(keep []string)                      // as start
	synced bool                                     // all Sources are known
}

// New makes the loops, and starts nothing. The error is InternalFault, for options that make no sense.
func New(options Options) (*Sources, error) {
	if options.Looks == 0 {
		options.Looks = looksDefault
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Objects == nil || options.Git == nil || options.Renderer == nil || options.Recorder == nil || options.Config == nil || options.Looks < 1 || options.Looks > looksMax {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "set up the sources", Cause: errors.New("something to work with is not given")}
	}
	if options.Forge == nil {
		options.Forge = forge.New(forge.Options{})
	}
	s := &Sources{options: options, slots: make(chan struct{}, options.Looks), reads: make(chan struct{}, readsMax), hosts: hosts.New(options.Hosts),
		actors: map[types.NamespacedName]*actor{}, ending: map[types.NamespacedName]<-chan struct{}{}}
	s.metrics, s.gauges = newMetrics(s.countObjects)
	return s, nil
}

// countObjects counts what all Sources declare.
func (s *Sources) countObjects() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.actors {
		n += int(a.current().Status.Objects)
	}
	return float64(n)
}

// register registers the metrics, and returns what takes them away again.
func (s *Sources) register() (unregister func(), err error) {
	if s.options.Metrics == nil {
		return func() {}, nil
	}
	for _, c := range s.gauges {
		if err := s.options.Metrics.Register(c); err != nil {
			return func() {}, &reason.Error{Code: reason.InternalFault, Doing: "count sources", Cause: err}
		}
	}
	return func() {
		for _, c := range s.gauges {
			s.options.Metrics.Unregister(c)
		}
	}, nil
}

// Run keeps Sources applied until ctx is done. It returns nil then.
func (s *Sources) Run(ctx context.Context) error {
	unregister, err := s.register()
	if err != nil {
		return err
	}
	defer unregister()
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.start, s.synced, s.actors, s.ending = nil, false, map[types.NamespacedName]*actor{}, map[types.NamespacedName]<-chan struct{}{}
	}()
	s.mu.Lock()
	s.start = func(a *actor) {
		ctx, stop := context.WithCancel(ctx)
		a.stop = stop
		after := s.ending[a.key]
		all.Go(func() {
			defer close(a.done)
			if after != nil {
				<-after // so that nothing of the Source that had this name is written any more
			}
			a.run(ctx)
		})
	}
	s.sweep = func(keep []string) {
		if _, err := s.options.Git.Sweep(ctx, keep); err != nil {
			s.options.Log.Warn("copies of repositories are not removed", "component", "sources", "err", err)
		}
	}
	s.mu.Unlock()
	lw := s.options.Objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindSource), false)
	if lw == nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "watch sources", Cause: errors.New("there is no way to them")}
	}
	s.hosts.Watch(ctx, s.options.Objects, &all)
	s.watchHelp(ctx, &all)
	all.Go(func() { s.hosts.Tell(ctx, s.nudge) })
	all.Go(func() {
		cache.NewReflectorWithOptions(lw, &v1alpha1.Source{}, feed{s}, cache.ReflectorOptions{Name: "sources"}).RunWithContext(ctx)
	})
	<-ctx.Done()
	return nil
}

// Call says that a forge has called for a Source: it looks soon. An unknown one is none.
func (s *Sources) Call(source types.NamespacedName) {
	s.mu.Lock()
	a := s.actors[source]
	s.mu.Unlock()
	if a != nil {
		a.called(time.Now())
	}
}

// feed tells the actors what the watch of Sources says. It is the store of a reflector, and stores nothing itself.
type feed struct{ of *Sources }

var _ cache.ReflectorStore = feed{}

// Add is told of a new Source.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update is told of a changed Source.
func (f feed) Update(obj any) error {
	f.of.put(obj.(*v1alpha1.Source))
	f.of.wakeDependents(obj.(*v1alpha1.Source))
	return nil
}

// Delete is told of a Source that is gone. What it has applied stays: the deletion of a Source is no declaration that all of it is to go.
func (f feed) Delete(obj any) error {
	f.of.drop(keyOf(obj.(*v1alpha1.Source)))
	return nil
}

// Replace is told of all Sources that there are.
func (f feed) Replace(list []any, _ string) error {
	there := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		src := obj.(*v1alpha1.Source)
		there[keyOf(src)] = true
		f.of.put(src)
	}
	f.of.settle(there)
	return nil
}

// Resync has nothing to do.
func (feed) Resync() error { return nil }

func keyOf(s *v1alpha1.Source) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// put hands a version of a Source to its actor, which begins with the first one. Another object of the same name is another Source.
func (s *Sources) put(src *v1alpha1.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start == nil {
		return
	}
	key := keyOf(src)
	a := s.actors[key]
	if a != nil && a.uid != src.UID {
		s.end(a)
		a = nil
	}
	if a != nil {
		a.changed(src)
		return
	}
	a = newActor(s, src)
	s.actors[key] = a
	if s.synced {
		s.start(a)
	}
}

func (s *Sources) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.actors[key]; a != nil {
		s.end(a)
	}
}

// end ends an actor whose Source is gone. The next one of that name begins when it has ended. s.mu is held.
func (s *Sources) end(a *actor) {
	delete(s.actors, a.key)
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
	if a.stop == nil {
		return // it has not begun
	}
	a.stop()
	for key, done := range s.ending {
		select {
		case <-done:
			delete(s.ending, key)
		default:
		}
	}
	s.ending[a.key] = a.done
}

// settle drops those that are not there any more. The first time it removes what git kept of those that went while nobody ran, and lets
// the others begin: now each can know on which it depends.
func (s *Sources) settle(there map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keep []string
	for key, a := range s.actors {
		if !there[key] {
			s.end(a)
			continue
		}
		keep = append(keep, cacheKey(a.current()))
		a.nudge()
	}
	if s.synced || s.start == nil {
		return
	}
	s.sweep(keep)
	s.synced = true
	for _, a := range s.actors {
		s.start(a)
	}
}

// nudge has all decide again.
func (s *Sources) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		a.nudge()
	}
}

// circle returns the Sources that depend on one another through one of them, it first and last; nil where there is no circle.
func (s *Sources) circle(src *v1alpha1.Source) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := keyOf(src)
	seen := map[types.NamespacedName]bool{}
	var walk func(at *v1alpha1.Source) []string
	walk = func(at *v1alpha1.Source) []string {
		for _, d := range dependencies(at) {
			if d == from {
				return []string{keyOf(at).String(), from.String()}
			}
			a := s.actors[d]
			if a == nil || seen[d] {
				continue
			}
			seen[d] = true
			if rest := walk(a.current()); rest != nil {
				return append([]string{keyOf(at).String()}, rest...)
			}
		}
		return nil
	}
	return walk(src)
}

// wakeDependents has those look again that wait for a Source.
func (s *Sources) wakeDependents(src *v1alpha1.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		if a.dependsOn(keyOf(src)) {
			a.nudge()
		}
	}
}

// notReady names the first of the Sources that one depends on and that is not ready; empty for none.
func (s *Sources) notReady(src *v1alpha1.Source) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range dependencies(src) {
		a := s.actors[d]
		if a == nil || !a.ready() {
			return d.String()
		}
	}
	return ""
}
