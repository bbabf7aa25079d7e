package workload

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/reason"
)

// withData has the template have a volume with data.
func (w *world) withData(stick declared.Stick) {
	w.view.Spec.Template.Volumes = []declared.Volume{{Name: "data", Data: &declared.DataVolume{Stick: stick}}}
}

// places are the nodes of instances that run, by slot.
func (w *world) places() map[int]string {
	at := map[int]string{}
	for _, c := range w.copies {
		if c.Phase == Running && !c.ReadySince.IsZero() {
			at[c.Slot] = c.Node
		}
	}
	return at
}

// keeping is a stage on which three instances with data run, each on a node of its own.
func keeping(t *testing.T, stick declared.Stick) (*world, map[int]string) {
	w := stage(t, 3, rolling("2", "1"))
	for _, m := range w.machines {
		m.room = 1
	}
	w.withData(stick)
	w.until("it runs", complete)
	w.act()
	return w, w.places()
}

// TestDataHasSuccessors: a rollout, a crash and a number that is another one for a while leave each slot on its node, and make no slot beyond.
func TestDataHasSuccessors(t *testing.T) {
	for _, stick := range []declared.Stick{"", declared.MustStick} {
		w, at := keeping(t, stick)
		look := func(d *Decision) bool {
			for _, c := range w.copies {
				if c.Slot > 2 || c.Node != "" && c.Node != at[c.Slot] {
					t.Fatalf("slot %d is on %s, and its data on %s", c.Slot, c.Node, at[c.Slot])
				}
			}
			return complete(d) && maps.Equal(w.places(), at)
		}
		w.declare(2, good)
		w.until("the second takes over", func(d *Decision) bool { return look(d) && w.ready(2) == 3 })
		w.first(2).Phase = Failed
		w.until("what has failed is made anew", look)
		w.scale(1)
		w.until("one is left", func(d *Decision) bool { look(d); return len(w.copies) == 1 })
		if w.copies[0].Slot != 0 || len(w.view.Was.Homes) != 3 {
			t.Errorf("slot %d is left, and what is known is %+v", w.copies[0].Slot, w.view.Was.Homes)
		}
		w.copies[0].Phase = Failed
		w.until("its successor is in its slot", func(d *Decision) bool { look(d); return len(w.places()) == 1 && w.places()[0] != "" })
		w.scale(3)
		w.until("all are back", look)
	}
}

// TestDataOfNodeThatIsGone: who must have the data waits for its node, whatever is declared; who only prefers it is made anew elsewhere.
func TestDataOfNodeThatIsGone(t *testing.T) {
	w, at := keeping(t, declared.MustStick)
	w.cut(at[1])
	w.during(time.Hour, func(d *Decision) {
		if len(d.Abandon)+len(d.Create)+len(d.Drop) > 0 {
			t.Fatalf("it does %+v", d)
		}
	})
	w.link(w.machine(at[1]), false)
	w.until("it is back", func(*Decision) bool { return maps.Equal(w.places(), at) })
	w, at = keeping(t, declared.PreferStick)
	w.cut(at[1])
	w.until("another one stands in", func(*Decision) bool { return w.ready(10) == 3 && w.places()[3] != "" })
}

// view is one instance with data on n0, as it was decided on before.
func dataView(stick declared.Stick) View {
	v := View{Name: "db", UID: "w1", Generation: 1, Wanted: 1, Hash: "h", Nodes: map[string]Node{"n0": {Presence: node.Here}}}
	v.Spec.Template.Volumes = []declared.Volume{{Name: "data", Data: &declared.DataVolume{Stick: stick}}}
	v.Revisions = []Revision{{Name: "db-h", Number: 1, Hash: "h", Same: true, Stick: v.Spec.Template.Stick()}}
	v.Was.Rollout = Rollout{Target: "db-h", Goal: "db-h", Over: true}
	v.Was.Stable.Of = "db-h"
	v.Was.Wanted = 1
	v.Instances = []Instance{{Name: "db-0", UID: "i1", Owner: "w1", Revision: "db-h", Node: "n0", Phase: Running, Attempt: 1, ReadySince: start}}
	return v
}

