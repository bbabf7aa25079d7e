package workloads

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/node"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestLife: what is declared is placed, runs, is ready, and then it is said to be complete; deleted, it ends before it goes.
func TestLife(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("web", web(4))
	o := r.is("web", "Complete")
	r.wantCondition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, "Complete")
	r.wantCondition(o, v1alpha1.ConditionReconciling, "", "")
	s := o.Status
	if s.Replicas != 4 || s.ReadyReplicas != 4 || s.AvailableReplicas != 4 || s.UpdatedReplicas != 4 || s.PendingReplicas != 0 || s.Selector != "tako.dev/workload=web" {
		t.Errorf("%+v", s)
	}
	nodes := map[string]int{}
	for i, in := range r.instances("web") {
		nodes[in.Spec.Node]++
		owner := metav1.GetControllerOf(in)
		if in.Name != fmt.Sprint("web-", i) || owner == nil || owner.UID != o.UID || in.Labels[v1alpha1.LabelWorkload] != "web" || in.Spec.NodeUID != r.hosts[in.Spec.Node].uid {
			t.Errorf("%+v", in)
		}
		shown := in.DeepCopy()
		r.c.Describe(shown)
		if shown.Status.Phase != v1alpha1.InstanceRunning || !shown.Status.Ready || shown.Status.Attempt != 1 || in.Status.Phase != "" {
			t.Errorf("shown %+v, stored %+v", shown.Status, in.Status)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("they are on %v", nodes)
	}
	revisions := all[*v1alpha1.Revision](r.store)
	if len(revisions) != 1 || revisions[0].Annotations[v1alpha1.AnnotationNumber] != "1" || revisions[0].Labels[v1alpha1.LabelWorkload] != "web" {
		t.Errorf("%+v", revisions)
	}
	writes := r.store.writes
	r.pass(time.Hour)
	if r.store.writes != writes {
		t.Errorf("%d writes while nothing happens", r.store.writes-writes)
	}
	r.hosts["n0"].slow = true
	r.remove("web")
	r.settle()
	if got := r.workload("web").Status.Phase; got != "Stopping" {
		t.Errorf("phase %s while something runs", got)
	}
	r.hosts["n0"].slow = false
	r.settle()
	if left := len(r.store.objects); left != 3 {
		t.Errorf("%d objects are left, of 3 nodes: %s", left, r.dump())
	}
	if n := len(r.w.workloads) + len(r.w.instances) + len(r.w.groups) + r.w.queue.Len() + len(r.w.byUID) + len(r.w.uids) + len(r.w.owners) + len(r.c.shown.all); n != 0 {
		t.Errorf("%d things are remembered of what has gone", n)
	}
}

