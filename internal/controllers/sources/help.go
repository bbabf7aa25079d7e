package sources

import (
	"context"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
)

// The kinds that Sources name.
const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
)

// watchHelp tells Sources what may end a failure, until ctx is done: rights that have changed, and the Secrets and ConfigMaps that they name.
func (s *Sources) watchHelp(ctx context.Context, all *sync.WaitGroup) {
	for kind, tell := range map[schema.GroupVersionKind]func(types.NamespacedName){
		rbac.SchemeGroupVersion.WithKind("Role"):               s.rightsChanged,
		rbac.SchemeGroupVersion.WithKind("RoleBinding"):        s.rightsChanged,
		rbac.SchemeGroupVersion.WithKind("ClusterRole"):        s.rightsChanged,
		rbac.SchemeGroupVersion.WithKind("ClusterRoleBinding"): s.rightsChanged,
		core.SchemeGroupVersion.WithKind(kindSecret):           func(o types.NamespacedName) { s.namedChanged(kindSecret, o) },
		core.SchemeGroupVersion.WithKind(kindConfigMap):        func(o types.NamespacedName) { s.namedChanged(kindConfigMap, o) },
	} {
		lw := s.options.Objects.ListerWatcher(kind, true)
		if lw == nil {
			continue
		}
		example := &metav1.PartialObjectMetadata{}
		example.SetGroupVersionKind(kind)
		all.Go(func() {
			cache.NewReflectorWithOptions(lw, example, notice(tell), cache.ReflectorOptions{Name: "sources " + kind.Kind}).RunWithContext(ctx)
		})
	}
}

// rightsChanged has all Sources try again that have failed: whom a role is for is the business of those who decide about rights.
func (s *Sources) rightsChanged(types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		a.helped()
	}
}

// namedChanged has those try again that have failed, and that name an object.
func (s *Sources) namedChanged(kind string, object types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.actors {
		src := a.current()
		if src.Namespace != object.Namespace || !slices.Contains(namedBy(src, kind), object.Name) {
			continue
		}
		a.hook.stale.Store(true)
		a.reporter.again()
		a.helped()
	}
}

// namedBy are the objects of a kind that a Source names.
func namedBy(src *v1alpha1.Source, kind string) []string {
	spec := &src.Spec
	if kind == kindConfigMap {
		if spec.Verify == nil {
			return nil
		}
		return []string{spec.Verify.Keys}
	}
	names := []string{spec.Credentials}
	if spec.Webhook != nil {
		names = append(names, spec.Webhook.Secret)
	}
	if spec.Report != nil {
		names = append(names, spec.Report.Secret)
	}
	return names
}

// helped notes that something has changed that may end a failure.
func (a *actor) helped() {
	a.mu.Lock()
	a.helpedAt = time.Now()
	a.mu.Unlock()
	a.nudge()
}

// notice is told which objects have changed. It is the store of a reflector, and stores nothing itself. That one has gone helps nobody, but it
// may be made again before anybody has looked.
type notice func(types.NamespacedName)

var _ cache.ReflectorStore = notice(nil)

// Add is told of a new object.
func (n notice) Add(o any) error { return n.Update(o) }

// Update is told of a changed object.
func (n notice) Update(o any) error {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		n(types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
	}
	return nil
}

// Delete is told of an object that is gone.
func (n notice) Delete(o any) error { return n.Update(o) }

// Replace is told of all objects that there are: each may have changed.
func (n notice) Replace(list []any, _ string) error {
	for _, o := range list {
		_ = n.Update(o) // it has no errors
	}
	return nil
}

// Resync has nothing to do.
func (notice) Resync() error { return nil }
