package assignments

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// gatedBy is a rollout that is measured, one node and then the others.
func gatedBy(onFailure declare.OnFailure) declare.Rollout {
	most := declare.Quantity("0.05")
	return declare.Rollout{
		MaxUnavailable: "100%", Waves: []declare.Wave{{Nodes: "1"}}, OnFailure: onFailure,
		Gates: []declare.Gate{{Name: "errors", Prometheus: declare.PrometheusQuery{Query: "errors"}, Max: &most}},
	}
}

// having counts the nodes that are to have a revision.
func (r *rig) having(revision string) (n int) {
	for name := range r.agents {
		if slices.Contains(r.assigned(name), revision) {
			n++
		}
	}
	return n
}

// TestGates: what a rollout waits for is asked while it goes on and not afterwards; what comes out of bounds stops it, over another leader too, until
// something else is declared.
func TestGates(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	one := r.declare("qa", "motd", "one", gatedBy(""))
	r.settles("qa", "motd", one, "Complete")
	if asked := r.measures.asked(); len(asked) > 0 {
		t.Errorf("nothing is rolled out, and %v is asked", asked)
	}

	r.measures.says(0, "main does not answer")
	two := r.declare("qa", "motd", "two", gatedBy(""))
	c := r.settles("qa", "motd", two, "Waiting")
	r.eventually("it says what it waits for", func() string {
		if c = r.config("qa", "motd"); strings.Contains(c.Status.Rollout.Message, "gate errors is not measured: main does not answer") {
			return ""
		}
		return c.Status.Rollout.Message
	})
	if asked := r.measures.asked(); !slices.Equal(asked, []string{"errors"}) || r.having(two) != 1 {
		t.Errorf("%v is asked, and %d have it", asked, r.having(two))
	}
	r.measures.says(0.5, "")
	c = r.settles("qa", "motd", two, "Halted")
	r.wantCondition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Halted")
	if f := c.Status.Rollout.Failure; f == nil || f.Revision != two || f.Generation != c.Generation || f.Goal != "" || !strings.Contains(f.Message, "gate errors measures 0.5, and its max is 0.05") {
		t.Errorf("the failure is %+v", f)
	}

	r.stop()
	r.measures.says(0, "")
	r.begin()
	c = r.settles("qa", "motd", two, "Halted")
	if r.having(two) != 1 || len(r.measures.asked()) > 0 {
		t.Errorf("another leader: %d have it, and %v is asked", r.having(two), r.measures.asked())
	}
	again := gatedBy("")
	again.Monitor = "1ms"
	r.declare("qa", "motd", "two", again)
	r.settles("qa", "motd", two, "Complete")
	if r.having(two) != 5 {
		t.Errorf("%d have it", r.having(two))
	}
}

// TestRolledBack: where people want that, all nodes go back by themselves, one that joins gets what they have, and the next revision is a new one.
func TestRolledBack(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	back := declare.Rollout{MaxUnavailable: "100%", OnFailure: declare.RollBack}
	one := r.declare("qa", "motd", "one", back)
	r.settles("qa", "motd", one, "Complete")
	two := r.declare("qa", "motd", "two", back)
	r.bad[two] = "nginx: unknown directive"
	c := r.settles("qa", "motd", two, "RolledBack")
	r.wantCondition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, "RolledBack")
	s := c.Status.Rollout
	if r.having(one) != 4 || s.Done != 4 || s.Proven != one || s.Failure == nil || s.Failure.Goal != one || !strings.Contains(s.Message, "nginx: unknown directive") {
		t.Errorf("%d have gone back, and it is %+v", r.having(one), s)
	}
	if !r.recorder.has("motd: RolledBack") {
		t.Errorf("told %v", r.recorder.all)
	}
	r.join("late", "qa")
	r.stop()
	r.begin()
	r.eventually("who joins gets it, of another leader too", func() string {
		if n := r.having(one); n != 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
	r.settles("qa", "motd", two, "RolledBack")

	// Whoever declares something else has it before its revision is there. What has failed does not come again meanwhile.
	r.retry(func() error {
		c := r.config("qa", "motd")
		c.Spec.Resources[0].File.Content = "three"
		return local.Update(r.Context(), c)
	})
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		if r.work(); r.having(two) > 0 {
			t.Fatal("what has failed comes again")
		}
	}
	three := r.declare("qa", "motd", "three", back)
	c = r.settles("qa", "motd", three, "Complete")
	if r.having(three) != 5 || c.Status.Rollout.Failure != nil {
		t.Errorf("%d have the next one, and it is %+v", r.having(three), c.Status.Rollout)
	}
}