func TestScale(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("web", web(2))
	r.is("web", "Complete")
	r.declare("web", web(6))
	r.until("six", func() string { return unless(r.running("web") == 6, r.dump()) })
	r.declare("web", web(1))
	r.until("one", func() string { return unless(r.running("web") == 1 && len(r.instances("web")) == 1, r.dump()) })
	r.declare("web", web(0))
	r.is("web", "Empty")
	if n := len(r.instances("web")); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestRollout(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("web", web(4))
	one := r.is("web", "Complete").Status.Rollout.Target
	least := 4
	r.declare("web", version(web(4), "2"))
	r.until("the second takes over", func() string {
		o := r.workload("web")
		if o.Status.Rollout.Target != one {
			least = min(least, int(o.Status.AvailableReplicas))
		}
		return unless(o.Status.Rollout.Target != one && o.Status.Phase == "Complete", r.dump())
	})
	if least < 3 {
		t.Errorf("only %d were available in between", least)
	}
	for _, in := range r.instances("web") {
		if in.Spec.Revision == one {
			t.Errorf("%s has the first one still", in.Name)
		}
	}
	if !r.recorder.has("web: RolloutStarted") || !r.recorder.has("web: RolloutComplete") {
		t.Errorf("told: %v", r.recorder.all)
	}
	// Back to what was declared first: the revision is found again, and gets the highest number.
	r.declare("web", web(4))
	r.until("the first is back", func() string {
		o := r.workload("web")
		return unless(o.Status.Rollout.Target == one && o.Status.Phase == "Complete" && o.Status.ObservedGeneration == o.Generation, r.dump())
	})
	numbers := map[string]string{}
	for _, rev := range all[*v1alpha1.Revision](r.store) {
		numbers[rev.Name] = rev.Annotations[v1alpha1.AnnotationNumber]
	}
	if len(numbers) != 2 || numbers[one] != "3" {
		t.Errorf("numbers %v", numbers)
	}
}

// TestBadRevision: a revision that does not work is taken back by itself.
func TestBadRevision(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("web", web(4))
	one := r.is("web", "Complete").Status.Rollout.Target
	r.quality = func(in *v1alpha1.Instance) quality {
		if in.Spec.Revision != one {
			return failing
		}
		return good
	}
	r.declare("web", version(web(4), "2"))
	o := r.is("web", "RolledBack")
	r.wantCondition(o, v1alpha1.ConditionStalled, metav1.ConditionTrue, "RolledBack")
	if o.Status.Rollout.Goal != one || len(o.Status.Failed) != 1 || o.Status.AvailableReplicas != 4 {
		t.Errorf("%+v", o.Status)
	}
	if !r.recorder.has("web: RolledBack") {
		t.Errorf("told: %v", r.recorder.all)
	}
	writes := r.store.writes
	r.pass(time.Hour)
	if r.store.writes > writes+4 {
		t.Errorf("%d writes while nothing happens", r.store.writes-writes)
	}
}

// TestNodeGone: what is on a node that is gone is replaced when that is due, and one copy stays when it is back.
func TestNodeGone(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2", "n3")
	r.declare("web", web(4))
	r.is("web", "Complete")
	r.cut("n0")
	r.pass(4 * time.Minute)
	if n := len(r.instances("web")); n != 4 {
		t.Fatalf("%d instances before it is due", n)
	}
	r.pass(2 * time.Minute)
	o := r.workload("web")
	if o.Status.AbandonedReplicas != 1 || o.Status.AvailableReplicas != 4 || len(r.instances("web")) != 5 {
		t.Fatalf("it is not replaced: %s", r.dump())
	}
	if !r.recorder.has("web: InstancesLost") {
		t.Errorf("told: %v", r.recorder.all)
	}
	r.link("n0")
	r.settle()
	r.pass(time.Second)
	if n := len(r.instances("web")); n != 4 || r.running("web") != 4 {
		t.Errorf("after it is back: %s", r.dump())
	}
}

// TestFenceBeginsAnew: a fence is counted from when its node has gone last, also where it was back for less than a round: it may have been told that it
// was heard.
func TestFenceBeginsAnew(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(1)
	spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "1m"}
	r.declare("web", spec)
	r.is("web", "Complete")
	in := r.instances("web")[0]
	r.cut(in.Spec.Node)
	h := r.hosts[in.Spec.Node]
	h.seen.Since = r.now
	r.pass(time.Minute)
	h.seen.Since = r.now
	again := r.now
	r.pass(fleet.FencedAt(&spec, again).Sub(r.now) - 2*time.Second)
	if all := r.instances("web"); len(all) != 1 || all[0].UID != in.UID {
		t.Error("another one was made before the fence was over")
	}
	r.pass(4 * time.Second)
	if all := r.instances("web"); len(all) != 1 || all[0].UID == in.UID {
		t.Error("no other one was made when the fence was over")
	}
}

// TestFenceAfterAnotherLeader: what an earlier leader has stored of a node that is gone may be by a clock that was behind. The next one counts a fence
// from when it has missed the node itself.
func TestFenceAfterAnotherLeader(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(1)
	spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "1m"}
	r.declare("web", spec)
	r.is("web", "Complete")
	first := r.instances("web")[0]
	n := &v1alpha1.Node{}
	r.must(r.store.Get(r.Context(), types.NamespacedName{Name: first.Spec.Node}, n))
	meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
		Type: node.Ready, Status: metav1.ConditionUnknown, Reason: node.ReasonHostGone, LastTransitionTime: metav1.NewTime(r.now.Add(-time.Hour)),
	})
	r.must(r.store.UpdateStatus(r.Context(), n))
	r.lead()
	r.cut(first.Spec.Node)
	missed := r.now
	r.pass(time.Minute)
	if is := r.instances("web"); len(is) != 1 || is[0].UID != first.UID {
		t.Fatalf("a minute after this leader has missed its node: %s", r.dump())
	}
	r.pass(fleet.FencedAt(&spec, missed).Sub(r.now) + time.Second)
	if is := r.instances("web"); len(is) != 1 || is[0].UID == first.UID {
		t.Errorf("when it has ended for certain: %s", r.dump())
	}
}

