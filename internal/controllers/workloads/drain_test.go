package workloads

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
)

// drained is what is told of the drain of a node.
func (r *rig) drained(name string) string {
	r.Helper()
	n := &v1alpha1.Node{}
	r.must(r.store.Get(r.Context(), typesName(name), n))
	c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionDrained)
	if c == nil {
		return ""
	}
	return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
}

func drain(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} }

// TestDrainThatCannotFinish: what stays until somebody changes something has a code of its own, with a deadline it has none, and another leader tells
// of the same moment.
func TestDrainThatCannotFinish(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(2)
	spec.DisruptionBudget = &declared.DisruptionBudget{MinAvailable: "100%", SurgeFirst: new(false)}
	r.declare("held", spec)
	r.is("held", "Complete")
	at := r.instances("held")[0].Spec.Node
	r.change(at, drain)
	r.pass(time.Minute)
	first := r.drained(at)
	for _, words := range []string{"False TK0760 1 instances are there still: prod/held-0 is held by workload held since 2030-", "2 of 2 instances are available, and the disruption budget wants 2"} {
		if !strings.Contains(first, words) {
			t.Errorf("it is told %q, without %q", first, words)
		}
	}
	r.pass(time.Hour)
	r.lead()
	r.pass(3 * time.Minute)
	if again := r.drained(at); again != first {
		t.Errorf("another leader tells %q, and the one before told %q", again, first)
	}
	deadline := statuses.Seconds(r.now.Add(time.Hour))
	r.change(at, func(n *v1alpha1.Node) { n.Spec.Drain.Deadline = &deadline })
	r.pass(time.Minute)
	if told := r.drained(at); !strings.HasPrefix(told, "False Draining ") || !strings.Contains(told, "what is left is ended, whatever budgets say") {
		t.Errorf("with a deadline it is told %q", told)
	}
	r.pass(time.Hour)
	r.until("the deadline ends it", func() string { return unless(strings.HasPrefix(r.drained(at), "True"), r.dump()) })
}

// TestDrainWithoutRoom: what would stand in has no room, and when there is some the drain goes on.
func TestDrainWithoutRoom(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	r.declare("web", web(1))
	r.is("web", "Complete")
	r.change("n0", drain)
	r.pass(time.Minute)
	if told := r.drained("n0"); !strings.HasPrefix(told, "False TK0760 ") || !strings.Contains(told, "what would stand in fits on no node") {
		t.Errorf("it is told %q", told)
	}
	r.join("n1")
	r.until("it has gone", func() string { return unless(strings.HasPrefix(r.drained("n0"), "True"), r.dump()) })
	r.is("web", "Complete")
}

// TestDrainPerNode: on the last node too what runs on each node leaves at once, because nothing could be started in its place.
func TestDrainPerNode(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	spec := web(0)
	spec.Mode, spec.Replicas = declared.PerNode, nil
	r.declare("agent", spec)
	r.is("agent", "Complete")
	r.change("n0", drain)
	r.until("it has gone", func() string { return unless(strings.HasPrefix(r.drained("n0"), "True"), r.dump()) })
	r.change("n0", func(n *v1alpha1.Node) { n.Spec.Drain = nil })
	r.until("it is back", func() string { return unless(r.running("agent") == 1 && r.drained("n0") == "", r.dump()) })
}

// TestDrainOfManyNames some, and says how many more there are.
func TestDrainOfManyNames(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(12)
	spec.Template.Tasks[0].Resources.Requests.CPU = "100m"
	r.declare("web", spec)
	r.is("web", "Complete")
	r.hosts["n0"].slow = true
	r.change("n0", drain)
	r.settle()
	if told := r.drained("n0"); !strings.Contains(told, "and 3 more") || len(told) > wordsMax+100 {
		t.Errorf("it is told %q", told)
	}
}
