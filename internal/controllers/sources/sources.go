package sources

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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/render"
)

// Objects reads and writes objects, with the errors of the API. controllers.Objects is one.
type Objects interface {
	// Get reads the newest version.
	Get(ctx context.Context, key types.NamespacedName, into runtime.Object) error
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

// Options say what to work with. All but Log and Looks are required.
type Options struct {
	Objects  Objects
	Git      *git.Git
	Renderer *render.Renderer
	Recorder Recorder
	// Config reaches the API, with the right to act as every Source's user.
	Config *rest.Config
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

	mu     sync.Mutex // guards all below
	actors map[types.NamespacedName]*actor
	start  func(*actor) // set while Run runs
	synced bool         // all Sources are known
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
	return &Sources{options: options, slots: make(chan struct{}, options.Looks), actors: map[types.NamespacedName]*actor{}}, nil
}

// Run keeps Sources applied until ctx is done. It returns nil then.
func (s *Sources) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.start, s.synced, s.actors = nil, false, map[types.NamespacedName]*actor{}
	}()
	s.mu.Lock()
	s.start = func(a *actor) {
		ctx, stop := context.WithCancel(ctx)
		a.stop = stop
		all.Go(func() { a.run(ctx) })
	}
	s.mu.Unlock()
	lw := s.options.Objects.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindSource), false)
	if lw == nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "watch sources", Cause: errors.New("there is no way to them")}
	}
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
		a.stop()
		a = nil
	}
	if a == nil {
		a = newActor(s, src)
		s.actors[key] = a
		s.start(a)
		return
	}
	a.changed(src)
}

func (s *Sources) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.actors[key]; a != nil {
		a.stop()
		delete(s.actors, key)
	}
}

// settle drops those that are not there any more, removes what git kept of them, and lets all begin that wait to know the others.
func (s *Sources) settle(there map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.actors {
		if !there[key] {
			a.stop()
			delete(s.actors, key)
			continue
		}
		a.nudge()
	}
	s.synced = true
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
