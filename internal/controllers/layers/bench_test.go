package layers_test

import (
	"fmt"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/trust"
)

// BenchmarkCompile reads and compiles a layer of 5,000 files, as many as an object of the store holds.
func BenchmarkCompile(b *testing.B) {
	store, l := benchLayers(b)
	resources := []declare.Resource{fromConfigMap("m", "site", "index")}
	for i := range 4999 {
		resources = append(resources, file(fmt.Sprint("f", i), fmt.Sprintf("# managed file %d\n", i)))
	}
	digest, err := catalog.RevisionDigest(resources)
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		store.put(&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "site"}, Data: map[string]string{"index": fmt.Sprint(i)}})
		name := catalog.RevisionName("web", digest)
		store.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: v1alpha1.RevisionSpec{Resources: resources}})
		fresh, err := layers.New(store, l, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := fresh.Of(b.Context(), web, name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAsk asks for a layer that is compiled already.
func BenchmarkAsk(b *testing.B) {
	store, keys := benchLayers(b)
	l, err := layers.New(store, keys, nil)
	if err != nil {
		b.Fatal(err)
	}
	resources := []declare.Resource{file("a", "1")}
	digest, err := catalog.RevisionDigest(resources)
	if err != nil {
		b.Fatal(err)
	}
	name := catalog.RevisionName("web", digest)
	store.put(&v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}, Spec: v1alpha1.RevisionSpec{Resources: resources}})
	for b.Loop() {
		if _, err := l.Of(b.Context(), web, name); err != nil {
			b.Fatal(err)
		}
	}
}

func benchLayers(b *testing.B) (*objects, *trust.Keys) {
	b.Helper()
	keys, err := trust.NewKeys(trust.NewClusterID(), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	return newObjects(), keys
}
