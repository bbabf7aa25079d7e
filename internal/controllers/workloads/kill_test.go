package workloads

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
)

// countCreates counts the instances that are made.
func countCreates(made *int) func(string, runtime.Object) {
	return func(verb string, o runtime.Object) {
		if _, is := o.(*v1alpha1.Instance); is && verb == "create" {
			*made++
		}
	}
}

// TestKilledAfterEveryWrite: a server that dies after any write of a deployment, of a rollout, of a scaling and of an end leaves nothing that the
// next one does not go on with: nothing is made twice, never fewer are available than may be, and it comes to the same end.
func TestKilledAfterEveryWrite(t *testing.T) {
	for after, killed := 1, true; killed; after++ {
		t.Run(fmt.Sprint("writes=", after), func(t *testing.T) { killed = killedAfter(t, after) })
		if t.Failed() {
			return
		}
	}
}

// killedAfter reports whether it came to so many writes.
func killedAfter(t *testing.T, writes int) (killed bool) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	made := 0
	r.store.onWrite = countCreates(&made)
	least := func() int {
		n := 0
		for _, in := range r.instances("web") {
			if has := r.hosts[in.Spec.Node].has[in.UID]; has != nil && has.Ready && in.Spec.Stop == nil {
				n++
			}
		}
		return n
	}
	run := func(want func() bool, floor int) {
		t.Helper()
		for range 2000 {
			r.store.collect()
			r.round()
			if r.store.killed {
				killed = true
				r.now = r.now.Add(time.Second)
				r.lead()
			}
			r.work()
			if n := least(); n < floor {
				t.Fatalf("%d are ready, at least %d must be: %s", n, floor, r.dump())
			}
			if want() {
				return
			}
			r.now = r.now.Add(250 * time.Millisecond)
		}
		t.Fatalf("it does not come to its end: %s", r.dump())
	}
	complete := func(replicas int32) func() bool {
		return func() bool {
			o := r.workload("web")
			return o.Status.Phase == "Complete" && o.Status.ObservedGeneration == o.Generation && o.Status.AvailableReplicas == replicas && o.Status.UpdatedReplicas == replicas &&
				len(r.instances("web")) == int(replicas)
		}
	}
	r.declare("web", web(3))
	r.store.budget = writes
	run(complete(3), 0)
	if made != 3 {
		t.Errorf("%d were made of 3", made)
	}
	budget := r.store.budget
	r.store.budget = -1
	r.declare("web", version(web(4), "2"))
	r.store.budget = budget
	run(complete(4), 2)
	if made > 3+4+1 {
		t.Errorf("%d were made", made)
	}
	budget = r.store.budget
	r.store.budget = -1
	r.remove("web")
	r.store.budget = budget
	run(func() bool { return len(r.store.objects) == 3 }, 0)
	return killed
}
