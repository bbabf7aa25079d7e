package preview

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a fleet of a test: hosts that were heard, and what a store has.
type world struct {
	testing.TB
	Fleet
	seen map[types.UID]presence.Seen
}

// newWorld has nodes of 4 processors and 8 GiB: node-0 in zone a, node-1 in b, node-2 in c, node-3 in a.
func newWorld(t testing.TB, nodes int) *world {
	w := &world{TB: t, seen: map[types.UID]presence.Seen{}}
	w.Seen = func(uid types.UID) (presence.Seen, bool) {
		s, known := w.seen[uid]
		return s, known
	}
	for i := range nodes {
		n := &v1alpha1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), UID: types.UID(fmt.Sprint("n", i)), ResourceVersion: "1", Labels: map[string]string{zoneLabel: string(rune('a' + i%3))}},
			Spec:       v1alpha1.NodeSpec{Environment: "prod"},
			Status:     v1alpha1.NodeStatus{Identity: &v1alpha1.NodeIdentity{Key: "sha256:00", Joined: metav1.NewTime(start)}},
		}
		w.Nodes = append(w.Nodes, n)
		w.seen[n.UID] = presence.Seen{Presence: node.Here, Believed: true, Report: &wire.Report{
			Offers: &wire.Offers{CPU: 4000, Memory: 8 << 30, Disk: 100 << 30, Arch: "amd64", Runtimes: []string{"Process", "Systemd"}},
		}}
	}
	return w
}

// web is a workload of one task that requests some processors.
func web(replicas int32, cpu string) declared.Spec {
	return declared.Spec{Replicas: &replicas, Template: declared.Template{Labels: map[string]string{"app": "web"},
		Tasks: []declared.Task{{Name: "web", Command: []string{"/bin/web"}, Resources: declared.Resources{Requests: declared.Amounts{CPU: declare.Quantity(cpu), Memory: "512Mi"}}}}}}
}

func planned(name string, spec declared.Spec) v1alpha1.PlannedWorkload {
	return v1alpha1.PlannedWorkload{Name: name, Spec: spec}
}

// plan asks, and finds that nothing of the fleet was changed by that.
func (w *world) plan(spec v1alpha1.PlanSpec) v1alpha1.PlanStatus {
	w.Helper()
	var before []any
	for _, o := range w.Workloads {
		before = append(before, o.DeepCopy())
	}
	for _, o := range w.Instances {
		before = append(before, o.DeepCopy())
	}
	status, err := Make(w.Context(), &w.Fleet, "prod", &spec, start)
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range w.Workloads {
		before = w.same(before, o)
	}
	for _, o := range w.Instances {
		before = w.same(before, o)
	}
	return status
}

func (w *world) same(before []any, o any) []any {
	w.Helper()
	if !reflect.DeepEqual(before[0], o) {
		w.Errorf("%+v was changed to %+v", before[0], o)
	}
	return before[1:]
}

// apply makes workloads what they are planned to be, as the store would have them when that has come to its end.
func (w *world) apply(all ...v1alpha1.PlannedWorkload) {
	w.Helper()
	s := newStore(start)
	s.uids = 1000 // of what is planned later, none has one of these
	h := &hosts{real: w.Seen, seen: map[types.UID]heard{}}
	if _, err := follow(w.Context(), s, h, &w.Fleet, "prod", &v1alpha1.PlanSpec{Workloads: all}); err != nil {
		w.Fatal(err)
	}
	w.Workloads, w.Revisions, w.Instances = of[*v1alpha1.Workload](s), of[*v1alpha1.Revision](s), of[*v1alpha1.Instance](s)
	for uid, is := range h.seen {
		w.seen[uid] = is.Seen
	}
}

