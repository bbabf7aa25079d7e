package hosts

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// live knows of every host what it was told last.
type live struct{ verdict v1alpha1.Verdict }

func (l *live) Decorate(n *v1alpha1.Node) { n.Status.Verdict = &l.verdict }

func (l *live) Tell(chan struct{}) func() { return func() {} }

// A verdict alone is never stored, so a host counts as converged by what is known of it, and not by what is stored.
func TestHostsCountByWhatIsKnown(t *testing.T) {
	const version = 7
	known := &live{}
	f := New(known)
	nodes := hostFeed{f, f.heard, f.gone}
	assignments := hostFeed{f, f.assigned, f.unassigned}
	if err := assignments.Add(&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: "web-1", ResourceVersion: "7"}, Spec: v1alpha1.AssignmentSpec{
		Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/motd", Revision: "motd-1"}}}}); err != nil {
		t.Fatal(err)
	}
	if err := nodes.Add(&v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Status: v1alpha1.NodeStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}, AppliedHead: &v1alpha1.AppliedHead{Version: version}}}); err != nil {
		t.Fatal(err)
	}
	count := func() int32 {
		return f.Count(map[string]Config{"NodeConfig/prod/motd": {Revision: "motd-1"}}, "commit").Converged
	}
	if n := count(); n != 0 {
		t.Errorf("%d hosts count as converged before one has said so", n)
	}
	known.verdict = v1alpha1.Verdict{Type: v1alpha1.VerdictApplied, Version: version}
	f.turn++ // as when it is told
	if n := count(); n != 1 {
		t.Errorf("%d hosts count as converged, want 1: it has said so", n)
	}
}

// A host whose instances of workloads change has what it had of its configs, and counts by what it has said of that.
func TestInstancesAreNoOtherConfigs(t *testing.T) {
	known := &live{verdict: v1alpha1.Verdict{Type: v1alpha1.VerdictApplied, Version: 7}}
	f := New(known)
	nodes := hostFeed{f, f.heard, f.gone}
	assignments := hostFeed{f, f.assigned, f.unassigned}
	assign := func(version, revision, template string) {
		t.Helper()
		if err := assignments.Update(&v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: "web-1", ResourceVersion: version}, Spec: v1alpha1.AssignmentSpec{
			Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/motd", Revision: revision}, {Config: "Revision/prod/web-a", Revision: template}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes.Add(&v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Status: v1alpha1.NodeStatus{
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}, AppliedHead: &v1alpha1.AppliedHead{Version: 7}}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version, revision, template string
		want                        int32
	}{{"6", "motd-1", "a", 0}, {"7", "motd-1", "b", 1}, {"9", "motd-1", "c", 1}, {"10", "motd-2", "c", 0}, {"11", "motd-1", "c", 0}} {
		assign(c.version, c.revision, c.template)
		n := f.Count(map[string]Config{"NodeConfig/prod/motd": {Revision: "motd-1"}}, "commit")
		if n.Converged != c.want || n.Selected != 1 {
			t.Errorf("with version %s: %+v, want %d", c.version, n, c.want)
		}
	}
}
