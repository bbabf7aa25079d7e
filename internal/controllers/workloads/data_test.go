package workloads

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
)

// withData is a workload with data, of which there is room for all on one node, and surge is declared.
func withData(replicas int32, stick declared.Stick) declared.Spec {
	spec := web(replicas)
	spec.Template.Volumes = []declared.Volume{{Name: "data", Data: &declared.DataVolume{Stick: stick}}}
	spec.Template.Tasks[0].Resources.Requests.CPU = "100m"
	spec.Rollout.MaxSurge = "100%"
	return spec
}

// places are the nodes of the instances that are there, by name.
func (r *rig) places(name string) map[string]string {
	at := map[string]string{}
	for _, in := range r.instances(name) {
		at[in.Name] = in.Spec.Node
	}
	return at
}

// stay waits until all run where they were.
func (r *rig) stay(name string, at map[string]string) {
	r.Helper()
	r.until("all are where their data is", func() string {
		o := r.workload(name)
		whole := o.Status.Phase == "Complete" && o.Status.ObservedGeneration == o.Generation && int(o.Status.AvailableReplicas) == len(at)
		return unless(whole && maps.Equal(r.places(name), at), fmt.Sprintf("%v, want %v: %s", r.places(name), at, r.dump()))
	})
}

// TestDataStays: rollouts, crashes and other servers leave what has data where that is, though better nodes have come meanwhile.
func TestDataStays(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("db", withData(3, ""))
	r.is("db", "Complete")
	at := r.places("db")
	r.join("n3", "n4", "n5")
	r.declare("db", version(withData(3, ""), "2"))
	r.stay("db", at)
	r.lead()
	r.declare("db", version(withData(3, ""), "3"))
	r.stay("db", at)
	bad := r.instances("db")[1].UID
	r.quality = func(in *v1alpha1.Instance) quality {
		if in.UID == bad {
			return failing
		}
		return good
	}
	r.hosts[at["db-1"]].has[bad].Phase-- // it is starting, and ends badly
	r.until("it is another one", func() string { return unless(r.instances("db")[1].UID != bad, r.dump()) })
	r.stay("db", at)
}

// TestDataOfDrainedNode: what leaves a node with its data waits for that, and says so; when the node is back, so is it, whoever leads by then.
func TestDataOfDrainedNode(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("db", withData(1, declared.MustStick))
	r.is("db", "Complete")
	at := r.places("db")
	r.change(at["db-0"], drain)
	r.until("it has gone", func() string { return unless(strings.HasPrefix(r.drained(at["db-0"]), "True"), r.dump()) })
	for range 2 {
		r.pass(time.Hour)
		if n := len(r.instances("db")); n != 0 {
			t.Fatalf("%d are placed elsewhere: %s", n, r.dump())
		}
		p := r.workload("db").Status.Pending
		if p == nil || !strings.Contains(p.Message, "1 other than "+at["db-0"]) || !strings.Contains(p.Message, "uncordon") {
			t.Errorf("it is told %+v", p)
		}
		r.lead()
	}
	r.change(at["db-0"], func(n *v1alpha1.Node) { n.Spec.Drain = nil })
	r.stay("db", at)
}

// TestDataOfPreferredNode: who only prefers its data goes elsewhere where that cannot be had, and to it where it can.
func TestDataOfPreferredNode(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("db", withData(1, declared.PreferStick))
	r.is("db", "Complete")
	at := r.places("db")
	r.join("n2", "n3")
	for _, v := range []string{"2", "3"} {
		r.declare("db", version(withData(1, declared.PreferStick), v))
		r.stay("db", at)
	}
	r.change(at["db-0"], drain)
	r.until("it is elsewhere", func() string {
		got := r.places("db")["db-0"]
		return unless(got != "" && got != at["db-0"] && r.workload("db").Status.AvailableReplicas == 1, r.dump())
	})
}

// TestDataOfLostNode: another copy is not made while the node is gone, and none beside it when it is back; when its Node is deleted its data is given up.
func TestDataOfLostNode(t *testing.T) {
	for _, action := range []declared.UnreachableAction{declared.ReplaceUnreachable, declared.FenceUnreachable} {
		r := newRig(t)
		r.join("n0", "n1", "n2", "n3", "n4")
		spec := withData(2, declared.MustStick)
		spec.OnUnreachable = &declared.OnUnreachable{Action: action, After: "1m"}
		r.declare("db", spec)
		r.is("db", "Complete")
		at := r.places("db")
		r.cut(at["db-0"])
		r.pass(time.Hour)
		if got := r.places("db"); got["db-0"] != at["db-0"] && got["db-0"] != "" || len(got) > 2 {
			t.Fatalf("%s: while it is gone: %s", action, r.dump())
		}
		r.link(at["db-0"])
		r.stay("db", at)
		r.cut(at["db-0"])
		r.pass(time.Hour)
		gone := &v1alpha1.Node{}
		r.must(r.store.Get(r.Context(), typesName(at["db-0"]), gone))
		r.must(r.store.Delete(r.Context(), gone, nil))
		r.until("it is elsewhere", func() string {
			got := r.places("db")["db-0"]
			return unless(got != "" && got != at["db-0"] && r.workload("db").Status.AvailableReplicas == 2, r.dump())
		})
	}
}

// TestDataOfTaintedNode: preemption, moves and the like take nothing elsewhere either.
func TestDataOfTaintedNode(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.declare("db", withData(2, declared.MustStick))
	r.is("db", "Complete")
	at := r.places("db")
	r.change(at["db-1"], func(n *v1alpha1.Node) { n.Spec.Taints = []declare.Taint{taint(declare.TaintNoExecute)} })
	r.pass(time.Hour)
	if got := r.places("db"); len(got) != 1 || got["db-0"] != at["db-0"] {
		t.Errorf("they are at %v", got)
	}
	r.change(at["db-1"], func(n *v1alpha1.Node) { n.Spec.Taints = nil })
	r.stay("db", at)
}

// TestDataOfRolloutOnDrainedNode: a rollout waits for as long as the node is drained, and goes on when it is not.
func TestDataOfRolloutOnDrainedNode(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("db", withData(1, declared.MustStick))
	r.is("db", "Complete")
	at := r.places("db")
	r.change(at["db-0"], drain)
	r.declare("db", version(withData(1, declared.MustStick), "2"))
	r.until("it has gone", func() string { return unless(strings.HasPrefix(r.drained(at["db-0"]), "True"), r.dump()) })
	r.pass(time.Hour)
	if s := r.workload("db").Status; s.Phase != "Waiting" || !strings.Contains(s.Message, "waits for the nodes that have its data") {
		t.Errorf("it is %s: %s", s.Phase, s.Message)
	}
	r.change(at["db-0"], func(n *v1alpha1.Node) { n.Spec.Drain = nil })
	r.stay("db", at)
}

// TestDataOfNewLeader: what was to go to its data and had no node yet goes there with another leader too, though it hears of other nodes first.
func TestDataOfNewLeader(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1")
	r.declare("db", withData(1, declared.PreferStick))
	r.is("db", "Complete")
	at := r.places("db")
	home := r.hosts[at["db-0"]]
	r.must(r.store.Delete(r.Context(), r.instances("db")[0], nil))
	home.linked = false // it is heard later than the others
	r.lead()
	for range 5 {
		r.settle()
		r.now = r.now.Add(time.Second)
	}
	if got := r.places("db"); len(got) > 0 {
		t.Errorf("it is at %v, and its data at %v", got, at)
	}
	r.link(home.name)
	r.stay("db", at)
}