// TestNodeDeleted: what was on a node that people have deleted is replaced at once, also where one of its name is made again.
func TestNodeDeleted(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("web", web(3))
	r.is("web", "Complete")
	n := &v1alpha1.Node{}
	r.must(r.store.Get(r.Context(), typesName("n0"), n))
	r.must(r.store.Delete(r.Context(), n, nil))
	delete(r.hosts, "n0")
	r.join("n0")
	r.settle()
	if r.running("web") != 3 {
		t.Errorf("%s", r.dump())
	}
	for _, in := range r.instances("web") {
		if h := r.hosts[in.Spec.Node]; h == nil || h.uid != in.Spec.NodeUID {
			t.Errorf("%s is where nobody is", in.Name)
		}
	}
}

// TestPending: what has no room says why, and is placed when there is some.
func TestPending(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	r.declare("web", web(6))
	r.settle()
	r.pass(time.Second)
	o := r.workload("web")
	p := o.Status.Pending
	if len(r.instances("web")) != 4 || o.Status.PendingReplicas != 2 || p == nil || p.Instances != 2 || p.Nodes != 1 || len(p.Reasons) != 1 || p.Reasons[0].Reason != "cpu" || len(p.Nearest) != 1 {
		t.Fatalf("%+v %+v", o.Status, p)
	}
	r.wantCondition(o, v1alpha1.ConditionReconciling, metav1.ConditionTrue, o.Status.Phase)
	if !r.recorder.has("web: InstancesPending") {
		t.Errorf("told: %v", r.recorder.all)
	}
	writes := r.store.writes
	r.pass(8 * time.Minute)
	if r.store.writes > writes+3 {
		t.Errorf("%d writes while nothing changes", r.store.writes-writes)
	}
	r.join("n1")
	o = r.is("web", "Complete")
	if o.Status.Pending != nil || o.Status.PendingReplicas != 0 {
		t.Errorf("%+v", o.Status.Pending)
	}
}

// TestOtherEnvironment: nothing is placed on nodes of another environment, and what is on one that goes to another leaves.
func TestOtherEnvironment(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.change("n1", func(n *v1alpha1.Node) { n.Spec.Environment = "qa" })
	r.declare("web", web(2))
	r.is("web", "Complete")
	for _, in := range r.instances("web") {
		if in.Spec.Node != "n0" {
			t.Errorf("%s is on %s", in.Name, in.Spec.Node)
		}
	}
	r.change("n1", func(n *v1alpha1.Node) { n.Spec.Environment = "prod" })
	r.change("n0", func(n *v1alpha1.Node) { n.Spec.Environment = "qa" })
	r.until("they have moved", func() string {
		return unless(!slices.ContainsFunc(r.instances("web"), func(in *v1alpha1.Instance) bool { return in.Spec.Node == "n0" }) && r.running("web") == 2, r.dump())
	})
}

// TestNoExecute: a taint ends what does not tolerate it, at its time.
func TestNoExecute(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	seconds := int64(60)
	patient := web(1)
	patient.Placement.Tolerations = []declared.Toleration{{Operator: declared.TolerationExists, TolerationSeconds: &seconds}}
	patient.Selector = declare.Selector{}
	r.declare("patient", patient)
	r.is("patient", "Complete")
	on := r.instances("patient")[0].Spec.Node
	r.change(on, func(n *v1alpha1.Node) { n.Spec.Taints = []declare.Taint{taint(declare.TaintNoExecute)} })
	r.pass(55 * time.Second)
	if got := r.instances("patient"); len(got) != 1 || got[0].Spec.Node != on {
		t.Fatalf("it has not waited: %s", r.dump())
	}
	r.pass(10 * time.Second)
	if got := r.instances("patient"); len(got) != 1 || got[0].Spec.Node == on {
		t.Errorf("it stays: %s", r.dump())
	}
}

