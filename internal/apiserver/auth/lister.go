package auth

import (
	"context"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
)

// Source is the storage of one kind.
type Source interface {
	New() runtime.Object
	List(ctx context.Context, options *metainternal.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options *metainternal.ListOptions) (watch.Interface, error)
}

// follow keeps all objects of a kind at hand, without a request to the server itself. They are shared: nobody changes them.
func follow(s Source, indexers cache.Indexers) cache.SharedIndexInformer {
	all := func(ctx context.Context) context.Context { return request.WithNamespace(ctx, "") }
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.List(all(ctx), internal(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.Watch(all(ctx), internal(o))
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, plain), nil
		},
	}, s.New(), 0, indexers)
}

// plain takes an object out of the wrapper that encodes it once for all watchers.
func plain(e watch.Event) (watch.Event, bool) {
	if wrapped, is := e.Object.(runtime.CacheableObject); is {
		e.Object = wrapped.GetObject()
	}
	return e, true
}

func internal(o metav1.ListOptions) *metainternal.ListOptions {
	return &metainternal.ListOptions{
		ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch, TimeoutSeconds: o.TimeoutSeconds,
		AllowWatchBookmarks: o.AllowWatchBookmarks, SendInitialEvents: o.SendInitialEvents, Limit: o.Limit, Continue: o.Continue,
	}
}
