package apiserver

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/apiserver/bundles"
	"tako.dev/tako/internal/apiserver/objects"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/apiserver/supply"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
	transferserver "tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/snapshots"
)

const (
	// objectsName is the directory of the objects that hosts fetch by their digest. It is in no backup.
	objectsName = "objects"
	// bundlesName is that of the bundles. It is in no backup either.
	bundlesName = "bundles"
	// snapshotsName is that of layers as they go to hosts, which are made anew at each start.
	snapshotsName = "snapshots"
	// snapshotsSpare is what stays free beside them: far more than the store takes no writes below, because they can be done without.
	snapshotsSpare = 1 << 30
	// namedPage is how many configs are looked at at once.
	namedPage = 200
)

// collectObjects removes objects that nothing names, while the server runs.
func (s *Server) collectObjects(p parts, local *registry.Local, loopback *restclient.Config) func(context.Context) {
	return func(ctx context.Context) {
		if waitReady(ctx, loopback) {
			p.shelf.Collect(ctx, func(ctx context.Context) (map[string]bool, error) { return named(ctx, local, nameObjects) }, s.opts.Log)
		}
	}
}

// runBundles looks bundles through that are pushed, and removes those that nothing names, while the server runs.
func (s *Server) runBundles(p parts, local *registry.Local, loopback *restclient.Config) func(context.Context) {
	return func(ctx context.Context) {
		if waitReady(ctx, loopback) {
			p.bundles.Run(ctx, func(ctx context.Context) (map[string]bool, error) { return named(ctx, local, nameBundle) }, s.opts.Log)
		}
	}
}

// bundleStore is where layers read bundles. One that is not here is asked of the other servers; that it has come layers are told.
type bundleStore struct {
	here   *bundles.Store
	supply *supply.Supply // nil: there are no others
}

// Open reads a bundle.
func (s bundleStore) Open(root catalog.Digest) (layers.Bundle, error) {
	b, trie, err := s.here.Open(root)
	if s.supply != nil && reason.Is(err, reason.BundleMissing) {
		_ = s.supply.Ask(supply.Bundle, content.Digest(root)) // it is missing in any case, for now
	}
	if err != nil {
		return layers.Bundle{}, err
	}
	return layers.Bundle{Trie: trie, Bytes: b.Bytes, Body: b.Body, Reader: b.Reader}, nil
}

// newSnapshots is where layers are kept as they go to hosts.
func (s *Server) newSnapshots(dir string) (*snapshots.Store, error) {
	return snapshots.New(filepath.Join(dir, snapshotsName), snapshots.Options{
		Room: func(bytes int64) error { return content.Spare(dir, bytes+snapshotsSpare) }, Metrics: takoMetrics{}, Log: s.partsLog,
	})
}

// objectStore is where hosts' calls for objects are answered from. One that is not here is asked of the other servers: the host comes again.
type objectStore struct {
	here   *objects.Shelf
	supply *supply.Supply // nil: there are no others
}

// Open opens an object.
func (s objectStore) Open(d content.Digest) (*os.File, error) {
	f, err := s.here.Open(d)
	if s.supply != nil && reason.Is(err, reason.ObjectMissing) {
		return nil, s.supply.Ask(supply.Object, d)
	}
	return f, err
}

// stored is what this server has for others.
type stored struct {
	objects *objects.Shelf
	bundles *bundles.Store
}

// Object opens an object.
func (s stored) Object(d content.Digest) (transferserver.Object, error) {
	f, err := s.objects.Open(d)
	if err != nil {
		return nil, err
	}
	return transferserver.OfFile(f)
}

// Bundle opens a bundle.
func (s stored) Bundle(d content.Digest) (transferserver.Object, error) {
	b, err := s.bundles.Whole(catalog.Digest(d))
	if err != nil {
		return nil, err
	}
	return b, nil
}

// declared is what of a config, a workload or a revision names something in the data directory.
type declared struct {
	resources []declare.Resource
	bundle    *declare.BundleReference
	template  *workload.Template
}

// named are the digests of what configs, workloads and their revisions name.
func named(ctx context.Context, local *registry.Local, name func(declared, map[string]bool)) (map[string]bool, error) {
	all := map[string]bool{}
	for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig, v1alpha1.KindWorkload, v1alpha1.KindRevision, v1alpha1.KindClusterRevision} {
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
			err = meta.EachListItem(list, func(o runtime.Object) error {
				d, err := declaredIn(o)
				if err == nil {
					name(d, all)
				}
				return err
			})
			if err != nil {
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
	return all, nil
}

func declaredIn(o runtime.Object) (declared, error) {
	switch o := o.(type) {
	case *v1alpha1.NodeConfig:
		return declared{resources: o.Spec.Resources, bundle: o.Spec.Bundle}, nil
	case *v1alpha1.ClusterNodeConfig:
		return declared{resources: o.Spec.Resources, bundle: o.Spec.Bundle}, nil
	case *v1alpha1.Workload:
		return declared{template: &o.Spec.Template}, nil
	case *v1alpha1.Revision:
		return declared{o.Spec.Resources, o.Spec.Bundle, o.Spec.Template}, nil
	case *v1alpha1.ClusterRevision:
		return declared{resources: o.Spec.Resources, bundle: o.Spec.Bundle}, nil
	}
	return declared{}, &reason.Error{Code: reason.InternalFault, Doing: "look what is named"}
}

func nameObjects(d declared, all map[string]bool) {
	for i := range d.resources {
		for _, object := range d.resources[i].Objects() {
			all[object.Digest] = true
		}
	}
	if d.template == nil {
		return
	}
	for _, object := range d.template.Objects() {
		all[object.Digest] = true
	}
}

func nameBundle(d declared, all map[string]bool) {
	if d.bundle != nil {
		all[d.bundle.Digest] = true
	}
}