// TestNoExecuteOfAnotherLeader: how long a taint has been there is stored with it, and does not begin anew with who leads.
func TestNoExecuteOfAnotherLeader(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	seconds := int64(60)
	patient := web(1)
	patient.Placement.Tolerations = []declared.Toleration{{Operator: declared.TolerationExists, TolerationSeconds: &seconds}}
	patient.Selector = declare.Selector{}
	r.declare("patient", patient)
	r.is("patient", "Complete")
	on := r.instances("patient")[0].Spec.Node
	is := taint(declare.TaintNoExecute)
	r.change(on, func(n *v1alpha1.Node) { n.Spec.Taints = []declare.Taint{is} })
	n := &v1alpha1.Node{}
	r.must(r.store.Get(r.Context(), types.NamespacedName{Name: on}, n))
	n.Status.Taints = []v1alpha1.NodeTaint{{Key: is.Key, Value: is.Value, Since: metav1.NewTime(r.now)}} // as the server does it
	r.must(r.store.UpdateStatus(r.Context(), n))
	r.pass(40 * time.Second)
	r.lead()
	r.pass(25 * time.Second)
	if got := r.instances("patient"); len(got) != 1 || got[0].Spec.Node == on {
		t.Errorf("it stays: %s", r.dump())
	}
}

// TestPerNode: each node has one, a new one gets one, and one that is cordoned keeps it.
func TestPerNode(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	spec := web(0)
	spec.Mode, spec.Replicas = declared.PerNode, nil
	r.declare("agent", spec)
	o := r.is("agent", "Complete")
	if o.Status.Wanted != 3 || o.Status.AvailableReplicas != 3 {
		t.Errorf("%+v", o.Status)
	}
	r.change("n0", func(n *v1alpha1.Node) { n.Spec.Unschedulable = true })
	r.join("n3")
	r.settle()
	r.pass(time.Second)
	nodes := map[string]int{}
	for _, in := range r.instances("agent") {
		nodes[in.Spec.Node]++
	}
	if len(nodes) != 4 || nodes["n0"] != 1 || nodes["n3"] != 1 {
		t.Errorf("%v", nodes)
	}
	r.change("n1", func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} })
	r.settle()
	r.pass(time.Second)
	if n := r.running("agent"); n != 3 {
		t.Errorf("%d after a drain: %s", n, r.dump())
	}
}

// TestWorkloadCase23_SelectorMoves: a declaration that picks other nodes moves instances there within the budget, also when nobody led when it was changed, or the
// leader dies while it notes who is to go. Labels that change move nobody, and one whose node is picked again stays.
func TestWorkloadCase23_SelectorMoves(t *testing.T) {
	kase := casetest.Start(t)
	for name, disturb := range map[string]func(r *rig){
		"at once":        func(*rig) {},
		"another leader": func(r *rig) { r.lead() },
		"in the middle": func(r *rig) {
			r.round()
			r.lead()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := kase.Sub(t)
			r := newRig(t)
			r.join("n0", "n1", "n2", "n3", "n4")
			label := func(node, role string) { r.change(node, func(n *v1alpha1.Node) { n.Labels["role"] = role }) }
			for i, role := range []string{"web", "web", "web", "api", "api"} {
				label(fmt.Sprint("n", i), role)
			}
			spec := web(3)
			spec.Selector = declare.Selector{MatchLabels: map[string]string{"role": "web"}}
			r.declare("web", spec)
			r.is("web", "Complete")
			label("n0", "old")
			r.pass(time.Minute)
			on := nodesOf(r.instances("web"))
			c.Equal(on["n0"]+on["n1"]+on["n2"], 3, "instances that labels have not moved")

			spec.Selector.MatchLabels = map[string]string{"role": "api"}
			r.declare("web", spec)
			disturb(r)
			fewest := 3
			r.until("all have moved", func() string {
				fewest = min(fewest, int(r.workload("web").Status.AvailableReplicas))
				on := nodesOf(r.instances("web"))
				return unless(on["n3"]+on["n4"] == 3 && len(on) == 2 && r.workload("web").Status.Picks == declared.Picks(&spec), r.dump())
			})
			c.Check(fewest >= 2, "%d were available meanwhile", fewest)
			r.is("web", "Complete")
			label("n3", "old")
			r.pass(time.Minute)
			on = nodesOf(r.instances("web"))
			c.Equal(on["n3"]+on["n4"], 3, "instances that labels have not moved after that")
		})
	}
}

