package workloads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/transfer/wire"
)

// Surge at a full cluster: what would come before something goes has no room. It waits and says why; nothing of its own is ended for it.
func TestWorkloadCase22_FullCluster(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(8)
	spec.Rollout.MaxSurge, spec.Rollout.MaxUnavailable = "1", "0"
	r.declare("web", spec)
	r.is("web", "Complete")
	r.declare("web", version(spec, "2"))
	r.pass(time.Minute)
	o := r.workload("web")
	c.Equal(o.Status.AvailableReplicas, int32(8), "available")
	c.Equal(o.Status.PendingReplicas, int32(1), "pending")
	c.Check(o.Status.Pending != nil && strings.Contains(o.Status.Pending.Message, "too little cpu"), "%+v", o.Status.Pending)
	c.Check(!slices.ContainsFunc(r.instances("web"), func(in *v1alpha1.Instance) bool { return in.Spec.Stop != nil }), "something is ended")
	r.join("n2")
	r.until("with room it goes on", func() string {
		o := r.workload("web")
		return unless(o.Status.Phase == "Complete" && o.Status.UpdatedReplicas == 8 && o.Status.ObservedGeneration == o.Generation, r.dump())
	})
}

// Two want one slot: one gets it, the other says why, and nothing is tried again and again.
func TestWorkloadCase31_TwoWorkloadsOneSlot(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.join("n0")
	whole := web(1)
	whole.Template.Tasks[0].Resources.Requests.CPU = "4"
	r.declare("a", whole)
	r.declare("b", whole)
	r.settle()
	r.pass(time.Second)
	c.Equal(len(r.instances("a"))+len(r.instances("b")), 1, "instances")
	loser := "b"
	if len(r.instances("b")) == 1 {
		loser = "a"
	}
	p := r.workload(loser).Status.Pending
	c.Check(p != nil && p.Instances == 1 && strings.Contains(p.Message, "0 of 1 placed"), "%+v", p)
	writes := r.store.writes
	r.pass(5 * time.Minute)
	c.Equal(r.store.writes, writes, "writes while nothing changes")
	r.remove(map[string]string{"a": "b", "b": "a"}[loser])
	r.is(loser, "Complete")
}

// A node refuses what was placed there: that instance is over, another one comes elsewhere, and there are not more and more of them.
func TestWorkloadCase33_RefusedByItsNode(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.join("n0", "n1")
	made := 0
	r.quality = func(in *v1alpha1.Instance) quality {
		if in.Spec.Node == "n0" {
			return refused
		}
		return good
	}
	r.store.onWrite = countCreates(&made)
	r.declare("web", web(2))
	r.until("both are elsewhere", func() string { return unless(r.running("web") == 2, r.dump()) })
	for _, in := range r.instances("web") {
		c.Equal(in.Spec.Node, "n1", "node")
	}
	r.pass(time.Hour)
	c.Check(made <= 4, "%d were made", made)
	c.Equal(len(r.instances("web")), 2, "instances")
}

// A label goes that a workload selects by: what is there stays, or moves one after the other within the budget where that is declared.
func TestWorkloadCase41_LabelRemoved(t *testing.T) {
	c := casetest.Start(t)
	for _, when := range []declared.WhenLabelsChange{declared.Stay, declared.Move} {
		t.Run(string(when), func(t *testing.T) {
			c := c.Sub(t)
			r := newRig(t)
			r.join("n0", "n1")
			label := func(disk string) func(*v1alpha1.Node) {
				return func(n *v1alpha1.Node) { n.Labels["disk"] = disk }
			}
			r.change("n0", label("ssd"))
			spec := web(3)
			spec.Selector = declare.Selector{MatchLabels: map[string]string{"disk": "ssd"}}
			spec.Placement.WhenLabelsChange = when
			r.declare("web", spec)
			r.is("web", "Complete")
			least := 3
			r.change("n1", label("ssd"))
			r.change("n0", label("hdd"))
			for range 200 {
				r.settle()
				least = min(least, int(r.workload("web").Status.AvailableReplicas))
				r.now = r.now.Add(time.Second)
			}
			want := map[declared.WhenLabelsChange]string{declared.Stay: "n0", declared.Move: "n1"}[when]
			for _, in := range r.instances("web") {
				c.Equal(in.Spec.Node, want, "node of "+in.Name)
			}
			c.Check(least >= 2, "%d were available in between", least)
		})
	}
}

