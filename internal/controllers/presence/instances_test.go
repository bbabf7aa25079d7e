package presence

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// running is a report of a host with instances.
func running(number uint64, instances ...wire.Instance) *wire.Report {
	r := report("x", 1, number, 7)
	r.Instances = instances
	r.Offers = &wire.Offers{CPU: 1500, Memory: 2 << 30, Disk: 10 << 30, Address: "192.0.2.7", Arch: "amd64", Runtimes: []string{"Process"}, Devices: map[string][]string{"gpu": {"0", "1"}},
		Directories: []string{"/srv"}}
	return r
}

// TestInstancesAreTold: who asked to be told is, of each report in which something else is said of instances, and of no other one; who decides about
// configs is not.
func TestInstancesAreTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		c := make(chan struct{}, 1)
		defer r.Tell(c)()
		r.Opened(a, 1)
		web := wire.Instance{UID: "u1", Attempt: 1, Phase: wire.InstanceRunning, Ports: []wire.InstancePort{{Name: "http", Number: 80}}}
		number := uint64(0)
		say := func(change func(*wire.Report)) (told bool) {
			number++
			x := running(number, web)
			change(x)
			r.Heard(a, 1, x)
			after(50 * time.Millisecond)
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		if !say(func(*wire.Report) {}) || len(r.Changes()) != 1 {
			t.Error("the first report is not told")
		}
		if say(func(x *wire.Report) { x.Instances[0].CPU, x.Instances[0].Memory, x.Usage.CPU = 5, 6, 7 }) {
			t.Error("what they use is told")
		}
		for what, change := range map[string]func(*wire.Report){
			"ready": func(x *wire.Report) { x.Instances[0].Ready = true }, "phase": func(x *wire.Report) { x.Instances[0].Phase = wire.InstanceFailed },
			"attempt": func(x *wire.Report) { x.Instances[0].Attempt = 2 }, "restarts": func(x *wire.Report) { x.Instances[0].Restarts = 2 },
			"code": func(x *wire.Report) { x.Instances[0].Code = reason.DiskFull }, "message": func(x *wire.Report) { x.Instances[0].Message = "why" },
			"port": func(x *wire.Report) { x.Instances[0].Ports[0].Number = 81 }, "gone": func(x *wire.Report) { x.Instances = nil },
			"more": func(x *wire.Report) { x.Instances = append(x.Instances, wire.Instance{UID: "u2"}) }, "offers": func(x *wire.Report) { x.Offers.CPU = 1 },
			"no offers": func(x *wire.Report) { x.Offers = nil }, "of the node": func(x *wire.Report) { x.Instances[0].OfNode = true }, "since": func(x *wire.Report) { x.Instances[0].Since = 9 },
			"revision": func(x *wire.Report) { x.Instances[0].Revision = "abc" },
		} {
			web.Ports = []wire.InstancePort{{Name: "http", Number: 80}}
			if !say(change) {
				t.Errorf("%s: it is not told", what)
			}
			web.Ports = []wire.InstancePort{{Name: "http", Number: 80}}
			if !say(func(*wire.Report) {}) || say(func(*wire.Report) {}) {
				t.Errorf("back from %s: it is not told, or twice", what)
			}
		}
		if names := r.Changes(); len(names) > 0 {
			t.Errorf("who decides about configs is told of %v", names)
		}
		if seen, _ := r.Of("1"); len(seen.Report.Instances) != 1 || seen.Report.Offers.Memory != 2<<30 {
			t.Errorf("kept is %+v", seen.Report)
		}
	})
}

// TestImagesAreTold: of a host that has other images than before whoever looks for places is told once.
func TestImagesAreTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		c := make(chan struct{}, 1)
		defer r.Tell(c)()
		r.Opened(a, 1)
		number := uint64(0)
		say := func(h *wire.Host) (told bool) {
			number++
			x := running(number)
			x.Host = h
			r.Heard(a, 1, x)
			after(50 * time.Millisecond)
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		say(&wire.Host{})
		for _, images := range [][]string{{"sha256:1"}, {"/srv/image", "sha256:1"}, nil} {
			if first, again, other, without := say(&wire.Host{Images: images}), say(&wire.Host{Images: images}), say(&wire.Host{Images: images, Memory: 1}), say(nil); !first || again || other || without {
				t.Errorf("images %v: told %v, again %v, with another fact %v, without %v", images, first, again, other, without)
			}
			if seen, _ := r.Of("1"); !slices.Equal(seen.Host.Images, images) {
				t.Errorf("kept are %v of %v", seen.Host.Images, images)
			}
		}
	})
}

// TestFickleInstances: a host whose instances are something else with each report is told of at a bounded pace, and its last word is.
func TestFickleInstances(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		c := make(chan struct{}, 1)
		defer r.Tell(c)()
		r.Opened(a, 1)
		told := 0
		take := func() {
			select {
			case <-c:
				told++
			default:
			}
		}
		const long = 10 * time.Minute
		for i := range uint64(long / (50 * time.Millisecond)) {
			r.Heard(a, 1, running(i+1, wire.Instance{UID: "u", Attempt: uint32(i)}))
			after(50 * time.Millisecond)
			take()
		}
		if most := stirring().atOnce + int(long/stirring().pause); told < most/2 || told > most+1 {
			t.Errorf("told %d times in %s", told, long)
		}
		told = 0
		r.Heard(a, 1, running(1_000_000, wire.Instance{UID: "u", Attempt: 1_000_000}))
		after(stirring().pause)
		if take(); told != 1 {
			t.Error("its last word is not told")
		}
	})
}

