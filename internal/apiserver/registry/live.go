package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/unwrap"
)

// live is what is known of hosts that are connected, and is not stored.
type live struct {
	asker     Asker                    // nil: nobody can be asked
	decorate  func(*v1alpha1.Node)     // nil: nothing is known
	instances func(*v1alpha1.Instance) // nil: nothing is known of instances
	exporter  Exporter                 // nil: hosts are sent nothing
}

// SetExporter says who knows what hosts are sent. It is called before the server serves.
func (r *Registry) SetExporter(e Exporter) { r.live.exporter = e }

// SetAsker says who asks hosts. It is called before the server serves.
func (r *Registry) SetAsker(a Asker) { r.live.asker = a }

// SetDecorator says who fills into a node, on its way to whoever reads it through the API, what is known of it and not stored. decorate
// is called by many goroutines at once, for every node of every answer. It may replace fields of the node's status and change nothing
// deeper, because maps, lists and what pointers point at are shared with the watch cache. It is set before the server serves.
func (r *Registry) SetDecorator(decorate func(*v1alpha1.Node)) { r.live.decorate = decorate }

// SetInstances says who fills into an instance what is known of it and not stored, as SetDecorator does of a node.
func (r *Registry) SetInstances(decorate func(*v1alpha1.Instance)) { r.live.instances = decorate }

// show fills in what is not stored. o is a Node or an Instance of the caller's own, or a list of them.
func (l *live) show(o runtime.Object) {
	switch o := o.(type) {
	case *v1alpha1.Node:
		if l.decorate != nil {
			l.decorate(o)
		}
	case *v1alpha1.Instance:
		if l.instances != nil {
			l.instances(o)
		}
	case *v1alpha1.NodeList:
		for i := range o.Items {
			l.show(&o.Items[i])
		}
	case *v1alpha1.InstanceList:
		for i := range o.Items {
			l.show(&o.Items[i])
		}
	}
}

// shown is an answer, with what is not stored.
func (l *live) shown(o runtime.Object, err error) (runtime.Object, error) {
	if err == nil {
		l.show(o)
	}
	return o, err
}

// following is a watch whose events have what is not stored.
func (l *live) following(w watch.Interface, err error) (watch.Interface, error) {
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Error && e.Type != watch.Bookmark {
			e.Object = unwrap.Shallow(e.Object)
			l.show(e.Object)
		}
		return e, true
	}), nil
}

// nodeStore adds to nodes what is known of them and not stored. The server's own controllers go past it (Local), and never store
// what was added here.
type nodeStore struct {
	*Store
	live *live
}

var _ rest.StandardStorage = nodeStore{}

// Get reads one.
func (s nodeStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.live.shown(s.Store.Get(ctx, name, options))
}

// List reads many.
func (s nodeStore) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	return s.live.shown(s.Store.List(ctx, options))
}

// Create creates one.
func (s nodeStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return s.live.shown(s.Store.Create(ctx, obj, validate, options))
}

// Update writes one.
func (s nodeStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	o, made, err := s.Store.Update(ctx, name, info, create, update, force, options)
	o, err = s.live.shown(o, err)
	return o, made, err
}

// Watch follows changes of what is stored. What is not stored comes with those.
func (s nodeStore) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	if s.live.decorate == nil {
		return s.Store.Watch(ctx, options)
	}
	return s.live.following(s.Store.Watch(ctx, options))
}
