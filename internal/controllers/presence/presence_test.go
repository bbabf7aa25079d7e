package presence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// store is a store of Nodes, and takes down what is told.
type store struct {
	mu     sync.Mutex
	nodes  map[string]*v1alpha1.Node
	writes int
	fail   error
	told   []string
}

func newStore() *store { return &store{nodes: map[string]*v1alpha1.Node{}} }

func (s *store) Cached(_ context.Context, key types.NamespacedName, into k8sruntime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[key.Name]
	if n == nil {
		return apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceNodes), key.Name)
	}
	n.DeepCopyInto(into.(*v1alpha1.Node))
	return nil
}

func (s *store) UpdateStatus(_ context.Context, o k8sruntime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := o.(*v1alpha1.Node)
	if s.fail != nil {
		return s.fail
	}
	if have := s.nodes[n.Name]; have == nil || have.UID != n.UID {
		return apierrors.NewConflict(v1alpha1.Resource(v1alpha1.ResourceNodes), n.Name, errors.New("another one"))
	}
	s.nodes[n.Name] = n.DeepCopy()
	s.writes++
	return nil
}

func (s *store) ListerWatcher(schema.GroupVersionKind, bool) cache.ListerWatcher {
	return &cache.ListWatch{}
}

func (s *store) Tell(about core.ObjectReference, _, why, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, about.Name+" "+why)
}

func (s *store) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *store) node(name string) *v1alpha1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].DeepCopy()
}

// rig is a register in a bubble of its own time.
type rig struct {
	*testing.T
	*Register
	store *store
	stop  func()
}

func inBubble(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, store: newStore()}
		r.begin()
		test(r)
		r.stop()
	})
}

// begin is a server that begins.
func (r *rig) begin() {
	r.Helper()
	register, err := New(Options{Objects: r.store, Recorder: r.store, Assigned: func(types.UID) (v1alpha1.AppliedHead, bool) { return v1alpha1.AppliedHead{Version: 99}, true }})
	if err != nil {
		r.Fatal(err)
	}
	r.Register = register
	var list []any
	for _, n := range r.store.nodes {
		list = append(list, n.DeepCopy())
	}
	if err := (feed{register}).Replace(list, ""); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { register.loop(ctx, &all) })
	r.stop = func() {
		cancel()
		all.Wait()
	}
}

// make makes a Node.
func (r *rig) make(name, uid string) server.Identity {
	n := &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Now()}}
	r.store.mu.Lock()
	r.store.nodes[name] = n
	r.store.mu.Unlock()
	_ = feed{r.Register}.Add(n.DeepCopy())
	return server.Identity{Name: name, UID: uid}
}

