package layers_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// bundles are those of a server, in memory.
type bundles struct {
	mu     sync.Mutex
	all    map[catalog.Digest]layers.Bundle
	broken error
	opened int
}

func (b *bundles) Open(root catalog.Digest) (layers.Bundle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened++
	if b.broken != nil {
		return layers.Bundle{}, b.broken
	}
	one, there := b.all[root]
	if !there {
		return layers.Bundle{}, &reason.Error{Code: reason.BundleMissing, Doing: "read bundle " + bundle.Digest(root)}
	}
	return one, nil
}

// put makes a bundle of values by key, and returns its root.
func (b *bundles) put(t *testing.T, values map[string]string) catalog.Digest {
	t.Helper()
	var items []catalog.Item
	bodies, sum := map[catalog.Digest][]byte{}, int64(0)
	for key, value := range values {
		item, err := catalog.DataItem(&declare.Data{Key: key, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		items, sum = append(items, item), sum+int64(len(item.Body))
		bodies[item.Row().Digest] = item.Body
	}
	trie := catalog.TrieOf(items)
	b.mu.Lock()
	defer b.mu.Unlock()
	body := func(d catalog.Digest) ([]byte, bool) { body, ok := bodies[d]; return body, ok }
	b.all[trie.Root()] = layers.Bundle{Trie: trie, Bytes: sum, Body: body, Reader: func() func(catalog.Digest) ([]byte, bool) { return body }}
	return trie.Root()
}

func values(n int, value string) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("k/", i)] = value
	}
	return all
}

func rigWith(t *testing.T) (*rig, *bundles) {
	t.Helper()
	keys, err := trust.NewKeys(trust.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o, b := newObjects(), &bundles{all: map[catalog.Digest]layers.Bundle{}}
	l, err := layers.New(o, keys, b)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, l, o, keys}, b
}

// bundled stores a revision that names a bundle.
func (r *rig) bundled(owner string, root catalog.Digest, resources ...declare.Resource) string {
	r.Helper()
	reference := &declare.BundleReference{Digest: bundle.Digest(root)}
	digest, err := catalog.RevisionDigestWith(resources, reference)
	if err != nil {
		r.Fatal(err)
	}
	name := catalog.RevisionName(owner, digest)
	r.objects.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: v1alpha1.RevisionSpec{Resources: resources, Bundle: reference}})
	return name
}

// TestLayerOfABundle: a layer has the entries of both, and its root is that of all of them, wherever they come from.
func TestLayerOfABundle(t *testing.T) {
	r, b := rigWith(t)
	root := b.put(t, values(500, "v"))
	own := []declare.Resource{file("a", "1"), {Name: "d", Data: &declare.Data{Key: "own", Value: "x"}}}
	l := r.of(web, r.bundled("web", root, own...))
	all := r.bodies(l)
	if l.Entries != 502 || l.Trie.Len() != 502 || l.Root != l.Trie.Root() || len(all) != 502 {
		t.Errorf("it has %d entries, %d rows and %d bodies", l.Entries, l.Trie.Len(), len(all))
	}
	if all["path:/etc/a"].Resource.File.Content != "1" || all["data:own"].Resource.Data.Value != "x" || all["data:k/7"].Resource.Data.Value != "v" {
		t.Error("something else is in it")
	}
	plain := r.of(web, r.revise("web", own...))
	if want := plain.Bytes + b.all[root].Bytes; l.Bytes != want {
		t.Errorf("it has %d bytes, want %d", l.Bytes, want)
	}
	var resources []declare.Resource
	for i := range 500 {
		resources = append(resources, declare.Resource{Name: fmt.Sprint("r", i), Data: &declare.Data{Key: fmt.Sprint("k/", i), Value: "v"}})
	}
	if same := r.of("NodeConfig/prod/other", r.revise("other", append(resources, own...)...)); same.Root != l.Root {
		t.Error("the same entries without a bundle have another root")
	}
	// The next one shares with the one before what is the same, and leads there.
	next := values(500, "v")
	next["k/7"] = "other"
	m := r.of(web, r.bundled("web", b.put(t, next), own...))
	changes := 0
	for range catalog.Difference(l.Trie, m.Trie, catalog.Digest{}) {
		changes++
	}
	if changes != 1 || r.bodies(m)["data:k/7"].Resource.Data.Value != "other" || r.bodies(l)["data:k/7"].Resource.Data.Value != "v" {
		t.Errorf("%d changes", changes)
	}
	// As good as all is another one: it is no different for that.
	if n := r.of(web, r.bundled("web", b.put(t, values(9000, "w")))); len(r.bodies(n)) != 9000 || n.Root != n.Trie.Root() {
		t.Error("a layer that has nothing of the one before is another one")
	}
}