func TestOffersAreShown(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		first := running(1)
		first.Host = &wire.Host{Images: []string{"/srv/image"}}
		r.Heard(a, 1, first)
		after(5 * time.Second)
		n := r.store.node("a")
		r.Decorate(n)
		want := &v1alpha1.NodeOffers{Address: "192.0.2.7", Architecture: "amd64", Runtimes: []string{"Process"}, Directories: []string{"/srv"}, Devices: map[string]int32{"gpu": 2}, Images: []string{"/srv/image"},
			Allocatable: map[v1alpha1.CapacityName]resource.Quantity{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("2Gi"), "disk": resource.MustParse("10Gi")}}
		if !equality.Semantic.DeepEqual(n.Status.Offers, want) {
			t.Errorf("%+v", n.Status.Offers)
		}
		none := running(2)
		none.Offers = nil
		r.Heard(a, 1, none)
		if r.Decorate(n); n.Status.Offers != nil {
			t.Errorf("of one that offers nothing it is %+v", n.Status.Offers)
		}
	})
}

// TestMemoryOfInstances says what an instance costs, and that what all hosts say in the same words is there once.
func TestMemoryOfInstances(t *testing.T) {
	const nodes, each = 500, 40
	s := newStore()
	r, err := New(Options{Objects: s, Recorder: s})
	if err != nil {
		t.Fatal(err)
	}
	var before, with runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range nodes {
		n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), UID: types.UID(fmt.Sprint(i))}}
		_ = feed{r}.Add(n)
		who := server.Identity{Name: n.Name, UID: string(n.UID)}
		r.Opened(who, uint64(i+1))
		x := running(1)
		for j := range each {
			x.Instances = append(x.Instances, wire.Instance{UID: fmt.Sprintf("%018d%018d", i, j), Attempt: 1, Phase: wire.InstanceRunning, Ready: true, Since: 1,
				Message: string([]byte("the probe has got no answer")), Ports: []wire.InstancePort{{Name: string([]byte("http")), Number: 80}}})
		}
		r.Heard(who, uint64(i+1), x)
		r.decide(time.Now())
	}
	runtime.GC()
	runtime.ReadMemStats(&with)
	cost := (int64(with.HeapAlloc) - int64(before.HeapAlloc)) / (nodes * each)
	t.Logf("%d bytes for each of %d instances, with its share of the node", cost, nodes*each)
	if cost > 512 {
		t.Errorf("%d bytes for each instance", cost)
	}
	a, _ := r.Of("1")
	b, _ := r.Of("2")
	x, y := &a.Report.Instances[0], &b.Report.Instances[7]
	if unsafe.StringData(x.Message) != unsafe.StringData(y.Message) || unsafe.StringData(x.Ports[0].Name) != unsafe.StringData(y.Ports[0].Name) {
		t.Error("the same words are there twice")
	}
	runtime.KeepAlive(r)
}

// taker notes what it is told, and waits for some node.
type taker struct {
	node types.UID
	took []uint64
}

func (x *taker) Take(node types.UID, r *wire.Report, _ time.Time) time.Duration {
	x.took = append(x.took, r.Number)
	if node == x.node {
		return 15 * time.Second
	}
	return 0
}

// TestMeasures: what hosts say is handed on, and those are asked to say so again that somebody waits for.
func TestMeasures(t *testing.T) {
	inBubble(t, func(r *rig) {
		x := &taker{node: "1"}
		r.options.Measures = x
		a, b := r.make("a", "1"), r.make("b", "2")
		r.Opened(a, 1)
		r.Opened(b, 2)
		if one, other := r.Heard(a, 1, running(7)), r.Heard(b, 2, running(8)); one.UsageEvery != 15 || other.UsageEvery != 0 || !slices.Equal(x.took, []uint64{7, 8}) {
			t.Errorf("answered %+v and %+v, and told were %v", one, other, x.took)
		}
	})
}

// TestLeases: hosts on which something exclusive may be placed report often enough to begin it, however many there are, and whatever is measured.
func TestLeases(t *testing.T) {
	inBubble(t, func(r *rig) {
		leases := map[string]time.Duration{"shop": 15 * time.Second}
		x := &taker{node: "1"}
		r.options.Lease, r.options.Measures = func(environment string) time.Duration { return leases[environment] }, x
		a, b := r.make("a", "1"), r.make("b", "2")
		for _, name := range []string{"a", "b"} {
			n := r.store.nodes[name].DeepCopy()
			n.Spec.Environment = "shop"
			_ = feed{r.Register}.Update(n)
		}
		r.Opened(a, 1)
		r.Opened(b, 2)
		for number, c := range []struct {
			lease            time.Duration
			measured, others uint32
		}{{15 * time.Second, 15, 25}, {time.Minute, 15, 70}, {5 * time.Minute, 15, 0}, {0, 15, 0}} {
			leases["shop"] = c.lease
			if one, other := r.Heard(a, 1, running(uint64(number))), r.Heard(b, 2, running(uint64(number))); one.UsageEvery != c.measured || other.UsageEvery != c.others {
				t.Errorf("a lease of %s: answered %+v and %+v", c.lease, one, other)
			}
		}
	})
}