// TestSelectorChangedBack: what was to leave and cannot stays where it is once its node is picked again. A changed list of architectures moves, too.
func TestSelectorChangedBack(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(2)
	r.declare("web", spec)
	r.is("web", "Complete")
	before := nodesOf(r.instances("web"))
	spec.Placement.Architectures = []string{"riscv64"} // which no node has
	r.declare("web", spec)
	r.pass(time.Minute)
	left := 0
	for _, in := range r.instances("web") {
		if in.Status.Leave != nil && in.Status.Leave.Code == reason.PlacementChanged.String() {
			left++
		}
	}
	if left == 0 || r.running("web") == 0 {
		t.Errorf("%d are to leave, %d run: %s", left, r.running("web"), r.dump())
	}
	spec.Placement.Architectures = []string{"amd64"}
	r.declare("web", spec)
	r.is("web", "Complete")
	r.pass(time.Minute)
	for _, in := range r.instances("web") {
		if in.Status.Leave != nil {
			t.Errorf("%s is to leave still: %+v", in.Name, in.Status.Leave)
		}
	}
	if after := nodesOf(r.instances("web")); len(after) != len(before) || r.running("web") != 2 {
		t.Errorf("before %v, after %v: %s", before, after, r.dump())
	}
}

// TestPreemptedForNobody: who was told to make room stays when that is not needed any more: whom it was for is gone, or has all that it wants. As long as it
// is needed it is to leave, whoever leads.
func TestPreemptedForNobody(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	budget := web(2)
	budget.DisruptionBudget = &declared.DisruptionBudget{MinAvailable: "2"}
	budget.Selector = declare.Selector{MatchLabels: map[string]string{"name": "n0"}}
	budget.Template.Tasks[0].Resources.Requests.CPU = "2" // so that there is no room for another one, and nobody may leave
	r.declare("web", budget)
	r.is("web", "Complete")
	mark := func() {
		in := r.instances("web")[0].DeepCopy()
		in.Status.Leave = &v1alpha1.InstanceLeave{Code: reason.Preempted.String(), Since: metav1.NewTime(r.now), For: "prod/urgent"}
		r.must(r.store.UpdateStatus(r.Context(), in))
		r.pass(time.Minute)
	}
	want := func(marked int, when string) {
		t.Helper()
		n := 0
		for _, in := range r.instances("web") {
			if in.Status.Leave != nil {
				n++
			}
		}
		if n != marked || r.running("web") != 2 {
			t.Errorf("%s %d are to leave: %s", when, n, r.dump())
		}
	}
	mark()
	want(0, "for one that is not there")
	urgent := web(1)
	urgent.Selector = declare.Selector{MatchLabels: map[string]string{"name": "n1"}} // which is not there yet
	r.declare("urgent", urgent)
	r.pass(time.Minute)
	mark()
	want(1, "for one that waits")
	r.lead()
	r.pass(time.Minute)
	want(1, "for one that waits, under another leader")
	r.join("n1")
	r.is("urgent", "Complete")
	r.pass(time.Minute)
	want(0, "for one that has its node")
	urgent.Replicas = new(int32(100))
	r.declare("urgent", urgent)
	r.pass(time.Minute)
	mark()
	want(1, "for one that waits again")
	r.remove("urgent")
	r.pass(time.Minute)
	want(0, "for one that was deleted")
}

