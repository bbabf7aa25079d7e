package assignments

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/transfer/wire"
)

// noStore takes everything, and has revisions of ten files.
type noStore struct{ version int }

func (s *noStore) Get(_ context.Context, _ types.NamespacedName, into runtime.Object) error {
	if r, is := into.(*v1alpha1.Revision); is {
		for i := range 10 {
			r.Spec.Resources = append(r.Spec.Resources, declare.Resource{Name: fmt.Sprint("f", i), File: &declare.File{Path: fmt.Sprint("/etc/", s.version, "/", i)}})
		}
		s.version++
	}
	return nil
}

func (*noStore) Create(context.Context, runtime.Object) error       { return nil }
func (*noStore) Update(context.Context, runtime.Object) error       { return nil }
func (*noStore) UpdateStatus(context.Context, runtime.Object) error { return nil }
func (*noStore) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher {
	return nil
}

// BenchmarkRound is one change of one of ten configs that goes to all of 1,000 nodes at once: the decision, without the writes.
func BenchmarkRound(b *testing.B) {
	for _, hosts := range []int{500, 1000} {
		b.Run(fmt.Sprint("nodes=", hosts), func(b *testing.B) {
			w, a, configs := benchWorld(b, hosts)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				report(a, w)
				_ = a.round(b.Context(), w)
				c := configs[i%len(configs)]
				c.Generation++
				revised(c, fmt.Sprint("r", i))
				_ = a.configs[0].Update(c.DeepCopy())
				b.StartTimer()
				a.absorb(w, time.Now())
				a.compile(b.Context(), w, time.Now())
				if err := a.agree(b.Context(), w, time.Now()); err != nil {
					b.Fatal(err)
				}
				jobs := a.assignmentJobs(b.Context(), w, time.Now())
				b.StopTimer()
				if len(jobs) != hosts {
					b.Fatalf("%d of %d are written", len(jobs), hosts)
				}
				for _, j := range jobs {
					j.done(nil)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkReport is a round for one report of one node, which moves nothing.
func BenchmarkReport(b *testing.B) {
	w, a, _ := benchWorld(b, 1000)
	report(a, w)
	_ = a.round(b.Context(), w)
	p := a.options.Presence.(*fakePresence)
	h := w.hosts["n7"]
	for b.Loop() {
		p.say(h.uid, h.name, h.seen)
		a.absorb(w, time.Now())
		_ = a.round(b.Context(), w)
	}
}

func revised(c *v1alpha1.NodeConfig, revision string) {
	c.Status.Revision = revision
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRevised, Status: metav1.ConditionTrue, Reason: "RevisionMade", ObservedGeneration: c.Generation}}
}

// benchWorld is a fleet in which everything is as declared.
func benchWorld(b *testing.B, hosts int) (*world, *Assignments, []*v1alpha1.NodeConfig) {
	p := &fakePresence{seen: map[types.UID]presence.Seen{}, changed: make(chan struct{}, 1)}
	l := &fakeLayers{changed: make(chan struct{}, 1), salt: map[string]string{}, missing: map[string]error{}, keys: map[string][]layers.KeyUse{}}
	a, err := New(Options{Objects: &noStore{}, Layers: l, Changes: l, Presence: p, Recorder: &fakeRecorder{}})
	if err != nil {
		b.Fatal(err)
	}
	for i := range hosts {
		name := fmt.Sprint("n", i)
		n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.NodeSpec{Environment: "qa"}}
		n.Status.Identity = &v1alpha1.NodeIdentity{SealingKey: []byte("key")}
		_ = a.nodes.Add(n)
		p.say(n.UID, name, presence.Seen{Presence: node.Here, Believed: true})
	}
	var configs []*v1alpha1.NodeConfig
	for i := range 10 {
		c := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "qa", Name: fmt.Sprint("c", i), UID: types.UID(fmt.Sprint("c", i)), Generation: 1}}
		c.Spec.Rollout = allAtOnce
		revised(c, "first")
		configs = append(configs, c)
		_ = a.configs[0].Add(c.DeepCopy())
	}
	w := newWorld(time.Now().Add(-time.Hour))
	for range 3 {
		a.absorb(w, time.Now())
		_ = a.round(b.Context(), w)
		report(a, w)
	}
	return w, a, configs
}

// report has every host say that all is well with what it has.
func report(a *Assignments, w *world) {
	p := a.options.Presence.(*fakePresence)
	for name, h := range w.hosts {
		if h.assigned == nil {
			continue
		}
		v := versionOf(h.assigned) + 1
		o := h.assigned.DeepCopy()
		o.ResourceVersion = strconv.FormatUint(v, 10)
		_ = a.placed.Update(o)
		r := &wire.Report{Enforced: catalog.Mark{Version: v}}
		for _, l := range o.Spec.Layers {
			r.Configs = append(r.Configs, wire.ConfigReport{ID: l.Config, Settled: true, Converged: true})
		}
		p.say(h.uid, name, presence.Seen{Presence: node.Here, Believed: true, Report: r})
	}
	a.absorb(w, time.Now())
}

// BenchmarkBulk is a round of a burst of 10,000 configs that select no node, of which 100 are new: without the writes.
func BenchmarkBulk(b *testing.B) {
	for _, hosts := range []int{0, 10} {
		b.Run(fmt.Sprint("nodes=", hosts), func(b *testing.B) {
			w, a, _ := benchWorld(b, hosts)
			made := 0
			burst := func(n int) {
				for range n {
					made++
					c := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: fmt.Sprint("bulk", made%10_000), UID: "bulk", Generation: int64(1 + made/10_000)}}
					revised(c, fmt.Sprint("r", made))
					_ = a.configs[0].Update(c)
				}
			}
			burst(10_000)
			for range 10_000/statusesMax + 2 {
				a.absorb(w, time.Now())
				_ = a.round(b.Context(), w)
			}
			for b.Loop() {
				burst(100)
				a.absorb(w, time.Now())
				a.compile(b.Context(), w, time.Now())
				if err := a.agree(b.Context(), w, time.Now()); err != nil {
					b.Fatal(err)
				}
				for _, j := range append(a.assignmentJobs(b.Context(), w, time.Now()), a.statusJobs(w, time.Now())...) {
					j.done(nil)
				}
			}
		})
	}
}

// BenchmarkInstance is a round for new instances, each on another one of 5,000 nodes that have 40 each: without the write.
func BenchmarkInstance(b *testing.B) {
	const hosts, each = 5000, 40
	w, a, _ := benchWorld(b, hosts)
	place := func(i int) {
		n := fmt.Sprint("n", i%hosts)
		o := &v1alpha1.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "qa", Name: fmt.Sprint("w-", i), UID: types.UID(fmt.Sprintf("%036d", i))},
			Spec: v1alpha1.InstanceSpec{Workload: "w", Revision: fmt.Sprint("w-", i/hosts%each), Node: n, NodeUID: types.UID(n)}}
		_ = a.tenants.Add(o)
	}
	placed := hosts * each
	for i := range placed {
		place(i)
	}
	a.absorb(w, time.Now())
	_ = a.round(b.Context(), w)
	for _, at := range []int{1, 100} {
		b.Run(fmt.Sprint("at-once=", at), func(b *testing.B) {
			for b.Loop() {
				for range at {
					place(placed)
					placed++
				}
				a.absorb(w, time.Now())
				_ = a.round(b.Context(), w)
			}
		})
	}
}