// TestSpread: what is new is spread as it says, and the answer counts it by node and zone.
func TestSpread(t *testing.T) {
	w := newWorld(t, 4)
	spec := web(3, "1")
	spec.Placement.TopologySpread = []declared.TopologySpread{{TopologyKey: zoneLabel}}
	got := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", spec)}})
	p := got.Workloads[0]
	if p.Wanted != 3 || p.Placed != 3 || p.Added != 3 || p.Pending != nil || p.Phase != "Complete" || len(p.Nodes) != 3 || got.Message != "" {
		t.Errorf("%+v", got)
	}
	want := []v1alpha1.PlannedDomain{{Key: zoneLabel, Value: "a", Instances: 1}, {Key: zoneLabel, Value: "b", Instances: 1}, {Key: zoneLabel, Value: "c", Instances: 1}}
	if !reflect.DeepEqual(p.Domains, want) {
		t.Errorf("%+v", p.Domains)
	}
}

// TestTogether: two workloads each of which there would be room for are too much together, and it is said why.
func TestTogether(t *testing.T) {
	w := newWorld(t, 2)
	got := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("a", web(4, "1500m")), planned("b", web(4, "1500m"))}})
	a, b := got.Workloads[0], got.Workloads[1]
	if a.Placed+b.Placed != 4 {
		t.Errorf("%+v %+v", a, b)
	}
	short := b
	if b.Pending == nil {
		short = a
	}
	if short.Pending == nil || short.Pending.Nodes != 2 || len(short.Pending.Nearest) == 0 || !strings.Contains(short.Pending.Message, "too little cpu") || short.Phase == "RollingBack" {
		t.Errorf("%+v", short)
	}
}

// TestImpossible: what fits nowhere is explained as it would be when it is applied.
func TestImpossible(t *testing.T) {
	w := newWorld(t, 2)
	w.apply(planned("huge", web(1, "64")))
	applied := w.Workloads[0].Status.Pending
	w = newWorld(t, 2)
	got := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("huge", web(1, "64"))}}).Workloads[0]
	if applied == nil || got.Placed != 0 || !reflect.DeepEqual(got.Pending, applied) || !strings.HasPrefix(got.Pending.Message, reason.NoNodeFits.String()) {
		t.Errorf("%+v, want %+v", got, applied)
	}
}

// TestRolled: another template replaces all, more replicas keep what is there, and what only what is read at once has changed is changed in place.
func TestRolled(t *testing.T) {
	w := newWorld(t, 3)
	w.apply(planned("web", web(3, "1")))
	if len(w.Instances) != 3 {
		t.Fatalf("%d instances", len(w.Instances))
	}
	another := web(3, "1")
	another.Template.Tasks[0].Args = []string{"v2"}
	another.Rollout.MinReady = "1m"
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", another)}}).Workloads[0]; p.Replaced != 3 || p.Placed != 3 || p.Kept+p.Added+p.Removed != 0 || p.Phase != "Complete" {
		t.Errorf("another template: %+v", p)
	}
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", web(5, "1"))}}).Workloads[0]; p.Kept != 3 || p.Added != 2 || p.Replaced != 0 {
		t.Errorf("more replicas: %+v", p)
	}
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", web(1, "1"))}}).Workloads[0]; p.Kept != 1 || p.Removed != 2 {
		t.Errorf("fewer replicas: %+v", p)
	}
	labelled := web(3, "1")
	labelled.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", labelled)}}).Workloads[0]; p.Changed != 3 || p.Replaced+p.Added != 0 {
		t.Errorf("other labels: %+v", p)
	}
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", web(3, "1"))}}).Workloads[0]; p.Kept != 3 || p.Placed != 3 {
		t.Errorf("the same: %+v", p)
	}
}

// TestDisplaced: what is more important makes others go, and it is said who finds no other node.
func TestDisplaced(t *testing.T) {
	w := newWorld(t, 1)
	low := web(4, "1")
	low.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "50%"}
	w.apply(planned("low", low))
	high := web(2, "1")
	high.Priority = 100
	got := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("high", high)}})
	want := []v1alpha1.DisplacedWorkload{{Name: "low", Displaced: 2, Pending: 2, Nodes: []string{"node-0"}}}
	if got.Workloads[0].Placed != 2 || !reflect.DeepEqual(got.Displaced, want) {
		t.Errorf("%+v", got)
	}
}

