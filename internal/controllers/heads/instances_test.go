package heads

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/transfer/wire"
)

// TestInstancesAreServed: what an Assignment says of instances is in the head of its node, and served with the own layer, also by a server that has begun
// just now; both know which revision the template is of.
func TestInstancesAreServed(t *testing.T) {
	r := newRig(t).run()
	who, namespace := r.join(), r.namespace()
	id := catalog.TemplateLayer(namespace, "web-a")
	var own catalog.Digest
	version := r.assign(who, func(s *v1alpha1.AssignmentSpec) {
		s.Layers = []v1alpha1.AssignedLayer{{Priority: catalog.TemplatePriority, Config: id, Revision: "web-a", Root: rootNo(1).String(), Since: metav1.Unix(1_800_000_000, 0)}}
		s.Own = &v1alpha1.OwnLayer{Instances: []v1alpha1.AssignedInstance{
			{UID: "u1", Namespace: namespace, Name: "web-0", Workload: "web", Revision: "web-a", LeaseSeconds: 60}, {UID: "u2", Namespace: namespace, Name: "web-1", Workload: "web", Revision: "web-a", Slot: 1, Stop: true}}}
		items, err := layers.OwnItems(s.Own)
		r.must(err)
		own = catalog.TrieOf(items).Root()
		s.Own.Root = own.String()
	})
	h := r.head(who, atVersion(version))
	if h.Entries != 2 { // the Assignment says of itself how many the other layers have
		t.Errorf("%d entries", h.Entries)
	}
	started := newRig(t)
	started.share(r)
	for what, from := range map[string]*Heads{"a server": r.Heads, "one that has begun just now": started.run().Heads} {
		r.eventually(what+" knows it", func() string {
			if _, ok := from.Layer(wire.OwnLayer, own); !ok {
				return "not yet"
			}
			return ""
		})
		mine, _ := from.Layer(wire.OwnLayer, own)
		read, err := catalog.DecodeOwn(func(yield func(catalog.Digest, []byte) bool) {
			for row := range mine.Trie.From(catalog.Digest{}) {
				if body, ok := mine.Body(row.Digest); !ok || !yield(row.Key, body) {
					return
				}
			}
		})
		if err != nil || len(read.Instances) != 2 || read.Instances[0].Lease != 60 || !read.Instances[1].Stop || read.Instances[1].Slot != 1 {
			t.Errorf("%s: %+v, %v", what, read.Instances, err)
		}
		if revision, known := from.view.revision(layerID{id, rootNo(1)}); !known || revision != "web-a" {
			t.Errorf("%s would compile %q for the template", what, revision)
		}
	}
}