func report(session string, start, number, version uint64) *wire.Report {
	m := catalog.Mark{Epoch: 1, Version: version, Root: catalog.KeyOf(fmt.Sprint(version)), Expires: time.Now().Add(24 * time.Hour).Unix()}
	if version == 0 {
		m = catalog.Mark{}
	}
	return &wire.Report{
		Session: wire.Session{ID: session, Start: start}, Number: number, Have: m, Enforced: m,
		Verdict: wire.Verdict{Type: wire.Applied, Epoch: 1, Version: version, Root: m.Root}, Counts: wire.Counts{Kept: 3, Repaired: 1, Failed: 1, Held: 2},
		Configs:  []wire.ConfigReport{{ID: "NodeConfig/qa/web", Converged: true, Settled: true}},
		Problems: []wire.Resource{{Title: "file/motd", Claim: "path:/etc/motd", Config: "NodeConfig/qa/web", Outcome: "failed", Code: reason.CheckRejected, Since: 5000}},
		Usage:    &wire.Usage{CPU: 1500, RSS: 12 << 20, Anonymous: 6 << 20, CommandsCPU: math.MaxUint64, CommandsRSS: math.MaxUint64},
		Host: &wire.Host{Version: "v1", Facts: map[string]string{"os.family": "debian"}, CPUs: 2, Memory: math.MaxUint64,
			Disks: []wire.Disk{{Name: "sda", Bytes: 1 << 40, Model: "Fast", Rotational: true}}, Interfaces: []wire.Interface{{Name: "eth0", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.7"}}}},
	}
}

// after lets time pass, and everything that follows happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *rig) wantReady(name string, status metav1.ConditionStatus, why string) {
	r.Helper()
	stored, shown := r.store.node(name), r.store.node(name)
	r.Decorate(shown)
	for what, n := range map[string]*v1alpha1.Node{"stored": stored, "shown": shown} {
		if c := meta.FindStatusCondition(n.Status.Conditions, node.Ready); c == nil || c.Status != status || c.Reason != why || c.LastTransitionTime.IsZero() {
			r.Errorf("%s is %+v, want %s %s", what, c, status, why)
		}
	}
}

func (r *rig) wantTold(all ...string) {
	r.Helper()
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if got := strings.Join(r.store.told, ", "); got != strings.Join(all, ", ") {
		r.Errorf("told %s", got)
	}
}

func TestNodeIsHeard(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		after(time.Second)
		if seen, ok := r.Of("1"); !ok || seen.Presence != node.Unheard || r.store.written() != 0 {
			t.Errorf("it is %+v, %v, and %d are written", seen, ok, r.store.written())
		}
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(2 * time.Second)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		r.wantTold("a FirstHeard")
		if r.store.written() != 1 {
			t.Errorf("%d are written", r.store.written())
		}
		n := r.store.node("a")
		r.Decorate(n)
		s := n.Status
		cpu := s.Capacity[v1alpha1.CapacityCPU]
		if s.AppliedHead.Version != 7 || s.AssignedHead.Version != 99 || s.Verdict.Type != v1alpha1.VerdictApplied || s.Promises.Kept != 3 || s.Held != 2 || s.Agent.Version != "v1" ||
			s.Facts["os.family"] != "debian" || cpu.Value() != 2 || len(s.Problems) != 1 || s.Problems[0].Code != reason.CheckRejected.String() || s.LastHeard == nil {
			t.Errorf("shown %+v", s)
		}
		want := v1alpha1.NodeDisk{Name: "sda", Size: resource.MustParse("1Ti"), Model: "Fast", Rotational: true}
		if len(s.Disks) != 1 || !equality.Semantic.DeepEqual(s.Disks[0], want) {
			t.Errorf("shown disks %+v", s.Disks)
		}
		if len(s.Interfaces) != 1 || s.Interfaces[0].Name != "eth0" || s.Interfaces[0].MAC == "" || !slices.Equal(s.Interfaces[0].Addresses, []string{"192.0.2.7"}) {
			t.Errorf("shown interfaces %+v", s.Interfaces)
		}
		if memory := s.Capacity[v1alpha1.CapacityMemory]; memory.Value() != math.MaxInt64 {
			t.Errorf("a memory that cannot be true is %v", memory)
		}
		// What cannot be true, because a host says what it likes, is large and not negative.
		if u := s.Agent.Usage; u == nil || u.CPU.Duration != 1500*time.Millisecond || u.Memory.Value() != 12<<20 || u.AnonymousMemory.Value() != 6<<20 ||
			u.CommandsCPU.Duration <= 0 || u.CommandsMemory.Value() != math.MaxInt64 {
			t.Errorf("the agent takes %+v", u)
		}
		if s := r.store.node("a").Status; s.AppliedHead.Version != 7 || s.AssignedHead != nil || s.Facts["os.family"] != "debian" || len(s.Disks) != 1 {
			t.Errorf("stored %+v", s)
		}
	})
}

// Heartbeats that say what the one before said change nothing, and cost no write.
func TestQuietNodeCostsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(time.Minute)
		writes := r.store.written()
		r.Changes()
		for i := range uint64(100) {
			r.Asked(a, 1)
			after(10 * time.Millisecond)
			r.Heard(a, 1, report("x", 1, 2+i, 7))
			after(45 * time.Second)
		}
		if got := r.Changes(); len(got) != 0 || r.store.written() != writes {
			t.Errorf("%v have changed, and %d are written", got, r.store.written()-writes)
		}
		r.Heard(a, 1, report("x", 1, 200, 8))
		after(time.Millisecond)
		if got := r.Changes(); len(got) != 1 {
			t.Errorf("after another state %v have changed", got)
		}
	})
}