// A drain goes by the budget, says who is left, and is over only when nothing runs; one replica gets its stand-in first; the deadline ends it all.
func TestWorkloadCase67_DrainOfANode(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("one", web(1))
	r.is("one", "Complete")
	on := r.instances("one")[0].Spec.Node
	r.hosts[on].slow = true
	r.change(on, func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
	least := 1
	r.until("another one is available", func() string {
		least = min(least, int(r.workload("one").Status.AvailableReplicas))
		return unless(slices.ContainsFunc(r.instances("one"), func(in *v1alpha1.Instance) bool { return in.Spec.Node == on && in.Spec.Stop != nil }), r.dump())
	})
	c.Equal(least, 1, "available at least")
	r.pass(time.Minute)
	drained := func() string {
		n := &v1alpha1.Node{}
		r.must(r.store.Get(r.Context(), typesName(on), n))
		if is := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionDrained); is != nil {
			return fmt.Sprint(is.Status, " ", is.Reason, " ", is.Message)
		}
		return ""
	}
	c.Check(strings.HasPrefix(drained(), "False Draining 1 instances are there still: prod/one-0 is ending since 2030-"), "while its processes run: %s", drained())
	r.hosts[on].slow = false
	r.settle()
	c.Equal(drained(), "True Drained nothing of any instance runs there", "when they have ended")
	c.Check(r.recorder.has(on+": NodeDrained"), "%v", r.recorder.all)
	r.change(on, func(n *v1alpha1.Node) { n.Spec.Drain = nil })
	r.settle()
	c.Equal(drained(), "", "when it is not drained any more")

	// A budget that lets nothing go holds until the deadline.
	held := web(2)
	held.DisruptionBudget = &declared.DisruptionBudget{MinAvailable: "100%", SurgeFirst: new(false)}
	r.declare("held", held)
	r.is("held", "Complete")
	at := r.instances("held")[0].Spec.Node
	deadline := statuses.Seconds(r.now.Add(10 * time.Minute))
	r.change(at, func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{Deadline: &deadline} })
	r.pass(9 * time.Minute)
	o := r.workload("held")
	c.Check(o.Status.AvailableReplicas == 2 && len(o.Status.Leaving) > 0, "%+v", o.Status)
	r.pass(2 * time.Minute)
	c.Check(!slices.ContainsFunc(r.instances("held"), func(in *v1alpha1.Instance) bool { return in.Spec.Node == at }), "after the deadline: %s", r.dump())
}

// Two nodes are drained at once, one of them by a leader that does not know yet that it is none any more: together no more go than the budget says,
// because what may go is spent where the status is stored, compared with the one that was decided on.
func TestWorkloadCase68_TwoDrainsAtOnce(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	r.join("n0", "n1", "n2", "n3")
	spec := web(3)
	spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: "1", SurgeFirst: new(false)}
	spec.Placement.AntiAffinity = []declared.Affinity{{Selector: declare.Selector{MatchLabels: map[string]string{"app": "web"}}}}
	spec.Template.Labels = map[string]string{"app": "web"}
	r.declare("web", spec)
	r.is("web", "Complete")
	r.pass(2 * time.Minute)
	instances := r.instances("web")
	old, oldWorld := r.c, r.w // it leads, as it thinks
	r.lead()
	r.pass(2 * time.Minute)
	old.nodes.Take()
	for _, in := range instances[:2] {
		r.change(in.Spec.Node, func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
	}
	// The old one sees the nodes that are drained, and of the workload only what was before the new one has decided.
	for _, n := range all[*v1alpha1.Node](r.store) {
		_ = old.nodes.Update(n)
	}
	r.round()
	old.round(r.Context(), oldWorld, r.now)
	stopped := 0
	for _, in := range r.instances("web") {
		if in.Spec.Stop != nil {
			stopped++
		}
	}
	c.Equal(stopped, 1, "that were told to go")
	least := 3
	for range 300 {
		r.store.collect()
		r.round()
		r.work()
		ready := 0
		for _, in := range r.instances("web") {
			if has := r.hosts[in.Spec.Node].has[in.UID]; has != nil && has.Ready && in.Spec.Stop == nil {
				ready++
			}
		}
		least = min(least, ready)
		r.now = r.now.Add(100 * time.Millisecond)
	}
	c.Check(least >= 2, "%d were left", least)
	for _, in := range instances[:1] {
		c.Check(!slices.ContainsFunc(r.instances("web"), func(is *v1alpha1.Instance) bool { return is.Spec.Node == in.Spec.Node }), "%s is not drained: %s", in.Spec.Node, r.dump())
	}
}

