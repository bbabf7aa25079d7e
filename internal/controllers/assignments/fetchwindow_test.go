package assignments

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/fleet/rollout"
)

// TestPlanWindow: hosts get the longest window of those configs of which they get something else, and none for anything else.
func TestPlanWindow(t *testing.T) {
	digest := func(text string) string { return catalog.KeyOf(text).String() }
	layer := func(config, is string) v1alpha1.AssignedLayer {
		return v1alpha1.AssignedLayer{Config: config, Revision: config + "-" + is, Root: digest(config + is)}
	}
	configOf := func(window string) *config {
		c := &config{newest: rollout.Target{Revision: "new"}}
		c.rollout.FetchWindow = window
		c.was.Target, c.was.Goal = c.newest, c.newest
		return c
	}
	back := configOf("1h")
	back.was.Goal = rollout.Target{Revision: "old"}
	configs := map[string]*config{"at-once": configOf(""), "short": configOf("90s"), "long": configOf("10m"), "back": back}
	own := func(is string) *v1alpha1.OwnLayer { return &v1alpha1.OwnLayer{Root: digest(is)} }
	awaited := func(change func(*v1alpha1.OwnLayer)) *v1alpha1.OwnLayer {
		o := own("awaited")
		change(o)
		return o
	}
	was := []v1alpha1.AssignedLayer{layer("at-once", "1"), layer("short", "1"), layer("long", "1"), layer("back", "1")}
	with := func(changed ...v1alpha1.AssignedLayer) (all []v1alpha1.AssignedLayer) {
		for _, l := range was {
			for _, c := range changed {
				if c.Config == l.Config {
					l = c
				}
			}
			all = append(all, l)
		}
		return all
	}
	moved := with(layer("short", "2"))
	moved[1].Root = was[1].Root
	for what, c := range map[string]struct {
		layers []v1alpha1.AssignedLayer
		own    *v1alpha1.OwnLayer
		had    int32
		want   int32
	}{
		"nothing else":                       {was, own("1"), 0, 0},
		"nothing else, within a window":      {was, own("1"), 600, 600},
		"a revision that is the same":        {moved, own("1"), 600, 600},
		"a change to what is fetched before": {with(layer("at-once", "2")), own("1"), 600, 0},
		"a change":                           {with(layer("short", "2")), own("1"), 600, 90},
		"two changes":                        {with(layer("short", "2"), layer("long", "2"), layer("at-once", "2")), own("1"), 0, 600},
		"a new config":                       {append(with(), layer("more", "1")), own("1"), 0, 0},
		"one less":                           {was[:3], own("1"), 600, 0},
		"a way back":                         {with(layer("back", "0")), own("1"), 600, 0},
		"the node's own":                     {was, own("2"), 600, 0},
		"a change, and keys to it":           {with(layer("long", "2")), own("2"), 0, 600},
		"a change, and an instance":          {with(layer("long", "2")), awaited(func(o *v1alpha1.OwnLayer) { o.Instances = []v1alpha1.AssignedInstance{{UID: "i"}} }), 0, 0},
		"a change, and a hold":               {with(layer("long", "2")), awaited(func(o *v1alpha1.OwnLayer) { o.Holds = []v1alpha1.NodeHold{{Resource: "path:/etc/motd"}} }), 0, 0},
		"a change, and no own any more":      {with(layer("long", "2")), nil, 0, 600},
	} {
		h := &host{assigned: &v1alpha1.Assignment{}}
		p := planner{host: h, configs: configs, was: &v1alpha1.AssignmentSpec{Layers: was, Own: own("1"), FetchWindowSeconds: c.had}}
		next := &plan{spec: v1alpha1.AssignmentSpec{Layers: c.layers, Own: c.own}}
		list, err := layers.ListOf(c.layers, ownRoot(c.own))
		if err != nil {
			t.Fatal(err)
		}
		to, err := root(list)
		if err != nil {
			t.Fatal(err)
		}
		if p.planWindow(next, to); next.spec.FetchWindowSeconds != c.want {
			t.Errorf("%s: %d s, want %d", what, next.spec.FetchWindowSeconds, c.want)
		}
		if h.assigned = nil; c.want > 0 {
			next.spec.FetchWindowSeconds = 0
			if p.planWindow(next, to); next.spec.FetchWindowSeconds != 0 {
				t.Errorf("%s: a host that has nothing yet is to wait", what)
			}
		}
	}
}

