package assignments

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

var allAtOnce = declare.Rollout{MaxUnavailable: "100%"}

// A revision goes from node to node, and never to a second one before the first has converged on it.
func TestRolloutGoesOneAfterAnother(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	r.join("elsewhere", "prod")
	one := r.declare("qa", "motd", "one", declare.Rollout{MaxUnavailable: "1"})
	c := r.settles("qa", "motd", one, "Complete")
	r.wantCondition(c, v1alpha1.ConditionReady, metav1.ConditionTrue, "Complete")
	if s := c.Status.Rollout; s.Selected != 3 || s.Done != 3 || s.Proven != one {
		t.Errorf("complete with %+v", s)
	}
	if got := r.assigned("elsewhere"); len(got) != 0 {
		t.Errorf("a node of another environment has %v", got)
	}
	two := r.declare("qa", "motd", "two", declare.Rollout{MaxUnavailable: "1"})
	for name := range r.agents {
		r.agents[name].deaf = true
	}
	for done := range 3 {
		var on []string
		r.eventually("the next one gets it", func() string {
			on = nil
			for _, name := range []string{"n0", "n1", "n2"} {
				if slices.Contains(r.assigned(name), two) {
					on = append(on, name)
				}
			}
			if len(on) > done {
				return ""
			}
			return fmt.Sprint(on)
		})
		if len(on) != done+1 {
			t.Fatalf("%v have it after %d have converged", on, done)
		}
		for _, name := range on {
			r.agents[name].deaf = false
		}
	}
	r.agents["elsewhere"].deaf = false
	r.settles("qa", "motd", two, "Complete")
	if !r.recorder.has("motd: RolloutStarted") || !r.recorder.has("motd: RolloutComplete") {
		t.Errorf("told %v", r.recorder.all)
	}
}

// A revision that does not work stops at the first node, and taking it back brings that one back.
func TestHaltAndUndo(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	one := r.declare("qa", "motd", "one", declare.Rollout{})
	r.settles("qa", "motd", one, "Complete")
	two := r.declare("qa", "motd", "two", declare.Rollout{})
	r.bad[two] = "nginx: unknown directive"
	c := r.settles("qa", "motd", two, "Halted")
	r.wantCondition(c, v1alpha1.ConditionReady, metav1.ConditionFalse, "Halted")
	r.wantCondition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Halted")
	var have []string
	for name := range r.agents {
		if slices.Contains(r.assigned(name), two) {
			have = append(have, name)
		}
	}
	culprits := c.Status.Rollout.Culprits
	if len(have) != 1 || len(culprits) != 1 || culprits[0].Node != have[0] || !strings.Contains(culprits[0].Message, "unknown directive") || culprits[0].Code != reason.CheckRejected.String() {
		t.Fatalf("%v have it, and %+v are told", have, culprits)
	}
	if !r.recorder.has("motd: RolloutHalted") {
		t.Errorf("told %v", r.recorder.all)
	}
	r.declare("qa", "motd", "one", declare.Rollout{})
	c = r.settles("qa", "motd", one, "Complete")
	r.wantCondition(c, v1alpha1.ConditionStalled, "", "")
	if got := r.assigned(have[0]); !slices.Equal(got, []string{one}) {
		t.Errorf("%s has %v", have[0], got)
	}
}

