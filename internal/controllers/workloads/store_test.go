package workloads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/controllers/inbox"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/events"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// within is how long the tests wait for what should be there in a moment: long, for a machine that is busy with other things.
const within = 60 * time.Second

// realStore is the storage of the one server of a test.
func realStore(t testing.TB) *registry.Local {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	member, err := etcd.Start(ctx, etcd.Options{Dir: t.TempDir()})
	must(err)
	t.Cleanup(member.Close)
	client, err := etcd.Connect(ctx, etcd.Connection{Endpoints: member.Endpoints()})
	must(err)
	t.Cleanup(func() { _ = client.Close() })
	member.Attach(client)
	kinds := registry.Kinds()
	scheme := registry.NewScheme(kinds)
	backend := registry.NewBackend(scheme, client, nil)
	t.Cleanup(backend.Close)
	bounds, err := events.New(events.Options{})
	must(err)
	objects, err := registry.New(scheme, kinds, backend, nil, bounds)
	must(err)
	for _, k := range kinds {
		s := objects.Store(k.Resource())
		t.Cleanup(s.Destroy)
		late := time.Now().Add(within)
		for s.ReadinessCheck() != nil {
			if time.Now().After(late) {
				must(errors.New("the storage does not get ready"))
			}
			<-time.After(time.Millisecond)
		}
	}
	return registry.NewLocal(objects, admission.NewChainHandler())
}

// fakePresence knows what it is told.
type fakePresence struct {
	mu   sync.Mutex
	seen map[types.UID]presence.Seen
	told []chan struct{}
}

func (p *fakePresence) Of(uid types.UID) (presence.Seen, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[uid]
	return s, ok
}

// Since says of every node that it may have changed.
func (*fakePresence) Since(uint64) (names []string, all bool, now uint64) { return nil, true, 0 }

func (p *fakePresence) Tell(c chan struct{}) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, c)
	return func() {}
}

func (p *fakePresence) say(uid types.UID, r *wire.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[uid] = presence.Seen{Presence: node.Here, Believed: true, Report: r}
	for _, c := range p.told {
		inbox.Signal(c)
	}
}

// fleetOf makes nodes that hosts have joined as, with 4 processors and 32 GiB.
func fleetOf(t testing.TB, local *registry.Local, p *fakePresence, count int) []*v1alpha1.Node {
	nodes := make([]*v1alpha1.Node, count)
	var group errgroup.Group
	group.SetLimit(writesMax)
	for i := range count {
		group.Go(func() error {
			n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%05d", i)}, Spec: v1alpha1.NodeSpec{Environment: "prod"}}
			if err := local.Create(t.Context(), n); err != nil {
				return err
			}
			n.Status.Identity = &v1alpha1.NodeIdentity{Key: "sha256:00", Joined: metav1.Now()}
			nodes[i] = n
			return local.UpdateStatus(t.Context(), n)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		p.say(n.UID, reportOf(nil))
	}
	return nodes
}

func reportOf(instances []wire.Instance) *wire.Report {
	return &wire.Report{Instances: instances, Offers: &wire.Offers{CPU: 4000, Memory: 32 << 30, Disk: 1 << 40, Arch: "amd64", Runtimes: []string{string(declared.Systemd)}}}
}

func instancesIn(t testing.TB, local *registry.Local) []*v1alpha1.Instance {
	t.Helper()
	type lister interface {
		List(metav1.ListOptions) (runtime.Object, error)
	}
	list, err := local.ListerWatcher(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindInstance), false).(lister).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*v1alpha1.Instance
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.(*v1alpha1.Instance))
		return nil
	})
	return all
}

// begin runs what keeps instances until the test ends.
func begin(t testing.TB, local *registry.Local, p *fakePresence) *Workloads {
	t.Helper()
	c, err := New(Options{Objects: local, Presence: p, Recorder: &fakeRecorder{}, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(within):
			t.Error("it does not end")
		}
	})
	return c
}