// Watches that have a gap, that are late, and that tell of an end after the next one of that name was made; writes that meet a newer version; and
// what is shared is never changed.
func TestWorkloadCase70_Store(t *testing.T) {
	c := casetest.Start(t)
	t.Run("gap", func(t *testing.T) {
		c := c.Sub(t)
		r := newRig(t)
		r.join("n0", "n1")
		r.declare("web", web(4))
		r.declare("old", web(1))
		r.is("web", "Complete")
		// Nothing is told of what happens now: one has gone, one has changed, one is new, and an instance is deleted by hand.
		r.remove("old")
		r.settle()
		r.declare("web", web(3))
		r.declare("new", web(1))
		r.must(r.store.Delete(r.Context(), r.instances("web")[0], nil))
		r.store.log = nil
		r.store.relist(r.c)
		r.until("all is as declared", func() string {
			return unless(r.running("web") == 3 && r.running("new") == 1 && len(r.instances("old")) == 0, r.dump())
		})
		c.Equal(len(r.w.instances), 4, "instances known")
	})
	t.Run("late end", func(t *testing.T) {
		c := c.Sub(t)
		r := newRig(t)
		r.join("n0")
		made := 0
		r.declare("web", web(4))
		r.is("web", "Complete")
		r.store.onWrite = countCreates(&made)
		first := r.instances("web")[0]
		r.hosts["n0"].has[first.UID].Phase = wire.InstanceFailed
		r.hosts["n0"].tell()
		r.hosts["n0"].speak()
		_, _ = r.c.round(r.Context(), r.w, r.now) // deletes it
		_, _ = r.c.round(r.Context(), r.w, r.now) // makes another one of that name
		c.Equal(made, 1, "made")
		second := r.instances("web")[0]
		c.Check(second.UID != first.UID, "it is the same")
		r.round() // now the end of the first is told
		in := r.w.instances[types.NamespacedName{Namespace: "prod", Name: "web-0"}]
		c.Check(in != nil && in.o.UID == second.UID, "the second is forgotten: %+v", in)
		r.settle()
		c.Equal(r.running("web"), 4, "running")
		c.Equal(made, 1, "made in the end")
	})
	t.Run("conflict", func(t *testing.T) {
		c := c.Sub(t)
		r := newRig(t)
		r.join("n0", "n1")
		r.declare("web", web(4))
		r.is("web", "Complete")
		// What is decided on is not what there is: somebody has scaled up, and nobody has told.
		r.declare("web", web(1))
		r.store.feed(r.c, 1<<30)
		r.declare("web", web(6))
		late := r.store.log
		r.store.log = nil
		_, _ = r.c.round(r.Context(), r.w, r.now)
		c.Check(!slices.ContainsFunc(r.instances("web"), func(in *v1alpha1.Instance) bool { return in.Spec.Stop != nil }), "it was decided on what was: %s", r.dump())
		r.store.log = append(late, r.store.log...)
		r.until("all is as declared", func() string { return unless(r.running("web") == 6, r.dump()) })
	})
	t.Run("shared", func(t *testing.T) {
		c := c.Sub(t)
		r := newRig(t)
		r.join("n0", "n1")
		r.declare("web", web(3))
		r.is("web", "Complete")
		r.declare("web", version(web(2), "2"))
		r.is("web", "Complete")
		r.change("n0", func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
		r.settle()
		for _, in := range r.instances("web") {
			r.c.Describe(in)
		}
		r.remove("web")
		r.settle()
		c.Equal(r.store.intact(), "", "what is shared, and was changed")
	})
}