// Of two configs that want different things of one file, the one that is there stays; where none is, none comes. Both say so.
func TestConflictIsToldOnBothSides(t *testing.T) {
	r := newRig(t)
	r.join("old", "qa")
	first := r.declare("qa", "motd", "one", allAtOnce)
	r.settles("qa", "motd", first, "Complete")
	r.declare("qa", "other", "two", allAtOnce)
	r.eventually("the other one is known", func() string { // a node that came before it would have the first
		if len(r.config("qa", "other").Status.Conflicts) == 0 {
			return "it has no conflict"
		}
		return ""
	})
	r.join("fresh", "qa")
	r.eventually("both say so", func() string {
		a, b := r.config("qa", "motd"), r.config("qa", "other")
		if len(a.Status.Conflicts) > 0 && len(b.Status.Conflicts) > 0 && len(b.Status.Conflicts[0].Nodes)+len(b.Status.Conflicts) >= 3 {
			return ""
		}
		return fmt.Sprintf("%+v; %+v", a.Status.Conflicts, b.Status.Conflicts)
	})
	r.eventually("the fresh one has an assignment", func() string {
		if r.assignment("fresh").Spec.NodeUID == "" {
			return "none"
		}
		return ""
	})
	if got := r.assigned("old"); !slices.Equal(got, []string{first}) {
		t.Errorf("the old node has %v", got)
	}
	if got := r.assigned("fresh"); len(got) != 0 {
		t.Errorf("the fresh node has %v", got)
	}
	var b *v1alpha1.NodeConfig
	r.eventually("it is told that it is stalled", func() string { // the fresh one was heard by then
		b = r.config("qa", "other")
		if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled) {
			return ""
		}
		return fmt.Sprintf("%+v", b.Status.Conditions)
	})
	r.wantCondition(b, v1alpha1.ConditionConflict, metav1.ConditionTrue, "Conflict")
	r.wantCondition(b, v1alpha1.ConditionReady, metav1.ConditionFalse, "Conflict")
	r.wantCondition(b, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Conflict")
	x := b.Status.Conflicts[0]
	if x.Config != "NodeConfig/qa/motd" || x.Claim != "path:/etc/motd" || x.Value != `"two"` || x.OtherValue != `"one"` || !strings.HasPrefix(x.Field, "file.content") {
		t.Errorf("told %+v", x)
	}
	r.must(local.Delete(r.Context(), b, nil))
	c := r.settles("qa", "motd", first, "Complete")
	r.eventually("it is resolved", func() string {
		if c = r.config("qa", "motd"); len(c.Status.Conflicts) > 0 {
			return fmt.Sprint(c.Status.Conflicts)
		}
		return ""
	})
	if got := r.assigned("fresh"); !slices.Equal(got, []string{first}) {
		t.Errorf("then the fresh node has %v", got)
	}
	if !r.recorder.has("motd: Conflict") || !r.recorder.has("other: Conflict") || !r.recorder.has("motd: ConflictResolved") {
		t.Errorf("told %v", r.recorder.all)
	}
}

// A node that moves gets what is there, and may delete what it had; and that goes on until it has taken it up.
func TestMoveToAnotherEnvironment(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	qa, prod := r.declare("qa", "web", "one", allAtOnce), r.declare("prod", "db", "two", allAtOnce)
	r.settles("qa", "web", qa, "Complete")
	before := r.assignment("a")
	if before.Spec.AllowDeletions != 0 {
		t.Errorf("consents to %d before", before.Spec.AllowDeletions)
	}
	r.agents["a"].deaf = true
	r.change("a", func(s *v1alpha1.NodeSpec) { s.Environment = "prod" })
	r.eventually("it has what is there", func() string {
		a := r.assignment("a")
		if got := r.assigned("a"); a.Spec.Environment == "prod" && slices.Equal(got, []string{prod}) {
			return ""
		}
		return fmt.Sprintf("%+v", a.Spec)
	})
	if a := r.assignment("a"); a.Spec.AllowDeletions != 100 || a.UID != before.UID {
		t.Errorf("moved with %+v", a.Spec)
	}
	r.agents["a"].deaf = false
	r.settles("prod", "db", prod, "Complete")
	three := r.declare("prod", "db", "three", allAtOnce)
	r.settles("prod", "db", three, "Complete")
	if a := r.assignment("a"); a.Spec.AllowDeletions != 0 {
		t.Errorf("afterwards it consents to %d", a.Spec.AllowDeletions)
	}
}

// A state that was withheld gets the consent that names its root.
func TestConsentToOneState(t *testing.T) {
	r := newRig(t)
	n := r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	r.agents["a"].deaf = true
	two := r.declare("qa", "web", "two", allAtOnce)
	r.eventually("it is assigned", func() string { return unless(slices.Contains(r.assigned("a"), two), "not yet") })
	a := r.assignment("a")
	withheld := &wire.Report{Verdict: wire.Verdict{Type: wire.Withheld, Version: versionOf(a), Message: "deletes 9 of 10"}}
	r.presence.say(n.UID, "a", presence.Seen{Presence: node.Here, Believed: true, Report: withheld})
	c := r.settles("qa", "web", two, "Halted")
	if culprits := c.Status.Rollout.Culprits; len(culprits) != 1 || !strings.Contains(culprits[0].Message, "withheld: deletes 9 of 10") {
		t.Errorf("told %+v", culprits)
	}
	r.eventually("the head is known", func() string {
		head, ok := r.begun.AssignedHead(n.UID)
		return unless(ok && head.Version == int64(versionOf(a)), fmt.Sprint(head))
	})
	head, _ := r.begun.AssignedHead(n.UID)
	r.change("a", func(s *v1alpha1.NodeSpec) { s.AllowDeletions = strings.TrimPrefix(head.Root, "sha256:") })
	r.agents["a"].deaf = false
	r.eventually("it may", func() string {
		return unless(r.assignment("a").Spec.AllowDeletions == 100, fmt.Sprint(r.assignment("a").Spec))
	})
	r.settles("qa", "web", two, "Complete")
	// What the Node says is of a state that is past: it is no consent to the next one.
	three := r.declare("qa", "web", "three", allAtOnce)
	r.settles("qa", "web", three, "Complete")
	if a := r.assignment("a"); a.Spec.AllowDeletions != 0 || !slices.Contains(r.assigned("a"), three) {
		t.Errorf("the next state may delete %d %%: %+v", a.Spec.AllowDeletions, a.Spec)
	}
}