// TestEcho: a host is told that it was heard while its node is there for the server that leads. While that counts as gone, as it does for a while though
// it is back, when it has gone several times, or while this server does not lead, it is not told.
func TestEcho(t *testing.T) {
	inBubble(t, func(r *rig) {
		leads, number, conn := true, uint64(0), uint64(0)
		r.options.Leads = func(time.Time) bool { return leads }
		a := r.make("a", "1")
		heard := func() bool {
			number++
			x := report("x", 1, number, 7)
			x.Echo = 1000 + number
			reply := r.Heard(a, conn, x)
			if reply.Echo != 0 && reply.Echo != x.Echo {
				t.Errorf("the echo of %d is %d", x.Echo, reply.Echo)
			}
			return reply.Echo != 0
		}
		var since time.Time
		for range 4 { // from the second time on it counts as gone for longer
			conn++
			r.Opened(a, conn)
			after(3 * time.Second)
			for range 40 {
				told := heard()
				if seen, _ := r.Of("1"); told != (seen.Presence != node.Gone) {
					t.Errorf("%v that it is told, and it is %s", told, seen.Presence)
				}
				after(3 * time.Second)
			}
			leads = false
			if heard() {
				t.Error("it is told by a server that does not lead")
			}
			leads = true
			r.Closed(a, conn, true)
			after(time.Second)
			seen, _ := r.Of("1")
			if seen.Presence != node.Gone || !seen.Since.After(since) || time.Since(seen.Since) > 2*time.Second {
				t.Errorf("it is %+v, and was gone since %s before", seen, since)
			}
			since = seen.Since
		}
		if stranger := report("z", 1, 1, 1); r.Heard(server.Identity{Name: "nobody", UID: "3"}, 9, stranger).Echo != 0 {
			t.Error("a host without a node is told that it was heard")
		}
	})
}

func TestSilentAndBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(time.Minute)
		r.Asked(a, 1)
		after(30 * time.Second)
		r.Asked(a, 1)
		after(9 * time.Second)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		after(2 * time.Second)
		r.wantReady("a", metav1.ConditionUnknown, node.ReasonAgentSilent)
		if p := r.store.node("a").Status.Promises; p.Unknown != 5 || p.Kept != 0 {
			t.Errorf("of a silent node %+v is stored", p)
		}
		r.Heard(a, 1, report("x", 1, 2, 7))
		after(time.Second)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		r.Closed(a, 1, true)
		after(time.Second)
		r.wantReady("a", metav1.ConditionUnknown, node.ReasonHostGone)
		r.wantTold("a FirstHeard", "a AgentSilent", "a Back", "a HostGone")
		if seen, _ := r.Of("1"); seen.Presence != node.Gone || seen.Report == nil {
			t.Errorf("it is %+v", seen)
		}
	})
}

// TestReplacedHost: that the host before had a copy says nothing of the one that a person has put in its place.
func TestReplacedHost(t *testing.T) {
	inBubble(t, func(r *rig) {
		old := r.make("a", "1")
		old.Key = "old"
		for conn, session := range map[uint64]string{1: "x", 2: "y"} {
			r.Opened(old, conn)
			r.Heard(old, conn, report(session, 5, 1, 7))
		}
		for i := range uint64(4) {
			after(40 * time.Second)
			r.Heard(old, 1, report("x", 5, 2+i, 7))
			r.Heard(old, 2, report("y", 5, 2+i, 7))
		}
		r.wantReady("a", metav1.ConditionFalse, node.Cloned)
		r.Closed(old, 1, false)
		r.Closed(old, 2, false)
		fresh := old
		fresh.Key = "fresh"
		r.Opened(fresh, 3)
		if r.Heard(fresh, 3, report("z", 1, 1, 0)).Cloned {
			t.Error("the fresh host is told that it has a copy")
		}
		after(2 * time.Second)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		n := r.store.node("a")
		r.Decorate(n)
		for _, kind := range []string{node.Cloned, node.RollbackSuspected} {
			if meta.IsStatusConditionTrue(n.Status.Conditions, kind) {
				t.Errorf("%s: %+v", kind, n.Status.Conditions)
			}
		}
	})
}

func TestCloned(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 5, 1, 7))
		after(time.Minute)
		r.Opened(a, 2)
		r.Heard(a, 2, report("y", 5, 1, 7))
		told := false
		for i := range uint64(4) {
			after(40 * time.Second)
			told = r.Heard(a, 1, report("x", 5, 2+i, 7)).Cloned || told
			r.Heard(a, 2, report("y", 5, 2+i, 7))
		}
		if seen, _ := r.Of("1"); seen.Believed || !told {
			t.Errorf("it is %+v, told %v", seen, told)
		}
		r.wantReady("a", metav1.ConditionFalse, node.Cloned)
		if seen, _ := r.Of("1"); seen.Report.Session.ID != "x" { // its connection counts as long as it is open
			t.Errorf("the report of %+v is shown", seen.Report.Session)
		}
	})
}

