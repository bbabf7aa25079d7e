package presence

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// shown is a node as it is read.
func (r *rig) shown(name string) *v1alpha1.Node {
	n := r.store.node(name)
	r.Decorate(n)
	return n
}

// TestTransferCase27_VersionBeyondAll: a host that was given the highest version that there is says so, and nothing in its status is negative; after
// the next epoch has begun it goes on from there.
func TestTransferCase27_VersionBeyondAll(t *testing.T) {
	c := casetest.Start(t)
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(3 * time.Second)
		for i, far := range []uint64{1 << 63, math.MaxUint64} {
			r.Heard(a, 1, report("x", 1, 2+uint64(i), far))
			after(20 * time.Second)
			s := r.shown("a").Status
			c.Equal(s.AppliedHead.Version, int64(math.MaxInt64), "the version that is shown")
			c.Equal(s.Verdict.Version, int64(math.MaxInt64), "the version of the verdict")
			c.Equal(r.store.node("a").Status.AppliedHead.Version, int64(math.MaxInt64), "the version that is stored")
			seen, _ := r.Of("1")
			c.Equal(seen.Highest.Version, far, "the highest version that is known of it")
		}
		r.Judged(a, "the store does not know that")
		after(3 * time.Second)
		suspected := meta.FindStatusCondition(r.shown("a").Status.Conditions, node.RollbackSuspected)
		c.Check(suspected != nil && suspected.Status == metav1.ConditionTrue, "it is %+v", suspected)

		x := report("x", 1, 9, 9)
		for _, m := range []*catalog.Mark{&x.Have, &x.Enforced} {
			m.Epoch = 2
		}
		x.Verdict.Epoch = 2
		r.Judged(a, "")
		r.Heard(a, 1, x)
		after(20 * time.Second)
		s := r.shown("a").Status
		c.Equal(s.AppliedHead.Epoch, int64(2), "the epoch that is shown")
		c.Equal(s.AppliedHead.Version, int64(9), "the version that is shown")
		suspected = meta.FindStatusCondition(s.Conditions, node.RollbackSuspected)
		c.Check(suspected != nil && suspected.Status == metav1.ConditionFalse, "it is %+v", suspected)
	})
}

// TestTransferCase28_PeopleAreTold: a host that has seen two states under one version has an event and a count at its Node, and there is a metric.
func TestTransferCase28_PeopleAreTold(t *testing.T) {
	c := casetest.Start(t)
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		r.Heard(a, 1, report("x", 1, 1, 7))
		after(3 * time.Second)
		x := report("x", 1, 2, 7)
		x.Refused.Equivocation = 1
		r.Heard(a, 1, x)
		after(3 * time.Second)
		c.Equal(r.shown("a").Status.Disbelieved, &v1alpha1.Disbelieved{Equivocation: 1}, "what its Node says")
		r.store.mu.Lock()
		told := strings.Join(r.store.told, ", ")
		r.store.mu.Unlock()
		c.Check(strings.Contains(told, "a Disbelieved"), "people are told %s", told)
		c.Equal(gauge(t, r, "tako_presence_disbelieved", "equivocation"), 1.0, "the metric")
	})
}