func unless(ok bool, words string) string {
	if ok {
		return ""
	}
	return words
}

// A node that is deleted and made again is another one: it begins with nothing of what the first had.
func TestNodeMadeAnew(t *testing.T) {
	r := newRig(t)
	first := r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	old := r.assignment("a")
	r.must(local.Delete(r.Context(), first, nil))
	delete(r.agents, "a")
	again := r.join("a", "qa")
	r.must(local.Delete(r.Context(), old, nil)) // as garbage collection does
	r.eventually("it has one of its own", func() string {
		a := r.assignment("a")
		return unless(a.UID != old.UID && a.Spec.NodeUID == again.UID && slices.Equal(r.assigned("a"), []string{one}), fmt.Sprintf("%+v", a))
	})
	r.settles("qa", "web", one, "Complete")
	if ref := r.assignment("a").OwnerReferences; len(ref) != 1 || ref[0].UID != again.UID {
		t.Errorf("owned by %+v", ref)
	}
}

// Another server goes on where the first has stopped, once it has heard the nodes.
func TestLeaderChangesDuringARollout(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	one := r.declare("qa", "web", "one", declare.Rollout{})
	r.settles("qa", "web", one, "Complete")
	two := r.declare("qa", "web", "two", declare.Rollout{})
	r.eventually("it has begun", func() string { return unless(r.config("qa", "web").Status.Rollout.Target == two, "not yet") })
	r.stop()
	for _, g := range r.agents {
		g.enforce = nil // each says again what it has
	}
	r.presence.mu.Lock()
	clear(r.presence.seen)
	r.presence.mu.Unlock()
	r.begin()
	c := r.settles("qa", "web", two, "Complete")
	if c.Status.Rollout.Proven != two {
		t.Errorf("proven is %+v", c.Status.Rollout)
	}
}

// What is tried has a way back until it is confirmed, also over a further change.
func TestTryAndConfirm(t *testing.T) {
	r := newRig(t)
	n := r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	if r.assignment("a").Spec.Try != nil {
		t.Error("something is tried that was not to be")
	}
	before, _ := r.begun.AssignedHead(n.UID)
	trying := declare.Rollout{MaxUnavailable: "100%", Try: "1m30s"}
	for _, content := range []string{"two", "three"} {
		revision := r.declare("qa", "web", content, trying)
		r.settles("qa", "web", revision, "Rolling") // the host has it, and may still go back
		r.eventually("it is assigned", func() string { return unless(slices.Equal(r.assigned("a"), []string{revision}), "not yet") })
		try := r.assignment("a").Spec.Try
		if try == nil || try.Seconds != 90 || try.Config != "NodeConfig/qa/web" || "sha256:"+try.Fallback != before.Root || len(try.Layers) != 1 || try.Layers[0].Revision != one {
			t.Fatalf("with %s: tries %+v, before it was %+v", content, try, before)
		}
	}
	confirmed := r.declare("qa", "web", "three", allAtOnce)
	r.eventually("it is confirmed", func() string { return unless(r.assignment("a").Spec.Try == nil, "not yet") })
	if got := r.assigned("a"); !slices.Equal(got, []string{confirmed}) {
		t.Errorf("it has %v", got)
	}
	r.settles("qa", "web", confirmed, "Complete")
}

