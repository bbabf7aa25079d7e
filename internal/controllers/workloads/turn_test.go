package workloads

import (
	"fmt"
	"testing"
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
