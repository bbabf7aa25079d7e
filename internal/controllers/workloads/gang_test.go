package workloads

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

// gangOf is a job of instances that fill a host each.
func gangOf(size int32) declared.Spec {
	spec := web(size)
	spec.Mode, spec.Job = declared.RunToCompletion, &declared.Job{Completions: &size, Parallelism: &size, Gang: true}
	spec.Template.Tasks[0].Resources.Requests.CPU = "4"
	return spec
}

// refuses has the store refuse to create some instances.
func (r *rig) refuses(which func(*v1alpha1.Instance) bool) {
	r.store.fault = func(verb string, o runtime.Object) error {
		if in, is := o.(*v1alpha1.Instance); is && verb == "create" && which(in) {
			return errors.New("the store is busy")
		}
		return nil
	}
}

// TestGangRefused: where the store refuses one of a gang, the room that was found for it is its own until it is there. Another workload that wants it too,
// and comes first by priority, has none of it.
func TestGangRefused(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.refuses(func(in *v1alpha1.Instance) bool { return in.Spec.Workload == "gang" && in.Spec.Slot == 1 })
	r.declare("gang", gangOf(3))
	r.round()
	r.settle()
	if n := len(r.instances("gang")); n != 2 {
		t.Fatalf("%d of 3 are there, want 2\n%s", n, r.dump())
	}
	whole := web(1)
	whole.Template.Tasks[0].Resources.Requests.CPU = "4"
	r.declare("whole", whole)
	r.pass(10 * time.Second)
	if n := len(r.instances("whole")); n != 0 {
		t.Errorf("another one has the room of a gang that has begun\n%s", r.dump())
	}
	r.store.fault = nil
	r.pass(2 * retryAfter)
	if r.running("gang") != 3 {
		t.Errorf("the gang is not whole\n%s", r.dump())
	}
}

// TestGangRefusedWhole: a gang of which nothing could be created keeps no room.
func TestGangRefusedWhole(t *testing.T) {
	r := newRig(t)
	r.join("n0", "n1", "n2")
	r.refuses(func(in *v1alpha1.Instance) bool { return in.Spec.Workload == "gang" })
	r.declare("gang", gangOf(3))
	r.settle()
	whole := web(1)
	whole.Template.Tasks[0].Resources.Requests.CPU = "4"
	r.declare("whole", whole)
	r.settle()
	if r.running("whole") != 1 {
		t.Errorf("nothing of the gang is there, and its room is kept\n%s", r.dump())
	}
	r.store.fault = nil
	r.pass(2 * retryAfter)
	if n := len(r.instances("gang")); n != 0 {
		t.Errorf("%d of a gang are there that has no room as a whole\n%s", n, r.dump())
	}
}

// TestGangUnwanted: with the one that the store refuses its room is given back, whether the job is deleted or the node goes.
func TestGangUnwanted(t *testing.T) {
	for name, do := range map[string]func(*rig){
		"deleted": func(r *rig) { r.remove("gang") },
		"no node": func(r *rig) {
			for _, in := range r.instances("gang") {
				r.change(in.Spec.Node, func(n *v1alpha1.Node) { n.Labels["has"] = "one" })
			}
			for name := range r.hosts {
				n := &v1alpha1.Node{}
				r.must(r.store.Get(r.Context(), typesName(name), n))
				if n.Labels["has"] == "" {
					r.must(r.store.Delete(r.Context(), n, metav1.NewUIDPreconditions(string(n.UID))))
					delete(r.hosts, name)
				}
			}
			r.pass(2 * retryAfter)
			r.store.fault = nil
			r.join("n9")
			r.until("the gang is whole", func() string { return unless(r.running("gang") == 3, r.dump()) })
			r.remove("gang")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.join("n0", "n1", "n2")
			r.refuses(func(in *v1alpha1.Instance) bool { return in.Spec.Workload == "gang" && in.Spec.Slot == 1 })
			r.declare("gang", gangOf(3))
			r.settle()
			do(r)
			whole := web(3)
			whole.Template.Tasks[0].Resources.Requests.CPU = "4"
			r.declare("whole", whole)
			r.until("all room is free", func() string { return unless(r.running("whole") == 3, r.dump()) })
		})
	}
}
