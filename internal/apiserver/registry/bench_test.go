package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/fleet/events"
)

// creators create at once: as many as the clients that creation by REST is measured with.
const creators = 32

// BenchmarkCreate creates small NodeConfigs in process, in an etcd that syncs to the disk of the directory for temporary files.
func BenchmarkCreate(b *testing.B) {
	store := openRegistry(b).Store(v1alpha1.Resource(v1alpha1.ResourceNodeConfigs))
	ctx := request.WithNamespace(b.Context(), "default")
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range creators {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if _, err := store.Create(ctx, benchConfig(i), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
}

// openRegistry is the storage of all kinds over an etcd of its own.
func openRegistry(t testing.TB) *Registry {
	t.Helper()
	member, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	client, err := etcd.Connect(t.Context(), etcd.Connection{Endpoints: member.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	member.Attach(client)
	kinds := Kinds()
	scheme := NewScheme(kinds)
	backend := NewBackend(scheme, client, nil)
	t.Cleanup(backend.Close)
	bounds, err := events.New(events.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := New(scheme, kinds, backend, nil, bounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range objects.stores {
		t.Cleanup(s.Destroy)
		ready := func(context.Context) (bool, error) { return s.ReadinessCheck() == nil, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, eventTime, true, ready); err != nil {
			t.Fatalf("%s: %v", s.DefaultQualifiedResource, err)
		}
	}
	return objects
}

func benchConfig(i int64) *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i)},
		Spec: declare.NodeConfigSpec{Resources: []declare.Resource{{
			Name: "file", File: &declare.File{Path: fmt.Sprintf("/etc/bench/f%d.conf", i), Mode: "0640", Content: fmt.Sprintf("# managed file %d\n", i)},
		}}},
	}
}