// TestDisbelieved: what a host did not believe is shown at its Node and measured, and told when it becomes more.
func TestDisbelieved(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, b := r.make("a", "1"), r.make("b", "2")
		r.Opened(b, 1)
		r.Heard(b, 1, report("y", 1, 1, 7))
		r.Opened(a, 1)
		x := report("x", 5, 1, 7)
		x.Refused = wire.Refused{Forged: 2, Content: 1}
		r.Heard(a, 1, x)
		after(3 * time.Second)
		told := func() (n int) {
			for _, text := range r.store.told {
				if strings.HasSuffix(text, "Disbelieved") {
					n++
				}
			}
			return n
		}
		n := r.store.node("a")
		r.Decorate(n)
		if d := n.Status.Disbelieved; d == nil || *d != (v1alpha1.Disbelieved{Forged: 2, Content: 1}) || told() != 0 {
			t.Errorf("%+v, told %d times of what was so before", d, told())
		}
		for i := range uint64(3) {
			x := report("x", 5, 2+i, 7)
			x.Refused = wire.Refused{Forged: 2 + min(i, 1), Content: 1}
			r.Heard(a, 1, x)
			after(time.Second)
		}
		if told() != 1 || r.sum(func(x wire.Refused) uint64 { return x.Forged }) != 3 {
			t.Errorf("told %d times, %v forged: %v", told(), r.sum(func(x wire.Refused) uint64 { return x.Forged }), r.store.told)
		}
		n = r.store.node("b")
		r.Decorate(n)
		if n.Status.Disbelieved != nil {
			t.Errorf("of who was not lied to: %+v", n.Status.Disbelieved)
		}
	})
}

// TestStoreBehind: a host that has accepted what the store does not know says so at its Node at once, over a restart too, until it was
// compared again.
func TestStoreBehind(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		is := func(when string, want metav1.ConditionStatus) {
			t.Helper()
			n := r.store.node("a")
			r.Decorate(n)
			c := meta.FindStatusCondition(n.Status.Conditions, node.RollbackSuspected)
			if c == nil || c.Status != want || want == metav1.ConditionTrue && c.Message != "a copy" {
				t.Errorf("%s: %+v", when, c)
			}
		}
		comes := func(conn uint64) {
			r.Opened(a, conn)
			r.Heard(a, conn, report("x", 5, conn, 7))
		}
		comes(1)
		r.Judged(a, "")
		after(3 * time.Second)
		is("in order", metav1.ConditionFalse)
		for conn := uint64(2); conn < 5; conn++ {
			comes(conn)
			r.Judged(a, "a copy")
			r.Closed(a, conn, false)
			after(0)
			is("refused", metav1.ConditionTrue)
			after(30 * time.Second)
		}
		r.stop()
		r.begin()
		comes(1)
		after(time.Second)
		is("heard by another server", metav1.ConditionTrue)
		r.Judged(a, "")
		after(0)
		is("in another epoch", metav1.ConditionFalse)
	})
}

// What was stored is what a node is measured by after a restart, and stays until it was heard.
func TestRestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.make("b", "2")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 5, 1, 7))
		after(time.Minute)
		r.stop()
		r.begin()
		after(time.Minute)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		r.Opened(a, 1)
		r.Heard(a, 1, report("y", 6, 1, 5)) // its disk is an older one
		after(time.Second)
		if c := meta.FindStatusCondition(r.store.node("a").Status.Conditions, node.RollbackSuspected); c == nil || c.Status != metav1.ConditionTrue {
			t.Errorf("stored %+v", c)
		}
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
		after(time.Minute)
		r.wantReady("b", metav1.ConditionUnknown, node.ReasonNeverHeard)
		if seen, _ := r.Of("2"); seen.Presence != node.Gone {
			t.Errorf("it is %+v", seen)
		}
	})
}

// Many states in a short time are one write, some seconds later.
func TestMarksAreStoredTogether(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(time.Minute)
		before := r.store.written()
		for i := range uint64(20) {
			r.Heard(a, 1, report("x", 1, 2+i, 8+i))
			after(100 * time.Millisecond)
		}
		if r.store.written() != before {
			t.Error("it is written at once")
		}
		after(2 * markDelay)
		if got := r.store.node("a").Status.AppliedHead.Version; got != 27 || r.store.written() != before+1 {
			t.Errorf("version %d is stored, with %d writes", got, r.store.written()-before)
		}
	})
}