// TestOnARealStore: with the store, the watches and the goroutines of the server, a workload lives from its beginning to its end.
func TestOnARealStore(t *testing.T) {
	local, p := realStore(t), &fakePresence{seen: map[types.UID]presence.Seen{}}
	nodes := fleetOf(t, local, p, 3)
	begin(t, local, p)
	work := func() { // every host runs all that it has, and what is to end has ended
		byNode := map[types.UID][]wire.Instance{}
		for _, in := range instancesIn(t, local) {
			is := wire.Instance{UID: string(in.UID), Attempt: 1, Phase: wire.InstanceRunning, Ready: true}
			if in.Spec.Stop != nil {
				is.Phase, is.Ready = wire.InstanceDone, false
			}
			byNode[in.Spec.NodeUID] = append(byNode[in.Spec.NodeUID], is)
		}
		for _, n := range nodes {
			p.say(n.UID, reportOf(byNode[n.UID]))
		}
	}
	key := types.NamespacedName{Namespace: "prod", Name: "web"}
	eventually := func(what string, look func(o *v1alpha1.Workload, err error) bool) {
		t.Helper()
		late, again := time.After(within), time.NewTicker(5*time.Millisecond)
		defer again.Stop()
		for {
			work()
			o := &v1alpha1.Workload{}
			err := local.Get(t.Context(), key, o)
			if look(o, err) {
				return
			}
			select {
			case <-late:
				t.Fatalf("%s: %+v, %v", what, o.Status, err)
			case <-again.C:
			}
		}
	}
	complete := func(replicas int32) func(*v1alpha1.Workload, error) bool {
		return func(o *v1alpha1.Workload, err error) bool {
			return err == nil && o.Status.Phase == "Complete" && o.Status.ObservedGeneration == o.Generation && o.Status.AvailableReplicas == replicas && o.Status.UpdatedReplicas == replicas && o.Status.TerminatingReplicas == 0
		}
	}
	if err := local.Create(t.Context(), &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}, Spec: web(5)}); err != nil {
		t.Fatal(err)
	}
	eventually("it is complete", complete(5))
	change := func(do func(o *v1alpha1.Workload) error) {
		t.Helper()
		for range 20 {
			o := &v1alpha1.Workload{}
			if err := local.Get(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
			if do(o) == nil {
				return
			}
		}
		t.Fatal("somebody is always faster")
	}
	change(func(o *v1alpha1.Workload) error {
		o.Spec = version(web(3), "2")
		return local.Update(t.Context(), o)
	})
	eventually("another one is complete", complete(3))
	var all []*v1alpha1.Instance
	eventually("what has ended is forgotten", func(*v1alpha1.Workload, error) bool { // after the status is stored
		all = instancesIn(t, local)
		return len(all) == 3
	})
	if len(all[0].ManagedFields) != 0 {
		t.Errorf("%+v", all[0].ManagedFields)
	}
	change(func(o *v1alpha1.Workload) error { return local.Delete(t.Context(), o, nil) })
	eventually("it has gone", func(_ *v1alpha1.Workload, err error) bool { return err != nil })
	if all := instancesIn(t, local); len(all) != 0 {
		t.Errorf("%d instances are left", len(all))
	}
}

// BenchmarkPlacements is how fast 10,000 replicas come onto 5,000 nodes, with the store and its disk.
func BenchmarkPlacements(b *testing.B) {
	const nodes, replicas = 5000, 10_000
	for range b.N {
		b.StopTimer()
		local, p := realStore(b), &fakePresence{seen: map[types.UID]presence.Seen{}}
		fleetOf(b, local, p, nodes)
		c := begin(b, local, p)
		spec := web(replicas)
		spec.Template.Tasks[0].Resources.Requests = declared.Amounts{CPU: "100m", Memory: "500Mi"}
		began := time.Now()
		b.StartTimer()
		if err := local.Create(b.Context(), &v1alpha1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}, Spec: spec}); err != nil {
			b.Fatal(err)
		}
		for c.placed() < replicas {
			if time.Since(began) > 2*within {
				b.Fatalf("%d are placed", c.placed())
			}
			<-time.After(5 * time.Millisecond)
		}
		b.ReportMetric(replicas/time.Since(began).Seconds(), "placements/s")
	}
}

// placed is how many there are to be shown.
func (c *Workloads) placed() int {
	c.shown.mu.RLock()
	defer c.shown.mu.RUnlock()
	return len(c.shown.all)
}
