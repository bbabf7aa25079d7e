package path

import (
	"strconv"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// everything is what a server has that says what a node is to have.
type everything struct {
	assignment v1alpha1.Assignment
	configs    v1alpha1.NodeConfigList
	cluster    v1alpha1.ClusterNodeConfigList
}

// assigned reports whether all that selects a node has come to its Assignment, in the newest revision. What a conflict keeps
// out does not come.
func (e *everything) assigned(n *v1alpha1.Node) bool {
	wanted := map[string]string{} // revisions by config
	take := func(d *declare.NodeConfig, generation int64, s *v1alpha1.NodeConfigStatus) bool {
		if !d.Spec.Selector.Matches(n.Labels) || len(s.Conflicts) > 0 {
			return true
		}
		wanted[catalog.ConfigName(d)] = s.Revision
		return s.ObservedGeneration == generation && s.Revision != ""
	}
	for i := range e.cluster.Items {
		if c := &e.cluster.Items[i]; !take(c.Declaration(), c.Generation, &c.Status) {
			return false
		}
	}
	for i := range e.configs.Items {
		if c := &e.configs.Items[i]; c.Namespace == n.Spec.Environment && !take(c.Declaration(), c.Generation, &c.Status) {
			return false
		}
	}
	kept := 0
	for _, l := range e.assignment.Spec.Layers {
		revision, known := wanted[l.Config]
		if known && revision != l.Revision {
			return false
		}
		if known {
			kept++
		}
	}
	// The node was read before the rest: what it says must be about this very Assignment.
	return e.assignment.Name == n.Name && kept == len(wanted) && n.Status.AssignedHead != nil && strconv.FormatInt(n.Status.AssignedHead.Version, 10) == e.assignment.ResourceVersion
}

// converged reports whether a host has the newest state, and all of it is as declared.
func converged(n *v1alpha1.Node) bool {
	s := &n.Status
	return s.AssignedHead != nil && s.AppliedHead != nil && s.AssignedHead.Version == s.AppliedHead.Version && s.Verdict != nil &&
		s.Verdict.Type == v1alpha1.VerdictApplied && s.Verdict.Version == s.AssignedHead.Version
}

func TestAssigned(t *testing.T) {
	n := &v1alpha1.Node{}
	n.Name, n.Spec.Environment, n.Status.AssignedHead = "a", "prod", &v1alpha1.AppliedHead{Version: 7}
	e := &everything{configs: v1alpha1.NodeConfigList{Items: make([]v1alpha1.NodeConfig, 1)}}
	c := &e.configs.Items[0]
	c.Name, c.Namespace, c.Generation = "web", "prod", 2
	if e.assigned(n) {
		t.Error("before anybody has looked")
	}
	c.Status.ObservedGeneration, c.Status.Revision = 2, "web-2"
	e.assignment.Name, e.assignment.ResourceVersion = "a", "7"
	e.assignment.Spec.Layers = []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/web", Revision: "web-1"}}
	if e.assigned(n) {
		t.Error("with an older revision")
	}
	e.assignment.Spec.Layers[0].Revision = "web-2"
	if !e.assigned(n) {
		t.Error("not assigned, and it is")
	}
	e.assignment.ResourceVersion = "8"
	if e.assigned(n) {
		t.Error("of another version")
	}
	e.assignment.ResourceVersion, e.assignment.Spec.Layers = "7", nil
	if e.assigned(n) {
		t.Error("without a layer")
	}
}
