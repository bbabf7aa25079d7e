package v1alpha1

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSameConfigs: instances, what they run, and the keys that that needs are no difference for configs; everything else is.
func TestSameConfigs(t *testing.T) {
	assigned := func(instances int) *AssignmentSpec {
		s := &AssignmentSpec{NodeUID: "u", Environment: "shop", Layers: []AssignedLayer{{Priority: 1, Config: "NodeConfig/shop/a", Revision: "a-1", Root: "r"}}}
		if instances > 0 {
			s.Own = &OwnLayer{Instances: make([]AssignedInstance, instances), Keys: []WrappedKey{{ID: "k"}}}
			s.Layers = append(s.Layers, AssignedLayer{Config: "Revision/shop/web-a", Revision: "web-a", Root: fmt.Sprint(instances)})
		}
		return s
	}
	if !assigned(0).SameConfigs(assigned(3)) || !assigned(2).SameConfigs(assigned(3)) {
		t.Error("other instances are taken for another state of configs")
	}
	for what, change := range map[string]func(*AssignmentSpec){
		"root":   func(s *AssignmentSpec) { s.Layers[0].Root = "s" },
		"layer":  func(s *AssignmentSpec) { s.Layers = s.Layers[1:] },
		"labels": func(s *AssignmentSpec) { s.Own.Labels = map[string]string{"a": "b"} },
		"holds": func(s *AssignmentSpec) {
			s.Own.Holds = []NodeHold{{Config: "NodeConfig/shop/a", Reason: "r", Owner: "o", Until: metav1.Now()}}
		},
		"peers": func(s *AssignmentSpec) {
			s.Own.Peers = []NodePeer{{Name: "n", UID: "v", Address: "a:1"}}
		},
		"environment": func(s *AssignmentSpec) { s.Environment = "prod" },
		"consent":     func(s *AssignmentSpec) { s.AllowDeletions = 100 },
		"orders": func(s *AssignmentSpec) {
			s.Absorbed = []AbsorbedOrder{{Config: "a", Epoch: 1, Number: 1}}
		},
		"try": func(s *AssignmentSpec) { s.Try = &AssignedTry{Seconds: 1} },
	} {
		a, b := assigned(2), assigned(2)
		if change(b); a.SameConfigs(b) || b.SameConfigs(a) {
			t.Errorf("another %s is no difference", what)
		}
	}
}