// TestFetchWindow: what a config says comes into the Assignments with its next revision and not before, stays while that is confirmed, and costs no
// write of its own.
func TestFetchWindow(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	r.settles("qa", "web", r.declare("qa", "web", "one", allAtOnce), "Complete")
	slow := declare.Rollout{MaxUnavailable: "100%", FetchWindow: "10m"}
	before := r.assignment("a").ResourceVersion
	r.settles("qa", "web", r.declare("qa", "web", "one", slow), "Complete")
	if a := r.assignment("a"); a.ResourceVersion != before || a.Spec.FetchWindowSeconds != 0 {
		t.Errorf("nothing is to be fetched, and it was written: %d s", a.Spec.FetchWindowSeconds)
	}
	tried := slow
	tried.Try = "1h"
	two := r.declare("qa", "web", "two", tried)
	has := func(what string, so func(s *v1alpha1.AssignmentSpec) bool) {
		t.Helper()
		r.eventually(what, func() string {
			s := r.assignment("a").Spec
			return unless(s.Layers[0].Revision == two && so(&s), "not yet")
		})
		if s := r.assignment("a").Spec; s.FetchWindowSeconds != 600 {
			t.Errorf("%s: %d s", what, s.FetchWindowSeconds)
		}
	}
	has("it is tried", func(s *v1alpha1.AssignmentSpec) bool { return s.Try != nil })
	r.declare("qa", "web", "two", slow)
	has("it is confirmed", func(s *v1alpha1.AssignmentSpec) bool { return s.Try == nil })
	r.settles("qa", "web", two, "Complete")
	before = r.assignment("a").ResourceVersion
	r.settles("qa", "web", r.declare("qa", "web", "two", allAtOnce), "Complete")
	if r.assignment("a").ResourceVersion != before {
		t.Error("it was written because the window has gone")
	}
	three := r.declare("qa", "web", "three", allAtOnce)
	r.settles("qa", "web", three, "Complete")
	if s := r.assignment("a").Spec; s.FetchWindowSeconds != 0 {
		t.Errorf("without a window: %d s", s.FetchWindowSeconds)
	}
}

// TestNotLateWithinItsWindow: a host that has not fetched yet what it is to have is not late before its window is over.
func TestNotLateWithinItsWindow(t *testing.T) {
	placed := time.Unix(1_800_000_000, 0)
	h := &host{
		hostSpec: hostSpec{name: "a", joined: true}, placedAt: placed,
		assigned: &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{
			Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/qa/web", Revision: "web-2", Since: metav1.NewTime(placed)}}, FetchWindowSeconds: 3600,
		}},
	}
	c := &config{hosts: []*host{h}}
	c.id = "NodeConfig/qa/web"
	if got := c.view(placed).Nodes[0].Since; !got.Equal(placed.Add(time.Hour)) {
		t.Errorf("it counts from %v, and it was placed at %v", got, placed)
	}
	c.was.Proven, c.was.ProvenAt = rollout.Target{Revision: "web-2"}, placed.Add(time.Minute)
	if got := c.view(placed).Nodes[0].Since; !got.Equal(placed) {
		t.Errorf("what all have had before counts from %v, and it was placed at %v", got, placed)
	}
}

// TestWindowIsCutShort: a host that is to fetch at once after it waited for long is not late for that.
func TestWindowIsCutShort(t *testing.T) {
	waits := time.Now().Add(-time.Hour)
	a := &Assignments{options: Options{Objects: local}, heads: map[types.UID]v1alpha1.AppliedHead{}}
	for window, again := range map[int32]bool{0: true, 600: false} {
		h := &host{hostSpec: hostSpec{name: "a"}, placedAt: waits, assigned: &v1alpha1.Assignment{
			ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}, Spec: v1alpha1.AssignmentSpec{FetchWindowSeconds: 600},
		}}
		own := &v1alpha1.OwnLayer{Instances: []v1alpha1.AssignedInstance{{UID: "i"}}} // nothing of configs
		a.assignmentJob(newWorld(waits), h, &plan{spec: v1alpha1.AssignmentSpec{Own: own, FetchWindowSeconds: window}}).done(nil)
		if is := h.placedAt.After(waits); is != again || h.since != 7 {
			t.Errorf("a window of %d s after one of 600: it counts anew: %v; the version since which it says the same is %d", window, is, h.since)
		}
	}
}