// TestDeleted: what is deleted makes room for what is applied with it.
func TestDeleted(t *testing.T) {
	w := newWorld(t, 1)
	w.apply(planned("old", web(4, "1")))
	if p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("new", web(4, "1"))}}).Workloads[0]; p.Placed != 0 {
		t.Errorf("beside the old one: %+v", p)
	}
	got := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("new", web(4, "1"))}, Delete: []string{"old", "never"}})
	if got.Workloads[0].Placed != 4 || got.Workloads[1].Removed != 4 || got.Workloads[1].Placed != 0 || got.Workloads[2].Removed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCanary: pauses pass, and what waits for people stays where it waits.
func TestCanary(t *testing.T) {
	w := newWorld(t, 3)
	w.apply(planned("web", web(4, "500m")))
	canary := func(promotion declared.Promotion) v1alpha1.WorkloadPlan {
		spec := web(4, "500m")
		spec.Template.Tasks[0].Args = []string{"v2"}
		spec.Rollout.Strategy = declared.Canary
		spec.Rollout.Steps = []declared.CanaryStep{{Replicas: "1", Pause: "1h", Promotion: promotion}}
		return w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", spec)}}).Workloads[0]
	}
	if p := canary(declared.AutomaticPromotion); p.Replaced != 4 || p.Kept != 0 {
		t.Errorf("by itself: %+v", p)
	}
	if p := canary(declared.ManualPromotion); p.Kept < 3 || p.Replaced+p.Added != 1 || p.Phase == "Complete" || p.Message == "" {
		t.Errorf("by people: %+v", p)
	}
}

// TestAway: hosts that are not heard take nothing and end nothing, and nothing is made up for them.
func TestAway(t *testing.T) {
	w := newWorld(t, 2)
	w.apply(planned("web", web(2, "1")))
	gone := w.seen["n0"]
	gone.Presence = node.Silent
	w.seen["n0"] = gone
	more := web(4, "1")
	p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", more)}}).Workloads[0]
	for _, n := range p.Nodes {
		if n.Name == "node-0" && n.Added > 0 {
			t.Errorf("%+v", p)
		}
	}
	if p.Placed != 4 || p.Kept != 2 {
		t.Errorf("%+v", p)
	}
}

// TestSchedule: of a schedule it is one run, as if it began now; those of others do not begin.
func TestSchedule(t *testing.T) {
	w := newWorld(t, 2)
	job := web(1, "1")
	job.Replicas = nil
	job.Mode = declared.RunToCompletion
	job.Job = &declared.Job{}
	job.Schedule = &declared.Schedule{Cron: "* * * * *"}
	p := w.plan(v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("nightly", job)}}).Workloads[0]
	if p.Placed != 1 || p.Added != 1 || p.Pending != nil {
		t.Errorf("%+v", p)
	}
}

// TestBounded: a question that nobody waits for any more is answered as far as it has come, and a namespace of many instances in time.
func TestBounded(t *testing.T) {
	w := newWorld(t, 300)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := &v1alpha1.PlanSpec{Workloads: []v1alpha1.PlannedWorkload{planned("web", web(900, "1"))}}
	status, err := Make(ctx, &w.Fleet, "prod", spec, start)
	if err != nil || status.Message == "" {
		t.Errorf("%+v, %v", status, err)
	}
	got := w.plan(*spec)
	p := got.Workloads[0]
	if p.Placed != 900 || len(p.Nodes) != 300 || p.MoreNodes != 0 || got.Message != "" {
		t.Errorf("%d on %d and %d nodes: %s", p.Placed, len(p.Nodes), p.MoreNodes, got.Message)
	}
}