// TestDataIsStoredBeforeItsInstanceGoes: of what has ended the object is all that knows where its data is, until that is stored.
func TestDataIsStoredBeforeItsInstanceGoes(t *testing.T) {
	v := dataView(declared.MustStick)
	v.Instances[0].Phase = Failed
	d := Decide(v, start)
	if len(d.Drop)+len(d.Create) > 0 || !slices.Equal(d.Status.Homes, []Home{{Node: "n0"}}) || d.WakeAt.IsZero() {
		t.Fatalf("it is not stored, and %+v", d)
	}
	v.Was = d.Status
	d = Decide(v, start)
	if len(d.Drop) != 1 || len(d.Create) != 1 || d.Create[0] != (Create{Revision: "db-h", Node: "n0", Must: true}) {
		t.Fatalf("it is stored, and %+v", d)
	}
	v = dataView(declared.PreferStick)
	v.Was.Homes, v.Instances = []Home{{Node: "n0"}}, nil
	if d = Decide(v, start); len(d.Create) != 1 || d.Create[0] != (Create{Revision: "db-h", Node: "n0"}) {
		t.Fatalf("it prefers n0, and %+v", d.Create)
	}
}

// TestDataGoesWithItsNode: who waits for a Node that was deleted is made anew for any.
func TestDataGoesWithItsNode(t *testing.T) {
	v := dataView(declared.MustStick)
	v.Was.Homes = []Home{{Node: "n0"}}
	v.Instances[0].Node, v.Instances[0].Bound, v.Instances[0].Phase, v.Instances[0].Attempt = "", "n0", Pending, 0
	if d := Decide(v, start); len(d.Stop)+len(d.Create) > 0 {
		t.Fatalf("its node is there, and %+v", d)
	}
	v.Nodes = nil
	d := Decide(v, start)
	if len(d.Stop) != 1 || len(d.Status.Homes) != 0 {
		t.Fatalf("its node is not there, and %+v", d)
	}
	v.Was, v.Instances = d.Status, nil
	if d = Decide(v, start); len(d.Create) != 1 || d.Create[0] != (Create{Revision: "db-h"}) {
		t.Fatalf("its node is not there, and %+v", d.Create)
	}
}

// TestDataOfWhatHasNotBegun: one that its node has refused has left nothing there.
func TestDataOfWhatHasNotBegun(t *testing.T) {
	v := dataView(declared.PreferStick)
	v.Nodes["n1"] = Node{Presence: node.Here}
	v.Was.Homes = []Home{{Node: "n1"}}
	v.Instances[0].Phase, v.Instances[0].Attempt = Failed, 0
	if d := Decide(v, start); !slices.Equal(d.Status.Homes, []Home{{Node: "n1"}}) {
		t.Fatalf("its data is said to be at %+v", d.Status.Homes)
	}
	v.Instances[0].Attempt = 1 // agents of before tell so of what they have refused
	for _, code := range []reason.Code{reason.InstanceRefused, reason.RuntimeUnfit} {
		v.Instances[0].Failure = &Failure{Code: code, OfNode: true}
		if d := Decide(v, start); !slices.Equal(d.Status.Homes, []Home{{Node: "n1"}}) {
			t.Errorf("%v: its data is said to be at %+v", code, d.Status.Homes)
		}
	}
	v.Was.Homes, v.Instances[0].Phase = nil, Running // what it does not take in place is another matter
	if d := Decide(v, start); !slices.Equal(d.Status.Homes, []Home{{Node: "n0"}}) {
		t.Errorf("its data is said to be at %+v", d.Status.Homes)
	}
}