// TestPreemptedOnce: for one that needs room nobody else is told to go by the leader that comes after the one who has told one, and is dead. So it is also
// where that one cannot go yet.
func TestPreemptedOnce(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	half := func(node string, most declare.IntOrPercent) declared.Spec {
		spec := web(2)
		spec.Template.Tasks[0].Resources.Requests.CPU = "2"
		spec.Selector = declare.Selector{MatchLabels: map[string]string{"name": node}}
		spec.DisruptionBudget = &declared.DisruptionBudget{MaxUnavailable: most}
		return spec
	}
	r.declare("web", half("n0", "0"))
	r.declare("other", half("n1", "2"))
	r.is("web", "Complete")
	r.is("other", "Complete")
	urgent := half("", "1")
	urgent.Selector, urgent.Replicas, urgent.Priority = declare.Selector{}, new(int32(1)), 10
	r.declare("urgent", urgent)
	in := r.instances("web")[0].DeepCopy()
	in.Status.Leave = &v1alpha1.InstanceLeave{Code: reason.Preempted.String(), Since: metav1.NewTime(r.now), For: "prod/urgent"}
	r.must(r.store.UpdateStatus(r.Context(), in))
	r.lead()
	r.pass(time.Minute)
	for _, other := range r.instances("other") {
		if makesRoom(other) != "" || other.Spec.Stop != nil {
			t.Errorf("%s goes as well: %s", other.Name, r.dump())
		}
	}
	r.declare("web", half("n0", "1"))
	r.is("urgent", "Complete")
	if r.running("other") != 2 {
		t.Errorf("others have gone: %s", r.dump())
	}
}

// nodesOf counts instances by node.
func nodesOf(all []*v1alpha1.Instance) map[string]int {
	on := map[string]int{}
	for _, in := range all {
		on[in.Spec.Node]++
	}
	return on
}

// TestJob: a job runs until enough have ended well, and says so; what failed is tried again.
func TestJob(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	tries := 0
	seen := map[string]bool{}
	r.quality = func(in *v1alpha1.Instance) quality {
		if !seen[string(in.UID)] {
			seen[string(in.UID)] = true
			tries++
		}
		if tries == 1 {
			return failing
		}
		return ending
	}
	spec := web(0)
	spec.Mode, spec.Replicas, spec.Job = declared.RunToCompletion, nil, &declared.Job{Completions: new(int32(3)), Parallelism: new(int32(1))}
	r.declare("sum", spec)
	r.until("it is over", func() string {
		j := r.workload("sum").Status.Job
		return unless(j != nil && j.Over != nil, r.dump())
	})
	o := r.workload("sum")
	if j := o.Status.Job; j.Succeeded != 3 || j.Failed != 1 || j.Result != "Complete" {
		t.Errorf("%+v", j)
	}
	r.wantCondition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, "Complete")
	for _, in := range r.instances("sum") {
		if !statuses.PhaseOf(in.Status.Phase).Ended() {
			t.Errorf("%s is stored as %q", in.Name, in.Status.Phase)
		}
	}
	r.lead()
	r.pass(25 * time.Hour)
	if o := r.workload("sum"); o.Status.Job.Succeeded != 3 || len(r.instances("sum")) != 0 {
		t.Errorf("%+v, %d instances", o.Status.Job, len(r.instances("sum")))
	}
}

// TestSchedule: a job is begun at its times, once each whoever leads, and is cleared away.
func TestSchedule(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	r.quality = func(*v1alpha1.Instance) quality { return ending }
	spec := web(0)
	spec.Mode, spec.Replicas, spec.Job = declared.RunToCompletion, nil, &declared.Job{KeepFinished: "1h"}
	spec.Schedule = &declared.Schedule{Cron: "*/10 * * * *"}
	r.declare("sum", spec)
	began := map[string]int{}
	r.store.onWrite = func(verb string, o runtime.Object) {
		if run, is := o.(*v1alpha1.Workload); is && verb == "create" {
			began[run.Name]++
		}
	}
	for range 6 {
		r.pass(10 * time.Minute)
		r.lead()
	}
	r.pass(0)
	if len(began) != 6 {
		t.Errorf("begun: %v", began)
	}
	for name, n := range began {
		if n != 1 {
			t.Errorf("%s was begun %d times", name, n)
		}
	}
	o := r.workload("sum")
	if o.Status.Schedule == nil || !o.Status.Schedule.Last.Time.Equal(start.Add(time.Hour)) {
		t.Errorf("%+v", o.Status.Schedule)
	}
	r.wantCondition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, "Scheduled")
	spec.Schedule.Suspend = true
	r.declare("sum", spec)
	r.pass(3 * time.Hour)
	if left := all[*v1alpha1.Workload](r.store); len(left) != 1 {
		t.Errorf("%d runs are left", len(left)-1)
	}
}