// TestRolledBackWhileTried: hosts do not try what they go back to: otherwise they would go back from it, to what has failed.
func TestRolledBackWhileTried(t *testing.T) {
	r := newRig(t)
	for i := range 2 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	back := declare.Rollout{MaxUnavailable: "100%", OnFailure: declare.RollBack}
	one := r.declare("qa", "motd", "one", back)
	r.settles("qa", "motd", one, "Complete")
	first := r.declare("qa", "web", "first", back)
	r.settles("qa", "web", first, "Complete")
	for _, g := range r.agents {
		g.deaf = true
	}
	trying := back
	trying.Try = "10m"
	two := r.declare("qa", "motd", "two", trying)
	r.eventually("it is tried", func() string { return unless(r.having(two) == 2, "not yet") })
	second := r.declare("qa", "web", "second", back) // what comes meanwhile is in what they go back to, and not in what they would go back to from it
	r.eventually("another one comes meanwhile", func() string { return unless(r.having(second) == 2, "not yet") })
	r.bad[two] = "nginx: unknown directive"
	for _, g := range r.agents {
		g.deaf = false
	}
	r.settles("qa", "motd", two, "RolledBack")
	for name := range r.agents {
		if a := r.assignment(name); a.Spec.Try != nil || !slices.Contains(r.assigned(name), one) {
			t.Errorf("%s is to have %v, and tries %+v", name, r.assigned(name), a.Spec.Try)
		}
	}
}

// TestFailureIsKept: what cannot be read now is not gone, and a leader that cannot compile what has failed does not forget that.
func TestFailureIsKept(t *testing.T) {
	r := newRig(t)
	r.join("n0", "qa")
	back := declare.Rollout{OnFailure: declare.RollBack}
	one := r.declare("qa", "motd", "one", back)
	r.settles("qa", "motd", one, "Complete")
	two := r.declare("qa", "motd", "two", back)
	r.bad[two] = "nginx: unknown directive"
	failed := r.settles("qa", "motd", two, "RolledBack").Status.Rollout
	r.stop()
	r.layers.lack("NodeConfig/qa/motd", &reason.Error{Code: reason.StoreUnreachable, Doing: "read", Cause: errors.New("the store is away")})
	r.begin()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		r.work()
	}
	r.layers.lack("NodeConfig/qa/motd", nil)
	r.eventually("it is compiled again", func() string {
		if s := r.config("qa", "motd").Status.Rollout; s.Phase != "RolledBack" || s.Message != failed.Message {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if s := r.config("qa", "motd").Status.Rollout; s.Failure == nil || *s.Failure != *failed.Failure || r.having(two) > 0 {
		t.Errorf("the failure was %+v, and it is %+v", failed.Failure, s)
	}
}

// TestDeclaredAnewIsDecided: what is declared again is decided about when its revision is known, which may be the one of before: not only when it comes.
func TestDeclaredAnewIsDecided(t *testing.T) {
	at := func(generation, revised int64) *configSpec {
		_, c := shapeConfig(&v1alpha1.ClusterNodeConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "motd", Generation: generation},
			Status: v1alpha1.NodeConfigStatus{Revision: "motd-1", Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionRevised, Status: metav1.ConditionTrue, ObservedGeneration: revised},
			}},
		})
		return c
	}
	w := newWorld(time.Now())
	id := at(1, 1).id
	for _, next := range []struct {
		spec    *configSpec
		touched bool
	}{{at(1, 1), true}, {at(1, 1), false}, {at(2, 1), true}, {at(2, 2), true}, {at(2, 2), false}} {
		w.absorbConfigs(map[string]*configSpec{id: next.spec})
		c := w.configs[id]
		if w.dirty[c] != next.touched {
			t.Errorf("generation %d, revised of %d: it is to be decided about: %v", next.spec.generation, c.as, w.dirty[c])
		}
		c.was.Target = c.newest
		w.clean(c)
	}
}