// TestDataOfNodes: with mode PerNode the slot of a node stays its, whoever comes first.
func TestDataOfNodes(t *testing.T) {
	w := stage(t, 0, declared.Rollout{MaxUnavailable: "3"})
	w.view.Spec.Mode = declared.PerNode
	w.withData(declared.MustStick)
	w.until("each node has one", func(d *Decision) bool { return complete(d) && w.ready(10) == 5 })
	w.act()
	at := w.places()
	w.declare(2, good)
	w.until("each has the second in the slot that it had", func(d *Decision) bool {
		for _, c := range w.copies {
			if c.Node != at[c.Slot] {
				t.Fatalf("slot %d is on %s, and its data on %s", c.Slot, c.Node, at[c.Slot])
			}
		}
		return complete(d) && w.ready(2) == 5
	})
}

// TestDataOfFewer: what scaling ends are the last slots, whatever stands of the others, and nobody comes back to them who replaces another one.
func TestDataOfFewer(t *testing.T) {
	t.Run("one waits", func(t *testing.T) {
		w, at := keeping(t, declared.MustStick)
		w.drain(w.machine(at[0]))
		w.until("slot 0 waits for its node", func(*Decision) bool { return w.places()[0] == "" && len(w.copies) == 3 && w.copies[2].Bound == at[0] })
		w.scale(2)
		w.until("the last has gone", func(*Decision) bool { return w.places()[2] == "" && len(w.copies) == 2 })
		for _, c := range w.copies {
			if c.Slot == 1 {
				c.Phase = Failed
			}
		}
		w.until("slot 1 is back", func(*Decision) bool { return w.places()[1] == at[1] })
		w.undrain(w.machine(at[0]))
		w.until("slot 0 is back", func(*Decision) bool { return len(w.copies) == 2 && w.places()[0] == at[0] && w.places()[1] == at[1] })
	})
	for name, also := range map[string]func(w *world){"alone": func(*world) {}, "in a rollout": func(w *world) { w.declare(2, good) }} {
		t.Run(name, func(t *testing.T) {
			w, at := keeping(t, declared.MustStick)
			w.view.Spec.Rollout.MaxUnavailable = "1"
			also(w)
			w.scale(1)
			w.until("one is left", func(d *Decision) bool { return complete(d) && len(w.copies) == 1 })
			want := []Home{{0, at[0], false}, {1, at[1], true}, {2, at[2], true}}
			if w.copies[0].Slot != 0 || !slices.Equal(w.view.Was.Homes, want) {
				t.Fatalf("slot %d is left of %+v", w.copies[0].Slot, w.view.Was.Homes)
			}
			w.machines = slices.DeleteFunc(w.machines, func(m *machine) bool { return m.name == at[0] })
			w.copies = nil
			w.until("it is made anew", func(d *Decision) bool { return complete(d) && w.places()[0] != "" })
		})
	}
}

// TestDataIsSpareBeyond: of slots that wait the first are taken, as many as there are to be, and the others are spare from then on.
func TestDataIsSpareBeyond(t *testing.T) {
	v := dataView(declared.MustStick)
	v.Nodes["n1"], v.Nodes["n2"] = Node{Presence: node.Here}, Node{Presence: node.Here}
	v.Was.Homes, v.Instances = []Home{{0, "n0", false}, {1, "n1", false}, {2, "n2", false}}, nil
	v.Was.Wanted, v.Wanted = 3, 2
	d := Decide(v, start)
	if want := []Home{{0, "n0", false}, {1, "n1", false}, {2, "n2", true}}; len(d.Create) != 2 || !slices.Equal(d.Status.Homes, want) {
		t.Fatalf("%+v, %+v", d.Create, d.Status.Homes)
	}
	v.Was.Backoff = Backoff{3, start.Add(time.Minute)} // those that come later count too
	if again := Decide(v, start); len(again.Create) != 0 || !slices.Equal(again.Status.Homes, d.Status.Homes) {
		t.Fatalf("%+v, %+v", again.Create, again.Status.Homes)
	}
	v.Instances = []Instance{{Name: "db-2", UID: "i2", Owner: "w1", Slot: 2, Revision: "db-h", Node: "n2", Phase: Running, Attempt: 1, ReadySince: start}}
	d = Decide(v, start)
	if want := []Home{{0, "n0", false}, {1, "n1", true}, {2, "n2", false}}; !slices.Equal(d.Status.Homes, want) {
		t.Fatalf("%+v", d.Status.Homes)
	}
}