// TestLeases: hosts are to be heard often enough for the shortest lease that is declared in their environment, as long as it is.
func TestLeases(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	exclusive := func(after string) declared.Spec {
		spec := web(1)
		spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: after}
		return spec
	}
	want := func(lease time.Duration) {
		t.Helper()
		if got := r.c.Lease("prod"); got != lease {
			t.Errorf("hosts are to be heard for a lease of %s, want %s", got, lease)
		}
	}
	r.declare("web", web(1))
	r.pass(time.Minute)
	want(0)
	r.declare("db", exclusive("1m"))
	r.declare("queue", exclusive("20s"))
	r.pass(time.Minute)
	want(20 * time.Second)
	if r.c.Lease("test") != 0 {
		t.Error("so are those of another environment")
	}
	r.declare("queue", exclusive("2m"))
	r.pass(time.Minute)
	want(time.Minute)
	r.lead()
	r.pass(time.Minute)
	want(time.Minute)
	r.remove("db")
	r.pass(5 * time.Minute)
	want(2 * time.Minute)
}

// TestFenceOfASilentHost: what is exclusive is made anew when the agent of its host has been silent for so long that it has ended, counted from the
// last report.
func TestFenceOfASilentHost(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	spec := web(1)
	spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable, After: "1m"}
	r.declare("web", spec)
	r.is("web", "Complete")
	first := r.instances("web")[0]
	h := r.hosts[first.Spec.Node]
	h.linked = false
	h.seen.Presence, h.seen.Since = node.Silent, r.now
	r.pass(time.Minute)
	h.seen.Heard = r.now // it comes and goes, and is called silent all the time
	r.pass(fleet.FencedAt(&spec, h.seen.Heard).Sub(r.now) - 2*time.Second)
	if all := r.instances("web"); len(all) != 1 || all[0].UID != first.UID {
		t.Errorf("before the fence is over: %s", r.dump())
	}
	r.pass(4 * time.Second)
	if all := r.instances("web"); len(all) != 1 || all[0].UID == first.UID || all[0].Spec.Node == first.Spec.Node {
		t.Errorf("when the fence is over: %s", r.dump())
	}
}

// TestScheduleReplaces: a run that takes the place of another one begins when that is over, and not only when the next one is due.
func TestScheduleReplaces(t *testing.T) {
	r := newRig(t)
	r.join("n0")
	spec := web(0) // what it runs does not end
	spec.Mode, spec.Replicas, spec.Job = declared.RunToCompletion, nil, &declared.Job{}
	spec.Schedule = &declared.Schedule{Cron: "*/10 * * * *", Concurrency: declared.Replace}
	r.declare("sum", spec)
	r.pass(10*time.Minute + time.Second)
	for n := range 4 {
		due := start.Add(time.Duration(n+1) * 10 * time.Minute)
		r.pass(time.Minute)
		if s := r.workload("sum").Status.Schedule; s == nil || s.Last == nil || !s.Last.Time.Equal(due) || !slices.Equal(s.Active, []string{jobs.RunName("sum", due)}) {
			t.Errorf("a minute after %s: %+v", due, s)
		}
		r.pass(9 * time.Minute)
	}
}

// TestHostThatHasLostItsRecords: what another agent of a host says counts from its first word on, though its attempts are counted anew.
func TestHostThatHasLostItsRecords(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		r := newRig(t)
		r.join("n0")
		r.declare("web", web(1))
		r.pass(time.Minute)
		h := r.hosts["n0"]
		say := func(id string, start uint64) {
			h.tell()
			h.report.Session = wire.Session{ID: id, Start: start}
			h.speak()
			r.round()
		}
		for _, has := range h.has {
			has.Attempt = 5
		}
		say("one", 9)
		if s := r.workload("web").Status; s.ReadyReplicas != 1 {
			t.Fatalf("%+v", s)
		}
		if forgotten { // the presence forgets the host whose key is another one
			h.seen.Report = nil
			r.round()
		}
		r.quality = func(*v1alpha1.Instance) quality { return unready }
		for _, has := range h.has {
			has.Attempt, has.Phase, has.Ready = 1, wire.InstanceStarting, false
		}
		say("another", 1)
		r.pass(time.Minute)
		if s := r.workload("web").Status; s.ReadyReplicas != 0 || s.AvailableReplicas != 0 {
			t.Errorf("forgotten %v: what has been begun anew counts as ready: %+v", forgotten, s)
		}
	}
}