// TestBundleMissing: a bundle that is not there is told, and when it comes, that is news.
func TestBundleMissing(t *testing.T) {
	r, b := rigWith(t)
	other := &bundles{all: map[catalog.Digest]layers.Bundle{}}
	root := other.put(t, values(10, "v"))
	changes := r.Subscribe()
	defer changes.Close()
	revision := r.bundled("web", root, file("a", "1"))
	for range 2 {
		_, err := r.Of(t.Context(), web, revision)
		if !reason.Is(err, reason.BundleMissing) || !layers.Lasting(err) || !strings.Contains(err.Error(), bundle.Digest(root)) {
			t.Fatalf("%v", err)
		}
	}
	if b.opened != 1 {
		t.Errorf("it was looked for %d times", b.opened)
	}
	b.put(t, values(3, "another"))
	r.BundleCame(b.put(t, values(4, "another")))
	if got := changes.Take(); len(got) != 0 {
		t.Errorf("another bundle is news for %v", got)
	}
	b.put(t, values(10, "v"))
	r.BundleCame(root)
	if got := changes.Take(); len(got) != 1 || got[0] != web {
		t.Errorf("it is news for %v", got)
	}
	if l := r.of(web, revision); l.Entries != 11 {
		t.Errorf("it has %d entries", l.Entries)
	}
	// That it comes once more, where nothing is missing, changes nothing.
	r.BundleCame(root)
	if l := r.of(web, revision); l.Entries != 11 {
		t.Errorf("it has %d entries", l.Entries)
	}
}

func TestBundleCannotBeRead(t *testing.T) {
	r, b := rigWith(t)
	root := b.put(t, values(10, "v"))
	revision := r.bundled("web", root)
	b.broken = &reason.Error{Code: reason.InputOutput, Doing: "read", Cause: errors.New("the disk is gone")}
	if _, err := r.Of(t.Context(), web, revision); !reason.Is(err, reason.InputOutput) || layers.Lasting(err) {
		t.Errorf("%v", err)
	}
	b.broken = nil
	if l := r.of(web, revision); l.Entries != 10 {
		t.Errorf("it has %d entries", l.Entries)
	}
}

// TestClaimInBoth: what the config and its bundle claim both is refused with both places.
func TestClaimInBoth(t *testing.T) {
	r, b := rigWith(t)
	root := b.put(t, values(10, "v"))
	_, err := r.Of(t.Context(), web, r.bundled("web", root, file("a", "1"), declare.Resource{Name: "mine", Data: &declare.Data{Key: "k/3", Value: "v"}}))
	if !reason.Is(err, reason.DuplicateClaim) || !layers.Lasting(err) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"data:k/3", "spec.resources[1]", "data/mine", bundle.Digest(root)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// TestNoBundlesAtAll: a server that has no place for them says of each that it is missing.
func TestNoBundlesAtAll(t *testing.T) {
	r := newRig(t)
	if _, err := r.Of(t.Context(), web, r.bundled("web", catalog.KeyOf("x"))); !reason.Is(err, reason.BundleMissing) {
		t.Errorf("%v", err)
	}
}