// The keys of secrets are sealed once; another value, another key, and another node key are sealed anew.
func TestSecretsAreSealedOnce(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	const config = "NodeConfig/qa/web"
	r.layers.set(config, func() {
		r.layers.keys[config] = []layers.KeyUse{{ID: strings.Repeat("1", 32), Secret: "qa/s/k"}}
	})
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	a := r.assignment("a")
	if own := a.Spec.Own; own == nil || len(own.Keys) != 1 || own.Keys[0].Secret != "qa/s/k" || !strings.Contains(string(own.Keys[0].Sealed), "key of a") {
		t.Fatalf("own layer %+v", a.Spec.Own)
	}
	first := a.Spec.Own.Keys[0].Sealed
	two := r.declare("qa", "web", "two", allAtOnce)
	r.settles("qa", "web", two, "Complete")
	if got := r.assignment("a").Spec.Own.Keys[0].Sealed; string(got) != string(first) {
		t.Errorf("sealed again: %s after %s", got, first)
	}
	root := r.assignment("a").Spec.Layers[0].Root
	r.layers.set(config, func() {
		r.layers.keys[config] = []layers.KeyUse{{ID: strings.Repeat("2", 32), Secret: "qa/s/k"}}
		r.layers.salt[config] = "rotated"
	})
	r.eventually("the new value is there", func() string {
		a := r.assignment("a")
		return unless(a.Spec.Layers[0].Root != root && len(a.Spec.Own.Keys) == 1 && a.Spec.Own.Keys[0].ID == strings.Repeat("2", 32), fmt.Sprintf("%+v", a.Spec))
	})
	r.retry(func() error {
		n := &v1alpha1.Node{}
		r.must(local.Get(r.Context(), keyOf("a"), n))
		n.Status.Identity.SealingKey = []byte("another key")
		return local.UpdateStatus(r.Context(), n)
	})
	r.eventually("it is sealed to the other key", func() string {
		return unless(strings.Contains(string(r.assignment("a").Spec.Own.Keys[0].Sealed), "another key"), "not yet")
	})
	r.layers.set(config, func() { r.layers.keys[config] = nil })
	r.eventually("what is not needed goes", func() string { return unless(len(r.assignment("a").Spec.Own.Keys) == 0, "not yet") })
}

// A config whose layer cannot be made goes to no node: what is there stays, and the config says why.
func TestMissingLayer(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	const config = "NodeConfig/qa/web"
	r.layers.set(config, func() {
		r.layers.missing[config] = &reason.Error{Code: reason.LayerReference, Doing: "read key k of Secret qa/s"}
	})
	two := r.declare("qa", "web", "two", allAtOnce)
	r.eventually("it says why", func() string {
		c := r.config("qa", "web")
		for _, condition := range c.Status.Conditions {
			if condition.Type == v1alpha1.ConditionStalled && condition.Reason == "TK1070" && strings.Contains(condition.Message, "Secret qa/s") && c.Status.ObservedGeneration == c.Generation {
				return ""
			}
		}
		return fmt.Sprintf("%+v", c.Status)
	})
	if got := r.assigned("a"); !slices.Equal(got, []string{one}) {
		t.Errorf("it has %v", got)
	}
	r.layers.set(config, func() { delete(r.layers.missing, config) })
	r.settles("qa", "web", two, "Complete")
}

// A hold is for the host to know, and goes when it ends.
func TestHoldEnds(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	hold := func(d time.Duration) (until metav1.Time) {
		until = metav1.NewTime(time.Now().Add(d).Truncate(time.Second))
		r.change("a", func(s *v1alpha1.NodeSpec) {
			s.Holds = []v1alpha1.NodeHold{{Resource: "path:/etc/motd", Reason: "debugging", Owner: "ann", Until: until}}
		})
		return until
	}
	hold(time.Hour)
	r.eventually("it is held", func() string {
		own := r.assignment("a").Spec.Own
		return unless(own != nil && own.Labels["name"] == "a" && len(own.Holds) == 1 && own.Holds[0].Reason == "debugging", "not yet")
	})
	until := hold(6 * time.Second)
	r.eventually("it ends", func() string { return unless(len(r.assignment("a").Spec.Own.Holds) == 0, "not yet") })
	if time.Now().Before(until.Time) {
		t.Error("it has ended early")
	}
}

