package await

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// TestTaken: what is assigned counts only when it is what the Node and each config that selects it declare now.
func TestTaken(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 0, 0, 0, time.UTC)
	hold := func(owner string, until time.Duration) v1alpha1.NodeHold {
		return v1alpha1.NodeHold{Resource: "path:/etc/motd", Owner: owner, Reason: "r", Until: metav1.NewTime(now.Add(until))}
	}
	type world struct {
		node     v1alpha1.Node
		assigned v1alpha1.Assignment
		config   string
	}
	const config = `"metadata": {"name": "web", "namespace": "prod", "generation": 2}, "spec": {"selector": {"matchLabels": {"role": "web"}}, "priority": 5},
		"status": {"observedGeneration": 2, "revision": "web-2", "rollout": {"phase": "Rolling", "target": "web-2", "targetRoot": "aa", "selected": 3, "done": 1}}`
	for _, c := range []struct {
		name   string
		change func(*world)
		state  State
		words  string
	}{
		{"as declared", func(*world) {}, Reached, ""},
		{"assigned to an earlier node of the name", func(w *world) { w.assigned.Spec.NodeUID = "v" }, Pending, "nothing is assigned"},
		{"another revision", func(w *world) { w.assigned.Spec.Layers[0].Revision = "web-1" }, Pending, "1 of 3 nodes"},
		{"another value", func(w *world) { w.assigned.Spec.Layers[0].Root = "bb" }, Pending, "1 of 3 nodes"},
		{"another priority", func(w *world) { w.assigned.Spec.Layers[0].Priority = 6 }, Pending, "1 of 3 nodes"},
		{"not assigned", func(w *world) { w.assigned.Spec.Layers = nil }, Pending, "1 of 3 nodes"},
		{"not looked at", func(w *world) { w.config = strings.Replace(w.config, `"generation": 2`, `"generation": 3`, 1) }, Pending, "nobody has looked"},
		{"not for it any more", func(w *world) { w.config = strings.Replace(w.config, `"role": "web"`, `"role": "db"`, 1) }, Pending, "not for it any more"},
		{"about to go", func(w *world) {
			w.config = strings.Replace(w.config, `"generation": 2`, `"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1)
		}, Pending, "not for it any more"},
		{"stalled elsewhere", func(w *world) {
			w.config = strings.Replace(w.config, `"revision"`, `"conditions": [{"type": "Stalled", "status": "True", "reason": "Halted", "observedGeneration": 2}], "revision"`, 1)
		}, Reached, ""},
		{"stalled before it came", func(w *world) {
			w.config = strings.Replace(w.config, `"revision"`, `"conditions": [{"type": "Stalled", "status": "True", "reason": "Halted", "observedGeneration": 2}], "revision"`, 1)
			w.assigned.Spec.Layers[0].Revision = "web-1"
		}, Stalled, "Halted"},
		{"another label", func(w *world) { w.node.Labels["zone"] = "a" }, Pending, "labels"},
		{"another environment", func(w *world) { w.node.Spec.Environment = "qa" }, Pending, "environment"},
		{"a hold", func(w *world) { w.node.Spec.Holds = []v1alpha1.NodeHold{hold("a", time.Hour)} }, Pending, "held"},
		{"a hold that ended", func(w *world) { w.node.Spec.Holds = []v1alpha1.NodeHold{hold("a", -time.Hour)} }, Reached, ""},
		{"the same holds", func(w *world) {
			w.node.Spec.Holds = []v1alpha1.NodeHold{hold("b", time.Minute), hold("a", time.Hour)}
			w.assigned.Spec.Own.Holds = []v1alpha1.NodeHold{hold("a", time.Hour)}
		}, Reached, ""},
		{"instances of workloads", func(w *world) {
			w.assigned.Spec.Layers = append(w.assigned.Spec.Layers, v1alpha1.AssignedLayer{Config: "Revision/prod/web-a", Revision: "web-a", Root: "bb"})
			w.assigned.Spec.Own.Instances = []v1alpha1.AssignedInstance{{UID: "i"}}
		}, Reached, ""},
		{"a hold that was taken away", func(w *world) { w.assigned.Spec.Own.Holds = []v1alpha1.NodeHold{hold("a", time.Hour)} }, Pending, "held"},
	} {
		labels := map[string]string{"role": "web"}
		w := world{config: config,
			node: v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "u", Labels: map[string]string{"role": "web"}}, Spec: v1alpha1.NodeSpec{Environment: "prod"}},
			assigned: v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{NodeUID: "u", Environment: "prod", Own: &v1alpha1.OwnLayer{Labels: labels},
				Layers: []v1alpha1.AssignedLayer{{Priority: 5, Config: "NodeConfig/prod/web", Revision: "web-2", Root: "aa"}}}}}
		c.change(&w)
		o := object(t, w.config)
		o.SetKind(v1alpha1.KindNodeConfig)
		o.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
		var configs []Config
		of, isThere, err := ConfigOf(o)
		if err != nil {
			t.Fatal(err)
		}
		if isThere {
			configs = append(configs, of)
		}
		if v := Taken(&w.node, &w.assigned, configs, now); v.State != c.state || !strings.Contains(v.Words, c.words) {
			t.Errorf("%s: %+v, want state %d and %q", c.name, v, c.state, c.words)
		}
	}
	if v := Taken(&v1alpha1.Node{}, nil, nil, now); v.State != Pending {
		t.Errorf("nothing assigned: %+v", v)
	}
	for version, want := range map[int64]State{6: Pending, 7: Reached, 8: Reached} {
		n := v1alpha1.Node{Status: v1alpha1.NodeStatus{AssignedHead: &v1alpha1.AppliedHead{Version: version}}}
		if v := Caught(&n, &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(7)}}); v.State != want {
			t.Errorf("state %d: %+v", version, v)
		}
	}
}