// TestDataOfFencedNodes: with mode PerNode a node gets its instance whatever slot is its, and however many nodes there were before.
func TestDataOfFencedNodes(t *testing.T) {
	v := dataView(declared.MustStick)
	v.Spec.Mode, v.Spec.OnUnreachable = declared.PerNode, &declared.OnUnreachable{Action: declared.FenceUnreachable}
	v.Nodes["n1"], v.Nodes["n2"] = Node{Presence: node.Here}, Node{Presence: node.Here}
	v.Instances, v.Was.Homes, v.Eligible = nil, []Home{{0, "n0", false}, {1, "n1", false}}, []string{"n1", "n2"}
	d := Decide(v, start)
	slices.SortFunc(d.Create, func(a, b Create) int { return a.Slot - b.Slot })
	if want := []Create{{Slot: 1, Revision: "db-h", Node: "n1", Must: true}, {Slot: 2, Revision: "db-h", Node: "n2", Must: true}}; !slices.Equal(d.Create, want) {
		t.Fatalf("it makes %+v", d.Create)
	}
}

// TestDataIsWaitedFor: a rollout has no deadline while all that is missing waits for the node that has its data, and says what it waits for.
func TestDataIsWaitedFor(t *testing.T) {
	for name, shut := range map[string]func(*world, *machine){
		"drained":   func(*world, *machine) {},
		"not heard": func(w *world, m *machine) { w.cut(m.name); w.undrain(m) },
	} {
		t.Run(name, func(t *testing.T) {
			w, at := keeping(t, declared.MustStick)
			m := w.machine(at[0])
			w.declare(2, good)
			w.drain(m)
			w.until("slot 0 waits", func(*Decision) bool {
				return slices.ContainsFunc(w.copies, func(c *copyOf) bool { return c.Slot == 0 && c.Phase == Pending && c.Bound == at[0] })
			})
			shut(w, m)
			w.until("it is said", func(d *Decision) bool {
				return slices.ContainsFunc(d.Status.Culprits, func(c Culprit) bool {
					return c.Instance == "web-0" && c.Why == "it waits for "+at[0]+", which has its data"
				})
			})
			if d := w.during(time.Hour, func(*Decision) {}); d.Status.Phase != pace.Waiting || len(d.Status.Failed) > 0 {
				t.Fatalf("it is %s (%s): %+v", d.Status.Phase, d.Status.Why, d.Status.Failed)
			}
			w.undrain(m)
			w.link(m, false)
			w.until("it goes on", func(d *Decision) bool { return complete(d) && w.ready(2) == 3 && maps.Equal(w.places(), at) })
		})
	}
}

// TestDataWithBudgetOfAll: where a budget lets nothing be taken away a rollout says so, and takes what runs nothing all the same.
func TestDataWithBudgetOfAll(t *testing.T) {
	v := dataView(declared.PreferStick)
	v.Spec.DisruptionBudget = &declared.DisruptionBudget{MinAvailable: "1"}
	v.Was.Homes = []Home{{Node: "n0"}}
	v.Hash, v.Revisions[0].Same = "h2", false
	v.Revisions = append(v.Revisions, Revision{Name: "db-h2", Number: 2, Hash: "h2", Same: true, Stick: declared.PreferStick})
	v.Was.Rollout, v.Was.Stable.Of = Rollout{Target: "db-h2", Goal: "db-h2", Clock: start}, "db-h"
	if d := Decide(v, start.Add(time.Minute)); len(d.Stop) > 0 || !strings.Contains(d.Status.Why, "spec.disruptionBudget lets nothing be taken away") {
		t.Errorf("it stops %+v: %s", d.Stop, d.Status.Why)
	}
	d := Decide(v, start.Add(time.Hour))
	if f := d.Status.Failed; len(f) != 1 || !strings.Contains(f[0].Why, "spec.disruptionBudget lets nothing be taken away") {
		t.Errorf("it has failed: %+v", f)
	}
	v.Instances[0].Phase, v.Instances[0].Node, v.Instances[0].Attempt, v.Instances[0].ReadySince = Pending, "", 0, time.Time{}
	if d = Decide(v, start.Add(time.Minute)); len(d.Stop) != 1 {
		t.Errorf("it waits for nothing, and %+v", d)
	}
}