// A node that nobody has joined as holds up nothing, and has an assignment all the same.
func TestNodeWithoutHost(t *testing.T) {
	r := newRig(t)
	r.must(local.Create(r.Context(), &v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: v1alpha1.NodeSpec{Environment: "qa"}}))
	r.join("a", "qa")
	one := r.declare("qa", "web", "one", declare.Rollout{})
	if c := r.settles("qa", "web", one, "Complete"); c.Status.Rollout.Selected != 1 {
		t.Errorf("selected are %d", c.Status.Rollout.Selected)
	}
	if a := r.assignment("later"); a.Spec.NodeUID == "" || len(a.Spec.Layers) != 0 {
		t.Errorf("it has %+v", a.Spec)
	}
}

// A config that goes takes its layer from the nodes.
func TestConfigGoes(t *testing.T) {
	r := newRig(t)
	r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	c := r.settles("qa", "web", one, "Complete")
	if err := local.Delete(r.Context(), c, nil); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	r.eventually("its layer goes", func() string { return unless(len(r.assigned("a")) == 0, "not yet") })
	if consent := r.assignment("a").Spec.AllowDeletions; consent != 0 {
		t.Errorf("it consents to %d", consent)
	}
}

// What is as it should be is not written again, whatever is told.
func TestNothingIsWrittenTwice(t *testing.T) {
	r := newRig(t)
	n := r.join("a", "qa")
	r.change("a", func(s *v1alpha1.NodeSpec) {
		s.Holds = []v1alpha1.NodeHold{{Reason: "debugging", Owner: "ann", Until: metav1.NewTime(time.Now().Add(time.Hour))}}
	})
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	r.eventually("it is held", func() string { return unless(r.assignment("a").Spec.Own != nil, "not yet") })
	r.settles("qa", "web", one, "Complete")
	a := r.assignment("a")
	var c *v1alpha1.NodeConfig
	for i := range 5 {
		r.change("a", func(s *v1alpha1.NodeSpec) { s.Unschedulable = i%2 == 0 })
		r.layers.set("NodeConfig/qa/web", func() {})
		r.agents["a"].enforce = nil
		r.eventually("everything is taken in", func() string {
			c = r.config("qa", "web")
			return unless(len(r.begun.nudge)+len(r.presence.changed)+len(r.layers.changed) == 0, "not yet")
		})
		if got := r.assignment("a"); got.ResourceVersion != a.ResourceVersion {
			t.Fatalf("written again: %+v after %+v", got, a)
		}
	}
	if head, ok := r.begun.AssignedHead(n.UID); !ok || head.Version != int64(versionOf(a)) || head.Epoch != 1 || head.Since == nil {
		t.Errorf("the head is %+v", head)
	}
	r.wantCondition(c, v1alpha1.ConditionReady, metav1.ConditionTrue, "Complete")
}

// Values that a revision takes may change under it: that goes from node to node, halts, and goes back with the value.
func TestOtherContentIsPaced(t *testing.T) {
	r := newRig(t)
	names := []string{"n0", "n1", "n2"}
	for _, name := range names {
		r.join(name, "qa")
	}
	const config = "NodeConfig/qa/web"
	one := r.declare("qa", "web", "one", declare.Rollout{MaxUnavailable: "1"})
	before := r.settles("qa", "web", one, "Complete").Status.Rollout.TargetRoot
	r.badRoots = func(root string) bool { return root != before }
	r.layers.set(config, func() { r.layers.salt[config] = "another" })
	c := r.settles("qa", "web", one, "Halted")
	if s := c.Status.Rollout; s.TargetRoot == before || s.ProvenRoot != before || s.Failed != 1 || s.Left != 2 {
		t.Errorf("halted with %+v", s)
	}
	others := func() int {
		n := 0
		for _, name := range names {
			if r.assignment(name).Spec.Layers[0].Root != before {
				n++
			}
		}
		return n
	}
	if n := others(); n != 1 {
		t.Errorf("%d nodes have the other content", n)
	}
	r.stop()
	r.layers.forget() // what the others have cannot be made any more
	for _, g := range r.agents {
		g.enforce = nil
	}
	r.begin()
	r.settles("qa", "web", one, "Halted")
	fresh := r.join("fresh", "qa")
	r.eventually("the fresh node has an assignment", func() string { return unless(r.assignment("fresh").Spec.NodeUID == fresh.UID, "none") })
	if got := r.assigned("fresh"); len(got) != 0 || others() != 1 {
		t.Errorf("a fresh node has %v, %d have the other content", got, others())
	}
	r.layers.set(config, func() { delete(r.layers.salt, config) })
	c = r.settles("qa", "web", one, "Complete")
	if s := c.Status.Rollout; s.TargetRoot != before || others() != 0 || !slices.Equal(r.assigned("fresh"), []string{one}) {
		t.Errorf("back with %+v, %d have the other content, the fresh one has %v", s, others(), r.assigned("fresh"))
	}
}

