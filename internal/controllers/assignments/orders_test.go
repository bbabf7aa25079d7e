package assignments

import (
	"fmt"
	"slices"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/assign"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestOrdersAreAbsorbed: what is declared catches up with an order that one host enforces. From then on no host takes that order, not those either
// that have never heard of it, and over a restart of the server.
func TestOrdersAreAbsorbed(t *testing.T) {
	r := newRig(t)
	n := r.join("a", "qa")
	r.join("b", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	r.settles("qa", "web", one, "Complete")
	two := r.declare("qa", "web", "two", allAtOnce)
	r.settles("qa", "web", two, "Complete")
	a := r.assignment("a")
	config, root := a.Spec.Layers[0].Config, a.Spec.Layers[0].Root
	if len(a.Spec.Absorbed) > 0 {
		t.Fatalf("absorbed %+v", a.Spec.Absorbed)
	}
	r.agents["a"].deaf = true
	say := func(statements ...wire.Statement) {
		mark := catalog.Mark{Epoch: 3, Version: versionOf(r.assignment("a"))}
		r.presence.say(n.UID, "a", presence.Seen{Presence: node.Here, Believed: true, Report: &wire.Report{Have: mark, Enforced: mark, Statements: statements}})
	}
	digest, ok := catalog.ParseDigest(root)
	if !ok {
		t.Fatal(root)
	}
	other := digest
	other[0] ^= 1
	say(wire.Statement{Layer: config, Number: 9, Root: other}, wire.Statement{Layer: config, Number: 8, Root: digest, Code: reason.StatementRefused}, wire.Statement{Layer: "NodeConfig/qa/none", Number: 7, Root: digest})
	three := r.declare("qa", "web", "three", allAtOnce)
	r.eventually("three is assigned", func() string { return unless(slices.Contains(r.assigned("a"), three), "not yet") })
	if absorbed := r.assignment("a").Spec.Absorbed; len(absorbed) > 0 {
		t.Fatalf("what is not in force, or says something else, is absorbed: %+v", absorbed)
	}
	digest, _ = catalog.ParseDigest(r.assignment("a").Spec.Layers[0].Root)
	say(wire.Statement{Layer: config, Number: 5, Root: digest})
	want := []v1alpha1.AbsorbedOrder{{Config: config, Epoch: 3, Number: 5}}
	has := func(name string) {
		t.Helper()
		r.eventually(name+" has the order absorbed", func() string {
			absorbed := r.assignment(name).Spec.Absorbed
			return unless(slices.Equal(absorbed, want), fmt.Sprint(absorbed))
		})
	}
	has("a")
	r.agents["a"].deaf = false
	r.settles("qa", "web", three, "Complete")
	four := r.declare("qa", "web", "four", allAtOnce)
	r.settles("qa", "web", four, "Complete")
	has("b") // which has never heard of it
	r.stop()
	r.begin() // another one knows of it by the Assignments
	five := r.declare("qa", "web", "five", allAtOnce)
	r.settles("qa", "web", five, "Complete")
	has("a")
	has("b")
}

// TestOrdersAscend: of two orders the one of the higher epoch counts, and then the one of the higher number; nothing goes back.
func TestOrdersAscend(t *testing.T) {
	order := func(epoch, number int64) v1alpha1.AbsorbedOrder {
		return v1alpha1.AbsorbedOrder{Config: "c", Epoch: epoch, Number: number}
	}
	o := orders{}
	for _, step := range []struct {
		x    v1alpha1.AbsorbedOrder
		news bool
	}{{order(1, 5), true}, {order(1, 5), false}, {order(1, 4), false}, {order(2, 1), true}, {order(1, 9), false}, {order(2, 3), true}} {
		if got := o.note(step.x); got != step.news {
			t.Errorf("%+v is news: %t", step.x, got)
		}
	}
	layers := []v1alpha1.AssignedLayer{{Config: "c"}, {Config: "d"}}
	for name, test := range map[string]struct {
		was  []v1alpha1.AbsorbedOrder
		want v1alpha1.AbsorbedOrder
	}{"nothing before": {nil, order(2, 3)}, "less before": {[]v1alpha1.AbsorbedOrder{order(1, 9)}, order(2, 3)}, "more before": {[]v1alpha1.AbsorbedOrder{order(2, 4)}, order(2, 4)}} {
		if got := absorbed(layers, test.was, o); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	if got := absorbed(layers[1:], []v1alpha1.AbsorbedOrder{order(2, 4)}, o); len(got) > 0 {
		t.Errorf("of a config that the node does not have: %+v", got)
	}
	// What was decided counts before what is stored.
	h := &host{assigned: &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{{Config: "c", Root: catalog.KeyOf("old").String()}}}},
		rows: []assign.Row{{Config: "c", Root: catalog.KeyOf("new").String()}}}
	for text, want := range map[string]bool{"old": false, "new": true} {
		if got := is(h, &wire.Statement{Layer: "c", Root: catalog.KeyOf(text)}); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
