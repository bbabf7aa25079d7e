package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/reason"
)

const (
	// objectsName is the directory of the objects that hosts fetch by their digest. It is in no backup.
	objectsName = "objects"
	// namedPage is how many configs are looked at at once.
	namedPage = 200
)

// collectObjects removes objects that nothing names, while the server runs.
func (s *Server) collectObjects(p parts, local *registry.Local, loopback *restclient.Config) func(context.Context) {
	return func(ctx context.Context) {
		if waitReady(ctx, loopback) {
			p.shelf.Collect(ctx, func(ctx context.Context) (map[string]bool, error) { return namedObjects(ctx, local) }, s.opts.Log)
		}
	}
}

// namedObjects are the digests of the objects that configs and their revisions name.
func namedObjects(ctx context.Context, local *registry.Local) (map[string]bool, error) {
	named := map[string]bool{}
	for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig, v1alpha1.KindRevision, v1alpha1.KindClusterRevision} {
		from := local.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(kind), false)
		if from == nil {
			return nil, &reason.Error{Code: reason.InternalFault, Doing: "list all of kind " + kind}
		}
		for options := (metav1.ListOptions{Limit: namedPage}); ; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			list, err := cache.ToListerWithContext(from).ListWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			if err := meta.EachListItem(list, func(o runtime.Object) error { return nameObjects(o, named) }); err != nil {
				return nil, err
			}
			described, err := meta.ListAccessor(list)
			if err != nil {
				return nil, err
			}
			if options.Continue = described.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return named, nil
}

// nameObjects adds what one object of the API names.
func nameObjects(o runtime.Object, named map[string]bool) error {
	var resources []declare.Resource
	switch o := o.(type) {
	case *v1alpha1.NodeConfig:
		resources = o.Spec.Resources
	case *v1alpha1.ClusterNodeConfig:
		resources = o.Spec.Resources
	case *v1alpha1.Revision:
		resources = o.Spec.Resources
	case *v1alpha1.ClusterRevision:
		resources = o.Spec.Resources
	default:
		return &reason.Error{Code: reason.InternalFault, Doing: "look which objects are named"}
	}
	for i := range resources {
		for _, object := range resources[i].Objects() {
			named[object.Digest] = true
		}
	}
	return nil
}