// A host that was set up anew, and was to have what cannot be made any more, is one that has nothing.
func TestHostThatLostWhatIsGone(t *testing.T) {
	r := newRig(t)
	nodes := map[string]types.UID{}
	for _, name := range []string{"n0", "n1"} {
		nodes[name] = r.join(name, "qa").UID
	}
	const config = "NodeConfig/qa/web"
	one := r.declare("qa", "web", "one", declare.Rollout{MaxUnavailable: "1"})
	before := r.settles("qa", "web", one, "Complete").Status.Rollout.TargetRoot
	r.badRoots = func(root string) bool { return root != before }
	r.layers.set(config, func() { r.layers.salt[config] = "another"; clear(r.layers.kept) })
	r.settles("qa", "web", one, "Halted")
	for name, uid := range nodes {
		if r.assignment(name).Spec.Layers[0].Root == before {
			r.agents[name].deaf = true
			r.presence.say(uid, name, presence.Seen{Presence: node.Here, Believed: true, Report: &wire.Report{}})
			r.eventually("it has nothing", func() string { return unless(len(r.assigned(name)) == 0, "not yet") })
			r.agents[name].deaf = false
		}
	}
	r.badRoots = nil
	for _, g := range r.agents {
		g.enforce = nil
	}
	r.settles("qa", "web", one, "Complete")
}

// A host that is busy with one config is not on the way again with its others: nothing is told of these, also where it has joined after they
// were proven.
func TestBusyHostOpensNoRollout(t *testing.T) {
	r := newRig(t)
	r.join("n0", "qa")
	quiet := r.declare("qa", "quiet", "one", allAtOnce)
	r.settles("qa", "quiet", quiet, "Complete")
	r.join("n1", "qa")
	r.eventually("n1 has it, and has said so", func() string {
		s := r.config("qa", "quiet").Status.Rollout
		return unless(s.Phase == "Complete" && s.Done == 2, fmt.Sprintf("%+v", s))
	})
	r.settles("qa", "other", r.declare("qa", "other", "one", allAtOnce), "Complete") // so that what is told of quiet has been told
	since := r.config("qa", "quiet").Status.Rollout.Since
	r.recorder.reset()
	r.busy.Store(true)
	for round := range 3 {
		slow := r.declare("qa", "slow", fmt.Sprint(round), allAtOnce)
		r.eventually("it is busy", func() string {
			s := r.config("qa", "slow").Status.Rollout
			return unless(s != nil && s.Target == slow && s.OnTheWay == 2, fmt.Sprintf("%+v", s))
		})
		if s := r.config("qa", "quiet").Status.Rollout; s.Phase != "Complete" || s.Done != 2 || s.OnTheWay != 0 {
			t.Errorf("round %d: %+v", round, s)
		}
		r.busy.Store(false)
		r.settles("qa", "slow", slow, "Complete")
		r.busy.Store(true)
	}
	if r.recorder.about("quiet") || r.config("qa", "quiet").Status.Rollout.Since != since {
		t.Errorf("told of the other one: %v", r.recorder.all)
	}
}

// Two configs that give up what the other takes change together on each node, and within the bounds of both.
func TestConfigsSwapAClaim(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.join(fmt.Sprint("n", i), "qa")
	}
	for round, names := range [][2]string{{"/etc/x", "/etc/y"}, {"/etc/y", "/etc/x"}, {"/etc/x", "/etc/y"}} {
		r.path = map[string]string{"a": names[0], "b": names[1]}
		a := r.declare("qa", "a", "of a", declare.Rollout{MaxUnavailable: "1"})
		b := r.declare("qa", "b", "of b", declare.Rollout{MaxUnavailable: "2"})
		r.settles("qa", "a", a, "Complete")
		c := r.settles("qa", "b", b, "Complete")
		r.eventually("no conflict is left", func() string {
			c = r.config("qa", "b")
			return unless(len(c.Status.Conflicts) == 0, fmt.Sprint(c.Status.Conflicts))
		})
		for i := range 4 {
			if got := r.assigned(fmt.Sprint("n", i)); !slices.Equal(got, []string{a, b}) {
				t.Errorf("round %d: n%d has %v", round, i, got)
			}
		}
	}
}