func TestNodeGoes(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(time.Second)
		again := server.Identity{Name: "a", UID: "2"}
		r.Heard(again, 2, report("y", 1, 1, 3)) // before its object is seen
		if _, ok := r.Of("2"); ok {
			t.Error("it is known before")
		}
		r.make("a", "2")
		after(3 * time.Second)
		if _, ok := r.Of("1"); ok {
			t.Error("the first is still known")
		}
		if seen, ok := r.Of("2"); !ok || seen.Report.Session.ID != "y" {
			t.Errorf("the second is %+v", seen)
		}
		_ = feed{r.Register}.Delete(r.store.node("a"))
		r.Heard(server.Identity{Name: "nobody", UID: "3"}, 4, report("z", 1, 1, 1))
		after(2 * unknownMax)
		if len(r.nodes)+len(r.names)+len(r.wakes)+len(r.saves) != 0 {
			t.Errorf("left are %v, %v, %v, %v", r.nodes, r.names, r.wakes, r.saves)
		}
	})
}

// A host that says something else with each report is no load: it is written down once a second.
func TestFickleHost(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		after(10 * time.Second)
		before := r.store.written()
		for i := range uint64(1000) {
			r.Heard(a, 1, report("x", 5, i+1, 100-i%2*50)) // up and down
			after(10 * time.Millisecond)
		}
		if n := r.store.written() - before; n < 5 || n > 12 {
			t.Errorf("%d writes in 10 s", n)
		}
		// And so on for as long as it likes: the writes, Events and decisions that it causes come at a bounded pace.
		before, told, changes := r.store.written(), len(r.store.told), 0
		r.Changes()
		const long = 10 * time.Minute
		for i := range uint64(long / (50 * time.Millisecond)) {
			x := report("x", 5, i+1001, 100-i%2*50)
			x.Have.Expires = time.Now().Unix() + 1000 - int64(i%3)*1000 // valid and expired in turn
			r.Heard(a, 1, x)
			after(50 * time.Millisecond)
			changes += len(r.Changes())
		}
		if n, most := r.store.written()-before, writing().atOnce+int(long/writing().pause); n < most/2 || n > most+1 {
			t.Errorf("%d writes in %s", n, long)
		}
		if n, most := len(r.store.told)-told, telling().atOnce+2*int(long/telling().pause); n < 5 || n > most {
			t.Errorf("%d events in %s", n, long)
		}
		if most := changing().atOnce + int(long/changing().pause); changes < most/2 || changes > most+1 {
			t.Errorf("%d changes in %s", changes, long)
		}
		r.Heard(a, 1, report("x", 5, 200_000, 100))
		after(changing().pause)
		if len(r.Changes()) != 1 || r.Changes() == nil {
			t.Error("others are not told of its last word")
		}
		after(writing().pause)
		if c := meta.FindStatusCondition(r.store.node("a").Status.Conditions, node.RollbackSuspected); c == nil || c.Status != metav1.ConditionFalse {
			t.Errorf("the last word is not stored: %+v", c)
		}
	})
}

// A store that does not take anything is tried again, ever more seldom, and has everything in the end.
func TestStoreFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.store.fail = errors.New("no room")
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(10 * time.Minute)
		r.store.mu.Lock()
		r.store.fail = nil
		r.store.mu.Unlock()
		after(retryMax + time.Second)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
	})
}