// TestDataOfNodeThatIsNotHeardYet: a leader that begins waits for the word of the node that has the data, and not longer than for any.
func TestDataOfNodeThatIsNotHeardYet(t *testing.T) {
	for _, stick := range []declared.Stick{declared.PreferStick, declared.MustStick} {
		v := dataView(stick)
		v.Was.Homes, v.Instances = []Home{{Node: "n0"}}, nil
		v.Nodes["n0"], v.Quiet = Node{Presence: node.Unheard}, start.Add(time.Minute)
		if d := Decide(v, start); len(d.Create) > 0 || !d.WakeAt.Equal(v.Quiet) {
			t.Errorf("%s: it makes %+v, and wakes at %v", stick, d.Create, d.WakeAt)
		}
		v.Nodes["n0"] = Node{Presence: node.Here}
		if d := Decide(v, start); len(d.Create) != 1 || d.Create[0].Node != "n0" {
			t.Errorf("%s: its node is heard, and it makes %+v", stick, d.Create)
		}
		v.Nodes["n0"] = Node{Presence: node.Gone}
		if d := Decide(v, v.Quiet); len(d.Create) != 1 {
			t.Errorf("%s: its node is gone, and it makes %+v", stick, d.Create)
		}
	}
}

// TestDataOfSurgedSlots: where the only data is in a slot beyond, because there was surge before there was a fence, its workload goes on there.
func TestDataOfSurgedSlots(t *testing.T) {
	v := dataView(declared.MustStick)
	v.Spec.OnUnreachable = &declared.OnUnreachable{Action: declared.FenceUnreachable}
	v.Was.Homes, v.Instances = []Home{{Slot: 1, Node: "n0"}}, nil
	d := Decide(v, start)
	if !slices.Equal(d.Create, []Create{{Slot: 1, Revision: "db-h", Node: "n0", Must: true}}) || !slices.Equal(d.Status.Homes, v.Was.Homes) {
		t.Fatalf("it makes %+v, and its data is at %+v", d.Create, d.Status.Homes)
	}
	v.Was.Homes, v.Was.Wanted, v.Wanted = []Home{{Slot: 1, Node: "n0"}, {Slot: 2, Node: "n0", Spare: true}}, 2, 2
	d = Decide(v, start)
	if want := []Create{{Slot: 1, Revision: "db-h", Node: "n0", Must: true}, {Slot: 0, Revision: "db-h"}}; !slices.Equal(d.Create, want) {
		t.Fatalf("of two it makes %+v", d.Create)
	}
	v.Was.Homes = []Home{{Slot: 1, Node: "n0"}}
	v.Instances = []Instance{
		{Name: "db-0", UID: "i0", Owner: "w1", Revision: "db-h", Node: "n0", Phase: Terminating, Attempt: 1},
		{Name: "db-2", UID: "i2", Owner: "w1", Slot: 2, Revision: "db-h", Node: "n0", Phase: Running, Attempt: 1, ReadySince: start},
	}
	if d = Decide(v, start); len(d.Create) > 0 {
		t.Fatalf("two are there, and it makes %+v", d.Create)
	}
}
