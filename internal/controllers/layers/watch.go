package layers

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
)

// The kinds that values are taken from.
const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
	// kindBundle is none of the API: its objects are in the data directory of this server.
	kindBundle = "bundle"
)

func bundleReference(digest string) reference { return reference{kind: kindBundle, name: digest} }

// BundleCame tells that a bundle is here from now on. What has missed it is told anew.
func (l *Layers) BundleCame(root catalog.Digest) {
	l.changes.tell(l.shelf.came(bundleReference(bundle.Digest(root))))
}

// feed tells the shelf what a watch says. It is the store of a reflector, and stores nothing.
type feed struct {
	kind string
	to   *Layers
}

var _ cache.ReflectorStore = feed{}

func (f feed) follow(ctx context.Context) {
	lw := f.to.objects.ListerWatcher(schema.GroupVersionKind{Version: "v1", Kind: f.kind}, true)
	cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, f, cache.ReflectorOptions{Name: "layers " + f.kind}).RunWithContext(ctx)
}

// Add is told of a new object.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update is told of a changed object.
func (f feed) Update(obj any) error {
	ref, version := f.identify(obj.(*metav1.PartialObjectMetadata))
	f.to.changes.tell(f.to.shelf.tell(ref, version))
	return nil
}

// Delete is told of an object that is gone: its version is that of the deletion.
func (f feed) Delete(obj any) error { return f.Update(obj) }

// Replace is told of all objects that there are.
func (f feed) Replace(list []any, version string) error {
	versions := make(map[reference]uint64, len(list))
	for _, obj := range list {
		ref, v := f.identify(obj.(*metav1.PartialObjectMetadata))
		versions[ref] = v
	}
	f.to.changes.tell(f.to.shelf.tellAll(f.kind, versions, number(version)))
	return nil
}

// Resync has nothing to do.
func (feed) Resync() error { return nil }

func (f feed) identify(m *metav1.PartialObjectMetadata) (reference, uint64) {
	return reference{f.kind, m.Namespace, m.Name}, number(m.ResourceVersion)
}

// number reads a resource version, which is a revision of etcd on this server. Of what is none, nothing is known to be newer.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