// TestSimulation: whatever happens in whatever order, with a store that fails now and then and servers that come and go, what is stored
// is in the end what is shown, the highest mark never goes back, and nothing is written when nothing happens.
func TestSimulation(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { simulate(r, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func simulate(r *rig, rng *rand.Rand) {
	var hosts []server.Identity
	for i := range 5 {
		hosts = append(hosts, r.make(fmt.Sprint("n", i), fmt.Sprint(i)))
	}
	conn, number, version, starts := uint64(0), uint64(0), uint64(1), uint64(1)
	open := map[string]uint64{}
	high := map[string]int64{}
	for range 300 {
		who := hosts[rng.IntN(len(hosts))]
		switch k := rng.IntN(20); {
		case k < 3:
			conn++
			starts++
			open[who.UID] = conn
			r.Opened(who, conn)
			r.Heard(who, conn, report(fmt.Sprint(starts), starts, 1, version))
		case k < 5:
			r.Closed(who, open[who.UID], k == 3)
		case k < 8:
			r.Asked(who, open[who.UID])
		case k < 14:
			number++
			r.Heard(who, open[who.UID], report(fmt.Sprint(starts), starts, number+1, version))
		case k == 14:
			version++
		case k == 15:
			r.store.mu.Lock()
			r.store.fail = []error{nil, errors.New("no room")}[rng.IntN(2)]
			r.store.mu.Unlock()
		case k == 16 && rng.IntN(5) == 0:
			r.stop()
			r.begin()
			open = map[string]uint64{}
		}
		after(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		for _, h := range hosts {
			if head := r.store.node(h.Name).Status.AppliedHead; head != nil {
				if head.Version < high[h.Name] {
					r.Fatalf("%s has gone back from %d to %d", h.Name, high[h.Name], head.Version)
				}
				high[h.Name] = head.Version
			}
		}
	}
	r.store.mu.Lock()
	r.store.fail = nil
	r.store.mu.Unlock()
	after(30 * time.Minute)
	writes := r.store.written()
	after(time.Hour)
	if r.store.written() != writes {
		r.Errorf("%d are written when nothing happens", r.store.written()-writes)
	}
	for _, h := range hosts {
		stored, shown := r.store.node(h.Name), r.store.node(h.Name)
		r.Decorate(shown)
		for _, c := range shown.Status.Conditions {
			if s := meta.FindStatusCondition(stored.Status.Conditions, c.Type); s == nil || s.Status != c.Status || s.Reason != c.Reason {
				r.Errorf("of %s is stored %+v, and shown %+v", h.Name, s, c)
			}
		}
	}
}

// TestMemory says what a node costs: bounded by its report, so that servers can be sized.
func TestMemory(t *testing.T) {
	const nodes = 10_000
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
		r.Heard(who, uint64(i+1), report("x", 1, 1, 7))
		r.decide(time.Now())
	}
	runtime.GC()
	runtime.ReadMemStats(&with)
	each := (int64(with.HeapAlloc) - int64(before.HeapAlloc)) / nodes
	t.Logf("%d bytes for each of %d nodes", each, nodes)
	if each > 8<<10 {
		t.Errorf("%d bytes for each node", each)
	}
	runtime.KeepAlive(r)
}

// TestOvertakenReport: of what a host has said the newest counts, in whatever order it comes: a report that a newer one of its session has
// overtaken, one over a watch before the newest, and one that is repeated change nothing.
func TestOvertakenReport(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Opened(a, 2)
		for _, c := range []struct {
			conn, number, version, want uint64
		}{{2, 5, 7, 7}, {2, 4, 6, 7}, {1, 6, 5, 7}, {2, 5, 4, 7}, {2, 6, 8, 8}, {2, 2, 3, 8}} {
			r.Heard(a, c.conn, report("x", 1, c.number, c.version))
			synctest.Wait()
			if seen, _ := r.Of("1"); seen.Report.Enforced.Version != c.want {
				t.Errorf("after report %d over watch %d version %d counts, want %d", c.number, c.conn, seen.Report.Enforced.Version, c.want)
			}
		}
		r.Opened(a, 3)
		r.Heard(a, 3, report("y", 2, 1, 9)) // a session that begins
		if seen, _ := r.Of("1"); seen.Report.Enforced.Version != 9 {
			t.Errorf("of the next session %d counts", seen.Report.Enforced.Version)
		}
	})
}

// TestOldWatchToldLate: a server that stood still tells of the watch that its host had there, and then that it has ended. The host has gone on through a
// relay: that is what is known of it, and it is believed.
func TestOldWatchToldLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		elsewhere := a
		elsewhere.Through = "relay-1"
		r.Opened(elsewhere, 1)
		r.Heard(elsewhere, 1, report("x", 1, 5, 8))
		after(time.Minute)
		r.Opened(a, 2)
		r.Heard(a, 2, report("x", 1, 3, 7))
		knows := func(version uint64) {
			t := r.T
			t.Helper()
			seen, _ := r.Of("1")
			shown := r.store.node("a")
			r.Decorate(shown)
			if seen.Report.Enforced.Version != version || !seen.Believed || shown.Status.Through != "relay-1" {
				t.Errorf("of version %d, believed %v, through %q; want version %d", seen.Report.Enforced.Version, seen.Believed, shown.Status.Through, version)
			}
		}
		knows(8)
		after(time.Minute)
		r.Heard(elsewhere, 1, report("x", 1, 6, 9))
		r.Closed(a, 2, true)
		after(time.Minute)
		knows(9)
		r.wantReady("a", metav1.ConditionTrue, node.ReasonAnswering)
	})
}

// TestManyAreAskedToBeSilent: few hosts answer each heartbeat; of many each is told for how long it need not, other times each time, and that it
// says nothing meanwhile is no silence. A hang is found all the same.
