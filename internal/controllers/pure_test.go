package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/gc"
)

func TestSurplusKeepsWhatIsInUseAndTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var made []metav1.PartialObjectMetadata
		for i := range rapid.IntRange(0, 30).Draw(t, "n") {
			var m metav1.PartialObjectMetadata
			m.Name = string(rune('A' + i))
			m.CreationTimestamp = metav1.Unix(int64(rapid.IntRange(0, 5).Draw(t, "age")), 0)
			if rapid.IntRange(0, 5).Draw(t, "deleting") == 0 {
				m.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
			}
			made = append(made, m)
		}
		inUse, keep := map[string]bool{}, rapid.IntRange(0, 12).Draw(t, "keep")
		for _, name := range rapid.SliceOfN(rapid.StringMatching("[A-Z]"), 0, 4).Draw(t, "inUse") {
			inUse[name] = true
		}
		before := slices.Clone(made)
		gone := surplus(made, inUse, keep)
		left := 0
		for _, m := range made {
			goes := slices.ContainsFunc(gone, func(g metav1.PartialObjectMetadata) bool { return g.Name == m.Name })
			if goes && (inUse[m.Name] || m.DeletionTimestamp != nil) {
				t.Fatalf("%s goes", m.Name)
			}
			if goes || inUse[m.Name] || m.DeletionTimestamp != nil {
				continue
			}
			left++
			for _, g := range gone {
				if g.CreationTimestamp.After(m.CreationTimestamp.Time) {
					t.Fatalf("%s goes and is newer than %s", g.Name, m.Name)
				}
			}
		}
		if left > keep || len(gone) > 0 && left != keep {
			t.Fatalf("%d old ones are left and %d go, %d are to be kept", left, len(gone), keep)
		}
		if !slices.EqualFunc(made, before, func(a, b metav1.PartialObjectMetadata) bool { return a.Name == b.Name }) {
			t.Fatal("the caller's list is changed")
		}
	})
}

// Whatever came before, the condition tells of the last outcome, and nothing that others write is touched.
func TestConditionSaysWhatIs(t *testing.T) {
	want := map[string]metav1.ConditionStatus{
		reasonRevisionMade: metav1.ConditionTrue, reasonRevisionPending: metav1.ConditionUnknown, reasonRevisionConflict: metav1.ConditionFalse,
	}
	rapid.Check(t, func(t *rapid.T) {
		ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Rolling"}
		status := v1alpha1.NodeConfigStatus{ObservedGeneration: 77, Conditions: []metav1.Condition{ready}}
		revision := ""
		for generation := range int64(rapid.IntRange(1, 5).Draw(t, "n")) {
			o := outcome{revision: rapid.StringMatching("web-[0-9]{3}").Draw(t, "revision"), words: "words",
				reason: rapid.SampledFrom([]string{reasonRevisionMade, reasonRevisionPending, reasonRevisionConflict}).Draw(t, "reason")}
			describe(&status, generation, "Revision", o)
			if o.reason == reasonRevisionMade {
				revision = o.revision
			}
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRevised)
			if c == nil || c.Status != want[o.reason] || c.ObservedGeneration != generation || c.Reason != o.reason || !strings.Contains(c.Message, "words") {
				t.Fatalf("after %s: %+v", o.reason, c)
			}
			if status.Revision != revision || status.ObservedGeneration != 77 || len(status.Conditions) != 2 || status.Conditions[0] != ready {
				t.Fatalf("after %s: %+v", o.reason, status)
			}
		}
	})
}