// gauge is what a metric says.
func gauge(t *testing.T, r *rig, name, what string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, m := range r.metrics() {
		if err := registry.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (what == "" || m.GetLabel()[0].GetValue() == what) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestTransferCase31_ClockAhead: a host that takes its state for expired, and by the clock of the server it has not, is stale because of its clock.
func TestTransferCase31_ClockAhead(t *testing.T) {
	c := casetest.Start(t)
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		stale := func() *metav1.Condition { return meta.FindStatusCondition(r.shown("a").Status.Conditions, node.Stale) }
		say := func(number uint64, expired bool, ahead time.Duration) {
			x := report("x", 1, number, 7)
			x.Stale, x.At = expired, time.Now().Add(ahead).UnixMilli()
			r.Heard(a, 1, x)
			after(20 * time.Second)
		}
		r.Opened(a, 1)
		say(1, false, 0)
		c.Equal(stale().Reason, node.ReasonHeadValid, "why it is not stale")
		say(2, true, 26*time.Hour)
		c.Equal(stale().Status, metav1.ConditionTrue, "whether it is stale")
		c.Equal(stale().Reason, node.ReasonClockAhead, "why")
		c.Check(strings.Contains(stale().Message, "26h0m0s"), "it says %q", stale().Message)
		stored := meta.FindStatusCondition(r.store.node("a").Status.Conditions, node.Stale)
		c.Equal(stored.Reason, node.ReasonClockAhead, "what is stored")
		writes := r.store.written()
		for i := range uint64(10) { // it goes on with its heartbeats, whose way takes another time each
			say(3+i, true, 26*time.Hour+time.Duration(i)*time.Second)
		}
		c.Equal(r.store.written(), writes, "writes because of that")
		say(20, false, 0)
		c.Equal(stale().Status, metav1.ConditionFalse, "whether it is stale when its clock is right")
		say(21, true, time.Second)
		c.Equal(stale().Reason, node.ReasonHeadValid, "why it is not stale: the clocks agree, and it has just got a later head")
	})
}

// TestTransferCase38_LagMetric: how many hosts are behind, and for how long the one is that is so the longest. How many states came meanwhile does
// not matter.
func TestTransferCase38_LagMetric(t *testing.T) {
	c := casetest.Start(t)
	inBubble(t, func(r *rig) {
		since := metav1.NewTime(time.Now())
		heads := map[types.UID]v1alpha1.AppliedHead{"1": {Epoch: 1, Version: 7, Since: &since}, "2": {Epoch: 1, Version: 9, Since: &since}, "3": {Epoch: 1, Version: 9}}
		r.Register.options.Assigned = func(uid types.UID) (v1alpha1.AppliedHead, bool) {
			head, ok := heads[uid]
			return head, ok
		}
		c.Equal(gauge(t, r, "tako_presence_behind_nodes", ""), 0.0, "hosts that are behind, before one was heard")
		for i, name := range []string{"a", "b", "c", "d"} {
			who := r.make(name, string(rune('1'+i)))
			r.Opened(who, 1)
			r.Heard(who, 1, report("x", 1, 1, 7))
		}
		after(10 * time.Minute)
		c.Equal(gauge(t, r, "tako_presence_behind_nodes", ""), 2.0, "hosts that are behind")
		c.Equal(gauge(t, r, "tako_presence_lag_seconds", ""), 600.0, "for how long, in seconds")
		head := heads["2"]
		head.Version = 90
		heads["2"] = head
		c.Equal(gauge(t, r, "tako_presence_lag_seconds", ""), 600.0, "for how long, when more states have come")
		r.Heard(server.Identity{Name: "b", UID: "2"}, 1, report("x", 1, 2, 90))
		r.Heard(server.Identity{Name: "c", UID: "3"}, 1, report("x", 1, 2, 9))
		after(time.Second)
		c.Equal(gauge(t, r, "tako_presence_lag_seconds", "")+gauge(t, r, "tako_presence_behind_nodes", ""), 0.0, "lag and hosts when all have caught up")
	})
}

// TestRefusedIsShown: what a host says of a state that it will not have is at its Node, each time that it says it, with its code.
func TestRefusedIsShown(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := r.make("a", "1")
		r.Opened(a, 1)
		for i, kind := range []wire.VerdictType{wire.Rejected, wire.Withheld, wire.Quarantined} {
			x := report("x", 1, 1+uint64(i), 7)
			x.Server, x.Verdict = "relay.test:6444", wire.Verdict{Type: kind, Epoch: 1, Version: 8, Code: reason.DiskFull, Message: "no room"}
			r.Heard(a, 1, x)
			after(3 * time.Second)
			s := r.shown("a").Status
			if v := s.Verdict; v == nil || string(v.Type) != kind.String() || v.Version != 8 || v.Code != reason.DiskFull.String() || v.Message != "no room" || s.Server != "relay.test:6444" {
				t.Errorf("%s is shown as %+v, through %s", kind, v, s.Server)
			}
		}
	})
}
