package workloads

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

// TestManyEndInTurn: however many instances are to end, a round writes a part of them, and what else is declared has its turn meanwhile.
func TestManyEndInTurn(t *testing.T) {
	const hosts, many = 10, 2500
	r := newRig(t)
	r.many = true
	for i := range hosts {
		r.join(fmt.Sprintf("n%d", i))
	}
	spec := web(many)
	spec.Template.Tasks[0].Resources.Requests.CPU, spec.Template.Tasks[0].Resources.Requests.Memory = "1m", "1Mi"
	names := []string{"a-many", "b-many", "c-many"}
	for _, name := range names {
		r.declare(name, spec)
	}
	small := web(3)
	small.Template.Tasks[0].Resources.Requests.CPU = "1m"
	r.declare("small", small)
	r.until("all run", func() string {
		running := r.running("small")
		for _, name := range names {
			running += r.running(name)
		}
		return unless(running == len(names)*many+3, fmt.Sprint(running))
	})
	stopped := func(name string) (n int) {
		for _, in := range r.instances(name) {
			if in.Spec.Stop != nil {
				n++
			}
		}
		return n
	}
	for _, name := range names {
		r.remove(name)
	}
	r.declare("small", web(1))
	for turns := 0; stopped("small") == 0; turns++ {
		if turns > 4*len(names) {
			t.Fatalf("after %d rounds nothing of what is small was told to end", turns)
		}
		if n := stopped(names[0]); turns == 1 && n != writesPerRound {
			t.Errorf("the first round has told %d instances to end, so there are no turns", n)
		}
		before := r.store.writes
		r.round()
		if n := r.store.writes - before; n > 2*writesPerRound+20 {
			t.Errorf("a round has written %d times", n)
		}
	}
	r.until("nothing is left of the others", func() string {
		left := len(r.w.instances)
		return unless(left == 1, fmt.Sprint(left))
	})
}

// TestTakenBackBeforeOthersEnd: where very many instances are back for which others do not stand in yet, those end, and none of the ones that serve.
func TestTakenBackBeforeOthersEnd(t *testing.T) {
	const hosts, away, many = 10, 4, 4000
	r := newRig(t)
	r.many = true
	for i := range hosts {
		r.join(fmt.Sprintf("n%d", i))
	}
	spec := web(many)
	spec.Template.Tasks[0].Resources.Requests.CPU, spec.Template.Tasks[0].Resources.Requests.Memory = "1m", "1Mi"
	spec.OnUnreachable = &declared.OnUnreachable{After: "1m"}
	r.declare("web", spec)
	r.until("all run", func() string { n := r.running("web"); return unless(n == many, fmt.Sprint(n)) })
	originals := map[types.UID]bool{}
	for _, in := range r.instances("web") {
		originals[in.UID] = true
	}

	r.quality = func(in *v1alpha1.Instance) quality {
		if originals[in.UID] {
			return good
		}
		return unready
	}
	for i := range away {
		r.cut(fmt.Sprintf("n%d", i))
	}
	r.until("others stand in", func() string { n := len(r.instances("web")); return unless(n == many+many*away/hosts, fmt.Sprint(n)) })
	for i := range away {
		r.link(fmt.Sprintf("n%d", i))
	}
	r.until("nobody stands in any more", func() string {
		n := len(r.instances("web"))
		return unless(n == many && r.running("web") == many, fmt.Sprintf("%d instances, %d run", n, r.running("web")))
	})
	left := 0
	for _, in := range r.instances("web") {
		if originals[in.UID] {
			left++
		}
	}
	if left != many {
		t.Errorf("%d of %d that have served all the time were told to end", many-left, many)
	}
}