func TestSettled(t *testing.T) {
	config := &v1alpha1.NodeConfig{}
	config.Generation = 3
	status := &config.Status
	describe(status, 3, "Revision", outcome{revision: "web-1", reason: reasonRevisionMade})
	var there metav1.PartialObjectMetadata
	there.Name = "web-1"
	made := []metav1.PartialObjectMetadata{there}
	if !settled(config, status, made) {
		t.Error("it is not")
	}
	if settled(config, status, nil) {
		t.Error("without its revision it is")
	}
	config.Generation = 4
	if settled(config, status, made) {
		t.Error("after a change it is")
	}
	config.Generation = 3
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRevised, Status: metav1.ConditionFalse, Reason: "x"})
	if settled(config, status, made) {
		t.Error("not Revised it is")
	}
}

// A revision that has the name and is not what it should be is never taken for it.
func TestCompare(t *testing.T) {
	r := &revisions{kind: revisionKinds()[0]}
	config := &v1alpha1.NodeConfig{}
	config.Name, config.UID = "web", "new"
	digest, err := catalog.RevisionDigest(nil)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	by := func(uid, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "NodeConfig", Name: name, UID: types.UID(uid), Controller: &yes}}
	}
	for what, test := range map[string]struct {
		change func(*v1alpha1.Revision)
		want   string
	}{
		"ours":                      {func(*v1alpha1.Revision) {}, reasonRevisionMade},
		"of nobody":                 {func(o *v1alpha1.Revision) { o.OwnerReferences = nil }, reasonRevisionConflict},
		"of another config":         {func(o *v1alpha1.Revision) { o.OwnerReferences = by("other", "other") }, reasonRevisionConflict},
		"of a config that was here": {func(o *v1alpha1.Revision) { o.OwnerReferences = by("old", "web") }, reasonRevisionPending},
		"on its way out":            {func(o *v1alpha1.Revision) { o.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)} }, reasonRevisionPending},
		"with other content":        {func(o *v1alpha1.Revision) { o.Spec.Resources = append(o.Spec.Resources, declare.Resource{Name: "a"}) }, reasonRevisionConflict},
	} {
		there := &v1alpha1.Revision{}
		there.Name, there.OwnerReferences = "web-0123456789", by("new", "web")
		test.change(there)
		got, err := r.compare(config, there, digest)
		if err != nil || got.reason != test.want || got.words == "" || (got.again > 0) != (got.reason != reasonRevisionMade) {
			t.Errorf("%s: %+v (%v), want %s", what, got, err, test.want)
		}
	}
}

// keeper is a registry that takes nothing out again, as that of the API library.
type keeper struct{ *prometheus.Registry }

func (keeper) Unregister(prometheus.Collector) bool { return false }

func TestMetricsThatStay(t *testing.T) {
	m := newMetrics()
	for name, to := range map[string]prometheus.Registerer{"one that keeps": keeper{prometheus.NewRegistry()}, "another": prometheus.NewRegistry()} {
		m.stay = map[prometheus.Collector]bool{}
		for i := range 3 {
			unregister, err := m.register(to)
			if err != nil {
				t.Fatalf("%s, time %d: %v", name, i, err)
			}
			unregister()
		}
	}
	taken := prometheus.NewRegistry()
	if err := taken.Register(m.namespaces); err != nil {
		t.Fatal(err)
	}
	if _, err := newMetrics().register(taken); err == nil {
		t.Error("a metric was registered twice")
	}
	if err := taken.Register(m.objects); err != nil {
		t.Errorf("after a registration that failed something is left: %v", err)
	}
}

func TestCollectible(t *testing.T) {
	all := metav1.Verbs{"list", "watch", "delete"}
	for kind, want := range map[gc.GroupKind]bool{
		{Kind: "ConfigMap"}: true, {Kind: "Event"}: false, {Group: "events.k8s.io", Kind: "Event"}: false, {Group: "example.org", Kind: "Event"}: true,
	} {
		if got := collectible(served{kind: kind, verbs: all}); got != want {
			t.Errorf("%+v: %v, want %v", kind, got, want)
		}
	}
	if collectible(served{kind: gc.GroupKind{Kind: "ConfigMap"}, verbs: metav1.Verbs{"list"}}) {
		t.Error("what cannot be watched is collected")
	}
}
