package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
)

func TestValidateNode(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	digest := strings.Repeat("0a", 32)
	hold := func(config, resource, why, owner string, until time.Duration) NodeSpec {
		return NodeSpec{Holds: []NodeHold{{Config: config, Resource: resource, Reason: why, Owner: owner, Until: metav1.NewTime(now.Add(until))}}}
	}
	for _, c := range []struct {
		name string
		spec NodeSpec
		want string
	}{
		{"empty", NodeSpec{}, ""},
		{"good", NodeSpec{Environment: "qa", Unschedulable: true, Taints: []declare.Taint{
			{Key: "example.com/gpu", Value: "a100", Effect: declare.TaintNoSchedule}, {Key: "example.com/gpu", Effect: declare.TaintNoExecute}, {Key: "b", Effect: declare.TaintPreferNoSchedule},
		}}, ""},
		{"environment", NodeSpec{Environment: "QA"}, "TK0414 spec.environment"},
		{"environment with a dot", NodeSpec{Environment: "qa.eu"}, "TK0414 spec.environment"},
		{"taint", NodeSpec{Taints: []declare.Taint{{Key: "a b", Value: "-", Effect: "Never"}}}, "TK0414 spec.taints[0].key, TK0414 spec.taints[0].value, TK0414 spec.taints[0].effect"},
		{"empty taint", NodeSpec{Taints: []declare.Taint{{}}}, "TK0414 spec.taints[0].key, TK0413 spec.taints[0].effect"},
		{"taint twice", NodeSpec{Taints: []declare.Taint{{Key: "a", Effect: declare.TaintNoExecute}, {Key: "a", Value: "b", Effect: declare.TaintNoExecute}}}, "TK0420 spec.taints[1]"},
		{"held", hold("", "", "r", "o", time.Second), ""},
		{"held for a year", hold("", "", "r", "o", 365*24*time.Hour), ""},
		{"a config held", hold("NodeConfig/qa/web", "", "r", "o", time.Hour), ""},
		{"a resource of all hosts held", hold("ClusterNodeConfig/base", "path:/etc/motd", "r", "o", time.Hour), ""},
		{"held for ever", NodeSpec{Holds: []NodeHold{{Reason: "r", Owner: "o"}}}, "TK0413 spec.holds[0].until"},
		{"held until now", hold("", "", "r", "o", 0), "TK0414 spec.holds[0].until"},
		{"held too long", hold("", "", "r", "o", 367*24*time.Hour), "TK0414 spec.holds[0].until"},
		{"held for no reason by nobody", hold("", "", " ", "", time.Hour), "TK0413 spec.holds[0].reason, TK0413 spec.holds[0].owner"},
		{"a long reason", hold("", "", strings.Repeat("r", 1025), "o", time.Hour), "TK0414 spec.holds[0].reason"},
		{"a config without its namespace held", hold("NodeConfig/web", "", "r", "o", time.Hour), "TK0414 spec.holds[0].config"},
		{"a config of the cluster with one", hold("ClusterNodeConfig/qa/web", "", "r", "o", time.Hour), "TK0414 spec.holds[0].config"},
		{"another kind held", hold("Revision/qa/web", "", "r", "o", time.Hour), "TK0414 spec.holds[0].config"},
		{"no name", hold("NodeConfig/qa/", "", "r", "o", time.Hour), "TK0414 spec.holds[0].config"},
		{"a path that is no claim", hold("", "/etc/motd", "r", "o", time.Hour), "TK0414 spec.holds[0].resource"},
		{"too many holds", NodeSpec{Holds: make([]NodeHold, 101)}, "TK0414 spec.holds"},
		{"an approved key", NodeSpec{ApprovedKey: "sha256:" + digest}, ""},
		{"without what it is", NodeSpec{ApprovedKey: digest}, "TK0414 spec.approvedKey"},
		{"too short", NodeSpec{ApprovedKey: "sha256:" + digest[1:]}, "TK0414 spec.approvedKey"},
		{"a rejected key", NodeSpec{RejectedKey: "sha256:" + digest, ApprovedKey: "sha256:" + strings.Repeat("0", 64)}, ""},
		{"rejected without what it is", NodeSpec{RejectedKey: digest}, "TK0414 spec.rejectedKey"},
		{"approved and rejected", NodeSpec{RejectedKey: "sha256:" + digest, ApprovedKey: "sha256:" + digest}, "TK0414 spec.rejectedKey"},
		{"deletions", NodeSpec{AllowDeletions: digest}, ""},
		{"with what it is", NodeSpec{AllowDeletions: "sha256:" + digest}, "TK0414 spec.allowDeletions"},
		{"in capitals", NodeSpec{AllowDeletions: strings.ToUpper(digest)}, "TK0414 spec.allowDeletions"},
	} {
		if got := summary(ValidateNode(&Node{Spec: c.spec}, nil, now)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestValidateNodeHoldThatHasEnded: a hold that has ended since does not keep anybody from changing the node, and no other one takes
// its place.
func TestValidateNodeHoldThatHasEnded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old := &Node{Spec: NodeSpec{Holds: []NodeHold{{Reason: "r", Owner: "o", Until: metav1.NewTime(now.Add(-time.Hour))}}}}
	changed := old.DeepCopy()
	changed.Spec.Unschedulable = true
	if got := summary(ValidateNode(changed, old, now)); got != "" {
		t.Errorf("another field changed: %s", got)
	}
	changed.Spec.Holds[0].Reason = "another"
	if got := summary(ValidateNode(changed, old, now)); got != "TK0414 spec.holds[0].until" {
		t.Errorf("its reason changed: %s", got)
	}
}

func TestValidateAssignment(t *testing.T) {
	root := strings.Repeat("0a", 32)
	layer := func(priority int32, config string) AssignedLayer {
		return AssignedLayer{Priority: priority, Config: config, Revision: "r", Root: root}
	}
	instance := func(uid types.UID) AssignedInstance {
		return AssignedInstance{UID: uid, Namespace: "qa", Name: "w-0", Workload: "w", Revision: "w-1"}
	}
	for _, c := range []struct {
		name   string
		change func(*AssignmentSpec)
		want   string
	}{
		{"good", func(*AssignmentSpec) {}, ""},
		{"nothing", func(s *AssignmentSpec) { *s = AssignmentSpec{NodeUID: "u"} }, ""},
		{"orders", func(s *AssignmentSpec) { s.Absorbed = []AbsorbedOrder{{"a", 1, 2}, {"b", 1, 1}} }, ""},
		{"an order about nothing", func(s *AssignmentSpec) { s.Absorbed = []AbsorbedOrder{{"", 1, 2}} }, "TK0413 spec.absorbed[0].config"},
		{"an order of no epoch", func(s *AssignmentSpec) { s.Absorbed = []AbsorbedOrder{{"a", 0, 2}} }, "TK0414 spec.absorbed[0]"},
		{"an order without a number", func(s *AssignmentSpec) { s.Absorbed = []AbsorbedOrder{{"a", 1, 0}} }, "TK0414 spec.absorbed[0]"},
		{"orders twice", func(s *AssignmentSpec) { s.Absorbed = []AbsorbedOrder{{"a", 1, 2}, {"a", 1, 3}} }, "TK0414 spec.absorbed[1]"},
		{"too many orders", func(s *AssignmentSpec) { s.Absorbed = make([]AbsorbedOrder, AssignedLayersMax+1) }, "TK0414 spec.absorbed"},
		{"of no node", func(s *AssignmentSpec) { s.NodeUID = "" }, "TK0413 spec.nodeUID"},
		{"not in order", func(s *AssignmentSpec) { s.Layers[0].Priority = 1 }, "TK0414 spec.layers[1]"},
		{"equal ones not in order", func(s *AssignmentSpec) { s.Layers[1].Config = "d"; s.Layers[2].Config = "c" }, "TK0414 spec.layers[2]"},
		{"a config twice", func(s *AssignmentSpec) { s.Layers[2].Config = "a" }, "TK0420 spec.layers[2].config, TK0414 spec.layers[2]"},
		{"another root", func(s *AssignmentSpec) { s.Layers[1].Root = "sha256:" + root }, "TK0414 spec.layers[1].root"},
		{"names left out", func(s *AssignmentSpec) { s.Layers = []AssignedLayer{{Root: root}} }, "TK0413 spec.layers[0].config, TK0413 spec.layers[0].revision"},
		{"too many", func(s *AssignmentSpec) { s.Layers = make([]AssignedLayer, 257) }, "TK0414 spec.layers"},
		{"own", func(s *AssignmentSpec) { s.Own = &OwnLayer{Keys: []WrappedKey{{ID: "0A"}}, Holds: []NodeHold{{}}} },
			"TK0414 spec.own.root, TK0414 spec.own.keys[0].id, TK0413 spec.own.keys[0].sealed, TK0413 spec.own.holds[0].reason, TK0413 spec.own.holds[0].owner, TK0413 spec.own.holds[0].until"},
		{"as many templates as layers", func(s *AssignmentSpec) {
			for i := range AssignedTemplatesMax {
				s.Layers = append(s.Layers, layer(0, fmt.Sprintf("Revision/qa/w-%03d", i)))
			}
		}, ""},
		{"too many templates", func(s *AssignmentSpec) {
			for i := range AssignedTemplatesMax + 1 {
				s.Layers = append(s.Layers, layer(0, fmt.Sprintf("Revision/qa/w-%03d", i)))
			}
		}, "TK0414 spec.layers"},
		{"instances", func(s *AssignmentSpec) { s.Own.Instances = []AssignedInstance{instance("a"), instance("b")} }, ""},
		{"instances twice", func(s *AssignmentSpec) { s.Own.Instances = []AssignedInstance{instance("a"), instance("a")} }, "TK0414 spec.own.instances[1]"},
		{"too many instances", func(s *AssignmentSpec) { s.Own.Instances = make([]AssignedInstance, AssignedInstancesMax+1) }, "TK0414 spec.own.instances"},
		{"half an instance", func(s *AssignmentSpec) { s.Own.Instances = []AssignedInstance{{Slot: -1}} },
			"TK0413 spec.own.instances[0].uid, TK0413 spec.own.instances[0].namespace, TK0413 spec.own.instances[0].name, TK0413 spec.own.instances[0].workload, TK0413 spec.own.instances[0].revision, TK0414 spec.own.instances[0]"},
		{"a fetch window", func(s *AssignmentSpec) { s.FetchWindowSeconds = 3600 }, ""},
		{"a long fetch window", func(s *AssignmentSpec) { s.FetchWindowSeconds = 3601 }, "TK0414 spec.fetchWindowSeconds"},
		{"a fetch window of the past", func(s *AssignmentSpec) { s.FetchWindowSeconds = -1 }, "TK0414 spec.fetchWindowSeconds"},
		{"deletions", func(s *AssignmentSpec) { s.AllowDeletions = 101 }, "TK0414 spec.allowDeletions"},
		{"try", func(s *AssignmentSpec) { s.Try = &AssignedTry{OwnRoot: "x", Layers: []AssignedLayer{layer(1, "")}} },
			"TK0414 spec.try.seconds, TK0413 spec.try.config, TK0414 spec.try.fallback, TK0413 spec.try.layers[0].config, TK0414 spec.try.ownRoot"},
	} {
		a := &Assignment{Spec: AssignmentSpec{
			NodeUID: "u", Environment: "qa", Layers: []AssignedLayer{layer(100, "a"), layer(50, "b"), layer(50, "c")},
			Own: &OwnLayer{Root: root, Keys: []WrappedKey{{ID: root[:32], Secret: "qa/s/k", Sealed: []byte{1}}}}, AllowDeletions: 100,
			Try: &AssignedTry{Seconds: 20, Config: "b", Fallback: root},
		}}
		c.change(&a.Spec)
		if got := summary(ValidateAssignment(a)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	full := &Assignment{Spec: AssignmentSpec{NodeUID: "u"}}
	for i := range AssignedLayersMax {
		full.Spec.Layers = append(full.Spec.Layers, layer(7, fmt.Sprintf("c%03d", i)))
	}
	if faults := ValidateAssignment(full); len(faults) > 0 {
		t.Errorf("as many layers as are allowed: %s", summary(faults))
	}
}
