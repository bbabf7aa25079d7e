package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"

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

// BenchmarkCreateInstance creates Instances as the controller of workloads does: by the way of the server's own, while that controller follows them.
func BenchmarkCreateInstance(b *testing.B) {
	local := NewLocal(openRegistry(b), nil)
	watched := local.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindInstance), false)
	w, err := cache.ToWatcherWithContext(watched).WatchWithContext(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for range b.N {
			<-w.ResultChan()
		}
	}()
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range creators {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := local.Create(b.Context(), benchInstance(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
	w.Stop()
	<-seen
}

func benchInstance(i int64) *v1alpha1.Instance {
	yes := true
	return &v1alpha1.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-%d", i), Namespace: "default", Labels: map[string]string{v1alpha1.LabelWorkload: "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: declare.APIVersion, Kind: v1alpha1.KindWorkload, Name: "web", UID: "5b0c9a3e-3f0d-4f53-9d0b-6d4a4b7d9c11", Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec: v1alpha1.InstanceSpec{
			Workload: "web", Revision: "web-5d9c7f4b6d", Slot: int32(i), Node: fmt.Sprintf("host-%05d", i%5000), NodeUID: "7c1d4f0e-6f7b-4b0e-8a3c-0c2f1d9e8a77",
		},
	}
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
	// Of a kind that has a transformer it is taken that it is secret, whatever that does.
	backend := NewBackend(scheme, client, map[schema.GroupResource]value.Transformer{core.Resource("secrets"): identity.NewEncryptCheckTransformer()})
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
